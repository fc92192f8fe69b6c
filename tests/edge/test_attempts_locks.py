"""Every statement by which a call is sent again is made to raise, in a real proxy: nothing reaches the origin without an
open hold of its own, nothing that a provider may bill goes uncharged, no hold stays open, and the proxy goes on to serve.
"""

import itertools
import json
import re

import httpx2
import mutants
import processes
import pytest
import streams
import tries
from processes import until
from tries import PLAIN, busy

MODULES = ("attempts.py", "fallbacks.py")
CONFIG = """
retry: {attempts: 2, base: 1ms, max: 1ms}
fallbacks: {openai/chat-model: [nobody/x, openai/dear-model, openai/other-model, together/far-model]}
keys: {provider_env: {together: RIG_TOGETHER}}
fit: {output: false}
task: {budget_usd: 0.9}
"""
PRICES = """
  other-model: {input_per_mtok: 2, output_per_mtok: 10, max_output_tokens: 100000, context_tokens: 200000}
  far-model: {input_per_mtok: 3, output_per_mtok: 15, max_output_tokens: 100000, context_tokens: 200000}
"""
CALLS = {
    "billed": [busy(503), PLAIN],
    "free": [busy(429), PLAIN],
    "elsewhere": [busy(503), busy(503), busy(503), busy(503), PLAIN],
}


@pytest.mark.timeout(600)
def test_no_fault_lets_an_attempt_past_without_a_hold(tmp_path):
    entry = mutants.copy(tmp_path / "copy")
    points = mutants.with_trips(entry, MODULES)
    trip, home, limits = tmp_path / "trip", processes.make_home(tmp_path), itertools.count(1000)
    trip.write_text("none")
    hits, wrong = set(), set()
    with processes.origin(tmp_path, ledger=home / ".local/share/lockpin/ledger.sqlite3") as origin:
        told = streams.CONFIG.format(origin=origin.url, closed=processes.free_port())
        told = told.replace("upstreams: {", f'upstreams: {{api.together.ai: "{origin.url}", ', 1) + PRICES + CONFIG
        environment = {"RIG_TRIP": str(trip), "RIG_TOGETHER": "key"}
        with processes.proxy(tmp_path, told, addons=entry, home=home, environment=environment) as proxy:
            assert [ask(proxy, turns, next(limits)) for turns in CALLS.values()] == [200] * 3
            for point, raised, (name, turns) in itertools.product(points, ("error", "cancel"), CALLS.items()):
                limit, before = next(limits), len(origin.calls())
                trip.write_text(f"{point} {raised}")
                ask(proxy, turns, limit)
                trip.write_text("none")
                if (hit := trip.with_name("trip.hit")).exists():
                    hits.add(hit.read_text())
                    hit.unlink()
                wrong |= {f"{point} {raised} {name} {what}" for what in faults(proxy, origin.calls()[before:], limit)}
            assert [ask(proxy, turns, next(limits)) for turns in CALLS.values()] == [200] * 3

    assert wrong == set()
    assert {hit.split(":")[1] for hit in hits} >= {
        "lockpin_attempt",
        "_once_more",
        "_instead",
        "_send",
        "turn_to",
        "_move",
    }


def ask(proxy, turns, limit):
    body = streams.ask("chat", limit) | {"stream": False}
    headers = tries.turns(*turns) | {"x-lockpin-task": f"t{limit}"}
    try:
        with httpx2.Client(trust_env=False, timeout=5) as client:
            return client.post(proxy.url + streams.PATHS["chat"], json=body, headers=headers).status_code
    except httpx2.HTTPError:
        return 0


def faults(proxy, requests, limit):
    """Name what is wrong with a call that is over."""
    if any(not is_held(entry, limit) for entry in requests):
        yield "unheld"
    try:
        until(lambda: not proxy.rows("SELECT 1 FROM open_holds"), patience_s=5)
    except AssertionError:
        yield "open"
    ends = proxy.rows(
        "SELECT * FROM rows WHERE kind = 'charge' AND usd > 0 AND call IN "
        "(SELECT call FROM rows WHERE kind = 'hold' AND output_limit = ?)", limit,
    )  # fmt: skip
    if len(ends) < billed(requests):
        yield "uncharged"


def is_held(entry, limit):
    found = re.search(r'"max_(?:completion_)?tokens": ?(\d+)', entry["body"])
    return found is not None and int(found[1]) == limit in [hold[1] for hold in entry["open_holds"]]


def billed(requests):
    """Count the requests that a provider may bill: those that were answered, and those that failed with a 5xx."""
    orders = [json.loads(entry["headers"].get("x-origin", "null")) for entry in requests]
    turns = [
        PLAIN if order is None else order["turns"][min(at, len(order["turns"]) - 1)] for at, order in enumerate(orders)
    ]
    return sum(turn.get("status", 200) != 429 for turn in turns)


def test_a_core_that_has_moved_lets_no_proxy_start(tmp_path):
    entry = mutants.copy(tmp_path / "copy")
    mutants.edit(entry, "again.py", lambda text: text.replace('"elif connection.error:"', '"elif connection.fault:"'))
    found = processes.launch(tmp_path, addons=entry)
    try:
        assert found.process.wait(processes.PATIENCE_S) == 1
    finally:
        processes.end(found.process)

    words = "mitmproxy's HttpLayer.get_connection works in another way than Lockpin's retries know"
    assert f"lockpin: cannot start: {words}\n" in found.printed()
