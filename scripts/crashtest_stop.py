"""Stopped processes: SIGSTOP for longer than any timer takes nothing from a living one, at whatever moment it comes."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import client
import processes

from scripts.crashtest_books import check, need, query, until
from scripts.crashtest_tellers import tellers

RECOVERED_S = 10.0  # rounds are five seconds apart
HELD, COST = 1_000_000, 250_000
LIMITS = {"task": 10**9, "all": 10**10}
PATH = "/anthropic/v1/messages"
BODY = {"model": "claude-sonnet-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
PROXY_CONFIG = 'upstreams: {{api.anthropic.com: "{origin}"}}\n'
REPLY = {"id": "m", "type": "message", "model": BODY["model"], "usage": {"input_tokens": 10, "output_tokens": 7}}
PROXY_COST = 10 * 2_000 + 7 * 10_000  # nanodollars, at $2 and $10 a million
_ENDED = "SELECT kind, usd, reason, estimated FROM rows WHERE call = ? AND kind IN ('charge', 'void')"
_OPEN = "SELECT count(*) FROM open_holds WHERE writer = ?"
_END = "SELECT kind, usd, reason, estimated FROM rows WHERE kind IN ('charge', 'void') AND call LIKE ? ORDER BY id"


@dataclass(frozen=True, slots=True)
class Stopped:
    """What was seen: the time until a killed process's holds were charged, and how long another one stood still."""

    recovered_s: float
    stopped_s: float


def stopped(folder: Path, seconds: float = 12) -> Stopped:
    """Stop a process with open holds and kill another, while a third lives; let the first go on."""
    path = folder / "stopped" / "ledger.sqlite3"
    with tellers(3) as (still, living, killed):
        writers = {one: one.ask("open", path=str(path), limits=LIMITS)["writer"] for one in (still, living, killed)}
        for one, name in ((still, "still"), (living, "living"), (killed, "killed")):
            answers = one.ask("hold", names=[f"{name}-{n}" for n in range(3)], nano=HELD)["answers"]
            need(answers == ["Held"] * 3, f"{name} got {answers}")
        still.send(signal.SIGSTOP)  # at a quiet moment: it has answered, and no transaction is open
        began_s = time.monotonic()
        killed.send(signal.SIGKILL)
        until(lambda: not _open_of(path, writers[killed]), "the killed process's holds are resolved", RECOVERED_S)
        recovered_s = time.monotonic() - began_s
        time.sleep(max(0.0, seconds - recovered_s))  # nothing to wait for: it is the time itself that must do no harm
        need(_open_of(path, writers[still]) == 3, "holds of a stopped process were taken from it")
        need(_open_of(path, writers[living]) == 3, "holds of a living process were taken from it")
        stopped_s = time.monotonic() - began_s
        still.send(signal.SIGCONT)
        for one, name in ((still, "still"), (living, "living")):
            first = one.ask("settle", names=[f"{name}-{n}" for n in range(3)], nano=COST)["first"]
            need(first == 3, f"{name} settled {first} of its 3 calls")
            one.ask("stop")
    _need_ends(path, "killed", ("charge", HELD, "lockpin_stopped", 1))
    for name in ("still", "living"):
        _need_ends(path, name, ("charge", COST, None, 0))
    check(path, LIMITS)
    return Stopped(recovered_s, stopped_s)


