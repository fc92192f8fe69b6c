from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lockpin_core.budgets import Standing
from lockpin_core.config_budgets import own_budget
from lockpin_core.ledger.questions import APPROVAL, LOOP, ONCE, RAISE, REFUSE, Choice, Question
from lockpin_core.money import Money
from lockpin_core.readers.questions import FIELDS, about, outcome, price_of, record, state_of, unanswered
from lockpin_core.windows import WindowSpan

OWN, SPAN = own_budget(None, (), "UTC"), WindowSpan(None, None)
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
        'task "fix" of ann@corp.com asks for a call to gpt-5.5, and goes round in a circle'
        ": the same tool call, 20 times in a row (tool a)"
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
    assert outcome(replace(ASKED, answer="stop")) == 'task "fix" is stopped; `lockpin task resume fix` lets it go on'


@pytest.mark.parametrize(
    ("what", "tools", "words"),
    [
        ("near_repeats", ["search", "read"], ": nearly the same tool call, without a result, 3 times in a row"),
        ("same_request", [], ": the same request, 3 times in a row"),
    ],
)
def test_a_loop_is_told_in_words(what, tools, words):
    data = {"what": what, "repeats": 3, "tools": tools}
    names = " (tools search, read)" if tools else ""
    assert about(replace(ASKED, kind=LOOP, data=data)).endswith(f"goes round in a circle{words}{names}")


def test_the_figures_of_a_call_are_told_in_words():
    data = {
        "budget": "task", "limit_usd": "0.005", "spent_usd": "0.001", "held_usd": "0", "reserved_usd": "0.002",
        "client": "claude-code", "provider": "openai", "output_limit": 4096,
    }  # fmt: skip
    assert about(replace(ASKED, data=data)).endswith(
        "the task's budget is short by $0.0001 (limit $0.005, spent $0.001, held $0.00, kept for landing $0.002; "
        "up to 4,096 tokens of output; client claude-code; provider openai)"
    )


@pytest.mark.parametrize(
    ("limit", "kept", "words"),
    [
        ("1.01", None, "to $1.01, but the call is still short by $0.24, so it is refused"),  # 0.5 - 0.26
        ("1.24", None, "to $1.24, but the call is still short by $0.01, so it is refused"),
        ("1.25", None, "to $1.25, and the call fits"),
        ("1.25", "0.1", "to $1.25, but the call is still short by $0.10, so it is refused"),
    ],
)
def test_a_raise_says_the_new_limit_and_whether_the_call_fits_it(limit, kept, words):
    account = Standing(
        "a", OWN, "fix", SPAN, Money.parse("0.5"), Money.parse("0.25"), 0, 0, Money.parse(limit), None
    )  # fmt: skip
    data = {} if kept is None else {"reserved_usd": kept}
    told = outcome(replace(ASKED, answer=RAISE, raised=account, data=data))
    assert told.startswith(f'the budget of task "fix" is raised {words}')


def test_a_task_whose_name_a_shell_would_part_is_named_in_quotes():
    assert "`lockpin task resume 'my fix'`" in outcome(replace(ASKED, task="my fix", answer="stop"))
