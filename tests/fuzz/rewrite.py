"""Target: a body that was changed differs in what was asked for alone, is JSON, and costs no more than was held for it."""

import json
from collections.abc import Mapping
from dataclasses import replace

from asking import incoming, price
from bills import CONFIG, PRICES
from desks import NOW
from inputs import Choices, split
from lighter import check

from lockpin_core.admission import Priced, Refused, body_change, limit_to_set, priced
from lockpin_core.admission_routing import price_cap, with_price_cap
from lockpin_core.call import Call, Rewrite
from lockpin_core.errors import WireError
from lockpin_core.wire.protocol import Wire

TOUCHED = {  # members that a change may touch
    "anthropic_messages": {"max_tokens", "thinking", "tools", "fallbacks"},
    "openai_chat": {"max_completion_tokens", "max_tokens", "stream_options"},
    "openai_completions": {"max_tokens", "max_completion_tokens", "stream_options"},
    "compatible_completions": {"max_tokens", "max_completion_tokens", "stream_options"},
    "openai_responses": {"max_output_tokens", "max_tool_calls"},
    "gemini": {"generationConfig", "generation_config"},
    "gemini_interactions": {"generation_config"},
    "code_assist": {"request"},
    "bedrock_converse": {"inferenceConfig", "additionalModelRequestFields"},
    "bedrock_invoke": {"max_tokens", "thinking", "tools", "fallbacks"},
}
SET_INSIDE = {
    "max_uses",
    "budget_tokens",
    "include_usage",
    "maxOutputTokens",
    "max_output_tokens",
    "max_tokens",
    "maxTokens",
}


def run(data: bytes) -> None:
    head, body = split(data)
    choices = Choices(head)
    wire_name, came = incoming(choices, body)
    try:
        found = replace(price(came, wire_name, choices), is_capped=choices.flag())
        whole, (found, call) = found, _version(found, choices)
    except (WireError, Refused):
        return
    check(whole, choices)
    change = body_change(found, call)
    if change is None:
        return
    field = came.provider.output_field
    request, wire = came.request(), found.wire
    try:
        made = wire.rewrite(request, change, output_field=field, parsed=found.parsed)
    except WireError:
        low = wire.least_output(found.parsed)
        assert change.max_output is not None and change.max_output < low, "a limit that is valid cannot be set"
        return  # thinking leaves no room for so small a limit: nothing is sent
    assert made == wire.rewrite(request, change, output_field=field), "the layout changes the result"
    _check_members(wire, body, made)
    _check_again(found, call, change, made)
    cap = price_cap(found, call.quote.ceiling.prompt)
    if cap is not None:
        _check_cap(made, with_price_cap(made, cap))


def _version(found: Priced, choices: Choices) -> tuple[Priced, Call]:
    """Make the call as it is first held, or a smaller one."""
    limit = limit_to_set(found, CONFIG, capped=found.is_capped)
    calls = max((tool.calls for tool in found.parsed.tools), default=1)
    if calls > 1 and found.parsed.output_settable and choices.flag():
        found = found.with_tool_limit(1 + choices.number() % (calls - 1))
    if found.is_capped and found.parsed.output_settable and choices.flag():
        most = found.call(limit).output_limit
        least = found.wire.least_output(found.parsed)
        if most is not None and most >= least:  # a limit is never set above what was asked for
            limit = max(least, min(most, 1 + choices.number() * 37))
    return found, found.call(limit)


def _check_members(wire: Wire, before: bytes, after: bytes) -> None:
    """What may not change is there byte for byte, in its order; what is new is a member that may change."""
    old, new = _members(before), _members(after)
    touched = TOUCHED.get(wire.name, set())
    assert [one for one in old.items() if one[0] not in touched] == [
        one for one in new.items() if one[0] not in touched
    ]
    for key in touched & new.keys():
        _check_inside(json.loads(old.get(key, "null")), json.loads(new[key]))


def _check_inside(old: object, new: object, key: str = "") -> None:
    """Inside a member that may change everything else is as it was."""
    if isinstance(new, dict) and isinstance(old, dict | None):
        assert all(name in new for name in old or {}), "a member is lost"
        for name, item in new.items():
            _check_inside((old or {}).get(name), item, name)
    elif isinstance(new, list) and isinstance(old, list):
        assert len(old) == len(new)
        for one, other in zip(old, new, strict=True):
            _check_inside(one, other)
    else:
        assert old == new or key in SET_INSIDE or type(new) is int, (key, old, new)


def _members(body: bytes) -> Mapping[str, str]:
    """Split an object into its members' texts."""
    text, decode = body.decode(), json.JSONDecoder().raw_decode
    found, at = {}, _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        key, at = decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, at = decode(text, start)
        found[key] = text[start:at]
        at = _skip(text, at)
        at = _skip(text, at + 1) if text[at] == "," else at
    return found


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _check_again(found: Priced, call: Call, change: Rewrite, made: bytes) -> None:
    """What leaves is read again like any other request: it costs at most what was held, and needs no more changes."""
    before, came = found.parsed, replace(found.incoming, body=made)
    parsed = found.wire.parse(came.request())
    if change.max_output is not None:
        # The client's own zero goes where the host obeys it, as it is; it is held as the least that a limit may be.
        wanted = 0 if before.unheeded_limit == 0 else change.max_output
        assert parsed.output_limit == wanted <= change.max_output, (parsed.output_limit, change)
    assert parsed.asks_usage or not change.ask_usage
    assert parsed.tool_limit is None or change.tool_limit is None, "a tool is still without a limit"
    assert parsed.terms == before.terms and parsed.streamed == before.streamed
    # What was put in counts as text too where a body is counted by its bytes, though no model reads it.
    parsed = replace(parsed, model=before.model, content=before.content, extra_output=before.extra_output)
    held, leaves = call.quote, priced(came, found.wire, parsed, PRICES, NOW).call(None).quote
    assert leaves.most <= held.most and leaves.tokens <= held.tokens, f"{leaves} > {held}"
    assert all(count <= held.ceiling.fees.get(fee, 0) for fee, count in leaves.ceiling.fees.items())


def _check_cap(before: bytes, after: bytes) -> None:
    old, new = json.loads(before), json.loads(after)
    assert {key: item for key, item in old.items() if key != "provider"} == {
        key: item for key, item in new.items() if key != "provider"
    }
    assert new["provider"]["max_price"].keys() >= {"prompt", "completion", "request"}
    assert old.get("provider") in (None, []) or all(new["provider"][key] == one for key, one in old["provider"].items())
