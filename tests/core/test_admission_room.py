"""The search for room, step by step, against a ledger that answers as it is told to and remembers what it was asked."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import desks
import nouns
import pytest
from desks import Desk, body, config

from lockpin_core.admission import Priced, limit_to_set
from lockpin_core.admission_counts import Counts
from lockpin_core.admission_latch import Latch
from lockpin_core.admission_lower import Lower, Lowering
from lockpin_core.admission_room import Found, Seeker
from lockpin_core.admission_waits import Waits
from lockpin_core.budgets import with_reserve
from lockpin_core.call import Call
from lockpin_core.config_near_cap import Degrade, Landing, NearCap
from lockpin_core.ledger.protocol import Closed, Held, Rules, Short, Wait
from lockpin_core.money import Money
from lockpin_core.wire import wire_named

RULES = Rules((), nouns.TASK)
FREE = nouns.standing(nouns.TASK, limit="1")
PASSING = nouns.standing(nouns.TASK, limit="1", held="0.95")  # a call of ten cents would fit if nothing were held
FINAL = nouns.standing(nouns.TASK, limit="1", spent="0.95")
SHORT = Short(desks.NOW, (PASSING,), (PASSING,))
OVER = Short(desks.NOW, (FINAL,), (FINAL,))
BEHIND = Short(desks.NOW, (FREE,), (), behind=True)
NOBODY_ASKED = replace(NearCap(), approvals_wait_ms=0, degrade=Degrade(on=False))
HELD = Held(nouns.call(), desks.NOW, (FREE,))
PLAIN, LOWER, LAST = "plain", "smaller, in its turn", "smaller, out of turn"
REFUSED = (SHORT, OVER, OVER)  # held money was in the way, and while it waited it was spent


@dataclass
class Scripted:
    """Gives its answers in order, and the last one for ever."""

    answers: list
    asked: list[tuple[Call, str | Wait]]
    pass_by: Callable[[timedelta], None] | None = None  # told how long a call waits; None: no time

    def hold(self, call, rules, smaller=None, wait=None, *, out_of_turn=False):
        if wait is not None and self.pass_by is not None:
            self.pass_by(wait.patience)
        last = "out of turn" if smaller is None else LAST
        self.asked.append((call, last if out_of_turn else wait or (PLAIN if smaller is None else LOWER)))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        done: Future = Future()
        done.set_result(answer)
        return done

    others_wrote = 0

    def marked(self, name: str, since: int) -> Future:
        nothing: Future = Future()
        nothing.set_result(((), since))
        return nothing

    def marks(self, conversation: bytes) -> Future:
        nothing: Future = Future()
        nothing.set_result({})
        return nothing

    @property
    def steps(self) -> list[str | timedelta]:
        return [how.patience if isinstance(how, Wait) else how for _, how in self.asked]


@dataclass
class Says:
    """Counts a prompt as so many tokens, and the time that passes meanwhile."""

    tokens: int
    clock: list[datetime]
    takes: timedelta = timedelta(0)

    async def __call__(self, ask) -> bytes:
        self.clock[0] += self.takes
        return b'{"input_tokens": %d}' % self.tokens


class Search:
    """A seeker with a clock to set; its calls are of the Messages format, whose provider counts."""

    def __init__(self, *answers, queue_s: int = 30, tokens: int | None = None, takes: timedelta = timedelta(0)) -> None:
        self.clock, self.desk = [desks.NOW], Desk(config("1", queue_wait_ms=queue_s * 1000, near_cap=NOBODY_ASKED))
        self.ledger = Scripted(list(answers), [])
        counter = None if tokens is None else Says(tokens, self.clock, takes)
        self.seeker = Seeker(
            self.desk.config, self.ledger, Counts(counter), Latch(), rules=RULES, clock=lambda: self.clock[0]
        )
        self.seeker.waits._ticks = lambda: 0.0  # the clock alone says what is waited

    def priced(self, told: dict, task: str = "t", user: str | None = None, **headers: str) -> Priced:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        incoming = self.desk.incoming(told, provider="anthropic", task=task, headers=named)
        incoming = replace(incoming, payers=replace(incoming.payers, user=user))
        wire = wire_named("anthropic_messages")
        parsed = wire.parse(incoming.request())
        model = self.desk.prices.find("anthropic", parsed.model, desks.NOW)
        return Priced(incoming, wire, parsed, model, self.desk.prices, desks.NOW)

    def __call__(self, told: dict | None = None, landing: Landing | None = None, **more: str) -> Found:
        priced = replace(self.priced(told or messages(), **more), landing=landing or Landing())
        call = priced.call(limit_to_set(priced, self.desk.config, capped=True))
        return asyncio.run(self.seeker.seek(priced, call))


def messages(model: str = "pen", limit: int | None = 1000, **more: object) -> dict:
    told = body(model, None, **more)
    return told if limit is None else told | {"max_tokens": limit}


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def test_a_call_that_fits_goes_at_once_and_is_not_counted():
    search = Search(HELD, tokens=1)

    found = search()

    assert (found.answer, search.ledger.steps) == (HELD, [PLAIN])
    assert found.priced.parsed.content.counted is None


def test_a_closed_task_ends_the_search():
    search = Search(Closed(desks.NOW, "t"), tokens=1)

    assert (search().answer, search.ledger.steps) == (Closed(desks.NOW, "t"), [PLAIN])


def test_where_held_money_is_in_the_way_it_waits_and_only_then_it_is_made_smaller():
    search = Search(SHORT)

    assert (search().answer, search.ledger.steps) == (SHORT, [PLAIN, seconds(30), LAST])


def test_whoever_finds_room_while_waiting_is_not_made_smaller():
    search = Search(SHORT, HELD)

    assert (search().answer, search.ledger.steps) == (HELD, [PLAIN, seconds(30)])


def test_where_another_is_first_it_waits():
    search = Search(BEHIND)

    assert (search().answer, search.ledger.steps) == (BEHIND, [PLAIN, seconds(30), LAST])


def test_where_spent_money_is_in_the_way_it_does_not_wait():
    search = Search(OVER, HELD)

    assert (search().answer, search.ledger.steps) == (HELD, [PLAIN, LOWER])


def test_one_limit_that_is_final_is_enough():
    both = Short(desks.NOW, (FINAL, PASSING), (FINAL, PASSING))
    search = Search(both)

    search()

    assert search.ledger.steps == [PLAIN, LOWER]


def test_where_a_raise_leaves_held_money_alone_in_the_way_just_after_the_wait_was_broken_off_it_goes_on_to_wait():
    search = Search(SHORT, OVER, SHORT, HELD)
    search.ledger.pass_by = lambda _: search.clock.__setitem__(0, search.clock[0] + seconds(12))

    assert search().answer is HELD
    assert search.ledger.steps == [PLAIN, seconds(30), LAST, seconds(18)]


def test_limits_that_change_all_the_time_keep_nobody_for_ever():
    search = Search(SHORT, *[OVER, SHORT] * 200)
    search.ledger.pass_by = lambda _: search.clock.__setitem__(0, search.clock[0] + seconds(7))

    assert search().answer is SHORT
    left = [30, 23, 16, 9, 2]  # of its 30 seconds
    assert search.ledger.steps == [PLAIN, *(step for wait in left for step in (seconds(wait), LAST))]


def test_limits_that_change_in_no_time_at_all_keep_nobody_for_ever():
    search = Search(SHORT, *[OVER, SHORT] * 200)

    assert search().answer is SHORT
    assert search.ledger.steps == [PLAIN, *[seconds(30), LAST] * 100]


def test_waiting_can_be_turned_off():
    search = Search(SHORT, queue_s=0)

    search()

    assert search.ledger.steps == [PLAIN, LOWER]


def test_where_waiting_is_turned_off_nobody_stands_before_what_fits():
    search = Search(BEHIND, HELD, queue_s=0)

    assert (search().answer, search.ledger.steps) == (HELD, [PLAIN, LAST])


def test_what_fits_by_now_is_not_refused_for_anothers_turn():
    """It was short by spent money, and when it asks again room has come free, for which another waits."""
    search = Search(OVER, BEHIND, HELD, queue_s=0)

    assert (search().answer, search.ledger.steps) == (HELD, [PLAIN, LOWER, LAST])


def test_what_fits_by_now_and_stands_behind_another_waits_its_turn():
    search = Search(OVER, BEHIND, HELD)

    assert (search().answer, search.ledger.steps) == (HELD, [PLAIN, LOWER, seconds(30)])


def test_a_call_that_does_not_fit_is_counted_and_tried_again_at_what_that_says():
    """An "ink" token of prompt costs a microdollar: the bound from bytes is 576 of them and more."""
    search = Search(OVER, HELD, tokens=100)

    found = search(messages("ink", 10))

    (bound, _), (counted, _) = search.ledger.asked
    assert counted.quote.ceiling.prompt == 100 + 2 + 64
    assert counted.quote.most == Money.parse("0.000216")
    assert bound.quote.most > counted.quote.most
    assert (found.call, found.priced.parsed.content.counted) == (counted, 166)


def test_a_count_that_is_larger_than_the_bound_changes_nothing():
    search = Search(SHORT, tokens=50_000)

    search(messages("ink", 10))

    (bound, _), (counted, _), *_ = search.ledger.asked
    assert counted.quote == bound.quote


def test_it_waits_with_its_count():
    search = Search(SHORT, SHORT, HELD, tokens=100)

    search(messages("ink", 10))

    assert search.ledger.steps == [PLAIN, PLAIN, seconds(30)]
    assert search.ledger.asked[2][0].quote.ceiling.prompt == 166


@pytest.mark.parametrize(
    ("agent", "queue_s", "patience_s"),
    [("my-agent/1", 300, 50), ("claude-cli/2.1.197", 300, 280), ("my-agent/1", 20, 20), ("claude-cli/2.1.197", 20, 20)],
)
def test_nobody_waits_longer_than_the_client_does(agent, queue_s, patience_s):
    search = Search(SHORT, queue_s=queue_s)

    search(user_agent=agent)

    assert search.ledger.steps[1] == seconds(patience_s)


def test_the_time_that_a_count_took_is_a_part_of_the_patience():
    search = Search(SHORT, queue_s=300, tokens=100, takes=seconds(1.5))

    search()

    assert search.ledger.steps[2] == seconds(48.5)


def test_where_the_patience_is_over_it_does_not_wait():
    search = Search(SHORT, queue_s=300, tokens=100, takes=seconds(50))

    search()

    assert search.ledger.steps == [PLAIN, PLAIN, LOWER]


def test_the_same_call_sent_again_does_not_wait_but_is_added_up_again():
    search = Search(*REFUSED, SHORT)

    search()
    search(messages(limit=800, stream=True))

    assert search.ledger.steps == [PLAIN, seconds(30), LAST, PLAIN, LOWER]
    search.ledger.answers = [HELD]
    assert search().answer == HELD


@pytest.mark.parametrize("other", [{"task": "u"}, {"user": "ann@corp.com"}, {"told": messages("ink")}])
def test_another_call_waits(other):
    search = Search(*REFUSED, SHORT)

    search()
    search(**other)

    assert search.ledger.steps == [PLAIN, seconds(30), LAST] * 2


def test_each_users_conversation_of_a_task_is_its_own():
    search = Search(HELD)

    def named(user):
        return asyncio.run(search.seeker.conversations.id_of(search.priced(messages(), user=user)))

    assert len({named(user) for user in (None, "ann@corp.com", "bob@corp.com")}) == 3
    assert named("ann@corp.com") == named("ann@corp.com")


def test_a_refusal_that_only_held_money_was_behind_is_not_final():
    search = Search(SHORT)

    search()
    search()

    assert search.ledger.steps == [PLAIN, seconds(30), LAST] * 2


def test_after_ten_minutes_it_waits_again():
    search = Search(*REFUSED, SHORT)

    search()
    search.clock[0] += timedelta(minutes=10, seconds=1)
    search()

    assert search.ledger.steps == [PLAIN, seconds(30), LAST] * 2


def test_a_call_that_went_through_is_not_remembered_as_refused():
    search = Search(SHORT, HELD, SHORT)

    search()
    search()

    assert search.ledger.steps == [PLAIN, seconds(30), PLAIN, seconds(30), LAST]


class Asking(Scripted):
    """Asks for the smaller version at the last step, where seventy cents are left, and holds it.

    `protected`: all that is left is another's turn, so that it may only be held once it has waited.
    """

    protected = False

    def hold(self, call, rules, smaller=None, wait=None, *, out_of_turn=False):
        answer = super().hold(call, rules, smaller, wait, out_of_turn=out_of_turn)
        if smaller is not None and self.protected == (wait is not None):
            lower = smaller((nouns.standing(nouns.TASK, limit="1", spent="0.3"),))
            answer = Future()
            answer.set_result(self.answers[0] if lower is None else replace(HELD, call=lower))
        return answer


def test_a_limit_that_lockpin_set_is_lowered_when_waiting_has_not_helped():
    """Its 32,000 tokens are $3.20: they would fit into five dollars if nothing were held."""
    wide = nouns.standing(nouns.TASK, limit="5", held="4.3")
    search = Search(SHORT)
    search.seeker._ledger = search.ledger = Asking([Short(desks.NOW, (wide,), (wide,))], [])

    found = search(messages(limit=None))

    assert search.ledger.steps == [PLAIN, seconds(30), LAST]
    assert (found.answer.call.output_limit, found.answer.call.degrade) == (7000, ("fit",))
    assert found.answer.call.quote.most == Money.parse("0.7")


def test_a_smaller_version_waits_for_its_turn_like_any_other_call():
    """Spent money is in the way of the whole; seventy cents are left, for which somebody older waits."""
    left = nouns.standing(nouns.TASK, limit="1", spent="0.3")
    search = Search(SHORT)
    search.seeker._ledger = search.ledger = Asking([Short(desks.NOW, (left,), (left,))], [])
    search.ledger.protected = True

    found = search(messages(limit=None))

    assert search.ledger.steps == [PLAIN, LOWER, seconds(30)]
    assert (found.answer.call.output_limit, found.answer.call.quote.most) == (7000, Money.parse("0.7"))


def test_a_smaller_version_that_waited_for_its_turn_in_vain_goes_smaller_still():
    """Seventy cents were left when it began to wait, and at the end of its patience there are fifty."""

    class Waning(Asking):
        def hold(self, call, rules, smaller=None, wait=None, *, out_of_turn=False):
            if wait is None:
                return super().hold(call, rules, smaller, wait, out_of_turn=out_of_turn)
            self.asked.append((call, wait))
            answer = Future()
            lower = smaller((nouns.standing(nouns.TASK, limit="1", spent="0.5"),))
            answer.set_result(replace(HELD, call=lower))
            return answer

    left = nouns.standing(nouns.TASK, limit="1", spent="0.3")
    search = Search(SHORT)
    search.seeker._ledger = search.ledger = Waning([Short(desks.NOW, (left,), (left,))], [])
    search.ledger.protected = True

    found = search(messages(limit=None))

    assert search.ledger.steps == [PLAIN, LOWER, seconds(30)]
    assert (found.answer.call.output_limit, found.answer.call.quote.most) == (5000, Money.parse("0.5"))


def test_a_call_whose_smaller_version_waited_in_vain_is_judged_by_the_accounts_as_they_are_then():
    """The limit was raised meanwhile: what was in the way of the whole call is so no more."""

    class Raised(Asking):
        def hold(self, call, rules, smaller=None, wait=None, *, out_of_turn=False):
            if out_of_turn:
                self.answers = [replace(HELD, call=call)]
                return Scripted.hold(self, call, rules, smaller, wait, out_of_turn=out_of_turn)
            return Scripted.hold(self, call, rules, smaller, wait)

    left = nouns.standing(nouns.TASK, limit="1", spent="0.3")
    search = Search(SHORT)
    search.seeker._ledger = search.ledger = Raised([Short(desks.NOW, (left,), (left,))], [])

    found = search(messages(limit=None))

    assert search.ledger.steps == [PLAIN, LOWER, seconds(30), LAST]
    assert (found.answer.call.output_limit, found.answer.call.quote.most) == (32000, Money.parse("3.2"))


ALL_HELD = nouns.standing(nouns.TASK, limit="1", held="0.95")  # the whole, at $3.20, does not fit if nothing is held
LEAST = Money.parse("0.4096")  # the floor of 4,096 tokens


def in_the_way(*standings) -> Short:
    return Short(desks.NOW, standings, standings)


def test_a_call_that_fits_its_limit_only_when_it_is_smaller_waits_as_the_smallest():
    search = Search(in_the_way(ALL_HELD))

    search(messages(limit=None))

    assert search.ledger.steps == [PLAIN, LOWER, seconds(30), LAST]
    whole, wait = search.ledger.asked[2]
    assert (whole.quote.most, wait.least.most) == (Money.parse("3.2"), LEAST)


@pytest.mark.parametrize("spent", ["0.5905", "0.7"])
def test_a_call_whose_smallest_version_does_not_fit_beside_what_is_spent_does_not_wait(spent):
    final = nouns.standing(nouns.TASK, limit="1", spent=spent, held="0.2")
    search = Search(in_the_way(final))

    found = search(messages(limit=None))

    assert search.ledger.steps == [PLAIN, LOWER]
    assert (found.call.quote.most, found.answer.violations) == (Money.parse("3.2"), (final,))


def test_the_last_nanodollar_is_enough_to_wait_for():
    search = Search(in_the_way(nouns.standing(nouns.TASK, limit="1", spent="0.5904", held="0.2")))

    search(messages(limit=None))

    assert seconds(30) in search.ledger.steps


def test_a_refusal_names_the_smallest_version_where_only_held_money_was_in_its_way():
    roomy = nouns.standing(nouns.budget("roomy"), limit="1")  # the whole is too much for it, and the smallest is not
    search = Search(in_the_way(ALL_HELD, roomy))

    found = search(messages(limit=None))

    assert (found.call.output_limit, found.call.quote.most) == (4096, LEAST)
    assert (found.answer.standings, found.answer.violations) == ((ALL_HELD, roomy), (ALL_HELD,))


def test_such_a_refusal_is_not_final_and_the_same_call_waits_again():
    search = Search(in_the_way(ALL_HELD))

    search(messages(limit=None))
    search(messages(limit=None))

    assert search.ledger.steps == [PLAIN, LOWER, seconds(30), LAST] * 2


@pytest.mark.parametrize("fit", [{"floor": 9500}, {"output": False}])
def test_the_floor_in_force_is_what_waits(fit):
    search = Search(in_the_way(ALL_HELD))
    search.seeker._config = replace(search.seeker._config, fit=replace(search.desk.config.fit, **fit))
    search.desk.config = search.seeker._config

    search(messages(limit=None))

    least = [how.least.most for _, how in search.ledger.asked if isinstance(how, Wait)]
    assert least == ([] if "output" in fit else [Money.parse("0.95")])


def test_the_smallest_version_may_wait_for_what_the_whole_must_leave_free():
    """Of $1, 90 cents are spent and nine held, and ten are kept for landing: 256 tokens, at two and a half cents, would
    fit if nothing were held, and may use what is kept."""
    search = Search(SHORT)
    settings = replace(NOBODY_ASKED, landing=Landing(1, 1000), degrade=Degrade())
    search.seeker._config = search.desk.config = replace(search.desk.config, near_cap=settings)
    search.seeker.conversations._degrade = settings.degrade
    kept = nouns.standing(nouns.TASK, limit="1", spent="0.9", held="0.09")._replace(reserved=Money.parse("0.1"))
    search.ledger.answers = [in_the_way(kept)]

    found = search(messages(limit=4000), landing=settings.landing)

    assert search.ledger.steps == [PLAIN, LOWER, seconds(30), LAST]
    least = next(how for _, how in search.ledger.asked if isinstance(how, Wait))
    assert (least.least.most, least.least_reserve) == (Money.parse("0.0256"), None)
    assert found.call.quote.most == Money.parse("0.0256")
    assert [standing.reserved for standing in found.answer.violations] == [Money(0)]


def test_what_a_smaller_version_waited_is_added_up():
    """It waits in vain, and at the last step there are seventy cents after all."""
    search = Search(SHORT)
    search.seeker._ledger = search.ledger = Asking([in_the_way(ALL_HELD)], [])
    search.ledger.pass_by = lambda patience: search.clock.__setitem__(0, search.clock[0] + patience)
    search.ledger.hold = first_in_vain(search.ledger.hold)

    found = search(messages(limit=None))

    assert search.ledger.steps == [PLAIN, seconds(30), LAST]
    assert (found.answer.call.output_limit, found.answer.call.waited_ms) == (7000, 30_000)


def first_in_vain(hold):
    """Let nothing smaller be found in turn, which is not noted."""

    def vain(call, rules, smaller=None, wait=None, *, out_of_turn=False):
        if smaller is not None and wait is None and not out_of_turn:
            done: Future = Future()
            done.set_result(in_the_way(ALL_HELD))
            return done
        return hold(call, rules, smaller, wait, out_of_turn=out_of_turn)

    return vain


def test_tools_of_the_provider_are_fewer_in_the_smallest_version():
    """Each round of the five reads 200,000 tokens at a microdollar; the request limits its own output."""
    search = Search(in_the_way(ALL_HELD))
    tool = {"type": "web_search_20250305", "name": "web_search"}

    search(messages("scout", 1000, tools=[tool]))

    (whole, wait) = next(asked for asked in search.ledger.asked if isinstance(asked[1], Wait))
    assert whole.quote.ceiling.refills == 5
    assert wait.least.ceiling.refills == 1
    assert wait.least.ceiling.output == 2 * 1000


class Reconsidering(Scripted):
    """Asks for a smaller version twice, as one does that has to do its transaction again: where $0.30 are left, and
    where `usd` are; None: the whole fits then.
    """

    usd: str | None = None

    def hold(self, call, rules, smaller=None, wait=None, *, out_of_turn=False):
        answer = super().hold(call, rules, smaller, wait, out_of_turn=out_of_turn)
        if smaller is not None:
            lower = smaller((nouns.standing(nouns.TASK, limit="0.3"),))
            assert lower.quote.ceiling.refills == 1
            lower = call if self.usd is None else smaller((nouns.standing(nouns.TASK, limit=self.usd),))
            answer = Future()
            answer.set_result(replace(HELD, call=replace(lower, waited_ms=7)))
        return answer


@pytest.mark.parametrize(("usd", "calls"), [("0.65", 2), ("0.86", 3), ("1.05", 4), (None, 5)])
def test_the_version_that_is_sent_is_the_one_that_is_held_whatever_was_tried_before(usd, calls):
    """A round is the window's 20 cents and a cent for the search; the call itself is less than three."""
    search = Search(in_the_way(ALL_HELD))
    search.seeker._ledger = search.ledger = Reconsidering([in_the_way(ALL_HELD)], [])
    search.ledger.usd = usd

    found = search(messages("scout", 1000, tools=[{"type": "web_search_20250305", "name": "web_search"}]))

    assert found.answer.call.quote.ceiling.refills == calls
    assert [tool.calls for tool in found.priced.parsed.tools] == [calls]


