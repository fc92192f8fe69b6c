"""Replies whose cost comes by a later call: background Responses, held until a poll, a stream or a cancel shows it.

Tokens cost $1 and $5 a million; the budget pays for two such calls, so that every poll meets a used-up one.
"""

import contextlib
import itertools
import json
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import client
import processes
import pytest
import sdks
import streams
from processes import until

from lockpin_core.ledger.verify import verify

CONFIG = """
upstreams: {{api.openai.com: "{origin}"}}
ledger: sqlite://{ledger}
pricing:
  slow-model: {{input_per_mtok: 1, output_per_mtok: 5, max_output_tokens: 10000, context_tokens: 100000}}
daily_usd: null
task: {{budget_usd: 0.012}}
queue: {{wait: 0s}}
hold_for: {{background: {hold_for}}}
"""
RESPONSES = "/openai/v1/responses"
IN_NANO, OUT_NANO = 1_000, 5_000
COST_NANO = 100 * IN_NANO + 30 * OUT_NANO
_IDS = itertools.count()


def new_id() -> str:
    return f"resp_{next(_IDS)}"


def reply(name: str, status: str, usage: bool = False) -> dict:
    """Make a reply as it stands: of a hundred tokens in and thirty out, where that is known."""
    used = {"input_tokens": 100, "output_tokens": 30, "total_tokens": 130} if usage else None
    facts = {"id": name, "object": "response", "status": status, "background": True, "model": "slow-model"}
    return facts | {"output": [], "usage": used, "error": None, "incomplete_details": None}


@dataclass
class Rig:
    origin: processes.Origin
    proxies: list[processes.Proxy]
    ledger: Path
    open: Callable[[str], processes.Proxy]  # starts one more proxy on the same ledger

    def rows(self, name: str) -> list[tuple[str, int, str | None]]:
        """List what the ledger says of a call, by its provider's id."""
        query = (
            "SELECT r.kind, r.usd, r.reason FROM rows r JOIN upstream_ids u ON u.call = r.call "
            "WHERE u.id = ? AND r.kind != 'event' ORDER BY r.id"
        )
        return [tuple(row) for row in self.proxies[0].rows(query, name)]

    def held(self, name: str) -> int:
        """Give what is held of a call for which nothing is booked."""
        ((kind, usd, _),) = self.rows(name)
        assert kind == "hold"
        return usd

    def settled(self, name: str, count: int = 2) -> list[tuple[str, int, str | None]]:
        return until(lambda: len(found := self.rows(name)) == count and found)


def post(proxy: processes.Proxy, name: str, answer: dict | None = None, **more: object) -> client.Answer:
    body = {"model": "slow-model", "input": "hi", "max_output_tokens": 1000, "background": True, **more}
    order = sdks.order(body=json.dumps(answer or reply(name, "queued")))["x-origin"]
    return client.call(proxy, RESPONSES, body, x_lockpin_task=name, x_origin=order, authorization="Bearer sk-one")


def poll(
    proxy: processes.Proxy,
    name: str,
    status: str = "completed",
    *,
    usage: bool = True,
    key: str = "sk-one",
    **order: object,
) -> client.Answer:
    told = {"body": json.dumps(reply(name, status, usage)), **order}
    named = {"x_origin": sdks.order(**told)["x-origin"], "authorization": f"Bearer {key}"}
    return client.call(proxy, f"{RESPONSES}/{name}", method="GET", **named)


@contextlib.contextmanager
def running(folder: Path, *kinds: str, hold_for: str = "24h") -> Iterator[Rig]:
    ledger = folder / "shared" / "ledger.sqlite3"
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(processes.origin(folder))
        config = CONFIG.format(origin=origin.url, ledger=ledger, hold_for=hold_for)

        def start(kind: str) -> processes.Proxy:
            found = stack.enter_context(processes.proxy(folder, config, kind=kind))
            found.ledger = ledger
            return found

        rig = Rig(origin, [start(kind) for kind in kinds], ledger, start)
        yield rig
        assert verify(ledger).wrong is None
        assert not [proxy for proxy in rig.proxies if "Traceback" in proxy.printed()]


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("polls"), request.param) as found:
        yield found


def test_a_background_call_is_held_until_a_poll_shows_its_usage(rig):
    proxy, name = rig.proxies[0], new_id()
    assert post(proxy, name).status == 200
    held = rig.held(name)
    assert held > 1000 * OUT_NANO

    for status in ("queued", "in_progress"):
        assert poll(proxy, name, status, usage=False).status == 200
    assert rig.held(name) == held
    answer = poll(proxy, name)

    assert (answer.status, answer.json["usage"]["output_tokens"]) == (200, 30)
    assert rig.settled(name) == [("hold", held, None), ("charge", COST_NANO, None)]
    assert poll(proxy, name).status == 200
    assert len(rig.origin.calls()) >= 4
    assert len(rig.rows(name)) == 2


