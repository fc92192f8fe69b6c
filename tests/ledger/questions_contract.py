"""What every ledger must do with questions, with what was allowed once, and with the next attempt of a call.

A test module of a ledger derives from the contracts here and gives a `desk` that can `watch`.
"""

from dataclasses import replace
from datetime import timedelta

import pytest

from lockpin_core.call import Quote, Void
from lockpin_core.errors import CommandError
from lockpin_core.ledger.pauses import Paused
from lockpin_core.ledger.protocol import Closed, Held, Short, Wait
from lockpin_core.ledger.questions import APPROVAL, CONTINUE, LOOP, ONCE, RAISE, REFUSE, STOP, Asking, Choice
from lockpin_core.windows import Window
from tests.ledger import desk as d
from tests.ledger.contract import hold, seen, settle, void
from tests.ledger.desk import WAIT_S, call, charge, machine, money, note, refusal, rules

TASK = rules(machine("100"), own=replace(d.OWN, limit=money("1"), enforce=True))
SAME = b"s" * 32
CHOICES = (Choice(ONCE, money("0.5")), Choice(RAISE, money("2")), Choice(REFUSE))


def asking(call_id="c1", dollars="0.5", *, digest=SAME, task="t", short="0.25", kind=APPROVAL, **more):
    choices = CHOICES if kind == APPROVAL else (Choice(CONTINUE), Choice(STOP))
    about = call(call_id, dollars, task=task, **more)
    return Asking(kind, about, digest, money(dollars), money(short), choices, timedelta(seconds=120), {"tools": 3})


def ask(desk, *args, **more):
    return desk.ledger.ask(asking(*args, **more)).result(WAIT_S)


def answer(desk, question, given, by=None):
    return desk.admin.answer(question.id, given, who="ann", by=by)


def allowed(desk, question, call_id="c1", dollars="0.5", in_force=TASK, **more):
    held = desk.ledger.hold(call(call_id, dollars, **more), in_force, allowed=question.id)
    return held.result(WAIT_S)


def own(desk, in_force=TASK, task="t"):
    """Give (spent, held, limit) of a task's own account, in dollars."""
    payers = call("look", "0", task=task).payers
    (found,) = [s for s in desk.ledger.look(payers, "openai", "gpt-5.5", in_force).result(WAIT_S) if s.budget.own]
    return found.spent.exact(), found.held.exact(), found.limit and found.limit.exact()


def spend(desk, dollars, call_id="before", in_force=TASK, **more):
    hold(desk, call_id, dollars, in_force, **more)
    settle(desk, call_id, dollars)


def once(desk, call_id="c1", dollars="0.5", in_force=TASK, **more):
    """Put a question about a call and answer it "once"."""
    desk.watch()
    question = ask(desk, call_id, dollars, **more)
    answer(desk, question, ONCE)
    return question