@pytest.mark.parametrize("limit", [None, 999])
@pytest.mark.parametrize(("model", "tools"), [("pen", 0), ("ink", 0), ("scout", 0), ("scout", 1), ("scout", 2)])
@pytest.mark.parametrize("landing", [Landing(), Landing(1, 500), Landing(3, 100)])
def test_there_is_a_version_that_fits_just_where_the_smallest_does(model, limit, tools, landing):
    """And what it must leave for landing, which is less where it may use fewer tools."""
    search = Search(SHORT)
    named = [{"type": "web_search_20250305", "name": f"s{n}", "max_uses": 3 + n} for n in range(tools)]
    priced = replace(search.priced(messages(model, limit, **({"tools": named} if tools else {}))), landing=landing)
    call = priced.call(limit_to_set(priced, search.desk.config, capped=True))
    lower = Lower(priced, call, Lowering(4096, may_lower=limit is None, may_limit_tools=True))
    if lower.least is None:
        assert (limit, tools) == (999, 0)
        return
    least, reserve = lower.least[1].quote, lower.least[1].reserve
    usd, more = (0, 0) if reserve is None else (reserve.most.nano, reserve.tokens)

    def found(nano: int, tokens: int) -> Call | None:
        own = nouns.standing(nouns.TASK, limit=Money(nano + usd).exact(), limit_tokens=tokens + more)
        return lower(with_reserve((own,), call.reserve))

    assert found(least.most.nano, least.tokens).quote == least
    assert found(least.most.nano - 1, least.tokens) is None
    assert found(least.most.nano, least.tokens - 1) is None


