"""What the provider may run by itself within one Messages call, and what of it costs. Knows no prices.

Each call of the provider's own tools is followed by another sampling, which reads the whole conversation again;
`usage.input_tokens` is their sum, and nobody says that `max_tokens` bounds the sum of their outputs: each may have it.
A tool that may be limited (`max_uses`) and is not gets TOOL_LIMIT, which is then written into the body; one that cannot
be limited is taken to be called TOOL_CALLS times: the provider pauses a turn that goes on for long, and leaves open
when. A plan login's body must not change: there a tool without a limit is taken to be called TOOL_LIMIT times.
Source: the provider's references of tools, compaction, fallbacks and the advisor, read 2026-11.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lockpin_core.call import Also, ToolUse
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.jsonbody import model_name, plain_word, shown, whole
from lockpin_core.wire.splice import Splice

TOOL_LIMIT = 5
TOOL_CALLS = 10
SUMMARY_TOKENS = 16_000  # what a compaction may write where the request's own limit is lower, which may not apply to it
TOOL_PROMPT_TOKENS = 4096  # an allowance: how the provider describes a tool of its own to the model is not known
SUMMARY_PROMPT_TOKENS = 2000  # an allowance: what the provider tells the model for it is not known
DEFAULT_FALLBACK = "claude-opus-4-8"
"""What `fallbacks: "default"` is held as. The provider retries once, on the model that it recommends for the kind of
refusal: all that it is known to name are of the Opus line, none dearer than this one. Read 2026-11."""

_LIMITABLE = ("web_search_", "web_fetch_", "advisor_")
_UNLIMITED = ("code_execution_", "tool_search_tool_", "mcp_toolset")
_DATED = re.compile(r"web_(?:search|fetch)_([0-9]{8})")
_CODE_IS_FREE_FROM = 20260209  # with web tools of this date or later the provider bills no container


@dataclass(frozen=True, slots=True)
class Hosted:
    """The most that the provider may run within a call beside the one sampling that was asked for."""

    rounds: int = 1
    extra_output: int = 0
    extra_prompt: int = 0
    fees: Mapping[Unit, int] = field(default_factory=dict)
    also: tuple[Also, ...] = ()
    hidden: str | None = None
    needs_limit: bool = False  # a tool that may be limited is not
    uses: tuple[ToolUse, ...] = ()  # what a lower limit makes less of
    grows: bool = False


@dataclass(frozen=True, slots=True)
class _Tool:
    """A tool that the provider runs, and how often at most."""

    kind: str
    calls: int
    members: Mapping[str, object]
    needs_limit: bool = False


def hosted(members: Mapping[str, object], model: str, limit: int | None) -> Hosted:
    """Count from a body whose shapes were checked; `limit` is its `max_tokens`. Raises WireError."""
    tools = [found for tool in _objects(members.get("tools")) if (found := _tool(tool)) is not None]
    hops = _hops(members.get("fallbacks"), limit)
    rounds = 1 + sum(tool.calls for tool in tools) + TOOL_CALLS * _bare_servers(members, tools)
    compacts = _compacts(members.get("context_management"))
    passes = 2 * rounds if compacts and rounds > 1 else rounds  # a compaction may go before each sampling
    summaries = [_summary(one) for one in (Also(model, limit), *hops)] if compacts else []
    if passes > rounds:
        hops = summaries[1:]  # each of an attempt's samplings may be a summary
    is_plain = not compacts and not hops and not any(tool.kind.startswith("advisor_") for tool in tools)
    summarizes = compacts or bool(members.get("compaction"))
    return Hosted(
        rounds=passes,
        extra_output=(passes - rounds) * SUMMARY_TOKENS,
        extra_prompt=TOOL_PROMPT_TOKENS * len(tools) + (SUMMARY_PROMPT_TOKENS if summarizes else 0),
        fees=_fees(tools, 1 + len(hops), has_container=bool(members.get("container"))),
        also=(
            *(replace(hop, rounds=passes, fills=rounds > 1) for hop in hops),
            *(summaries if passes == rounds else ()),
            *_advice(tools, 1 + len(hops), limit),
        ),
        hidden=_hidden(members, tools, hops, limit),
        needs_limit=any(tool.needs_limit for tool in tools),
        uses=tuple(_use(tool) for tool in tools if tool.kind.startswith(_LIMITABLE)) if is_plain else (),
        grows=rounds > 1 or summarizes or bool(hops) or _resumes(members.get("thread")),
    )


def _use(tool: _Tool) -> ToolUse:
    return ToolUse(tool.calls, 1, 1, {Unit.WEB_SEARCH: 1} if tool.kind.startswith("web_search_") else {})


def _tool(tool: Mapping[str, object]) -> _Tool | None:
    """Say how often the provider may call a tool; None: the client runs it."""
    kind = str(tool.get("type"))
    if kind.startswith(_UNLIMITED):
        return _Tool(kind, TOOL_CALLS, tool)
    if not kind.startswith(_LIMITABLE):
        return None
    most = whole(tool.get("max_uses"), "max_uses of a tool")
    return _Tool(kind, TOOL_LIMIT if most is None else max(most, 1), tool, needs_limit=most is None)


def _bare_servers(members: Mapping[str, object], tools: Sequence[_Tool]) -> int:
    """Count MCP servers that no toolset stands for, as in the first form of the feature."""
    toolsets = sum(tool.kind == "mcp_toolset" for tool in tools)
    return max(0, len(_objects(members.get("mcp_servers"))) - toolsets)


def _hidden(
    members: Mapping[str, object], tools: Sequence[_Tool], hops: Sequence[Also], limit: int | None
) -> str | None:
    """Say why the body does not show what is read first: the window bounds other models than the request's too."""
    if members.get("container"):
        return "container"
    if members.get("mcp_servers") or any(tool.kind == "mcp_toolset" for tool in tools):
        return "tools of MCP servers"
    return "fallbacks" if hops and limit is None else None


