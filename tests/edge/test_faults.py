"""Lockpin's own parts fail, in real processes: what is capped waits, what is not passes, and all is well again by
itself. One call goes through the ledger's writing first, so that its files are there.
"""

import contextlib
import re
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import client
import mutants
import processes
import pytest
import sdks
from lockpin_addons.serve import Health
from processes import until

PATH = "/anthropic/v1/messages"
CONFIG = """
upstreams: {{api.anthropic.com: "{origin}"}}
pricing: {{dear: {{input_per_mtok: 0, output_per_mtok: 1000000, max_output_tokens: 100000, context_tokens: 200000}}}}
"""


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy

    def ask(self, tokens: int = 1, **headers: str) -> client.Answer:
        body = {"model": "dear", "max_tokens": tokens, "messages": [sdks.MESSAGE]}
        return client.call(self.proxy, PATH, body, **headers)

    def health(self) -> client.Answer:
        return client.call(self.proxy, "/lockpin/healthz", method="GET")

    def sent(self) -> int:
        return sum(entry["path"] == "/v1/messages" for entry in self.origin.calls())


@contextlib.contextmanager
def running(folder, kind="up", more="", **settings) -> Iterator[Rig]:
    with (
        processes.origin(folder) as origin,
        processes.proxy(folder, CONFIG.format(origin=origin.url) + more, kind=kind, **settings) as proxy,
    ):
        found = Rig(origin, proxy)
        assert found.ask().status == 200
        proxy.settled(1)
        yield found
        assert "Traceback" not in proxy.printed()


def said(rig: Rig) -> list[str]:
    """Give the lines about the ledger that whoever started the proxy sees."""
    return [line for line in rig.proxy.printed().splitlines() if line.startswith("lockpin: ") and "ledger" in line]


def full_disk(rig: Rig) -> Callable[[], None]:
    """Let the process write no file beyond its first page, where the ledger's writes end: they fail, for root too."""
    pid, before = rig.proxy.process.pid, resource.prlimit(rig.proxy.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, before[1]))
    return lambda: resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def deleted(rig: Rig) -> Callable[[], None]:
    away = rig.proxy.ledger.with_name("away")
    rig.proxy.ledger.rename(away)
    return lambda: away.rename(rig.proxy.ledger)


def replaced(rig: Rig) -> Callable[[], None]:
    away = rig.proxy.ledger.with_name("away")
    content = rig.proxy.ledger.read_bytes()
    rig.proxy.ledger.rename(away)
    rig.proxy.ledger.write_bytes(content)
    return lambda: away.replace(rig.proxy.ledger)


FAULTS = {
    full_disk: "",  # SQLite's own words
    deleted: "was deleted while in use",
    replaced: "was replaced while in use",
}