class QuestionsContract:
    def test_nobody_is_asked_where_nobody_watches(self, desk):
        assert ask(desk) is None
        assert desk.admin.questions() == []

    def test_a_question_is_put_where_somebody_watches(self, desk):
        desk.watch()

        question = ask(desk, key="k1", user="ann@corp.com")

        assert (question.kind, question.call, question.task, question.model) == (APPROVAL, "c1", "t", "gpt-5.5")
        assert (question.key, question.user, question.digest) == ("k1", "ann@corp.com", SAME)
        assert (question.needed, question.short_by, question.choices) == (money("0.5"), money("0.25"), CHOICES)
        assert (question.asked, question.until) == (d.NOON, d.NOON + timedelta(seconds=120))
        assert (question.data, question.answer, question.used) == ({"tools": 3}, None, None)
        assert desk.ledger.question(question.id).result(WAIT_S) == question
        assert desk.admin.questions() == [question]
        assert [row.code for row in desk.rows("event")][-1] == "question_asked"

    def test_an_unknown_question_is_none(self, desk):
        assert desk.ledger.question("999").result(WAIT_S) is None

    def test_the_same_call_sent_again_joins_its_question(self, desk):
        desk.watch()
        first = ask(desk, "c1")
        desk.clock.pass_by(seconds=60)

        assert ask(desk, "c2") == first
        assert len(desk.admin.questions()) == 1

    @pytest.mark.parametrize(
        "other", [{"digest": b"o" * 32}, {"task": "u"}, {"user": "bob"}, {"dollars": "0.51"}, {"kind": LOOP}], ids=str
    )
    def test_another_call_is_another_question(self, desk, other):
        desk.watch()
        first = ask(desk, "c1")

        assert ask(desk, "c2", **other).id != first.id
        assert len(desk.admin.questions()) == 2

    def test_a_question_that_nobody_answered_in_time_is_not_joined(self, desk):
        desk.watch()
        first = ask(desk, "c1")
        desk.clock.pass_by(seconds=120)

        assert not first.is_open(desk.clock.now)
        assert ask(desk, "c2").id != first.id

    def test_the_first_answer_counts(self, desk):
        desk.watch()
        question = ask(desk)

        answered = answer(desk, question, REFUSE)

        assert (answered.answer, answered.answered, answered.who) == (REFUSE, d.NOON, "ann")
        assert desk.ledger.question(question.id).result(WAIT_S) == answered
        with pytest.raises(CommandError, match='was answered "refuse" by ann at 2026-10-21T12:00:00Z; the first'):
            desk.admin.answer(question.id, ONCE, who="bob")
        assert desk.ledger.question(question.id).result(WAIT_S) == answered
        assert [row.code for row in desk.rows("event")][-1] == "question_answered"

    def test_an_answer_may_come_too_late(self, desk):
        desk.watch()
        question = ask(desk)
        desk.clock.pass_by(seconds=120)

        with pytest.raises(CommandError, match="comes too late: its call was refused at 2026-10-21T12:02:00Z"):
            answer(desk, question, ONCE)

    @pytest.mark.parametrize(
        ("gone", "words"),
        [
            ("hold", "comes too late: its call fits by now, and has gone; sent again, it is judged anew"),
            ("refusal", "comes too late: its call was refused meanwhile; sent again, it is judged anew"),
        ],
    )
    def test_a_question_ends_with_its_call(self, desk, gone, words):
        desk.watch()
        question = ask(desk, "c1")
        if gone == "hold":
            hold(desk, "c1", "0.5", TASK)
        else:
            desk.ledger.refuse(note("c1"), refusal())
            seen(desk)
        found = desk.ledger.question(question.id).result(WAIT_S)

        assert (found.gone, found.answer, found.is_open(desk.clock.now)) == (gone, None, False)
        assert desk.admin.questions() == [found]
        with pytest.raises(CommandError, match=words):
            answer(desk, question, RAISE)
        assert own(desk)[2] == "1"
        other = ask(desk, "c2")
        assert (other.id != question.id, other.is_open(desk.clock.now)) == (True, True)

    def test_an_answer_that_was_given_before_stands_whatever_has_become_of_the_call(self, desk):
        desk.watch()
        question = once(desk)
        desk.ledger.refuse(note("c1"), refusal())
        seen(desk)

        assert ask(desk, "c2").id == question.id
        assert desk.ledger.question(question.id).result(WAIT_S).gone is None

    def test_a_question_about_a_loop_does_not_end_with_its_call(self, desk):
        desk.watch()
        question = ask(desk, kind=LOOP)
        hold(desk, "c1", "0.5", TASK)

        assert desk.ledger.question(question.id).result(WAIT_S).is_open(desk.clock.now)

    @pytest.mark.parametrize("given", [CONTINUE, STOP])
    def test_an_answer_about_a_loop_that_comes_too_late_says_that_it_goes_on(self, desk, given):
        desk.watch()
        question = ask(desk, kind=LOOP)
        desk.clock.pass_by(seconds=120)

        words = "comes too late: its call went on at 2026-10-21T12:02:00Z; `lockpin task close t` ends its task"
        with pytest.raises(CommandError, match=words):
            answer(desk, question, given)
        assert isinstance(hold(desk, "c2", "0.1", TASK), Held)

    @pytest.mark.parametrize(
        ("kind", "given", "by", "words"),
        [
            (APPROVAL, STOP, None, '"stop" is no answer to question .*; once, raise or refuse is allowed'),
            (LOOP, ONCE, None, '"once" is no answer to question .*; continue or stop is allowed'),
            (APPROVAL, ONCE, "1", '--by is for the answer "raise"'),
            (APPROVAL, RAISE, "0", '"0" is no raise .*--by with a positive amount is allowed'),
        ],
    )
    def test_what_is_no_answer_changes_nothing(self, desk, kind, given, by, words):
        desk.watch()
        question = ask(desk, kind=kind)

        with pytest.raises(CommandError, match=words):
            answer(desk, question, given, None if by is None else money(by))

        assert desk.ledger.question(question.id).result(WAIT_S) == question

    def test_there_is_no_answer_to_what_nobody_asked(self, desk):
        with pytest.raises(CommandError, match='no question "7"; `lockpin approvals list` shows them'):
            desk.admin.answer("7", ONCE, who="ann")

    def test_an_answer_is_given_to_who_asks_again_though_nobody_watches_any_more(self, desk):
        desk.watch()
        question = ask(desk)
        answered = answer(desk, question, ONCE)
        desk.stop_watching()

        assert ask(desk, "c2") == answered
        desk.clock.pass_by(minutes=10)
        assert ask(desk, "c3") == answered
        desk.clock.pass_by(microseconds=1)
        assert ask(desk, "c4") is None

    def test_an_open_question_is_of_no_use_where_nobody_watches_any_more(self, desk):
        desk.watch()
        ask(desk)
        desk.stop_watching()
        assert ask(desk, "c2") is None

    @pytest.mark.parametrize(("by", "limit"), [(None, "3"), ("0.5", "1.5")])
    def test_raise_adds_what_was_shown_or_what_is_told_to_the_limit_of_the_task(self, desk, by, limit):
        spend(desk, "0.75")
        desk.watch()
        question = ask(desk)

        answered = answer(desk, question, RAISE, None if by is None else money(by))

        assert own(desk) == ("0.75", "0", limit)
        assert answered.raised is not None
        assert (answered.raised.limit, answered.raised.spent) == (money(limit), money("0.75"))
        assert desk.ledger.question(question.id).result(WAIT_S).raised is None
        assert isinstance(hold(desk, "c1", "0.5", TASK), Held)
        assert ask(desk, "c9").id != question.id  # what does not fit the new limit is asked about anew

    def test_a_limit_that_is_gone_cannot_be_raised_and_the_question_stays_open(self, desk):
        none = rules(machine("100"))
        hold(desk, "c0", "0.1", none)
        desk.watch()
        question = ask(desk)

        with pytest.raises(CommandError):
            answer(desk, question, RAISE)

        assert desk.ledger.question(question.id).result(WAIT_S) == question

    def test_a_task_that_goes_round_in_a_circle_is_stopped_or_goes_on(self, desk):
        desk.watch()
        answer(desk, ask(desk, kind=LOOP, user="ann@corp.com"), STOP)
        theirs, others = (hold(desk, f"c{user}", "0.1", TASK, user=user) for user in ("ann@corp.com", "bob@corp.com"))
        assert (type(theirs), type(others)) == (Paused, Held)

        answer(desk, ask(desk, kind=LOOP, user="ann@corp.com", digest=b"2" * 32), CONTINUE)

        assert isinstance(hold(desk, "c9", "0.1", TASK, user="ann@corp.com"), Held)

    def test_open_questions_about_loops_are_found_by_task_and_user(self, desk):
        def found(**more):
            return desk.ledger.open_loops(call("look", "0", **more).payers).result(WAIT_S)

        assert found() == ()
        desk.watch()
        first = ask(desk, kind=LOOP)
        ask(desk, "c2", digest=b"2" * 32)  # an approval
        theirs = ask(desk, "c3", kind=LOOP, user="ann@corp.com")
        desk.clock.pass_by(seconds=60)
        second = ask(desk, "c4", kind=LOOP, digest=b"4" * 32)

        assert found() == (second, first)
        assert found(user="ann@corp.com") == (theirs,)
        assert found(task="u") == found(user="bob@corp.com") == ()
        desk.clock.pass_by(seconds=60)
        assert found() == (second,)
        answer(desk, second, CONTINUE)
        assert found() == ()

    def test_nobody_waits_for_the_answer_of_those_who_watch_no_more(self, desk):
        desk.watch()
        ask(desk, kind=LOOP)

        desk.stop_watching()

        assert desk.ledger.open_loops(call("look", "0").payers).result(WAIT_S) == ()

    # Allow once.

    def test_allow_once_raises_by_what_is_short_and_takes_back_what_is_unused(self, desk):
        spend(desk, "0.75")
        question = once(desk)

        held = allowed(desk, question)

        assert isinstance(held, Held)
        assert own(desk) == ("0.75", "0.5", "1.25")
        resolved = settle(desk, "c1", "0.1")
        assert own(desk) == ("0.85", "0", "1")
        assert resolved.standings[0].limit == money("1")

    @pytest.mark.parametrize(("cost", "limit"), [("0.3", "1.05"), ("0.5", "1.25"), ("0.6", "1.25")])
    def test_what_the_call_has_used_of_it_stays(self, desk, cost, limit):
        spend(desk, "0.75")
        allowed(desk, once(desk))

        settle(desk, "c1", cost)

        assert own(desk)[2] == limit

    def test_a_call_that_cost_nothing_gives_all_back(self, desk):
        spend(desk, "0.75")
        allowed(desk, once(desk))
        void(desk, "c1")
        assert own(desk) == ("0.75", "0", "1")

    @pytest.mark.parametrize("end", ["cancel", "crash"])
    def test_however_the_call_ends_what_is_unused_is_taken_back(self, desk, end):
        spend(desk, "0.75")
        allowed(desk, once(desk))

        if end == "cancel":
            desk.ledger.cancel("c1")
            assert own(desk) == ("0.75", "0", "1")
        else:
            desk.crash()
            assert own(desk) == ("1.25", "0", "1.25")  # charged in full

    def test_a_deferred_call_keeps_it_until_its_time_is_over(self, desk):
        spend(desk, "0.75")
        allowed(desk, once(desk))
        desk.ledger.defer("c1", timedelta(hours=1)).result(WAIT_S)
        assert own(desk) == ("0.75", "0.5", "1.25")
        settle(desk, "c1", "0.05")
        assert own(desk) == ("0.8", "0", "1")

    def test_a_hold_that_became_smaller_has_used_less(self, desk):
        spend(desk, "0.75")
        allowed(desk, once(desk))
        desk.ledger.shrink("c1", money("0.4"), 100).result(WAIT_S)
        settle(desk, "c1", "0.4")
        assert own(desk) == ("1.15", "0", "1.15")

    def test_room_that_came_free_meanwhile_is_taken_back_as_well(self, desk):
        hold(desk, "other", "0.75", TASK)
        allowed(desk, once(desk))
        void(desk, "other")
        settle(desk, "c1", "0.5")
        assert own(desk) == ("0.5", "0", "1")

    def test_two_that_were_allowed_keep_what_each_needs(self, desk):
        spend(desk, "1")
        first, second = once(desk, "c1"), once(desk, "c2", digest=b"2" * 32)
        allowed(desk, first)
        allowed(desk, second, "c2")
        assert own(desk) == ("1", "1", "2")

        settle(desk, "c1", "0.2")

        assert own(desk) == ("1.2", "0.5", "1.7")
        settle(desk, "c2", "0.3")
        assert own(desk) == ("1.5", "0", "1.5")

    def test_an_answer_is_used_once(self, desk):
        spend(desk, "0.75")
        question = once(desk)
        assert isinstance(allowed(desk, question), Held)

        assert isinstance(allowed(desk, question, "c2"), Short)
        assert desk.ledger.question(question.id).result(WAIT_S).used == d.NOON
        assert ask(desk, "c3").id != question.id

    def test_the_same_call_again_gets_the_first_answer(self, desk):
        spend(desk, "0.75")
        question = once(desk)
        first = allowed(desk, question)
        assert allowed(desk, question).at == first.at
        assert own(desk) == ("0.75", "0.5", "1.25")

    def test_what_fits_by_now_raises_nothing_and_the_answer_is_used(self, desk):
        hold(desk, "other", "0.75", TASK)
        question = once(desk)
        void(desk, "other")

        assert isinstance(allowed(desk, question), Held)

        assert own(desk) == ("0", "0.5", "1")
        assert isinstance(allowed(desk, question, "c2", "0.6"), Short)

    def test_other_limits_stand(self, desk):
        tight = rules(machine("0.9"), own=TASK.task_default)
        spend(desk, "0.75", in_force=tight)
        question = once(desk)

        found = allowed(desk, question, in_force=tight)

        assert isinstance(found, Short)
        assert {s.budget.name for s in found.violations} == {"task", "daily"}
        assert own(desk, tight) == ("0.75", "0", "1")
        assert desk.ledger.question(question.id).result(WAIT_S).used is None

    def test_a_limit_of_tokens_stands_too(self, desk):
        tokens = rules(machine("100"), own=replace(TASK.task_default, limit_tokens=150))
        spend(desk, "0.75", in_force=tokens)  # and 20 tokens of the 150
        question = once(desk)
        assert isinstance(allowed(desk, question, in_force=tokens, tokens=131), Short)
        assert own(desk, tokens) == ("0.75", "0", "1")
        assert isinstance(allowed(desk, question, in_force=tokens, tokens=130), Held)

    @pytest.mark.parametrize("user", ["bob@corp.com", None])
    def test_what_one_user_is_allowed_is_for_no_other(self, desk, user):
        desk.admin.task_new("t", limit=money("1"), window="lifetime", who="ann", user="ann@corp.com")
        spend(desk, "0.75", user="ann@corp.com")
        theirs, hers = once(desk, user=user), once(desk, "c2", user="ann@corp.com")

        assert isinstance(allowed(desk, theirs, "c2", user="ann@corp.com"), Short)
        assert desk.ledger.question(theirs.id).result(WAIT_S).used is None
        assert isinstance(allowed(desk, hers, "c2", user="ann@corp.com"), Held)

    def test_no_call_gets_more_than_was_shown(self, desk):
        spend(desk, "0.75")
        question = once(desk)
        assert isinstance(allowed(desk, question, dollars="0.500000001"), Short)
        assert own(desk) == ("0.75", "0", "1")

    def test_no_limit_is_raised_by_more_than_was_shown(self, desk):
        spend(desk, "0.75")
        question = once(desk)
        hold(desk, "dear", "0.25", TASK)
        settle(desk, "dear", "0.5")  # above its hold
        assert isinstance(allowed(desk, question), Short)  # short by 0.75
        assert own(desk) == ("1.25", "0", "1")

    def test_another_task_gets_nothing(self, desk):
        spend(desk, "0.75", task="u")
        question = once(desk)
        assert isinstance(allowed(desk, question, task="u"), Short)

    @pytest.mark.parametrize("given", [REFUSE, RAISE, None])
    def test_only_once_allows(self, desk, given):
        spend(desk, "0.75")
        desk.watch()
        question = ask(desk, "c1", "9")
        if given is not None:
            answer(desk, question, given, money("0.01") if given == RAISE else None)
        assert isinstance(allowed(desk, question), Short)

    def test_an_answer_is_good_for_ten_minutes(self, desk):
        spend(desk, "0.75")
        question = once(desk)
        desk.clock.pass_by(minutes=10, microseconds=1)
        assert isinstance(allowed(desk, question), Short)

    def test_a_closed_task_stays_closed(self, desk):
        desk.admin.task_new("t", limit=money("1"), window="lifetime", who="ann")
        spend(desk, "0.75")
        question = once(desk)
        desk.admin.task_close("t", who="ann")
        assert isinstance(allowed(desk, question), Closed)

    def test_a_limit_that_is_set_anew_is_the_limit(self, desk):
        desk.admin.task_new("t", limit=money("1"), window="lifetime", who="ann")
        spend(desk, "0.75")
        allowed(desk, once(desk))
        desk.admin.task_new("t", limit=money("2"), window="lifetime", who="ann")
        desk.admin.raise_budget(d.OWN, "t", money("0.3"), who="ann")

        settle(desk, "c1", "0.1")

        assert own(desk) == ("0.85", "0", "2.3")  # nothing is taken back of a raise that is another

    def test_raises_that_are_undone_take_it_along(self, desk):
        spend(desk, "0.75")
        allowed(desk, once(desk))
        desk.admin.undo_raises(TASK.task_default, "t", who="ann")
        assert own(desk) == ("0.75", "0.5", "1")
        settle(desk, "c1", "0.1")
        assert own(desk) == ("0.85", "0", "1")

    def test_a_rolling_window_lets_it_go_like_any_raise(self, desk):
        rolling = rules(machine("100"), own=replace(TASK.task_default, window=Window("rolling", period_ms=3_600_000)))
        spend(desk, "0.75", in_force=rolling)
        allowed(desk, once(desk), in_force=rolling)
        assert own(desk, rolling) == ("0.75", "0.5", "1.25")
        settle(desk, "c1", "0.1")
        assert own(desk, rolling) == ("0.85", "0", "1")

    def test_what_has_left_a_rolling_window_is_not_taken_back_again(self, desk):
        rolling = rules(machine("100"), own=replace(TASK.task_default, window=Window("rolling", period_ms=3_600_000)))
        spend(desk, "0.75", in_force=rolling)
        allowed(desk, once(desk), in_force=rolling)
        desk.clock.pass_by(hours=2)
        assert own(desk, rolling) == ("0", "0.5", "1")
        settle(desk, "c1", "0.1")
        assert own(desk, rolling) == ("0", "0", "1")

    def test_what_must_stay_free_is_free_for_a_call_that_was_allowed(self, desk):
        reserve = Quote(money("0.125"), 0, d.CEILING)
        spend(desk, "0.75")
        question = once(desk)

        held = desk.ledger.hold(replace(call("c1", "0.5"), reserve=reserve), TASK, allowed=question.id).result(WAIT_S)

        assert isinstance(held, Held)
        assert own(desk) == ("0.75", "0.5", "1.25")

    def test_who_waits_keeps_the_place_that_others_may_not_take(self, desk):
        shared = rules(machine("2"), own=TASK.task_default)
        hold(desk, "busy", "0.9", shared, task="u")
        hold(desk, "busy2", "0.9", shared, task="v")
        spend(desk, "0.01", in_force=shared)
        waiter = desk.ledger.hold(call("w", "0.5", task="x"), shared, None, Wait(timedelta(seconds=30)))
        own(desk, shared)  # the one who waits has come in
        desk.clock.pass_by(seconds=10)  # it is protected from now on
        question = once(desk, "c1", "0.1")

        assert isinstance(allowed(desk, question, dollars="0.1", in_force=shared), Short)
        assert desk.ledger.question(question.id).result(WAIT_S).used is None
        waiter.cancel()


