"""Playbooks of message batches: held once at the price of a batch, settled once by all of their results.

A token costs $1 as prompt and $5 as output a million, half of that in a batch; one of "dear" ten times as much.
"""

import asyncio
import json
from datetime import timedelta

import desks
import pytest
from desks import FACTS, NOW, Desk, config

from lockpin_core.aside import LARGE_BYTES, beside_loop
from lockpin_core.budgets import Budget
from lockpin_core.call import Ending, Outcome, Reading
from lockpin_core.engine import Answered, Passed
from lockpin_core.ledger.memory import MemoryLedger
from lockpin_core.money import Money
from lockpin_core.settler import Admitted
from lockpin_core.windows import Window

PATH = "/v1/messages/batches"
KEY = {"x-api-key": "sk-ant-api-one"}
DONE = Outcome(Ending.DONE, 200)
HALF = {"tiers": {"batch": {"x": "0.5"}}}
PRICING = {
    "ink": {"input": "1", "output": "5", **FACTS, **HALF},
    "dear": {"input": "10", "output": "50", **FACTS, **HALF},
    "bands": {"input": "1", "output": "5", **FACTS, **HALF, "above": [{"tokens": "999", "input": "3", "output": "7"}]},
    "abroad": {"input": "1", "output": "5", **FACTS, **HALF, "geo": {"us": "1.1"}},
    "whole": {"input": "1", "output": "5", **FACTS, "tiers": {}},
    "scout": {"input": "1", "output": "5", **FACTS, **HALF, "fees": {"web_search": "0.01"}},
}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}


def one(name: str, model: str = "ink", limit: int = 1000, text: str = "hi", **more: object) -> dict:
    message = {"role": "user", "content": text}
    return {"custom_id": name, "params": {"model": model, "max_tokens": limit, "messages": [message], **more}}


def desk_with(**change: object) -> Desk:
    return Desk(config(pricing=PRICING, **change))


def ask(desk: Desk, *requests: dict, headers: dict = KEY, **more: object):
    return desk.ask({"requests": list(requests)}, provider="anthropic", path=PATH, headers=headers, **more)


def created(desk: Desk, admitted: Admitted, name: str = "msgbatch_1") -> None:
    """Let the provider take the batch."""
    scanner = admitted.wire.scanner(streamed=False, asked=admitted.parsed)
    scanner.feed(json.dumps({"id": name, "type": "message_batch", "processing_status": "in_progress"}).encode())
    assert desk.engine.settle(admitted, scanner.result(), DONE).result() is None


def result(name: str, output: int, prompt: int = 10, model: str = "ink", **more: object) -> dict:
    usage = {"input_tokens": prompt, "output_tokens": output, "service_tier": "batch", **more}
    message = {"type": "message", "model": model, "stop_reason": "end_turn", "usage": usage}
    return {"custom_id": name, "result": {"type": "succeeded", "message": message}}


def other(name: str, kind: str = "expired") -> dict:
    return {"custom_id": name, "result": {"type": kind}}


def results(
    desk: Desk, *lines: dict, name: str = "msgbatch_1", headers: dict = KEY, end: str = "\n", path: str | None = None
) -> None:
    path = path or f"{PATH}/{name}/results"
    passed = desk.ask(method="GET", provider="anthropic", path=path, headers=headers)
    assert isinstance(passed, Passed) and passed.polled is not None
    scanner = passed.polled.wire.scanner(streamed=False)
    scanner.feed("\n".join(map(json.dumps, lines)).encode() + end.encode())
    asyncio.run(desk.engine.settle_polled(passed.polled, scanner.result()))


def charges(desk: Desk) -> list[tuple[int, str | None]]:
    ended = [(row.usd, desk.ledger._done[row.call or ""][0].charge) for row in desk.ledger.rows if row.kind == "charge"]
    return [(usd, None if charge is None else charge.reason) for usd, charge in ended]