def test_many_polls_at_once_settle_it_once(rig):
    proxy, name = rig.proxies[0], new_id()
    post(proxy, name)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: poll(proxy, name), range(16)))

    assert {answer.status for answer in answers} == {200}
    rig.settled(name)
    assert poll(proxy, name).status == 200
    assert [kind for kind, _, _ in rig.rows(name)] == ["hold", "charge"]


def test_a_poll_passes_although_the_budget_is_used_up(rig):
    """Two such calls are held; no third one is, and their polls go through."""
    proxy, names = rig.proxies[0], (new_id(), new_id())
    task = {"x_lockpin_task": "full", "authorization": "Bearer sk-one"}
    body = {"model": "slow-model", "input": "hi", "max_output_tokens": 1000, "background": True}
    for name in names:
        order = sdks.order(body=json.dumps(reply(name, "queued")))["x-origin"]
        assert client.call(proxy, RESPONSES, body, x_origin=order, **task).status == 200
    assert client.call(proxy, RESPONSES, body, **task).code == "budget_exceeded"

    for name in names:
        assert poll(proxy, name).status == 200

    assert [rig.settled(name)[1][1] for name in names] == [COST_NANO] * 2


def test_a_stream_of_it_settles_it_too(rig):
    proxy, name = rig.proxies[0], new_id()
    post(proxy, name)
    created = {"type": "response.created", "response": reply(name, "in_progress")}
    done = {"type": "response.completed", "response": reply(name, "completed", usage=True)}

    answer = poll(proxy, name, body=streams.sse(created, done), **streams.SSE)

    assert answer.body == streams.sse(created, done).encode()
    assert rig.settled(name)[1] == ("charge", COST_NANO, None)


def test_a_stream_that_was_cut_is_polled_later(rig):
    proxy, name = rig.proxies[0], new_id()
    created = {"type": "response.created", "response": reply(name, "in_progress")}
    order = {"body": streams.sse(created, created), "cut_after": len(streams.sse(created)) + 5, **streams.SSE}
    body = {"model": "slow-model", "input": "hi", "max_output_tokens": 1000, "background": True, "stream": True}
    named = {"x_lockpin_task": name, "x_origin": sdks.order(**order)["x-origin"], "authorization": "Bearer sk-one"}
    with pytest.raises(client.http.client.IncompleteRead):
        client.call(proxy, RESPONSES, body, **named)
    until(lambda: rig.rows(name))
    assert rig.held(name)

    poll(proxy, name)

    assert rig.settled(name)[1] == ("charge", COST_NANO, None)


@pytest.mark.parametrize("usage", [True, False])
def test_a_cancel_settles_it(rig, usage):
    """With what it had used; where the provider does not say, with all that is held."""
    proxy, name = rig.proxies[0], new_id()
    post(proxy, name)
    held = rig.held(name)
    order = sdks.order(body=json.dumps(reply(name, "cancelled", usage)))["x-origin"]

    answer = client.call(proxy, f"{RESPONSES}/{name}/cancel", {}, x_origin=order, authorization="Bearer sk-one")

    assert answer.status == 200
    assert rig.settled(name)[1] == (("charge", COST_NANO, None) if usage else ("charge", held, "no_usage"))


def test_what_says_nothing_of_it_changes_nothing(rig):
    proxy, name = rig.proxies[0], new_id()
    post(proxy, name)
    held = rig.held(name)

    poll(proxy, name, key="sk-two")  # another account may have the same id
    poll(proxy, name, status="failed", usage=False, body='{"error": {"code": "server_error"}}')
    poll(proxy, name, body="nonsense")
    poll(proxy, new_id())
    named = {"x_origin": sdks.order(status=404, body=json.dumps(reply(name, "completed", usage=True)))["x-origin"]}
    client.call(proxy, f"{RESPONSES}/{name}", method="GET", authorization="Bearer sk-one", **named)
    client.call(proxy, f"{RESPONSES}/{name}", method="DELETE", authorization="Bearer sk-one")

    assert rig.held(name) == held
    poll(proxy, name)
    rig.settled(name)


def test_another_proxy_settles_it(tmp_path):
    with running(tmp_path, "mitmdump", "up") as rig:
        name = new_id()
        post(rig.proxies[0], name)

        poll(rig.proxies[1], name)

        assert rig.settled(name)[1] == ("charge", COST_NANO, None)
        poll(rig.proxies[0], name)
        assert len(rig.rows(name)) == 2


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_it_outlives_its_proxy(sign, tmp_path):
    """Whether that was killed or stopped; another that runs beside it leaves the hold alone, and settles it."""
    with running(tmp_path, "up", "mitmdump") as rig:
        name, other = new_id(), new_id()
        post(rig.proxies[0], name)
        held = rig.held(name)

        rig.proxies[0].stop(sign)
        assert post(rig.proxies[1], other).status == 200
        third = rig.open("up")
        assert rig.held(name) == held

        poll(third, name)
        poll(rig.proxies[1], other)

        assert [rig.settled(each)[1][1] for each in (name, other)] == [COST_NANO] * 2