def _hops(fallbacks: object, limit: int | None) -> list[Also]:
    if fallbacks is None or fallbacks == "default":
        return [] if fallbacks is None else [_hop(DEFAULT_FALLBACK, limit, (limit,))]
    if type(fallbacks) is not list:
        raise WireError(f'fallbacks is {shown(fallbacks)}; a list or "default" is allowed')
    hops: list[Also] = []
    for one in fallbacks:
        own = whole(one.get("max_tokens"), "max_tokens of a fallback")
        speed = plain_word(one.get("speed"), "speed of a fallback")
        said = (limit, *(hop.output_limit for hop in hops))
        hops.append(_hop(model_name(one.get("model")), limit if own is None else own, said, speed))
    return hops


def _hop(model: str, limit: int | None, said: tuple[int | None, ...], speed: str | None = None) -> Also:
    """Make an attempt after others, by their limits."""
    after = tuple(one for one in said if one is not None)
    return Also(model, limit, 1, _carried(sum(after)), speed, after=after if len(after) == len(said) else None)


def lowered_hops(also: Sequence[Also], limit: int) -> tuple[Also, ...]:
    """Give what other models may do once this limit stands in the place of higher ones."""
    return tuple(
        one
        if one.after is None or one.output_limit is None
        else replace(
            one,
            output_limit=min(one.output_limit, limit),
            extra_prompt=_carried(sum(min(said, limit) for said in one.after)),
        )
        for one in also
    )


def _carried(said: int) -> int:
    """Bound what an attempt reads of what those before it have said: half as much again, as tokenizers differ."""
    return said + said // 2


def _resumes(thread: object) -> bool:
    """Say whether the provider adds a conversation that it kept."""
    return isinstance(thread, dict) and thread.get("type") != "create"


def _compacts(management: object) -> bool:
    edits = management.get("edits") if isinstance(management, dict) else None
    return any(str(edit.get("type")).startswith("compact_") for edit in _objects(edits))


def _summary(attempt: Also) -> Also:
    """Bound one compaction before an attempt: its model reads the prompt once more, and writes a summary."""
    limit = attempt.output_limit
    return replace(attempt, output_limit=None if limit is None else max(limit, SUMMARY_TOKENS), after=None)


def _advice(tools: Sequence[_Tool], attempts: int, limit: int | None) -> list[Also]:
    """Bound advisors: each reads the conversation whenever it is asked, with all that was said and found until then."""
    is_alone = len(tools) == 1 and attempts == 1 and limit is not None  # only the model has spoken before it is asked
    return [
        Also(
            model_name(tool.members.get("model")),
            whole(tool.members.get("max_tokens"), "max_tokens of a tool"),
            tool.calls * attempts,
            _carried(limit or 0) if is_alone else 0,
            fills=not is_alone,
        )
        for tool in tools
        if tool.kind.startswith("advisor_")
    ]


def _fees(tools: Sequence[_Tool], attempts: int, *, has_container: bool) -> dict[Unit, int]:
    searches = sum(tool.calls for tool in tools if tool.kind.startswith("web_search_"))
    runs_code = has_container or any(tool.kind.startswith("code_execution_") for tool in tools)
    dates = [int(match[1]) for tool in tools if (match := _DATED.fullmatch(tool.kind))]
    is_free = any(date >= _CODE_IS_FREE_FROM for date in dates)
    fees = {Unit.WEB_SEARCH: searches * attempts, Unit.CODE_SESSION: int(runs_code and not is_free)}
    return {unit: most for unit, most in fees.items() if most}


def limit_tools(tools: bytes, limit: int | None, most: int | None = None) -> bytes:
    """Give a list of tools, as it is written, in which those that may have a limit and have none get `limit`, and those
    with a higher one than `most` get that.
    """

    def change(raw: bytes, tool: Mapping[str, object]) -> Mapping[str, bytes]:
        found = _tool(tool)
        if found is None or not found.kind.startswith(_LIMITABLE):
            return {}
        if found.needs_limit:
            return {} if limit is None else {"max_uses": b"%d" % limit}
        return {"max_uses": b"%d" % most} if most is not None and found.calls > most else {}

    return change_each(tools, change)


def change_each(raw: bytes, change: Callable[[bytes, Mapping[str, object]], Mapping[str, bytes]]) -> bytes:
    """Set members of the objects in a list, as it is written: `change` says which; every other byte stays."""
    text, decoder = raw.decode(), json.JSONDecoder()
    pieces: list[str] = []
    kept, at = 0, text.index("[") + 1
    while (start := _next(text, at)) is not None:
        value, at = decoder.raw_decode(text, start)
        element = text[start:at].encode()
        if isinstance(value, dict) and (values := change(element, value)):
            pieces += (text[kept:start], Splice.of(element).having(values).decode())
            kept = at
    return "".join([*pieces, text[kept:]]).encode()


def _next(text: str, at: int) -> int | None:
    """Find where the next element of a list begins; None at its end."""
    while text[at] in " \t\n\r,":
        at += 1
    return None if text[at] == "]" else at


def _objects(value: object) -> list[dict[str, object]]:
    return [one for one in value if isinstance(one, dict)] if type(value) is list else []