def alone(desk: Desk, told: dict, **more: object) -> Money:
    """Give what a request is held at outside of a batch."""
    admitted = desk.ask(told["params"], provider="anthropic", path="/v1/messages", headers=KEY, **more)
    assert isinstance(admitted, Admitted)
    desk.engine.cancel(admitted.held.call.id)
    return admitted.held.call.quote.most


def test_it_is_held_once_at_half_of_what_its_requests_are_held_at_alone():
    desk = desk_with()
    told = [one("a"), one("b", "dear", 7, "grüße" * 50), one("c", "scout", tools=[SEARCH])]
    parts = [alone(desk, each).nano for each in told]

    admitted = ask(desk, *told)

    assert isinstance(admitted, Admitted)
    fees = 2 * 10_000_000  # searches cost the same in a batch
    assert admitted.held.call.quote.most.nano == (sum(parts) - fees) // 2 + fees
    assert admitted.held.call.quote.ceiling.requests == 3
    assert (admitted.body, admitted.parsed.batch) == (None, ())
    assert (admitted.held.call.model, admitted.held.call.terms.tier) == ("ink", "batch")
    assert desk.kinds().count("hold") == 4


def test_each_request_is_bounded_in_its_own_band():
    """Two prompts of half a band are no prompt in the next one."""
    desk = desk_with()
    short, long = one("a", "bands", 10, "x" * 50), one("b", "bands", 10, "x" * 2000)
    parts = [alone(desk, each).nano for each in (short, short, long)]

    admitted = ask(desk, short, one("c", "bands", 10, "x" * 50), long)

    assert isinstance(admitted, Admitted)
    assert admitted.held.call.quote.most.nano == sum(parts) // 2


def test_with_the_beta_of_longer_outputs_the_whole_limit_is_held():
    """The model's maximum is 50,000 tokens else."""
    desk = desk_with()
    long = {"anthropic-beta": "output-300k-2026-03-24"}
    most = [ask(desk, one("a", limit=limit), headers=KEY | more).held.call.quote for limit, more in (
        (100_000, {}), (300_000, {}), (300_000, long))]  # fmt: skip

    assert most[0] == most[1]
    assert most[2].most.nano - most[1].most.nano == 250_000 * 5_000 // 2
    assert most[2].tokens - most[1].tokens == 250_000


