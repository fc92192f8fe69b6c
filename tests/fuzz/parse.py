"""Target: any body to any metered path is refused by name, or is held for at least what it may be charged."""

from dataclasses import replace

from asking import asked, bare, incoming, price, told_by
from bills import CONFIG, DONE, bill, reading_of
from inputs import Choices, split

from lockpin_core.admission import Priced, Refused, limit_to_set
from lockpin_core.call import Call, Charge
from lockpin_core.errors import WireError
from lockpin_core.ladder import Room
from lockpin_core.money import Money
from lockpin_core.settlement import settle

CODES = frozenset({"bad_request", "unpriced_tool", "too_large"})
REFUSALS = frozenset({"unpriced_tool", "unknown_model", "bad_request"})


def run(data: bytes) -> None:
    head, body = split(data)
    choices = Choices(head)
    wire, came = incoming(choices, body)
    try:
        found = price(came, wire, choices)
        found = replace(found, model=bare(found.model))
        set_limit = limit_to_set(found, CONFIG, capped=True) if choices.flag() else None
        call = found.call(set_limit)
    except WireError as error:
        assert error.code in CODES and 0 < len(str(error)) < 400 and str(error).isprintable(), str(error)
        return
    except Refused as error:
        assert error.code in REFUSALS, error.code
        return
    _check_asides(found, body)
    told = told_by(came)
    _check_bill(found, call, told, choices, set_limit)
    _check_smaller(found, call, told, choices)


def _check_bill(found: Priced, call: Call, told: dict, choices: Choices, limit: int | None) -> None:
    made = asked(found, call, told, limit=limit)
    charge = settle(call, reading_of(made, bill(made), choices), DONE, found.tariff(CONFIG))
    assert isinstance(charge, Charge)
    assert charge.amount <= call.quote.most, f"{charge} > {call.quote}"
    assert call.quote.is_endless or charge.tokens <= call.quote.tokens, f"{charge} > {call.quote}"


def _check_smaller(found: Priced, call: Call, told: dict, choices: Choices) -> None:
    """A version with less output, or fewer calls of tools, is no dearer."""
    if not found.parsed.output_settable:
        return
    limit = 1 + choices.number()
    if limit <= (call.output_limit or 0):
        lower = found.call(limit)
        assert lower.quote.most <= call.quote.most and lower.quote.tokens <= call.quote.tokens
        _check_bill(found, lower, told, choices, limit)
    if choices.number() % 4 == 1:
        _check_room(found, call, choices)
    if found.parsed.tools:
        fewer = found.with_tool_limit(1 + choices.number() % 4).call(call.output_limit if call.limit_set else None)
        assert fewer.quote.most <= call.quote.most and fewer.quote.tokens <= call.quote.tokens


def _check_room(found: Priced, call: Call, choices: Choices) -> None:
    """The largest output for a room fits into it, and one token more does not."""
    most = call.output_limit or 0
    usd = Money(choices.total(call.quote.most.nano)) if choices.flag() else None
    tokens = choices.total(call.quote.tokens) if choices.flag() else None
    limit = found.largest_output(most, Room(usd, tokens))
    assert 0 <= limit <= most
    for output, is_within in ((limit, True), (limit + 1, False)):
        if 1 <= output <= most:
            quote = found.call(output).quote
            fits = (usd is None or quote.most <= usd) and (tokens is None or quote.tokens <= tokens)
            assert fits == is_within, f"{output} of {most}: {quote} in {usd}, {tokens}"


def _check_asides(found: Priced, body: bytes) -> None:
    """What else is asked of a body that parses raises nothing."""
    request, wire = found.incoming.request(), found.wire
    assert len(wire.same_call(request)) == 32
    texts = wire.texts(request)
    if texts is not None:
        assert sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) <= found.parsed.content.text_bytes + 1
    counting = wire.count_request(request)
    assert counting is None or (counting.path.startswith("/") and counting.body)