def stopped_proxies(folder: Path, seconds: float) -> Stopped:
    """Do the same to real proxies with a call under way on each; the stopped one's call ends when it goes on."""
    home, gate = processes.make_home(folder), folder / "gate"
    order = {"head_gate": str(gate), "body": json.dumps(REPLY)}
    with processes.origin(folder) as origin, contextlib.ExitStack() as stack, ThreadPoolExecutor(3) as aside:
        config = PROXY_CONFIG.format(origin=origin.url)
        still, living, killed = (
            stack.enter_context(processes.proxy(folder, config, kind=kind, home=home))
            for kind in ("mitmdump", "up", "up")
        )
        calls = {
            one.port: aside.submit(client.call, one, PATH, BODY, patience_s=seconds + 60, x_origin=json.dumps(order))
            for one in (still, living, killed)
        }
        until(lambda: len(origin.calls()) == 3, "three calls are under way")
        still.process.send_signal(signal.SIGSTOP)
        began_s = time.monotonic()
        killed.stop(signal.SIGKILL)
        until(
            lambda: len(living.rows("SELECT 1 FROM open_holds")) == 2, "the killed one's hold is charged", RECOVERED_S
        )
        recovered_s = time.monotonic() - began_s
        time.sleep(max(0.0, seconds - recovered_s))
        need(len(living.rows("SELECT 1 FROM open_holds")) == 2, "a hold was taken from a proxy that lives")
        stopped_s = time.monotonic() - began_s
        still.process.send_signal(signal.SIGCONT)
        gate.touch()
        for one in (still, living):
            answer = calls[one.port].result()
            need(answer.status == 200, f"a call under way got {answer.status}")
            call = answer.headers["x-lockpin-call"]
            end = until(partial(query, still.ledger, _ENDED, call), "a call is settled")[0]
            need(tuple(end) == ("charge", PROXY_COST, None, 0), f"a call under way was booked as {tuple(end)}")
        need(calls[killed.port].exception() is not None, "the killed proxy's call was answered")
        for one in (still, living):
            need(one.stop() == 0, f"a proxy did not end well: {one.printed()}")
    check(still.ledger, {})
    return Stopped(recovered_s, stopped_s)


@dataclass(frozen=True, slots=True)
class Frozen:
    """How long a call waited for a process that is stopped inside its transaction, until it was refused."""

    refused_s: float


def frozen(folder: Path, *, killed: bool) -> Frozen:
    """Stop a process inside its transaction: others refuse until it goes on, or is killed, and nothing is lost."""
    path = folder / f"frozen-{killed}" / "ledger.sqlite3"
    with tellers(2) as (still, other):
        for one in (still, other):
            one.ask("open", path=str(path), limits=LIMITS)
        need(still.ask("hold", names=["still-0"], nano=HELD)["answers"] == ["Held"], "the first hold was refused")
        need(other.ask("hold", names=["other-0"], nano=HELD)["answers"] == ["Held"], "the second hold was refused")
        still.tell("freeze", name="too-much", nano=LIMITS["task"])
        still.wait_until_stopped()
        began_s = time.monotonic()
        answers = other.ask("hold", names=["other-1"], nano=HELD)["answers"]
        refused_s = time.monotonic() - began_s
        need(answers == ["LedgerUnavailable"], f"beside a transaction that stands still a call got {answers}")
        still.send(signal.SIGKILL if killed else signal.SIGCONT)
        if not killed:
            need(still.answer()["answer"] == "Short", "what does not fit was held after the pause")
        until(lambda: other.ask("hold", names=["other-2"], nano=HELD)["answers"] == ["Held"], "calls are served again")
        need(other.ask("settle", names=["other-0", "other-2"], nano=COST)["first"] == 2, "a settlement was lost")
        if killed:
            until(lambda: not query(path, "SELECT 1 FROM open_holds"), "the dead one's hold is charged", RECOVERED_S)
        else:
            need(still.ask("settle", names=["still-0"], nano=COST)["first"] == 1, "the paused one's hold was taken")
        for one in (other,) if killed else (other, still):
            one.ask("stop")
    _need_ends(path, "still", ("charge", HELD, "lockpin_stopped", 1) if killed else ("charge", COST, None, 0))
    check(path, LIMITS)
    return Frozen(refused_s)


def _open_of(path: Path, writer: str) -> int:
    return int(query(path, _OPEN, writer)[0][0])


def _need_ends(path: Path, name: str, wanted: tuple[str, int, str | None, int]) -> None:
    ends = {tuple(row) for row in query(path, _END, f"{name}-%")}
    need(ends == {wanted}, f"the calls of {name} ended as {ends}, not as {wanted}")