def test_a_limit_of_the_request_is_lowered_where_its_format_always_has_one():
    """`Asking` leaves it seventy cents."""
    search = Search(SHORT)
    search.seeker._ledger = search.ledger = Asking([SHORT], [])

    found = search(messages(limit=10_000))

    assert (found.answer.call.output_limit, found.answer.call.degrade) == (7000, ("fit",))
    assert found.conversation is not None


def test_a_large_body_is_known_again_too():
    search = Search(*REFUSED, SHORT)
    large = messages(metadata={"user_id": "x" * 100_000})

    search(large)
    search(large)

    assert search.ledger.steps == [PLAIN, seconds(30), LAST, PLAIN, LOWER]


def test_a_wait_counts_for_whatever_becomes_of_the_call():
    """It waits for all of its thirty seconds, then goes smaller; `Asking` leaves it seventy cents."""
    wide = nouns.standing(nouns.TASK, limit="5", held="4.3")
    search = Search(SHORT)
    search.seeker._ledger = search.ledger = Asking([Short(desks.NOW, (wide,), (wide,))], [])
    search.ledger.pass_by = lambda patience: search.clock.__setitem__(0, search.clock[0] + patience)

    found = search(messages(limit=None))

    assert (found.answer.call.output_limit, found.answer.call.waited_ms) == (7000, 30_000)
    assert search.seeker.waits.waited_ms(found.call.id) == 30_000