def test_one_whose_proxy_is_killed_before_its_id_is_known_is_charged_its_hold(tmp_path):
    """No poll can name it then, and whatever the provider bills is no more than that."""
    with running(tmp_path, "mitmdump", "up") as rig, ThreadPoolExecutor(1) as aside:
        first, other = rig.proxies
        name, gate = new_id(), tmp_path / "gate"
        order = sdks.order(body=json.dumps(reply(name, "queued")), chunk=0, body_gate=str(gate))["x-origin"]
        body = {"model": "slow-model", "input": "hi", "max_output_tokens": 1000, "background": True}
        told = {"x_lockpin_task": "t", "x_origin": order, "authorization": "Bearer sk-one"}
        call = aside.submit(client.call, first, RESPONSES, body, **told)
        until(rig.origin.calls)
        ((hold,),) = until(lambda: other.rows("SELECT usd FROM open_holds"))

        first.stop(signal.SIGKILL)

        charged = until(lambda: other.rows("SELECT usd, reason FROM rows WHERE kind = 'charge'"))
        assert poll(other, name).status == 200
        assert [tuple(row) for row in charged] == [(hold, "lockpin_stopped")]
        assert hold > COST_NANO
        client.all_written(other)
        assert not other.rows("SELECT 1 FROM rows WHERE kind = 'correction'")
        assert call.exception() is not None
        gate.touch()


def test_one_that_nobody_asks_about_is_charged_in_full_and_corrected_when_somebody_does(tmp_path):
    with running(tmp_path, "up", hold_for="1s") as rig:
        name = new_id()
        post(rig.proxies[0], name)
        (_, held, _), charge = rig.settled(name)
        assert charge == ("charge", held, "expired")

        poll(rig.proxies[0], name)

        assert rig.settled(name, 3)[2][:2] == ("correction", COST_NANO - held)
        poll(rig.proxies[0], name)
        assert len(rig.rows(name)) == 3


def test_a_chain_of_replies_is_held_by_what_is_known_of_it(rig):
    """Its first link was 130 tokens; one that nobody has seen may be as large as the model can read."""
    proxy, name = rig.proxies[0], new_id()
    told = {"background": False, "max_output_tokens": 16}
    post(proxy, name, reply(name, "completed", usage=True), **told)
    rig.settled(name)

    known, unknown = new_id(), new_id()
    post(proxy, known, reply(known, "completed", usage=True), previous_response_id=name, **told)
    answer = post(proxy, unknown, previous_response_id="resp_elsewhere", **told)

    (_, held, _), _ = rig.settled(known)
    assert 130 * IN_NANO < held < 2000 * IN_NANO
    assert (answer.code, answer.json["lockpin"]["needed_usd"]) == ("budget_exceeded", 0.10008)


def test_a_reply_is_known_by_its_id_before_its_stream_has_closed(rig, tmp_path):
    """The client has all of it, and goes on by its id at once, while the provider keeps the connection open."""
    proxy, first, second = rig.proxies[0], new_id(), new_id()
    gate = tmp_path / "gate"
    told = {"model": "slow-model", "input": "hi", "max_output_tokens": 16, "stream": True}
    events = [{"type": "response.completed", "response": reply(first, "completed", usage=True) | {"background": False}}]
    events.append({"type": "keepalive"})
    order = sdks.order(body=streams.sse(*events), gate=str(gate), **streams.SSE)["x-origin"]
    headers = {"x_lockpin_task": first, "authorization": "Bearer sk-one"}
    with ThreadPoolExecutor(1) as pool:
        open_stream = pool.submit(client.call, proxy, RESPONSES, told, x_origin=order, patience_s=60, **headers)
        (*_, charge) = rig.settled(first)

        answer = post(proxy, second, reply(second, "completed", usage=True), previous_response_id=first,
                      background=False, max_output_tokens=16)  # fmt: skip

        assert (charge[0], charge[1]) == ("charge", COST_NANO)
        assert answer.status == 200
        assert not open_stream.done()
        gate.touch()
        assert open_stream.result(30).status == 200
    assert len(rig.rows(first)) == 2


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "cancelling"},
        {"status": None},
        {"status": "completed"},
        {"status": "completed", "usage": {"input_tokens": -1, "output_tokens": "x"}},
    ],
)
def test_a_poll_that_says_nothing_of_usage_leaves_it_to_the_next(rig, answer):
    proxy, name = rig.proxies[0], new_id()
    post(proxy, name)
    held = rig.held(name)
    vague = json.dumps(reply(name, "queued") | answer)

    told = {"authorization": "Bearer sk-one", "x_origin": sdks.order(body=vague)["x-origin"]}
    assert client.call(proxy, f"{RESPONSES}/{name}", method="GET", **told).status == 200
    items = {
        "authorization": "Bearer sk-one",
        "x_origin": sdks.order(body=json.dumps(reply(name, "failed")))["x-origin"],
    }
    assert client.call(proxy, f"{RESPONSES}/{name}/input_items", method="GET", **items).status == 200
    poll(proxy, name)

    assert rig.settled(name)[1] == ("charge", COST_NANO, None)
    assert held > COST_NANO
