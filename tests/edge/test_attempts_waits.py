"""What may change while a call waits for its next attempt, at the moment that each test chooses: everything within one
process, over a ledger in memory. A pen's output costs a hundredth of a cent a token, ink's prompt a thousand nanodollars.
"""

import asyncio
import json
from collections import deque
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from desks import NOW, PRICING, PROVIDERS, Desk, body, config
from lockpin_addons import again, guard
from lockpin_addons.attempts import Attempts
from lockpin_addons.fallbacks import Fallbacks
from lockpin_addons.identity import IdentityError
from lockpin_addons.route import Bound
from lockpin_addons.trip import Kind, Tries, Trip
from mitmproxy import http
from mitmproxy.test import tflow

from lockpin_core.budgets import Budget
from lockpin_core.call import Ending, Outcome, Reading
from lockpin_core.config_near_cap import NearCap, Retry
from lockpin_core.engine_attempts import AttemptsEngine
from lockpin_core.ledger.pauses import BreakerRule
from lockpin_core.ledger.protocol import Rules
from lockpin_core.money import Money
from lockpin_core.settler import Admitted
from lockpin_core.windows import Window

RETRY = Retry(attempts=3, base_ms=100, max_ms=100, after_max_ms=1000)
WAIT = {"retry-after-ms": "300"}
MINUTE = timedelta(minutes=1)
CUT = Outcome(Ending.CUT, 200)
BUSY = [429, 503]
OTHERS = {"openai/ink": ("openai/gift",)}


class Waits(Desk):
    """A call that has failed, as the edge has it, and a hook that decides about its next attempt."""

    def __init__(
        self, told: dict, task_usd: str | None = "1", *, fallbacks: dict | None = None, attempts: int = 3,
        provider: str = "openai", pricing: dict = PRICING,
    ) -> None:  # fmt: skip
        near = NearCap(retry=replace(RETRY, attempts=attempts), fallbacks=fallbacks or {})
        super().__init__(config(task_usd, near_cap=near, pricing=pricing))
        rules = Rules(self.config.all_budgets(), self.config.task_default())
        self.engine = AttemptsEngine(self.config, self.prices, self.ledger, rules=rules, clock=lambda: NOW)
        incoming = self.incoming(told, provider=provider)
        admitted = asyncio.run(self.engine.admit(incoming))
        assert isinstance(admitted, Admitted)
        self.flow = tflow.tflow(
            req=http.Request.make("POST", "https://api.openai.com/v1/chat/completions", incoming.body)
        )
        self.trip = Trip(admitted.held.call.id, SimpleNamespace(config=self.config, engine=self.engine), self.flow)
        self.trip.kind, self.trip.admitted, self.trip.incoming = Kind.METERED, admitted, incoming
        self.trip.bound = Bound(incoming.provider, incoming.host, incoming.path)
        names = iter(f"next-{number}" for number in range(9))
        new_id = lambda: next(names)  # noqa: E731
        self.hook = Attempts(
            {self.flow.id: self.trip}, Fallbacks(PROVIDERS, self.real_key, new_id), asyncio.Event(),
            new_id=new_id, clock=lambda: NOW, dice=lambda: 0.5,
        )  # fmt: skip
        others = self.hook._fallbacks.of(self.trip, admitted)
        self.trip.tries = Tries(of=attempts * (1 + len(others)), others=deque(others))

    async def real_key(self, name: str) -> str:
        return "key"

    def fail(self, status: int, during=lambda: None, **headers: str) -> bool:
        """Let the attempt that runs fail, do something in the wait, and say whether another one leaves."""
        asyncio.run(self._fail(status, during, headers))
        return self.flow.metadata.pop(again.AGAIN, False)

    async def _fail(self, status: int, during, headers: dict) -> None:
        self.flow.metadata.pop(guard.PERMIT, None)
        self.hook._stopping = asyncio.Event()  # of this loop
        self.flow.metadata[guard.SENT] = True
        self.flow.response = http.Response.make(status, b"{}", WAIT | headers)
        deciding = asyncio.create_task(self.hook.lockpin_attempt(self.flow))
        while guard.SENT in self.flow.metadata and not deciding.done():
            await asyncio.sleep(0)
        during()
        await deciding

    def shrink(self, usd: str, tokens: int) -> None:
        """Do what a count in the background does."""
        self.trip.admitted = self.engine._shrunk(self.trip.admitted, Money.parse(usd), tokens)

    def end(self, outcome: Outcome = CUT):
        return self.engine.settle(self.trip.admitted, Reading(), outcome).result()


def test_a_hold_that_shrinks_in_the_wait_is_the_next_attempts_as_it_is_then():
    desk = Waits(body("pen", 1000) | {"stream": True})  # ten cents
    assert desk.fail(429, lambda: desk.shrink("0.04", 50))

    assert desk.trip.admitted.held.call.quote.most == Money.parse("0.04")
    end = desk.end()
    assert (end.charge.amount, end.charge.tokens, end.over_hold) == (Money.parse("0.04"), 50, False)