def test_its_results_settle_it_once():
    desk = desk_with()
    created(desk, ask(desk, one("a"), one("b"), one("c"), one("d", "dear")))
    held = desk.held()
    assert held > 0

    results(desk, result("d", 20, model="dear"), other("c"), result("a", 30, 100), other("b", "errored"))
    results(desk, result("d", 20, model="dear"), other("c"), result("a", 30, 100), other("b", "errored"))

    (charge,) = charges(desk)
    assert charge == ((10 * 10_000 + 20 * 50_000 + 100 * 1_000 + 30 * 5_000) // 2, None)
    assert (desk.held(), charge[0] < held) == (0, True)


def test_its_charge_says_what_each_model_and_each_band_came_to():
    desk = desk_with()
    created(
        desk, ask(desk, one("a"), one("b", "bands", text="x" * 4000), one("c", "bands"), one("d", "bands"), one("e"))
    )

    lines = [result("b", 10, 1000, "bands"), result("c", 10, 999, "bands"), result("d", 20, 600, "bands")]
    results(desk, *lines, result("a", 30, 100), other("e"))

    (row,) = (row for row in desk.ledger.rows if row.kind == "charge")
    shares = desk.ledger._done[row.call or ""][0].charge.shares
    assert [(s.model, s.prompts, s.least_prompt, s.most_prompt, s.amount.nano) for s in shares] == [
        ("bands", 1, 1000, 1000, (1000 * 3_000 + 10 * 7_000) // 2),
        ("bands", 2, 600, 999, (1599 * 1_000 + 30 * 5_000) // 2),
        ("ink", 1, 100, 100, (100 * 1_000 + 30 * 5_000) // 2),
    ]
    assert sum(share.amount.nano for share in shares) == row.usd


def test_each_result_is_charged_on_the_terms_that_it_states():
    """A region for one of them; and a tier that no batch should have, which is believed and booked above the hold."""
    desk = desk_with()
    created(desk, ask(desk, one("a", "abroad"), one("b", "abroad"), one("c", "abroad")))

    results(
        desk,
        result("a", 20, 0, model="abroad", inference_geo="us"),
        result("b", 20, 0, model="abroad", inference_geo="global"),
        result("c", 20, 0, model="abroad", service_tier="standard"),
    )

    half = 20 * 5_000 // 2
    assert charges(desk) == [(half * 11 // 10 + half + 2 * half, None)]


def test_ordinary_bodies_do_not_stand_behind_very_many_results():
    desk = desk_with()
    names = [f"r{number}" for number in range(2000)]
    created(desk, ask(desk, *map(one, names)))
    passed = desk.ask(method="GET", provider="anthropic", path=f"{PATH}/msgbatch_1/results", headers=KEY)
    scanner = passed.polled.wire.scanner(streamed=False)
    scanner.feed("\n".join(json.dumps(result(name, 30)) for name in names).encode())

    async def others() -> int:
        settling, count = asyncio.create_task(desk.engine.settle_polled(passed.polled, scanner.result())), 0
        while not settling.done():
            await beside_loop(LARGE_BYTES, lambda: None)
            count += 1
        await settling
        return count

    assert asyncio.run(others()) > 10  # each has its turn among the results'
    assert charges(desk) == [(2000 * (10 * 1_000 + 30 * 5_000) // 2, None)]


def test_a_batch_of_which_nothing_succeeded_costs_nothing():
    desk = desk_with()
    created(desk, ask(desk, one("a"), one("b")))

    results(desk, other("a", "canceled"), other("b", "errored"))

    assert (charges(desk), desk.held()) == ([(0, None)], 0)


@pytest.mark.parametrize(
    "lines",
    [
        [result("a", 30)],
        [result("a", 30), other("b"), other("c")],
        [result("a", 30), {"type": "error", "error": {"type": "not_found_error"}}],
        [],
    ],
)
def test_results_that_are_not_one_for_each_request_leave_it_held(lines: list):
    desk = desk_with()
    created(desk, ask(desk, one("a"), one("b")))
    held = desk.held()

    results(desk, *lines)

    assert (desk.held(), charges(desk)) == (held, [])
    results(desk, result("a", 30), other("b"))
    assert charges(desk) == [((10 * 1_000 + 30 * 5_000) // 2, None)]


def test_results_that_were_cut_leave_it_held():
    desk = desk_with()
    created(desk, ask(desk, one("a"), one("b")))
    held = desk.held()

    results(desk, result("a", 30), other("b"), end="")
    assert desk.held() == 0
    desk = desk_with()
    created(desk, ask(desk, one("a"), one("b")))
    results(desk, result("a", 30), other("b"), end='\n{"custom_id": "c", "res')

    assert desk.held() == held


@pytest.mark.parametrize(
    "line",
    [
        {"custom_id": "b", "result": {"type": "succeeded", "message": {}}},
        result("b", 5, cache_creation_input_tokens=9),
        result("b", 5, model="a model without a price"),
    ],
)
def test_whole_results_of_which_one_cannot_be_priced_are_charged_the_hold(line: dict):
    desk = desk_with()
    created(desk, ask(desk, one("a"), one("b")))
    held = desk.held()

    results(desk, result("a", 30), line)

    ((nano, reason),) = charges(desk)
    assert (nano, reason in ("no_usage", "no_price")) == (held, True)


def test_only_the_account_that_sent_it_settles_it_and_only_by_its_results():
    desk = desk_with()
    created(desk, ask(desk, one("a")))
    held = desk.held()

    results(desk, result("a", 30), headers={"x-api-key": "sk-ant-api-two"})
    results(desk, result("a", 30), name="msgbatch_2")
    for method, path in (
        ("GET", ""),
        ("GET", "/msgbatch_1"),
        ("POST", "/msgbatch_1/cancel"),
        ("DELETE", "/msgbatch_1"),
    ):
        passed = desk.ask(method=method, provider="anthropic", path=PATH + path, headers=KEY)
        assert isinstance(passed, Passed) and passed.polled is None

    assert desk.held() == held


@pytest.mark.parametrize("up", ["..", "%2e%2e", ".%2E"])
def test_a_path_settles_the_batch_whose_results_it_leads_to(up: str):
    """Not one that is named on the way: dots are resolved before anybody reads it."""
    desk = desk_with()
    created(desk, ask(desk, one("a", limit=5000)), "msgbatch_x")
    x_held = desk.held()
    created(desk, ask(desk, one("a", limit=1)), "msgbatch_y")

    results(desk, other("a", "errored"), path=f"{PATH}/msgbatch_x/results/{up}/{up}/msgbatch_y/results")

    assert (desk.held(), charges(desk)) == (x_held, [(0, None)])


def test_results_with_other_names_leave_the_hold():
    desk = desk_with()
    created(desk, ask(desk, one("a"), one("b")))
    held = desk.held()

    for second in (other("c"), result("a", 5)):
        results(desk, result("a", 30), second)
        assert desk.held() == held

    results(desk, other("b"), other("a"))
    assert (desk.held(), charges(desk)) == (0, [(0, None)])


@pytest.mark.parametrize(
    "headers", [{"authorization": "Bearer sk-ant-api-one"}, {"authorization": "bearer sk-ant-api-one"}]
)
def test_the_key_that_sent_it_settles_it_from_another_header(headers: dict):
    desk = desk_with()
    created(desk, ask(desk, one("a")))

    results(desk, other("a"), headers=headers)

    assert (desk.held(), charges(desk)) == (0, [(0, None)])


@pytest.mark.parametrize(("ending", "status"), [(Ending.DONE, 502), (Ending.DONE, 529), (Ending.DROPPED, None)])
def test_one_that_the_provider_may_have_taken_on_all_the_same_is_charged_its_hold(ending: Ending, status: int | None):
    desk = desk_with()
    admitted = ask(desk, one("a"), one("b"))
    assert isinstance(admitted, Admitted)

    desk.engine.settle(admitted, Reading(), Outcome(ending, status)).result()

    assert charges(desk) == [(admitted.held.call.quote.most.nano, "failed")]


def test_it_is_kept_for_as_long_as_batches_are_and_then_charged_in_full():
    times = [NOW]
    ledger = MemoryLedger(clock=lambda: times[0])
    desk = Desk(config(pricing=PRICING, hold_for_ms=60_000, hold_for_batch_ms=3_600_000), ledger, lambda: times[0])
    created(desk, ask(desk, one("a")))
    held = desk.held()

    times[0] = NOW + timedelta(minutes=59)
    ledger.look_after()
    assert desk.held() == held
    times[0] = NOW + timedelta(minutes=61)
    ledger.look_after()

    assert charges(desk) == [(held, "expired")]
    results(desk, result("a", 30))
    assert (ledger.rows[-1].kind, ledger.rows[-1].usd) == ("correction", (10 * 1_000 + 30 * 5_000) // 2 - held)


@pytest.mark.parametrize("status", [400, 401, 404, 413, 429])
def test_an_error_takes_the_hold_off(status: int):
    desk = desk_with()
    admitted = ask(desk, one("a"), one("b"))
    assert isinstance(admitted, Admitted)

    desk.engine.settle(admitted, Reading(), Outcome(Ending.DONE, status))

    assert (desk.held(), charges(desk)) == (0, [])
    assert desk.kinds() == ["hold", "void"]


def test_a_reply_without_an_id_is_charged_the_hold():
    desk = desk_with()
    admitted = ask(desk, one("a"))
    assert isinstance(admitted, Admitted)
    scanner = admitted.wire.scanner(streamed=False, asked=admitted.parsed)
    scanner.feed(b"{}")

    settled = desk.engine.settle(admitted, scanner.result(), DONE).result()

    assert settled is not None
    assert charges(desk) == [(admitted.held.call.quote.most.nano, "no_usage")]


def test_a_model_without_a_price_for_batches_is_refused():
    desk = desk_with(task=config(task_usd="9").task)

    answer = ask(desk, one("a"), one("b", "whole"))

    assert isinstance(answer, Answered)
    assert answer.code == "unpriced_tool"
    assert b"requests[1]: " in answer.reply.body and b"whole has no price for batches" in answer.reply.body
    unknown = ask(desk, one("a"), one("b"), one("c", "unheard-of"))
    assert isinstance(unknown, Answered) and unknown.code == "unknown_model"
    assert b'lockpin: requests[2]: model \\"unheard-of\\" has no price' in unknown.reply.body


@pytest.mark.parametrize(
    ("later", "code"),
    [({"custom_id": "a"}, "bad_request"), (one("a"), "bad_request"), (one("c", limit=-1), "bad_request"),
     (one("c", speed="fast"), "unpriced_tool"), (one("c", inference_geo="us"), "unpriced_tool")],
)  # fmt: skip
def test_a_later_request_that_is_wrong_is_refused_as_the_first_is(later: dict, code: str):
    desk = desk_with(task=config(task_usd="9").task)

    answer = ask(desk, one("a"), one("b"), later)

    assert isinstance(answer, Answered)
    assert (answer.code, desk.kinds()) == (code, ["refusal"])


def test_ordinary_bodies_do_not_stand_behind_a_batch_of_many_small_requests():
    desk = desk_with()
    raw = json.dumps({"requests": [one(f"r{number}") for number in range(3000)]}).encode()
    assert len(raw) < 1 << 20
    batch = desk.incoming(raw, provider="anthropic", path=PATH, headers=KEY)
    message = one("a", text="x" * 20_000)["params"]

    async def ordinary_ones() -> int:
        asking, count = asyncio.create_task(desk.engine.admit(batch)), 0
        while not asking.done():
            other = desk.incoming(message, provider="anthropic", path="/v1/messages", headers=KEY)
            assert isinstance(await desk.engine.admit(other), Admitted)
            count += 1
        assert isinstance(await asking, Admitted)
        return count

    assert asyncio.run(ordinary_ones()) > 10  # each has its turn among the batch's


def test_what_does_not_fit_is_refused_whole_and_what_fits_at_half_the_price_is_not():
    desk = desk_with()
    most = [alone(desk, one(name)).nano for name in "ab"]
    fits = Money(sum(most) // 2)

    held = ask(desk_with(task=config(task_usd=fits.exact()).task), one("a"), one("b"))
    short = ask(desk_with(task=config(task_usd=Money(fits.nano - 1).exact()).task), one("a"), one("b"))

    assert isinstance(held, Admitted)
    assert isinstance(short, Answered) and short.code == "budget_exceeded"
    assert "fits" not in json.loads(short.reply.body)["lockpin"]


def limited(*models: str, enforce: bool = True) -> Budget:
    return Budget("b", "machine", Window("day"), Money.parse("5"), enforce=enforce, models=models)


def test_models_that_other_limits_are_for_do_not_go_in_one_batch():
    """It is held once: under the name of the cheap one, the dear one's limit would not see it."""
    desk = desk_with(budgets=(limited("dear"),))

    mixed = ask(desk, one("a"), one("b", "dear"))

    assert isinstance(mixed, Answered)
    assert mixed.code == "unpriced_tool"
    assert b"a batch for each model" in mixed.reply.body
    for told in ([one("a")], [one("a", "dear"), one("b", "dear")], [one("a"), one("b", "scout")]):
        assert isinstance(ask(desk, *told), Admitted)
    assert isinstance(ask(desk_with(budgets=(limited("*"),)), one("a"), one("b", "dear")), Admitted)
    assert isinstance(ask(desk_with(budgets=(limited("dear", enforce=False),)), one("a"), one("b", "dear")), Admitted)


def test_others_that_speak_like_anthropic_have_no_batches():
    """Whether they have any is not known of most, nor what they cost there."""
    found = {provider.name for provider in desks.PROVIDERS.all() if "anthropic_batches" in provider.wires.values()}

    assert found == {"anthropic"}
