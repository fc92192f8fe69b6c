"""The waiting room over real sockets: calls that only held money is in the way of wait for it, in one process and four.

A token of output costs a hundredth of a cent, so a limit of 1,000 tokens is a quote of exactly ten cents.
"""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import client
import processes
import pytest
import sdks
from processes import until

from lockpin_core.ledger.verify import verify

PATH = "/openai/v1/chat/completions"
CONFIG = """
upstreams: {{api.openai.com: "{origin}"}}
ledger: sqlite://{ledger}
pricing:
  race-model: {{input_per_mtok: 0, output_per_mtok: 100, max_output_tokens: 9000, context_tokens: 100000}}
daily_usd: null
task: {{budget_usd: 1}}
queue: {{wait: {wait}}}
"""
DOLLAR = 10**9
WAITED = "x-lockpin-waited-ms"


@dataclass
class Rig:
    origin: processes.Origin
    proxies: list[processes.Proxy]
    folder: Path
    ledger: Path
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(32))
    is_over: threading.Event = field(default_factory=threading.Event)
    gates: list[Path] = field(default_factory=list)

    def rows(self, query: str, *values: object) -> list:
        return self.proxies[0].rows(query, *values)

    def tickets(self) -> list:
        return self.rows("SELECT DISTINCT call, usd, protected_at FROM waiting")

    def gate(self) -> Path:
        """Name a file that the origin waits for."""
        self.gates.append(self.folder / f"gate-{time.monotonic_ns()}")
        return self.gates[-1]

    def hold_half(self) -> tuple[Future, Path]:
        """Let a call of half a dollar run until a file is there."""
        gate = self.gate()
        call = self.pool.submit(ask, self.proxies[0], "t", 5000, head_gate=str(gate))
        until(lambda: self.rows("SELECT 1 FROM open_holds"))
        return call, gate

    def waited_ms(self, answer: client.Answer) -> int:
        """Give how long a refused call waited: its receipt says what its row does."""
        told = answer.json["lockpin"]
        (row,) = until(
            lambda: self.rows("SELECT waited_ms FROM rows WHERE kind = 'refusal' AND call = ?", told["call"])
        )
        assert told["receipt"]["waited_ms"] == int(answer.headers.get(WAITED, 0)) == (row["waited_ms"] or 0)
        return row["waited_ms"] or 0

    def assert_true_books(self) -> None:
        """Let the program itself recompute every account, and that none passed its limit at any time."""
        until(lambda: not self.rows("SELECT 1 FROM open_holds"))
        assert not self.tickets()
        assert verify(self.ledger).wrong is None

    def run(self, *told: str) -> None:
        """Run a command in a process of its own."""
        settings = self.proxies[0].home / "lockpin.yaml"
        command = [sys.executable, "-m", "lockpin_cli.main", *told, "--config", str(settings)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=processes.ROOT, timeout=60, check=False)
        assert done.returncode == 0, done.stderr

    def close(self) -> None:
        """Let everybody end, also those whom a failed test has left behind."""
        self.is_over.set()
        for gate in self.gates:
            gate.touch()
        self.pool.shutdown()


@contextlib.contextmanager
def running(folder: Path, *kinds: str, waits: tuple[str, ...]) -> Iterator[Rig]:
    """Start an origin and proxies on one ledger, each with its own patience."""
    ledger = folder / "shared" / "ledger.sqlite3"
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(processes.origin(folder))
        proxies = []
        for kind, wait in zip(kinds, waits, strict=True):
            config = CONFIG.format(origin=origin.url, wait=wait, ledger=ledger)
            proxies.append(stack.enter_context(processes.proxy(folder, config, kind=kind)))
            proxies[-1].ledger = ledger
        rig = Rig(origin, proxies, folder, ledger)
        stack.callback(rig.close)
        yield rig


