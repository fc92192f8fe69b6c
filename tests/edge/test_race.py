"""Thirty calls at once on a budget that pays for ten, with the real SDK through real proxies."""

import asyncio

import openai
import processes
import pytest

CONFIG = """
upstreams: {{api.openai.com: "{origin}"}}
pricing:
  race-model: {{input_per_mtok: 0, output_per_mtok: 100, max_output_tokens: 1000, context_tokens: 100000}}
  wide-model: {{input_per_mtok: 0, output_per_mtok: 100, max_output_tokens: 32000, context_tokens: 100000}}
daily_usd: null
task: {{budget_usd: 1}}
queue: {{wait: 0s}}
fit: {{output: false}}
"""
RUNS = {"mitmdump": 20, "up": 20}


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


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_a_call_without_a_limit_shrinks_beside_others_and_is_not_refused(kind, tmp_path):
    """Small calls that come at the same moment must not make a call that fits a refused one."""
    with (
        processes.origin(tmp_path) as origin,
        processes.proxy(
            tmp_path, CONFIG.format(origin=origin.url).replace("output: false", "output: true"), kind=kind
        ) as proxy,
    ):
        for run in range(10):
            statuses, limit = asyncio.run(_one_beside_three(proxy, f"beside-{run}"))

            assert statuses[0] == 200  # the small ones may find nothing left: there is no waiting room
            assert 9900 <= int(limit) <= 10_000  # a dollar is 10,000 tokens; the others took up to 30 of them


async def _one_beside_three(proxy: processes.Proxy, task: str) -> tuple[list[int], str | None]:
    client = openai.AsyncOpenAI(
        api_key="sk-test", base_url=f"{proxy.url}/openai/v1", max_retries=0, default_headers={"X-Lockpin-Task": task}
    )
    asked = {"model": "wide-model", "messages": [{"role": "user", "content": "hi"}]}
    async with client:
        create = client.chat.completions.with_raw_response.create
        calls = [create(**asked), *(create(**asked, max_tokens=10) for _ in range(3))]
        replies = await asyncio.gather(*calls, return_exceptions=True)
    assert not isinstance(replies[0], BaseException), replies[0]
    return [reply.status_code for reply in replies], replies[0].headers.get("x-lockpin-output-limit")