def test_it_passes_on_as_it_is_also_a_second_time():
    desk = Waits(body("pen", 1000) | {"stream": True})
    assert desk.fail(429, lambda: desk.shrink("0.04", 50))
    assert desk.fail(429, lambda: desk.shrink("0.03", 40))

    end = desk.end()
    assert (end.charge.amount, end.charge.tokens, end.over_hold) == (Money.parse("0.03"), 40, False)


@pytest.mark.parametrize(("status", "attempts"), [(429, 3), (503, 3), (503, 1)])
def test_what_a_call_waited_before_it_left_first_is_told_with_whichever_reply_it_gets(status, attempts):
    desk = Waits(body("ink", 100), fallbacks=OTHERS, attempts=attempts)
    desk.trip.headers = {"X-Lockpin-Waited-Ms": "1234"}

    assert desk.fail(status)
    assert desk.trip.headers["X-Lockpin-Waited-Ms"] == "1234"


def test_what_a_later_attempt_costs_is_bounded_by_what_is_held_then():
    told = body("ink", 100)
    size = len(json.dumps(told))
    desk = Waits(told)
    assert desk.fail(429, lambda: desk.shrink("0.00001", 5))  # less than the prompt's estimate
    assert -(-size // 3) * 1000 > 10_000

    assert desk.fail(503)
    (charge,) = [row for row in desk.ledger.rows if row.kind == "charge"]
    assert (charge.usd, charge.tokens) == (10_000, 5)


def test_a_hold_that_shrinks_while_another_model_is_looked_for_bounds_what_the_failed_one_costs():
    desk = Waits(body("ink", 100), fallbacks=OTHERS, attempts=1)
    priced = desk.engine._priced_call

    async def slow(incoming, wire):
        found = await priced(incoming, wire)
        desk.shrink("0.00001", 5)
        return found

    desk.engine._priced_call = slow
    assert desk.fail(503)
    (charge,) = [row for row in desk.ledger.rows if row.kind == "charge"]
    assert (charge.usd, charge.tokens) == (10_000, 5)


def close(desk, other):
    desk.ledger.task_close("t", who="ada")


def trip_breaker(desk, other):
    desk.ledger.breaker_set(BreakerRule(Money.parse("0.001"), MINUTE, MINUTE, ("task",)), who="ada")
    desk.settle(other, 20)


def stop(desk, other):
    desk.ledger.stop_task(desk.trip.admitted.held.call.payers, who="the loop check", data={})


@pytest.mark.parametrize("status", BUSY)
@pytest.mark.parametrize("what", [close, trip_breaker, stop])
def test_a_task_that_is_closed_or_pauses_sends_nothing_after_the_wait(what, status):
    desk = Waits(body("ink", 100))
    failed, other = desk.trip.call_id, desk.ask(body("pen", 20))
    assert not desk.fail(status, lambda: what(desk, other))
    desk.engine.cancel(other.held.call.id)

    assert guard.PERMIT not in desk.flow.metadata
    assert guard.SENT in desk.flow.metadata
    assert (desk.trip.call_id, desk.trip.settled) == (failed, status == 503)
    assert desk.flow.response.status_code == status
    if not desk.trip.settled:
        desk.end(Outcome(Ending.DONE, 429))  # as the tap does with a reply that stands
    assert desk.held() == 0


def task_limit(usd: str, window: str = "lifetime"):
    return lambda desk: desk.ledger.task_new("t", limit=Money.parse(usd), window=window, who="ada")


def new_budget(**more):
    budget = Budget("late", "machine", Window("day"), **{"limit": Money.parse("5"), "enforce": True} | more)
    return lambda desk: desk.ledger.budget_set(budget, who="ada")


@pytest.mark.parametrize("status", BUSY)
@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        (task_limit("0.1"), True),
        (task_limit("0.099999999"), False),
        (task_limit("0.1", "day"), True),  # another account, which counts its hold too
        (task_limit("0.099999999", "day"), False),
        (new_budget(limit=Money.parse("0.1")), True),
        (new_budget(limit=Money.parse("0.099999999")), False),
        (new_budget(limit=None, limit_tokens=10**6), True),
        (new_budget(limit=None, limit_tokens=1000), False),  # its prompt has some too
        (new_budget(limit=Money.parse("0.01"), enforce=False), True),
        (new_budget(models=("openai/ink",)), True),
    ],
)
def test_an_attempt_leaves_only_within_the_limits_that_are_in_force_after_the_wait(change, goes_on, status):
    """A call of 1,000 tokens of a pen is ten cents, and nothing is billed for its prompt, so for a 503 neither."""
    desk = Waits(body("pen", 1000))
    failed = desk.trip.call_id

    assert desk.fail(status, lambda: change(desk)) == goes_on
    assert (guard.PERMIT in desk.flow.metadata) == goes_on
    if not goes_on:
        assert (desk.trip.call_id, desk.trip.settled) == (failed, status == 503)
        assert desk.flow.response.status_code == status


SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@pytest.mark.parametrize("status", BUSY)
def test_one_that_left_with_unlimited_tools_does_not_go_under_a_limit_that_came_in_the_wait(status):
    told = {"model": "scout", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}], "tools": [SEARCH]}
    desk = Waits(told, None, provider="anthropic")
    assert desk.trip.admitted.parsed.tool_limit is not None

    assert not desk.fail(status, lambda: task_limit("5")(desk))


@pytest.mark.parametrize("status", BUSY)
def test_one_without_a_bound_does_not_go_under_a_limit_in_tokens_that_came_in_the_wait(status):
    desk = Waits(body("gift", None), None, pricing=PRICING | {"gift": {"free": "true"}})
    assert desk.trip.admitted.held.call.quote.is_endless

    assert not desk.fail(status, lambda: new_budget(limit=None, limit_tokens=10**9)(desk))


def asking(desk, *, good: bool):
    """Let a key be good, or not any more."""

    async def ask():
        if not good:
            raise IdentityError("revoked", "key_unknown")
        return desk.trip.caller

    desk.trip.ask_again = ask


@pytest.mark.parametrize("status", BUSY)
def test_a_key_that_is_over_after_the_wait_sends_nothing(status):
    desk = Waits(body("ink", 100), fallbacks=OTHERS)
    assert not desk.fail(status, lambda: asking(desk, good=False))

    assert guard.PERMIT not in desk.flow.metadata
    assert "x-lockpin-fallback-skipped" not in desk.flow.response.headers
    if not desk.trip.settled:
        desk.end(Outcome(Ending.DONE, 429))
    assert desk.held() == 0


@pytest.mark.parametrize("status", BUSY)
def test_a_key_that_is_over_falls_back_to_no_other_model(status):
    desk = Waits(body("ink", 100), fallbacks=OTHERS, attempts=1)
    failed = desk.trip.call_id
    asking(desk, good=False)
    assert not desk.fail(status)

    assert (desk.trip.call_id, guard.PERMIT in desk.flow.metadata) == (failed, False)
    desk.end(Outcome(Ending.DONE, status))
    assert desk.held() == 0
    charged = [row.usd for row in desk.ledger.rows if row.kind == "charge"]
    assert charged == ([] if status == 429 else [-(-len(desk.trip.incoming.body) // 3) * 1000])


@pytest.mark.parametrize("status", BUSY)
@pytest.mark.parametrize("attempts", [1, 3])
def test_a_key_that_is_good_goes_on(status, attempts):
    desk = Waits(body("ink", 100), fallbacks=OTHERS, attempts=attempts)
    asking(desk, good=True)
    assert desk.fail(status)
    assert guard.PERMIT in desk.flow.metadata


def test_a_client_that_leaves_while_its_key_is_asked_about_leaves_the_failed_attempt_charged():
    desk = Waits(body("ink", 100), fallbacks=OTHERS, attempts=1)

    async def ask():
        desk.trip.call_off()
        await asyncio.sleep(0)

    desk.trip.ask_again = ask
    assert not desk.fail(503)
    charged = [row.usd for row in desk.ledger.rows if row.kind == "charge"]
    assert charged == [-(-len(desk.trip.incoming.body) // 3) * 1000]
    assert desk.held() == 0


def revoke(desk):
    desk.trip.asked_at_s = -1e9  # long ago
    asking(desk, good=False)


@pytest.mark.parametrize("then", [revoke, lambda desk: desk.hook._stopping.set()])
@pytest.mark.parametrize("status", BUSY)
def test_what_changes_while_another_model_is_looked_for_is_seen_under_its_hold(status, then):
    """A keyring, a large body and the ledger take their time there: a key may be over, or the proxy stop."""
    desk = Waits(body("ink", 100), fallbacks=OTHERS, attempts=1)
    asking(desk, good=True)
    failed, priced = desk.trip.call_id, desk.engine._priced_call

    async def slow(incoming, wire):
        then(desk)
        return await priced(incoming, wire)

    desk.engine._priced_call = slow

    assert not desk.fail(status)
    assert guard.PERMIT not in desk.flow.metadata and guard.SENT in desk.flow.metadata
    assert (desk.trip.call_id, desk.trip.settled) == (failed, True)
    assert desk.flow.response.status_code == status
    ended = {row.call: row.kind for row in desk.ledger.rows if row.kind in ("void", "charge")}
    assert ended == {failed: "void" if status == 429 else "charge", "next-1" if status == 503 else "next-0": "void"}
    assert desk.held() == 0