def test_what_a_call_waited_is_added_up_while_it_waits_and_until_it_is_decided():
    clock = [desks.NOW]
    waits = Waits(lambda: clock[0])

    def later(step_s: float) -> int:
        clock[0] += seconds(step_s)
        return waits.waited_ms("c1")

    with waits.counting("c1"):
        seen = [later(1.5), later(0.25)]
    seen.append(later(9))
    with waits.counting("c1"):
        seen += [later(2), later(-60)]  # a clock that is set back takes nothing away
    seen.append(later(1))
    waits.forget("c1")

    assert seen == [1500, 1750, 1750, 3750, 1750, 1750]
    assert waits.waited_ms("c1") == waits.waited_ms("c2") == 0


def test_a_clock_that_is_set_back_while_a_call_waits_takes_nothing_of_what_it_waited_away():
    clock, ticks = [desks.NOW], [7.0]
    waits = Waits(lambda: clock[0], lambda: ticks[0])

    with waits.counting("c1"):
        ticks[0] += 2.5
        clock[0] -= timedelta(hours=1)

    assert waits.waited_ms("c1") == 2500


class Person:
    """Is asked, and says nothing."""

    def __init__(self) -> None:
        self.patience: list[timedelta] = []

    async def ask(self, call, short, digest, patience):
        self.patience.append(patience)


def test_after_a_clock_was_set_back_a_person_has_what_is_left_of_the_clients_patience_and_no_more():
    search, ticks = Search(SHORT), [7.0]
    search.seeker._config = replace(search.desk.config, near_cap=replace(NOBODY_ASKED, approvals_wait_ms=120_000))
    search.seeker.waits = Waits(lambda: search.clock[0], lambda: ticks[0])
    search.seeker._asker = person = Person()

    def pass_by(patience: timedelta) -> None:
        ticks[0] += patience.total_seconds()
        search.clock[0] -= timedelta(hours=1)

    search.ledger.pass_by = pass_by
    search()

    assert person.patience == [seconds(50 - 30)]