@pytest.fixture(params=FAULTS, ids=lambda fault: fault.__name__)
def fault(request):
    return request.param


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_a_ledger_that_cannot_be_written_refuses_what_is_capped_until_it_can(fault, kind, tmp_path):
    with running(tmp_path, kind) as rig:
        mend = fault(rig)

        answer = rig.ask()

        assert (answer.status, answer.code) == (503, "ledger_unavailable")
        message = answer.json["error"]["message"]
        assert message.startswith("lockpin: the ledger ")
        assert message.endswith("; without it no limit can be kept, so the call was not sent")
        assert FAULTS[fault] in message
        assert answer.headers["retry-after"] == "5"
        assert "x-should-retry" not in answer.headers
        health = rig.health()
        assert (health.status, health.json["status"]) == (503, "refusing")
        (found,) = health.json["faults"]
        assert found["code"] == "ledger_unavailable"
        assert FAULTS[fault] in found["message"] != ""
        since = datetime.strptime(found["since"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        assert abs((datetime.now(UTC) - since).total_seconds()) < 30
        assert client.call(rig.proxy, "/anthropic/v1/messages/count_tokens", {}).status == 200  # free
        assert client.call(rig.proxy, "/anthropic/v1/models", method="GET").status == 200
        assert rig.sent() == 1
        assert rig.ask().status == 503
        (line,) = said(rig)
        assert FAULTS[fault] in line
        assert line.endswith(
            "; until it works again, calls under an enforced limit are refused (503), all others pass and are written"
            " later"
        )

        mend()

        until(lambda: rig.health().status == 200)
        assert until(lambda: said(rig)[1:]) == ["lockpin: the ledger works again"]
        assert rig.health().json["faults"] == []
        assert rig.ask().status == 200
        assert rig.sent() == 2
        rig.proxy.settled(2)


@pytest.mark.parametrize("fault", [deleted, replaced])
def test_without_the_ledgers_own_file_nobody_knows_that_there_is_no_limit(fault, tmp_path):
    with running(tmp_path, more="daily_usd: null\n") as rig:
        mend = fault(rig)

        assert rig.ask().code == "ledger_unavailable"

        assert rig.health().status == 503  # a call was refused for it
        mend()
        until(lambda: rig.ask().status == 200)
        assert rig.health().status == 200


def test_what_no_limit_holds_passes_meanwhile_and_is_on_the_books_afterwards(tmp_path):
    with running(tmp_path, more="daily_usd: null\n") as rig:
        mend = full_disk(rig)

        answers = [rig.ask(2) for _ in range(3)]
        late = rig.ask(3, x_lockpin_task="other")

        assert [answer.status for answer in (*answers, late)] == [200] * 4
        assert {answer.headers["x-lockpin-degraded"] for answer in (*answers, late)} == {"ledger"}
        health = rig.health()
        assert (health.status, health.json["status"]) == (200, "ok")  # nothing is refused
        assert [found["code"] for found in health.json["faults"]] == ["ledger_unavailable"]
        mend()

        until(lambda: rig.health().json["faults"] == [])
        rig.proxy.settled(5)
        for answer in (*answers, late):
            call = answer.headers["x-lockpin-call"]
            hold, charge = rig.proxy.rows("SELECT * FROM rows WHERE call = ? ORDER BY id", call)
            assert (hold["kind"], charge["kind"]) == ("hold", "charge")
            assert charge["usd"] == (3 if answer is late else 2) * 10**9
        (books,) = rig.proxy.rows("SELECT sum(spent_nano) AS spent, sum(held_nano) AS held FROM accounts"
                                  " WHERE scope = 'task'")  # fmt: skip
        assert (books["spent"], books["held"]) == (10 * 10**9, 0)
        after = rig.ask()
        assert "x-lockpin-degraded" not in after.headers


def test_what_has_no_meter_passes_meanwhile_too(tmp_path):
    with running(tmp_path, more="daily_usd: null\n") as rig:
        mend = full_disk(rig)
        until(lambda: rig.ask().headers.get("x-lockpin-degraded") == "ledger")

        answer = client.call(rig.proxy, "/anthropic/v1/complete", {"model": "dear"})

        assert (answer.status, answer.headers["x-lockpin-uncapped"]) == (200, "no_limit")
        assert answer.headers["x-lockpin-degraded"] == "ledger"
        mend()
        call = answer.headers["x-lockpin-call"]
        (row,) = until(lambda: rig.proxy.rows("SELECT * FROM rows WHERE call = ?", call))
        assert (row["kind"], row["code"]) == ("uncapped", "no_limit")


def test_a_task_with_a_limit_of_its_own_waits_although_nothing_else_is_limited(tmp_path):
    with running(tmp_path, more="daily_usd: null\ntask: {budget_usd: 100}\n") as rig:
        mend = deleted(rig)

        assert rig.ask().code == "ledger_unavailable"

        mend()
        until(lambda: rig.ask().status == 200)


def test_a_call_that_ends_while_the_ledger_is_away_is_charged_when_it_is_back(tmp_path):
    with running(tmp_path) as rig:
        gate = tmp_path / "gate"
        order = sdks.order(head_gate=str(gate))
        answers = []

        def run() -> None:
            answers.append(rig.ask(7, **order))

        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: rig.sent() == 2)
        mend = deleted(rig)
        gate.touch()
        thread.join()
        assert answers[0].status == 200
        mend()

        charge = rig.proxy.settled(2)[-1]
        assert (charge["kind"], charge["usd"]) == ("charge", 7 * 10**9)


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_a_proxy_that_stops_while_its_ledger_is_away_says_how_much_is_lost_and_fails(kind, tmp_path):
    with running(tmp_path, kind, more="daily_usd: null\n") as rig:
        full_disk(rig)
        assert rig.ask().headers["x-lockpin-degraded"] == "ledger"

        assert rig.proxy.stop(signal.SIGTERM) == 1

        line = rig.proxy.printed().splitlines()[-1]
        assert re.fullmatch(
            r"lockpin: the ledger could not be written to the end: \d+ records? of calls (is|are) lost from the books",
            line,
        )


def new_health(*, capped: bool) -> tuple[Health, list[str]]:
    told: list[str] = []
    now = datetime(2026, 11, 30, tzinfo=UTC)
    return Health(lambda: now, now, lambda: 0, is_capped=lambda: capped, say=told.append), told


def status(health: Health) -> int:
    return health.answer("/lockpin/healthz", [])[0]


def test_health_is_refusing_while_a_limit_is_in_force_or_a_call_was_refused_for_the_ledger():
    capped, _ = new_health(capped=True)
    capped.ledger_fault("ledger_unavailable", "the disk is full")
    assert status(capped) == 503
    free, _ = new_health(capped=False)
    free.note_refusal("ledger_unavailable")  # before the fault was told
    free.ledger_fault("ledger_unavailable", "the disk is full")
    free.note_refusal("budget_exceeded")
    assert status(free) == 200
    free.note_refusal("ledger_unavailable")  # a task's limit, which the ledger alone knows
    assert status(free) == 503
    free.ledger_fault("", "")
    assert status(free) == 200
    free.ledger_fault("ledger_unavailable", "the disk is full")
    assert status(free) == 200


def test_a_ledger_that_goes_away_is_said_once_for_each_reason_and_when_it_is_back():
    health, told = new_health(capped=True)

    for reason in ("the disk is full", "the disk is full", "it was deleted", "the disk is full"):
        health.ledger_fault("ledger_unavailable", reason)
    health.ledger_fault("", "")
    health.ledger_fault("", "")
    health.ledger_fault("ledger_unavailable", "the disk is full")

    meanwhile = "until it works again, calls under an enforced limit are refused (503), all others pass and are written"
    away = f"the disk is full; {meanwhile} later"
    assert told == [away, "still no ledger: it was deleted", "the ledger works again", away]


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
@pytest.mark.parametrize("content", [b"this is no database", b"SQLite format 3\0" + b"\xff" * 5000, b""])
def test_a_ledger_that_cannot_be_read_at_the_start_is_one_line_and_no_proxy(kind, content, tmp_path):
    home = processes.make_home(tmp_path)
    ledger = home / ".local/share/lockpin/ledger.sqlite3"
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(content)

    proxy = processes.launch(tmp_path, "", kind=kind, home=home)

    assert proxy.process.wait(processes.PATIENCE_S) == 1
    (line,) = [line for line in proxy.printed().splitlines() if line.startswith("lockpin")]
    assert re.fullmatch(rf"lockpin: cannot start: .*{re.escape(str(ledger))}.*", line)
    assert "Traceback" not in proxy.printed()
    assert ledger.read_bytes() == content


# What a hold may run into beside a ledger that is away: a bug of its own, and a database that does not allow it.
BUGS = {
    "AssertionError": "raise AssertionError('secret words')",
    "IntegrityError": "import sqlite3; raise sqlite3.IntegrityError('secret words')",
    "the books are of a newer version": "from lockpin_core.errors import LedgerError; "
    "raise LedgerError('the books are of a newer version')",
}


@pytest.mark.parametrize("words", BUGS)
def test_a_hold_that_fails_otherwise_is_503_reserve_failed_and_not_sent(words, tmp_path):
    entry = mutants.copy(tmp_path / "copy")
    mutants.edit(
        entry,
        "bundle.py",
        lambda text: text.replace(
            "    # After the loop's end",
            f"    def broken(_books, call, **_):\n        if call.payers.task == 'bad':\n            {BUGS[words]}\n"
            "        return real(_books, call, **_)\n"
            "    from lockpin_core.ledger import sqlite\n"
            "    real, sqlite._hold = sqlite._hold, broken\n"
            "    # After the loop's end",
            1,
        ),
    )
    with running(tmp_path, "mitmdump", addons=entry) as rig:
        answer = rig.ask(x_lockpin_task="bad")

        assert (answer.status, answer.code) == (503, "reserve_failed")
        expected = f"lockpin: the amount could not be held ({words}); the call was not sent"
        assert answer.json["error"]["message"] == expected
        assert answer.headers["retry-after"] == "5"
        assert rig.health().status == 200
        assert rig.sent() == 1
        assert rig.ask().status == 200
        until(lambda: not rig.proxy.rows("SELECT 1 FROM open_holds"))
