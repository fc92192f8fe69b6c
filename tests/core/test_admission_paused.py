"""What a call is told whose task or key pauses, and which calls are told so."""

import json
import re
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from desks import NOW, Desk, body, config

from lockpin_core.admission_paused import pause_headers, pause_refusal
from lockpin_core.call import Payers
from lockpin_core.clients import client_of
from lockpin_core.engine import Answered, Passed
from lockpin_core.forms import put
from lockpin_core.ledger.pauses import BREAKER, KEY, LOOP, TASK, BreakerRule, Paused
from lockpin_core.money import Money
from lockpin_core.settler import Admitted
from lockpin_core.wire import wire_named

MINUTE = timedelta(minutes=1)
RULE = BreakerRule(Money.parse("0.5"), MINUTE, 5 * MINUTE, (TASK,))
TRIPPED = Paused(
    NOW, BREAKER, TASK, "fix-login", NOW + 5 * MINUTE, Money.parse("1.204"), Money.parse("1"), MINUTE
)  # fmt: skip
STOPPED = Paused(NOW, LOOP, TASK, "fix-login", None)
WIRES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini", "bedrock_converse", "bedrock_invoke")
RETRIED = re.compile(
    r"rate.?limit|quota|overload|too many|try again|retry|timeout|timed out|unavailable|429|capacity", re.I
)


@pytest.fixture
def desk():
    """A task "t" that pauses: it was charged sixty cents."""
    made = Desk(config())
    made.ledger.breaker_set(RULE, who="ada")
    admitted = made.ask(body(limit=6000))
    assert isinstance(admitted, Admitted)
    assert [one.subject for one in made.settle(admitted, 6000).tripped] == ["t"]
    return made


def told(answered):
    assert isinstance(answered, Answered)
    return answered.reply, json.loads(answered.reply.body)


def test_a_breaker_says_what_was_charged_until_when_and_what_ends_it():
    found = pause_refusal(TRIPPED)

    assert found.message == (
        'lockpin: task "fix-login" was charged $1.21 within 1m, and the breaker lets $1.00 pass; its calls pause '
        "until 2026-11-29T12:05:00Z; to let them go on before: lockpin breaker reset --task fix-login"
    )
    assert (found.code, found.status, found.retry_after_s) == ("spend_rate_exceeded", 429, 300)
    assert found.detail == {
        "scope": "task", "subject": "fix-login", "period": "1m", "charged_usd": Decimal("1.204"),
        "limit_usd": Decimal(1), "resets_at": "2026-11-29T12:05:00Z", "retry_after_s": 300,
    }  # fmt: skip
    assert pause_headers(found) == {"X-Lockpin-Breaker-Resets": "2026-11-29T12:05:00Z"}


def test_a_stopped_task_says_how_it_goes_on():
    found = pause_refusal(STOPPED)

    assert found.message == (
        'lockpin: task "fix-login" was stopped, as it went round in a circle; to let its calls go on: '
        "lockpin task resume fix-login"
    )
    assert (found.code, found.status, found.retry_after_s) == ("loop_stopped", 429, 5)
    assert found.detail == {"scope": "task", "subject": "fix-login", "retry_after_s": 5}
    assert pause_headers(found) == {}


def test_in_a_team_the_caller_is_told_whom_to_ask():
    for paused in (replace(TRIPPED, scope=KEY, subject="k1"), STOPPED):
        found = pause_refusal(paused, mode="team")
        assert found.message.endswith(": ask whoever runs this proxy")
        assert "lockpin breaker" not in found.message


@pytest.mark.parametrize(
    ("micros", "seconds", "ends"),
    [
        (1, 1, "2026-11-29T12:00:01Z"),
        (1_000_000, 1, "2026-11-29T12:00:01Z"),
        (1_000_001, 2, "2026-11-29T12:00:02Z"),
        (59_999_999, 60, "2026-11-29T12:01:00Z"),
    ],
)
def test_nobody_is_told_to_come_back_too_early(micros, seconds, ends):
    found = pause_refusal(replace(TRIPPED, until=NOW + timedelta(microseconds=micros)))

    assert (found.retry_after_s, found.detail["retry_after_s"], found.detail["resets_at"]) == (seconds, seconds, ends)


def test_no_word_is_one_that_clients_retry_on():
    for paused in (TRIPPED, STOPPED, replace(TRIPPED, scope=KEY)):
        for mode in ("solo", "team"):
            assert not RETRIED.search(pause_refusal(paused, mode=mode).message)


