"""Thirty calls at once on a budget that pays for ten, with the real SDK through real proxies."""

import asyncio

import openai
import processes
import pytest

CONFIG = """
upstreams: {{api.openai.com: "{origin}"}}
pricing:
  race-model: {{input_per_mtok: 0, output_per_mtok: 100, max_output_tokens: 1000, context_tokens: 100000}}
daily_usd: null
task: {{budget_usd: 1}}
queue: {{wait: 0s}}
fit: {{output: false}}
"""
RUNS = {"mitmdump": 20, "up": 5}


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_b01_thirty_parallel_calls_on_one_dollar_let_exactly_ten_through(kind, tmp_path):
    with (
        processes.origin(tmp_path) as origin,
        processes.proxy(tmp_path, CONFIG.format(origin=origin.url), kind=kind) as proxy,
    ):
        for run in range(RUNS[kind]):
            before = len(origin.calls())
            statuses = asyncio.run(_thirty(proxy, f"race-{run}"))

            assert sorted(statuses) == [200] * 10 + [402] * 20
            assert len(origin.calls()) - before == 10
            (row,) = proxy.rows("SELECT sum(usd) AS spent FROM rows WHERE kind='charge' AND task=?", f"race-{run}")
            assert row["spent"] == 1_000_000_000
        over = proxy.rows("SELECT * FROM accounts WHERE spent_nano + held_nano > 1000000000 AND scope = 'task'")
        assert over == []


async def _thirty(proxy: processes.Proxy, task: str) -> list[int]:
    client = openai.AsyncOpenAI(
        api_key="sk-test", base_url=f"{proxy.url}/openai/v1", max_retries=0, default_headers={"X-Lockpin-Task": task}
    )
    message = {"role": "user", "content": "hi"}

    async def one() -> int:
        try:
            await client.chat.completions.create(model="race-model", max_tokens=1000, messages=[message])
        except openai.APIStatusError as error:
            assert error.body["code"] == "budget_exceeded"
            return error.status_code
        return 200

    async with client:
        return await asyncio.gather(*(one() for _ in range(30)))
