"""Real proxies that are killed, or whose disk is full. scripts/crashtest shows the same with a hundred kills."""

import contextlib
import json
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import client
import processes
import pytest
from processes import until

from lockpin_core.ledger.verify import verify
from scripts import crashtest_kill

SEED = 20261130
CONFIG = 'upstreams: {{api.anthropic.com: "{origin}"}}\nqueue: {{wait: 0s}}\n'
PATH = "/anthropic/v1/messages"
BODY = {"model": "claude-sonnet-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
USAGE = {"input_tokens": 10, "output_tokens": 7}
REPLY = {"body": json.dumps({"id": "m", "type": "message", "model": "claude-sonnet-5-5", "usage": USAGE})}


def test_proxies_killed_at_random_moments_lose_nothing(tmp_path):
    """Judged inside: each hold resolved once, no account charged less than the provider's bill, limits, `verify`."""
    seen = crashtest_kill.kill(tmp_path, times=5, seed=SEED)

    assert seen.kills.total() >= 5
    assert seen.charged >= seen.true > 0
    assert seen.ends["200"] > 20 < seen.ends["left"]


def test_proxies_killed_while_calls_wait_leave_no_ticket_and_refuse_nobody_too_early(tmp_path):
    """Judged inside, too: of a call that only held money was in the way of, its patience was over."""
    seen = crashtest_kill.kill(tmp_path, times=3, seed=SEED, lanes=16, wait_s=8)

    assert seen.kills.total() >= 3
    assert seen.tickets > 0 < seen.waited


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_while_the_disk_is_full_calls_are_refused_and_the_one_under_way_is_charged_later(kind, tmp_path):
    gate = tmp_path / "gate"
    with (
        processes.origin(tmp_path) as origin,
        processes.proxy(tmp_path, CONFIG.format(origin=origin.url), kind=kind) as proxy,
        ThreadPoolExecutor(1) as aside,
    ):
        under_way = aside.submit(client.call, proxy, PATH, BODY, x_origin=json.dumps(REPLY | {"head_gate": str(gate)}))
        until(origin.calls)
        with full_disk(proxy):
            refused = client.call(proxy, PATH, BODY)
            health = client.call(proxy, "/lockpin/healthz", method="GET")
            gate.touch()
            answered = under_way.result(30)
            open_still = proxy.rows("SELECT call FROM open_holds")
        until(lambda: client.call(proxy, PATH, BODY).status == 200)
        charges = {row["call"]: row["usd"] for row in proxy.settled(2)}

    assert (refused.status, refused.code, health.status) == (503, "ledger_unavailable", 503)
    assert int(refused.headers["retry-after"]) > 0
    call = answered.headers["x-lockpin-call"]
    assert (answered.status, [row["call"] for row in open_still]) == (200, [call])
    assert charges[call] == 10 * 2000 + 7 * 10_000  # nanodollars, at $2 and $10 a million
    assert len(origin.calls()) == 2
    assert verify(proxy.ledger).wrong is None


@contextlib.contextmanager
def full_disk(proxy):
    """Let no file of the proxy grow beyond what its ledger's log has now."""
    size = Path(f"{proxy.ledger}-wal").stat().st_size
    before = resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, before)