@pytest.mark.parametrize("paused", [TRIPPED, STOPPED])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("setting", ["auto", "lockpin", "provider"])
def test_every_format_says_it_in_its_own_shape(wire, setting, paused):
    refusal = pause_refusal(paused)
    made = {"code": refusal.code, "task": "fix-login", **refusal.detail}

    reply = put(refusal, made, wire_named(wire), shape="openai", setting=setting, client=client_of({}))

    found = json.loads(reply.body)
    assert (reply.status, reply.headers["x-should-retry"]) == (429, "false")
    assert reply.headers["retry-after"] == str(refusal.retry_after_s)
    assert found["lockpin"]["code"] == refusal.code
    assert found.get("error", found)["message"] == refusal.message


@pytest.mark.parametrize("paused", [TRIPPED, STOPPED])
def test_clients_that_would_hide_it_get_the_form_that_they_show(paused):
    refusal = pause_refusal(paused)
    codex, aider = client_of({"originator": "codex_exec"}), client_of({"user-agent": "litellm/1.81.10"})

    failed = put(
        refusal, {"code": refusal.code}, wire_named("openai_responses"), shape="", setting="auto", client=codex
    )
    bad = put(refusal, {"code": refusal.code}, wire_named("openai_chat"), shape="", setting="auto", client=aider)

    assert (failed.status, bad.status) == (200, 400)
    assert "retry-after" not in bad.headers
    assert json.loads(failed.body.decode().partition("data: ")[2])["lockpin"] == {"code": refusal.code}


def test_a_call_of_a_task_that_pauses_is_answered_and_leaves_a_row(desk):
    reply, found = told(desk.ask())

    assert reply.status == 429
    assert reply.headers["X-Lockpin-Breaker-Resets"] == "2026-11-29T12:05:00Z"
    assert reply.headers["retry-after"] == "300"
    lockpin = found["lockpin"]
    assert (lockpin["code"], lockpin["task"], lockpin["subject"]) == ("spend_rate_exceeded", "t", "t")
    assert (lockpin["charged_usd"], lockpin["limit_usd"]) == (0.6, 0.5)
    assert (lockpin["receipt"]["decision"], lockpin["receipt"]["code"]) == ("refused", "spend_rate_exceeded")
    desk.ledger.stop()
    assert [(row.kind, row.code) for row in desk.ledger.rows][-1] == ("refusal", "spend_rate_exceeded")


def test_other_tasks_go_on(desk):
    assert isinstance(desk.ask(task="other"), Admitted)


def test_what_cannot_be_priced_is_said_before_the_pause(desk):
    desk.ledger.task_new("t", limit=Money.parse("5"), window="lifetime", who="ada")

    assert told(desk.ask(body("nobody-knows-it")))[1]["error"]["code"] == "unknown_model"


def test_a_closed_task_is_told_before_its_pause(desk):
    desk.ledger.task_close("t", who="ada")

    assert told(desk.ask())[1]["error"]["code"] == "task_closed"


@pytest.mark.parametrize(
    "more", [{"path": "/v1/videos"}, {"told": body("nobody-knows-it")}], ids=["not metered", "no price"]
)
def test_calls_that_go_without_a_hold_pause_as_well(desk, more):
    assert told(desk.ask(**more))[1]["error"]["code"] == "spend_rate_exceeded"
    assert isinstance(desk.ask(**more, task="other"), Passed)


@pytest.mark.parametrize(
    "more", [{}, {"path": "/v1/videos"}, {"told": body("nobody-knows-it")}], ids=["held", "not metered", "no price"]
)
def test_calls_of_a_closed_task_are_refused_also_where_they_would_go_without_a_hold(more):
    desk = Desk(config())
    desk.ledger.task_new("t", limit=None, window="lifetime", who="ada")
    desk.ledger.task_close("t", who="ada")

    answer = desk.ask(**more)

    assert (told(answer)[1]["error"]["code"], told(answer)[1]["lockpin"]["task"]) == ("task_closed", "t")
    assert desk.kinds() == ["event", "event", "refusal"]
    assert isinstance(desk.ask(**more, task="other"), Admitted | Passed)


def test_what_is_let_go_unmetered_pauses_as_well():
    desk = Desk(config(allow_uncapped=("api.openai.com/v1/vid*",)))
    desk.ledger.stop_task(Payers("t", "box"), who="loop", data={})

    assert told(desk.ask(path="/v1/videos"))[1]["error"]["code"] == "loop_stopped"
    assert desk.ask(path="/v1/videos", task="other") == Passed("allow_uncapped")


def test_a_call_that_is_free_by_its_path_passes(desk):
    assert isinstance(desk.ask(b"", method="GET", path="/v1/models"), Passed)


def test_a_pause_ends_by_itself():
    now = [NOW]

    def clock() -> datetime:
        return now[0]

    desk = Desk(config(), clock=clock)
    desk.ledger.breaker_set(RULE, who="ada")
    desk.settle(desk.ask(body(limit=6000)), 6000)
    assert isinstance(desk.ask(), Answered)

    now[0] += 5 * MINUTE

    assert isinstance(desk.ask(), Admitted)