class AttemptsContract:
    """`replace`: the next attempt's hold in the step that ends the one before."""

    def swap(self, desk, outcome, dollars="0.5", *, keep, call_id="c2", in_force=TASK, **more):
        following = call(call_id, dollars, **more)
        return desk.ledger.replace("c1", outcome, following, in_force, keep=keep).result(WAIT_S)

    @pytest.mark.parametrize("keep", [True, False])
    def test_a_void_gives_its_place_to_the_next(self, desk, keep):
        hold(desk, "c1", "1", TASK)

        resolved, held = self.swap(desk, Void("not_sent"), "1", keep=keep)

        assert (resolved.call_id, resolved.first, resolved.charge) == ("c1", True, None)
        assert (type(held), held.call.id) == (Held, "c2")
        assert own(desk) == ("0", "1", "1")

    @pytest.mark.parametrize("keep", [True, False])
    def test_a_charge_and_the_next_hold_fit_together(self, desk, keep):
        hold(desk, "c1", "1", TASK)
        resolved, held = self.swap(desk, charge("0.4"), "0.6", keep=keep)
        assert (resolved.charge.amount, type(held)) == (money("0.4"), Held)
        assert own(desk) == ("0.4", "0.6", "1")

    def test_a_retry_that_does_not_fit_has_ended_the_one_before(self, desk):
        hold(desk, "c1", "1", TASK)

        resolved, short = self.swap(desk, charge("0.4"), "0.600000001", keep=False)

        assert (resolved.first, type(short)) == (True, Short)
        assert [s.budget.name for s in short.violations] == ["task"]
        assert own(desk) == ("0.4", "0", "1")

    def test_a_fallback_that_does_not_fit_leaves_the_one_before_as_it_is(self, desk):
        hold(desk, "c1", "1", TASK)

        resolved, short = self.swap(desk, charge("0.4"), "0.600000001", keep=True)

        assert (resolved, type(short)) == (None, Short)
        assert [(s.budget.name, s.held.exact()) for s in short.violations] == [("task", "0")]
        assert own(desk) == ("0", "1", "1")
        assert settle(desk, "c1", "0.4").first

    def test_a_fallback_may_be_on_other_accounts(self, desk):
        dear = rules(machine("0.5", name="dear", models=("dear-*",)), own=TASK.task_default)
        hold(desk, "c1", "1", dear)
        _, short = self.swap(desk, Void("failed"), "0.6", keep=True, in_force=dear, model="dear-1")
        assert [s.budget.name for s in short.violations] == ["dear"]
        resolved, held = self.swap(desk, Void("failed"), "0.5", keep=True, in_force=dear, model="dear-1")
        assert (resolved.charge, type(held)) == (None, Held)
        assert own(desk, dear) == ("0", "0.5", "1")

    @pytest.mark.parametrize("keep", [True, False])
    def test_the_same_ids_again_give_the_first_answers(self, desk, keep):
        hold(desk, "c1", "1", TASK)
        self.swap(desk, charge("0.4"), "0.6", keep=keep)

        resolved, held = self.swap(desk, charge("0.4"), "0.6", keep=keep)

        assert (resolved.first, resolved.charge.amount, type(held)) == (False, money("0.4"), Held)
        assert own(desk) == ("0.4", "0.6", "1")

    @pytest.mark.parametrize("keep", [True, False])
    def test_one_that_has_ended_already_gives_its_first_end(self, desk, keep):
        hold(desk, "c1", "0.5", TASK)
        settle(desk, "c1", "0.3")

        resolved, held = self.swap(desk, Void("not_sent"), "0.7", keep=keep)

        assert (resolved.first, resolved.charge.amount, type(held)) == (False, money("0.3"), Held)
        assert own(desk) == ("0.3", "0.7", "1")

    @pytest.mark.parametrize("keep", [True, False])
    def test_the_next_attempt_of_a_closed_task_does_not_go(self, desk, keep):
        hold(desk, "c1", "0.5", TASK)
        desk.admin.task_close("t", who="ann")
        resolved, found = self.swap(desk, Void("not_sent"), keep=keep)
        assert (resolved is None, type(found)) == (keep, Closed)

    @pytest.mark.parametrize("keep", [True, False])
    def test_nobody_who_waits_goes_between(self, desk, keep):
        hold(desk, "c1", "1", TASK)
        waiter = desk.ledger.hold(call("w", "0.2"), TASK, None, Wait(timedelta(seconds=30)))
        own(desk)  # it has come in
        desk.clock.pass_by(seconds=10)

        _, held = self.swap(desk, Void("not_sent"), "0.9", keep=keep)

        assert isinstance(held, Held)
        assert not waiter.done()
        void(desk, "c2")
        assert isinstance(waiter.result(WAIT_S), Held)

    @pytest.mark.parametrize("keep", [True, False])
    def test_an_attempt_that_cost_nothing_leaves_what_it_was_allowed_to_the_next(self, desk, keep):
        spend(desk, "0.75")
        allowed(desk, once(desk))

        resolved, held = self.swap(desk, Void("not_sent"), keep=keep)

        assert (resolved.charge, type(held)) == (None, Held)
        assert own(desk) == ("0.75", "0.5", "1.25")
        settle(desk, "c2", "0.1")
        assert own(desk) == ("0.85", "0", "1")

    @pytest.mark.parametrize("keep", [True, False])
    @pytest.mark.parametrize(("cost", "dollars", "task"), [("0.1", "0.4", "t"), (None, "0.51", "t")])
    def test_one_that_cost_something_or_a_dearer_one_gets_nothing(self, desk, cost, dollars, task, keep):
        spend(desk, "0.75")
        allowed(desk, once(desk))

        resolved, short = self.swap(desk, Void("failed") if cost is None else charge(cost), dollars, keep=keep)

        assert (resolved is None, type(short)) == (keep, Short)
        spent = "0.75" if cost is None else "0.85"
        assert own(desk) == (("0.75", "0.5", "1.25") if keep else (spent, "0", "1"))

    def test_another_task_inherits_nothing(self, desk):
        spend(desk, "0.75")
        allowed(desk, once(desk))
        resolved, held = self.swap(desk, Void("failed"), keep=True, task="u")
        assert (resolved.charge, type(held)) == (None, Held)
        assert (own(desk), own(desk, task="u")) == (("0.75", "0", "1"), ("0", "0.5", "1"))

    def test_what_does_not_fit_another_limit_takes_nothing_along(self, desk):
        dear = rules(machine("0.3", name="dear", models=("dear-*",)), own=TASK.task_default)
        spend(desk, "0.75", in_force=dear)
        allowed(desk, once(desk), in_force=dear)
        resolved, short = self.swap(desk, Void("failed"), keep=False, in_force=dear, model="dear-1")
        assert ({s.budget.name for s in short.violations}, resolved.charge) == ({"task", "dear"}, None)
        assert own(desk, dear) == ("0.75", "0", "1")
