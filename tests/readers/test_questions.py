from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lockpin_core.ledger.questions import APPROVAL, LOOP, ONCE, RAISE, REFUSE, Choice, Question
from lockpin_core.money import Money
from lockpin_core.readers.questions import FIELDS, about, outcome, price_of, record, state_of, unanswered

NOW = datetime(2026, 10, 21, 12, 0, tzinfo=UTC)
ASKED = Question(
    id="41", kind=APPROVAL, call="c1", digest=bytes(32), task="fix", key=None, user=None, model="gpt-5.5", asked=NOW,
    until=NOW + timedelta(seconds=50), needed=Money.parse("0.5"), short_by=Money.parse("0.0001"),
    choices=(Choice(ONCE, Money.parse("0.5")), Choice(RAISE), Choice(REFUSE)), data={},
)  # fmt: skip


def test_a_record_has_every_field_in_order():
    assert list(record(ASKED, NOW)) == list(FIELDS)


@pytest.mark.parametrize(
    ("seconds", "answer", "state"), [(0, None, "open"), (49, None, "open"), (50, None, "over"), (99, REFUSE, "refuse")]
)
def test_a_question_is_open_over_or_answered(seconds, answer, state):
    assert state_of(replace(ASKED, answer=answer), NOW + timedelta(seconds=seconds)) == state


def test_a_line_says_whose_call_it_is_and_what_it_costs():
    assert about(ASKED) == (
        'task "fix" asks for a call to gpt-5.5: it may cost up to $0.50, and the task\'s budget is short by $0.0001'
    )
    loop = replace(
        ASKED, kind=LOOP, user="ann@corp.com", data={"what": "same_tool_call", "repeats": 20, "tools": ["a"]}
    )
    assert about(loop) == (
        'task "fix" of ann@corp.com asks for a call to gpt-5.5, and goes round in a circle '
        "(what same_tool_call, repeats 20)"
    )


def test_it_is_said_what_becomes_of_a_call_without_an_answer():
    assert unanswered(ASKED) == "it is refused"
    loop = replace(ASKED, kind=LOOP)
    assert unanswered(loop) == "it goes on; `lockpin task close fix` ends its task"
    theirs = "it goes on; `lockpin task new fix --budget USD --user ann@corp.com` limits its task"
    assert unanswered(replace(loop, user="ann@corp.com")) == theirs


def test_an_answer_says_what_it_costs_and_what_it_has_done():
    assert [price_of(choice) for choice in ASKED.choices] == [
        "allow it once, for up to $0.50", "raise the task's budget", "refuse it",
    ]  # fmt: skip
    assert outcome(replace(ASKED, answer=ONCE)) == 'the call of task "fix" may go once, for up to $0.50'
    assert outcome(replace(ASKED, answer="stop")) == 'task "fix" is stopped; `lockpin task resume` lets it go on'