def reply(tokens: int) -> str:
    """Make the reply to a call that used so many tokens of output."""
    usage = {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": 10 + tokens}
    message = {"role": "assistant", "content": "ok"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return json.dumps(
        {"id": "c", "object": "chat.completion", "model": "race-model", "choices": [choice]} | {"usage": usage}
    )


def ask(proxy: processes.Proxy, task: str, limit: int | None = 1000, **order: object) -> client.Answer:
    body: dict[str, object] = {"model": "race-model", "messages": [{"role": "user", "content": "hi"}]}
    if limit is not None:
        body["max_tokens"] = limit
    told = {"x_lockpin_task": task, "x_origin": sdks.order(**{"body": reply(100), **order})["x-origin"]}
    return client.call(proxy, PATH, body, patience_s=90, **told)


def at_once(rig: Rig, count: int, task: str, **order: object) -> list[Future]:
    """Ask so many times at the same moment, in turn at each proxy."""
    start = threading.Barrier(count)

    def one(index: int) -> client.Answer:
        start.wait(30)
        return ask(rig.proxies[index % len(rig.proxies)], task, **order)

    return [rig.pool.submit(one, index) for index in range(count)]


FLEETS = {"mitmdump": ("mitmdump",), "up": ("up",), "four": ("mitmdump", "up", "mitmdump", "up")}


@pytest.mark.parametrize("fleet", FLEETS)
def test_thirty_calls_at_once_all_pass_in_time(fleet, tmp_path):
    """Ten fit; as they cost a cent and not ten, the others find room when the first have ended, half a second later."""
    kinds = FLEETS[fleet]
    with running(tmp_path, *kinds, waits=("30s",) * len(kinds)) as rig:
        gate = rig.gate()
        calls = at_once(rig, 30, "race", head_gate=str(gate), wait_s=0.5)
        until(lambda: len(rig.tickets()) == 20)
        assert len(rig.rows("SELECT 1 FROM open_holds")) == 10
        gate.touch()
        answers = [call.result(90) for call in calls]

        assert [answer.status for answer in answers] == [200] * 30
        waited = [int(answer.headers[WAITED]) for answer in answers if WAITED in answer.headers]
        assert len(waited) == 20
        assert all(0 < one < 30_000 for one in waited)
        assert len(rig.origin.calls()) == 30
        (row,) = rig.rows("SELECT sum(usd) AS usd, count(*) AS n FROM rows WHERE kind = 'charge'")
        assert (row["usd"], row["n"]) == (30 * DOLLAR // 100, 30)
        rig.assert_true_books()


@pytest.mark.parametrize("fleet", FLEETS)
def test_without_waiting_exactly_ten_pass_at_first(fleet, tmp_path):
    kinds = FLEETS[fleet]
    with running(tmp_path, *kinds, waits=("0s",) * len(kinds)) as rig:
        gate = rig.gate()
        calls = at_once(rig, 30, "race", head_gate=str(gate), wait_s=0.5)
        until(lambda: sum(call.done() for call in calls) == 20)
        gate.touch()
        answers = [call.result(90) for call in calls]

        assert sorted(answer.status for answer in answers) == [200] * 10 + [402] * 20
        refused = [answer for answer in answers if answer.status == 402]
        assert {answer.code for answer in refused} == {"budget_exceeded"}
        assert all(answer.json["lockpin"]["transient"] for answer in refused)
        assert not [answer for answer in answers if WAITED in answer.headers]
        assert len(rig.origin.calls()) == 10
        assert ask(rig.proxies[-1], "race").status == 200  # ten cents are spent, nothing is held
        rig.assert_true_books()


def test_a_large_call_does_not_starve_among_small_ones(tmp_path):
    """Small calls come without end and fill all the room there is; after a third of its patience the large one's turn
    is the next."""
    with running(tmp_path, "mitmdump", "up", waits=("12s", "12s")) as rig:

        def stream(index: int) -> list[int]:
            statuses = []
            while not rig.is_over.is_set():
                statuses.append(ask(rig.proxies[index % 2], "t", body=reply(1), wait_s=0.3).status)
            return statuses

        small = [rig.pool.submit(stream, index) for index in range(14)]
        until(lambda: rig.tickets())  # they fill it
        large = ask(rig.proxies[0], "t", 9000, body=reply(1))
        rig.is_over.set()

        assert large.status == 200
        assert 4000 <= int(large.headers[WAITED]) < 8000
        assert {status for each in small for status in each.result(60)} == {200}
        rig.assert_true_books()


def test_a_call_is_tried_once_more_out_of_turn_before_it_is_refused(tmp_path):
    """It fits all along, and waits its turn behind a large one that is protected; at the end of its patience it goes."""
    with running(tmp_path, "mitmdump", "up", waits=("24s", "1s")) as rig:
        running_call, gate = rig.hold_half()
        large = rig.pool.submit(ask, rig.proxies[0], "t", 9000)
        until(lambda: (found := rig.tickets()) and time.time() * 10**6 > found[0]["protected_at"])

        small = ask(rig.proxies[1], "t", 1000)

        assert small.status == 200
        assert 1000 <= int(small.headers[WAITED]) < 3000
        assert not large.done()
        gate.touch()
        assert (running_call.result(60).status, large.result(60).status) == (200, 200)
        rig.assert_true_books()


def test_a_waiting_call_is_refused_when_its_patience_is_over(tmp_path):
    with running(tmp_path, "mitmdump", waits=("1s",)) as rig:
        running_call, gate = rig.hold_half()

        began = time.monotonic()
        first = ask(rig.proxies[0], "t", 9000)
        took_s = time.monotonic() - began
        again = ask(rig.proxies[0], "t", 9000)
        took_again_s = time.monotonic() - began - took_s

        assert (first.status, first.code, again.code) == (402, "budget_exceeded", "budget_exceeded")
        assert first.json["lockpin"]["transient"] is True
        assert took_s >= 1
        for answer, most_s in ((first, took_s), (again, took_again_s)):
            assert 1000 <= rig.waited_ms(answer) <= most_s * 1000
        assert took_again_s >= 1  # only a final refusal takes the wait away, and this one may fit at any moment
        gate.touch()
        assert running_call.result(60).status == 200
        assert ask(rig.proxies[0], "t", 9000).status == 200  # but fits as soon as there is room
        rig.assert_true_books()


LIMIT = "x-lockpin-output-limit"


@pytest.mark.parametrize("fleet", ["mitmdump", "four"])
def test_calls_without_a_limit_wait_for_what_the_first_holds_and_get_the_largest_that_fits(fleet, tmp_path):
    """The model's 9,000 tokens are 90 cents, and 50 are there: the first takes them all, and a cent is what each costs.

    At 4,096 tokens, 41 cents, each of the others fits if nothing is held; and when its turn comes it gets more.
    """
    kinds = FLEETS[fleet]
    with running(tmp_path, *kinds, waits=("30s",) * len(kinds)) as rig:
        rig.run("task", "new", "w", "--budget", "0.5")
        gate = rig.gate()
        first = rig.pool.submit(ask, rig.proxies[0], "w", None, head_gate=str(gate))
        until(lambda: rig.rows("SELECT 1 FROM open_holds"))
        others = [rig.pool.submit(ask, proxy, "w", None) for proxy in (rig.proxies[-1], rig.proxies[0])]
        until(lambda: len(rig.tickets()) == 2)
        assert [row["usd"] for row in rig.tickets()] == [409_600_000] * 2
        gate.touch()
        answers = [call.result(60) for call in (first, *others)]

        assert [answer.status for answer in answers] == [200] * 3
        limits = [int(answer.headers[LIMIT]) for answer in answers]
        assert (limits[0], sorted(limits[1:])) == (5000, [4800, 4900])
        assert [WAITED in answer.headers for answer in answers] == [False, True, True]
        assert {answer.headers["x-lockpin-degrade"] for answer in answers} == {"fit"}
        sent = [json.loads(call["body"])["max_completion_tokens"] for call in rig.origin.calls()]
        assert sorted(sent) == sorted(limits)
        rig.assert_true_books()


def test_a_call_without_a_limit_that_waits_in_vain_is_told_that_only_held_money_was_in_the_way(tmp_path):
    with running(tmp_path, "up", waits=("1s",)) as rig:
        rig.run("task", "new", "w", "--budget", "0.5")
        gate = rig.gate()
        first = rig.pool.submit(ask, rig.proxies[0], "w", None, head_gate=str(gate))
        until(lambda: rig.rows("SELECT 1 FROM open_holds"))

        refused = [ask(rig.proxies[0], "w", None) for _ in range(2)]

        for answer in refused:
            told = answer.json["lockpin"]
            assert (answer.status, told["transient"], told["retry_after_s"]) == (402, True, 5)
            assert (told["in_flight_usd"], told["needed_usd"]) == (0.5, 0.4096)
            assert rig.waited_ms(answer) >= 1000  # it waits again each time: the refusal is not final
        gate.touch()
        assert first.result(60).status == 200
        assert int(ask(rig.proxies[0], "w", None).headers[LIMIT]) == 4900
        rig.assert_true_books()


def test_spent_money_in_the_way_refuses_at_once(tmp_path):
    with running(tmp_path, "up", waits=("30s",)) as rig:
        assert ask(rig.proxies[0], "t", 2000, body=reply(2000)).status == 200

        began = time.monotonic()
        answer = ask(rig.proxies[0], "t", 9000)

        assert (answer.code, answer.json["lockpin"]["transient"]) == ("budget_exceeded", False)
        assert time.monotonic() - began < 10
        assert (rig.waited_ms(answer), WAITED in answer.headers) == (0, False)
        assert ask(rig.proxies[0], "t", 8000).status == 200


def test_a_task_that_is_closed_refuses_those_who_wait_and_says_for_how_long_they_did(tmp_path):
    with running(tmp_path, "up", waits=("60s",)) as rig:
        running_call, gate = rig.hold_half()
        large = rig.pool.submit(ask, rig.proxies[0], "t", 9000)
        until(rig.tickets)

        rig.run("task", "close", "t")

        answer = large.result(30)
        assert (answer.status, answer.code) == (402, "task_closed")
        assert 0 < rig.waited_ms(answer) < 60_000
        gate.touch()
        assert running_call.result(60).status == 200
        rig.assert_true_books()


def test_a_raise_lets_those_in_who_wait(tmp_path):
    """Done by a command, in another process, while nothing else ends."""
    with running(tmp_path, "mitmdump", waits=("60s",)) as rig:
        running_call, gate = rig.hold_half()
        large = rig.pool.submit(ask, rig.proxies[0], "t", 9000)
        until(rig.tickets)

        rig.run("budget", "raise", "task", "--key", "task:t", "--by", "1")

        assert large.result(30).status == 200
        assert not running_call.done()
        gate.touch()
        assert running_call.result(60).status == 200
        rig.assert_true_books()


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_a_client_that_leaves_gives_its_place_to_those_behind_it(kind, tmp_path):
    with running(tmp_path, kind, waits=("24s",)) as rig:
        running_call, gate = rig.hold_half()
        body = {"model": "race-model", "max_tokens": 9000, "messages": [{"role": "user", "content": "hi"}]}
        with socket.create_connection(("127.0.0.1", rig.proxies[0].port), 10) as raw:
            data = json.dumps(body).encode()
            head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{rig.proxies[0].port}\r\nX-Lockpin-Task: t\r\n"
            raw.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
            (large,) = until(rig.tickets)
            until(lambda: time.time() * 10**6 > large["protected_at"])
            small = rig.pool.submit(ask, rig.proxies[0], "t", 1000)
            until(lambda: len(rig.tickets()) == 2)

        answer = small.result(30)

        assert answer.status == 200
        assert 0 < int(answer.headers[WAITED]) < 20_000
        assert not rig.rows("SELECT 1 FROM rows WHERE call = ?", large["call"])
        assert not rig.tickets()
        gate.touch()
        assert running_call.result(60).status == 200
        assert len(rig.origin.calls()) == 2
        rig.assert_true_books()


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_a_proxy_that_stops_sends_those_who_wait_away_at_once(kind, tmp_path):
    """They have not been sent, and another proxy may take them; what runs may end."""
    with running(tmp_path, kind, waits=("24s",)) as rig:
        running_call, gate = rig.hold_half()
        waiting = rig.pool.submit(ask, rig.proxies[0], "t", 9000)
        until(rig.tickets)

        rig.proxies[0].process.send_signal(signal.SIGTERM)

        answer = waiting.result(15)
        assert (answer.status, answer.code) == (503, "reserve_failed")
        assert 0 < rig.waited_ms(answer) < 24_000
        assert not running_call.done()
        gate.touch()
        assert running_call.result(15).status == 200
        rig.proxies[0].process.wait(15)
        assert len(rig.origin.calls()) == 1
        rig.assert_true_books()
