import itertools
import random

import pytest
from transcripts import FORMATS, KINDS, Use, legitimate, near, request_of

from lockpin_core.observers.loop import NEAR, TOOL, request_mark, row_of
from lockpin_core.wire import wire_named

LIST = Use("ls", {"path": "src"}, "a.py\nb.py")
each_format = pytest.mark.parametrize("name", FORMATS)


def turns_seen(turns, name="anthropic_messages", said=()):
    """Give the turns of a conversation as a format's reader sees them, newest first."""
    request = request_of(name, turns, said)
    wire_named(name).parse(request)  # it is a body that passes
    steps = wire_named(name).tool_steps(request)
    return [list(group) for _, group in itertools.groupby(steps, lambda step: step.turn)]


def row(turns, name="anthropic_messages"):
    return row_of(itertools.chain.from_iterable(turns_seen(turns, name)))


def loop(turns, repeats=20, task="t", name="anthropic_messages"):
    return row(turns, name).loop(task, repeats)


def first_call(turns, repeats=20, name="anthropic_messages", said=()):
    """Give the number of the first call of an agent in which a loop is found; None: in none."""
    seen = turns_seen(turns, name, said)
    assert len(seen) == len(turns)
    for call in range(1, len(turns) + 2):
        steps = itertools.chain.from_iterable(seen[len(turns) - call + 1 :])
        if row_of(steps).loop("t", repeats) is not None:
            return call
    return None


@each_format
def test_same_tool_call_with_the_same_result_is_a_loop_at_the_20th_call(name):
    assert first_call([[LIST]] * 25, name=name) == 20
    found = loop([[LIST]] * 19, name=name)
    assert (found.what, found.repeats, found.tools) == (TOOL, 20, ("ls",))


@each_format
@pytest.mark.parametrize("failed", [True, False])
def test_near_repeats_that_fail_or_give_nothing_are_a_loop_at_the_20th_call(name, failed):
    turns = [near(n, failed=failed, result=f"Error: no page {n}" if failed else "") for n in range(25)]

    assert first_call(turns, name=name) == 20
    assert loop(turns[:19], name=name).what == NEAR


@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_number_of_repeats_is_that_of_the_configuration_and_one_turn_is_none(repeats):
    assert first_call([[LIST]] * 10, repeats) == max(repeats, 3)


def test_what_ran_before_does_not_hide_a_row_and_its_own_turns_alone_count():
    before = [[Use("read", {"path": f"{n}.py"}, f"x = {n}")] for n in range(40)]

    assert first_call(before + [[LIST]] * 25) == 40 + 20
    assert loop(before + [[LIST]] * 22).repeats == 23


def test_one_turn_of_another_kind_ends_a_row():
    other = [Use("read", {"path": "a.py"}, "x = 1")]

    assert first_call([[LIST]] * 18 + [other] + [[LIST]] * 18) is None


def test_a_result_that_differs_once_ends_a_row():
    assert row([[LIST]] * 9 + [[LIST._replace(result="c.py")]] + [[LIST]] * 3).turns == 3


def test_same_arguments_with_other_results_are_polling_even_where_each_fails():
    turns = [[Use("status", {"job": 7}, f"Error: not ready, {n}%", True)] for n in range(60)]

    assert first_call(turns) is None


def test_near_repeats_that_give_something_are_none():
    assert first_call([near(n, result=f"release {n}") for n in range(60)]) is None
    assert first_call([near(n, result="" if n % 2 else f"release {n}") for n in range(60)]) is None


def test_arguments_that_share_less_than_a_third_of_their_words_are_another_call():
    words = ["alpha", "beta", "gamma", "delta"]
    turns = [[Use("search", {"query": f"{word} {word}x {word}y"}, "")] for word in words * 6]
    assert row(turns).turns == 1

    turns = [[Use("search", {"query": f"about {word}"}, "")] for word in words * 6]  # 2 of 4 words
    assert row(turns).turns == 24


def test_tools_that_are_called_side_by_side_repeat_as_a_whole_in_whatever_order():
    read = Use("read", {"path": "a.py"}, "x = 1")
    turns = [[LIST, read] if n % 2 else [read, LIST] for n in range(25)]
    assert first_call(turns) == 20

    assert first_call([[LIST, Use("read", {"path": "a.py"}, f"x = {n}")] for n in range(60)]) is None
    assert first_call([[LIST] * (1 + n % 2) for n in range(60)]) is None


def test_one_call_of_a_turn_may_be_the_same_and_another_nearly():
    found = loop([[LIST, *near(n)] for n in range(19)])

    assert (found.what, found.tools) == (NEAR, ("ls", "search"))


def test_a_row_that_goes_on_is_known_again_and_another_one_is_another():
    before = [[Use("read", {"path": "a.py"}, "x = 1")]]
    first, later = loop([[LIST]] * 19), loop([[LIST]] * 30)

    assert first.mark == later.mark
    assert len({first.mark, loop([[LIST]] * 19, task="u").mark, loop(before + [[LIST]] * 19).mark}) == 3


def test_no_more_steps_are_asked_for_than_tell():
    asked = []
    steps = wire_named("openai_chat").tool_steps(request_of("openai_chat", [[LIST], [LIST], near(1), [LIST], [LIST]]))

    def counting():
        for step in steps:
            asked.append(step)
            yield step

    assert row_of(counting()).turns == 2
    assert len(asked) == 4  # of 5: one more tells that the turn before it is whole


@each_format
def test_a_name_and_arguments_of_half_a_character_are_taken_as_they_are(name):
    odd = [[Use("\ud800", {"\udfff": "\ud800"}, "\udc00")]]

    assert loop(odd * 19, name=name).tools == ("\ud800",)


def test_a_conversation_without_tools_has_no_row():
    assert row([]).turns == 0
    assert loop([], repeats=2) is None


@pytest.mark.parametrize("kind", KINDS)
def test_agents_that_get_on_raise_no_question_in_1001_conversations(kind):
    names = random.Random(kind).choices(list(FORMATS), k=91)
    for seed, name in enumerate(names):  # 91 of each of 11 kinds
        turns, said = legitimate(kind, seed)
        assert len(turns) >= 25
        assert first_call(turns, name=name, said=said) is None, (kind, seed, name)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_agents_would_be_seen_if_they_went_round_in_a_circle(kind):
    turns, _ = legitimate(kind, 0)

    assert loop([*turns, *[turns[-1]] * 19]) is not None


def test_same_request_is_known_by_its_task_where_it_is_sent_and_every_byte():
    assert request_mark("t", "/a", b"x") == request_mark("t", "/a", b"x")
    told = [("t", "/a", b"x"), ("u", "/a", b"x"), ("t", "/b", b"x"), ("t", "/a", b"y")]
    assert len({request_mark(*one) for one in told}) == 4
