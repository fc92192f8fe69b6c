"""Whatever is changed in a body that leaves, every other byte of it stays: in any spelling that JSON has for it.

A body is written twice with the same spaces, escapes and order of members: as the client sends it, and with nothing but
the changed values in it. What a wire makes of the first must be the second.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from forms import FORMS
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.admission_routing import with_price_cap
from lockpin_core.call import Request, Rewrite
from lockpin_core.errors import WireError
from lockpin_core.wire import WIRES, wire_named
from lockpin_core.wire.protocol import Wire

STRINGS = st.text(max_size=6) | st.sampled_from(['a"b\\c', "\u2028é", "\U0001f600", "\x7f/", "max_tokens"])
PLAIN = STRINGS | st.none() | st.booleans() | st.integers(-(10**20), 10**20)
NOTES = st.dictionaries(STRINGS, STRINGS, max_size=3)
LIMITS = st.integers(1025, 10**6)
CAP = b'{"prompt":1,"completion":5.5,"request":0}'


@dataclass(frozen=True)
class Swap:
    """A value that is changed: how it is written before and after."""

    before: str
    after: str


@dataclass(frozen=True)
class Grown:
    """An object that gets members, which are put first."""

    members: dict
    more: str


class Writer:
    """Writes JSON with spaces, escapes and an order of members that its seed says."""

    def __init__(self, seed: int, *, is_after: bool) -> None:
        self._dice, self._is_after = random.Random(seed), is_after

    def write(self, value: object) -> str:
        match value:
            case Swap():
                return value.after if self._is_after else value.before
            case Grown():
                whole = self._object(value.members)
                more = value.more + ("," if value.members else "")
                return "{" + more + whole[1:] if self._is_after else whole
            case dict():
                return self._object(value)
            case list():
                return "[" + self._space() + self._between([self.write(item) for item in value]) + "]"
            case str():
                return self._string(value)
        return json.dumps(value)

    def _object(self, members: dict) -> str:
        listed = list(members.items())
        self._dice.shuffle(listed)
        parts = [f"{self._string(key)}{self._space()}:{self._space()}{self.write(item)}" for key, item in listed]
        return "{" + self._space() + self._between(parts) + "}"

    def _between(self, parts: list[str]) -> str:
        return "".join(part + self._space() + ("" if last else "," + self._space()) for last, part in _ended(parts))

    def _space(self) -> str:
        return self._dice.choice(("", "", " ", "\n\t", "\r\n  "))

    def _string(self, text: str) -> str:
        return '"' + "".join(map(self._character, text)) + '"'

    def _character(self, one: str) -> str:
        plain = json.dumps(one, ensure_ascii=False)[1:-1]
        units = one.encode("utf-16-be", "surrogatepass")
        escaped = "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
        is_lone = "\ud800" <= one <= "\udfff"
        return escaped if is_lone or self._dice.random() < 0.2 else plain


def _ended(parts: list[str]) -> list[tuple[bool, str]]:
    return [(index == len(parts) - 1, part) for index, part in enumerate(parts)]


# A body of each wire, and the change that makes of it what it says


@dataclass(frozen=True)
class Case:
    wire: str
    body: dict | Grown
    change: Rewrite
    output_field: str = "max_tokens"


def limited(draw: st.DrawFn, members: dict, field: str, limit: int, more: list[str]) -> bool:
    """Give the body a limit that is changed, or note the one that it gets; False: it stays, being lower."""
    old = draw(st.sampled_from(["absent", "null", "1", "999999999"]))
    if old == "absent":
        more.append(f'"{field}":{limit}')
    else:
        members[field] = Swap(old, "1" if old == "1" else str(limit))
    return old != "1"


def streamed(draw: st.DrawFn, members: dict, more: list[str]) -> None:
    """Give the body options for its stream, in which usage is asked for."""
    asks = '"include_usage":true'
    kind = draw(st.sampled_from(["absent", "null", "asked not", "other"]))
    if kind == "absent":
        more.append('"stream_options":{' + asks + "}")
    elif kind == "null":
        members["stream_options"] = Swap("null", "{" + asks + "}")
    elif kind == "asked not":
        members["stream_options"] = {"include_obfuscation": False, "include_usage": Swap("false", "true")}
    else:
        members["stream_options"] = Grown(draw(st.sampled_from([{}, {"include_obfuscation": False}])), asks)


def grown(members: dict, more: list[str]) -> dict | Grown:
    return Grown(members, ",".join(more)) if more else members


@st.composite
def chats(draw: st.DrawFn) -> Case:
    limit, more = draw(LIMITS), []
    said = {"role": "user", "content": draw(STRINGS), draw(st.sampled_from(["name", "ключ"])): draw(STRINGS)}
    members = {"model": "m", "messages": [said], "stream": True, "metadata": draw(NOTES), "user": draw(STRINGS)}
    field = draw(st.sampled_from(["max_tokens", "max_completion_tokens"]))
    limited(draw, members, field, limit, more)
    streamed(draw, members, more)
    return Case("openai_chat", grown(members, more), Rewrite(limit, ask_usage=True), field)


@st.composite
def completions(draw: st.DrawFn) -> Case:
    limit, more = draw(LIMITS), []
    members = {"model": "m", "prompt": draw(STRINGS), "stream": True, "user": draw(STRINGS)}
    limited(draw, members, "max_tokens", limit, more)
    streamed(draw, members, more)
    return Case("openai_completions", grown(members, more), Rewrite(limit, ask_usage=True), "max_completion_tokens")


@st.composite
def responses(draw: st.DrawFn) -> Case:
    limit, more = draw(LIMITS), []
    members = {"model": "m", "input": draw(STRINGS), "metadata": draw(NOTES), "instructions": draw(STRINGS)}
    limited(draw, members, "max_output_tokens", limit, more)
    limited(draw, members, "max_tool_calls", 3, more)
    change = draw(st.sampled_from([Rewrite(limit, tool_limit=3), Rewrite(limit, tool_limit=5, tool_most=3)]))
    return Case("openai_responses", grown(members, more), change)


def thinking(draw: st.DrawFn, limit: int, *, changes: bool) -> dict:
    """Draw a budget that fits below the limit, or one that is lowered with it."""
    budget = draw(st.sampled_from([1024, limit, limit + 7]))
    lowered = budget if budget < limit or not changes else limit - 1
    return {"type": "enabled", "budget_tokens": Swap(str(budget), str(lowered))}


def search(draw: st.DrawFn) -> dict | Grown:
    """Draw a search that may be made as often as it says, or as it is told: 5 times, or 3 at most."""
    tool = {"type": "web_search_20250305", "name": "web_search", "allowed_domains": [draw(STRINGS)]}
    kind = draw(st.sampled_from(["absent", "null", "2", "9"]))
    if kind == "absent":
        return Grown(tool, '"max_uses":5')
    return tool | {"max_uses": Swap(kind, {"null": "5", "2": "2", "9": "3"}[kind])}


@st.composite
def messages(draw: st.DrawFn) -> Case:
    limit, more = draw(LIMITS), []
    members = {"model": "m", "messages": [{"role": "user", "content": draw(STRINGS)}], "system": draw(STRINGS)}
    changes = limited(draw, members, "max_tokens", limit, more)
    if draw(st.booleans()):
        members["thinking"] = thinking(draw, limit, changes=changes)
    own = {"name": "f", "description": draw(STRINGS), "input_schema": {"properties": {draw(STRINGS): {}}}}
    members["tools"] = draw(st.permutations([own, search(draw), search(draw)]))
    if draw(st.booleans()):
        hop = {"model": "b", "thinking": thinking(draw, limit, changes=changes)}
        members["fallbacks"] = [hop, {"model": "c", "max_tokens": 7}]
    return Case("anthropic_messages", grown(members, more), Rewrite(limit, tool_limit=5, tool_most=3))


@st.composite
def contents(draw: st.DrawFn) -> Case:
    limit = draw(LIMITS)
    snake = draw(st.booleans())
    config, most = ("generation_config", "max_output_tokens") if snake else ("generationConfig", "maxOutputTokens")
    inner: dict = {"temperature": 0.5, "stopSequences": [draw(STRINGS)]}
    old = draw(st.sampled_from(["absent", "1", '"1"', "999999999", '"999999999"']))
    changes, more = "1" not in old, [f'"maxOutputTokens":{limit}'] if old == "absent" else []
    if old != "absent":
        inner[most] = Swap(old, str(limit) if changes else old)
    budget = draw(st.sampled_from([-1, 5, limit, limit + 7]))
    if draw(st.booleans()):
        name, field = ("thinking_config", "thinking_budget") if snake else ("thinkingConfig", "thinkingBudget")
        lowered = min(budget, limit) if changes else budget
        inner[name] = {field: Swap(str(budget), str(lowered)), "includeThoughts": True}
    members = {"contents": [{"role": "user", "parts": [{"text": draw(STRINGS)}]}], config: grown(inner, more)}
    if draw(st.booleans()):
        return Case("code_assist", {"model": "m", "project": draw(STRINGS), "request": members}, Rewrite(limit))
    return Case("gemini", members, Rewrite(limit))


@st.composite
def conversations(draw: st.DrawFn) -> Case:
    limit = draw(LIMITS)
    inner: dict = {"temperature": 0.5, "stopSequences": [draw(STRINGS)]}
    more: list[str] = []
    changes = limited(draw, inner, "maxTokens", limit, more)
    said = [{"role": "user", "content": [{"text": draw(STRINGS)}]}]
    members = {"messages": said, "inferenceConfig": grown(inner, more), "requestMetadata": draw(NOTES)}
    if draw(st.booleans()):
        budget = thinking(draw, limit, changes=changes)
        own = {draw(st.sampled_from(["thinking", "reasoning_config"])): budget, "top_k": 5}
        members["additionalModelRequestFields"] = own
    return Case("bedrock_converse", members, Rewrite(limit))


def spelled(case: Case, seed: int) -> tuple[bytes, bytes]:
    """Write a body before and after its change."""
    before, after = (Writer(seed, is_after=is_after).write(case.body) for is_after in (False, True))
    return before.encode(), after.encode()


def request(raw: bytes, model: str = "m") -> Request:
    return Request("POST", "h", "/v1/models/m:generateContent", {}, raw, path_model=model)


@pytest.mark.parametrize(
    "cases", [chats, completions, responses, messages, contents, conversations], ids=lambda one: one.__name__
)
@settings(max_examples=150, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_nothing_changes_but_what_must(cases: Callable, data: st.DataObject, seed: int):
    case = data.draw(cases())
    raw, wanted = spelled(case, seed)
    wire, asked = wire_named(case.wire), request(raw)

    changed = wire.rewrite(asked, case.change, output_field=case.output_field)
    known = wire.rewrite(asked, case.change, output_field=case.output_field, parsed=wire.parse(asked))

    assert changed == known == wanted
    json.loads(changed)
    wire.parse(request(changed))  # as strictly as what came in: no member is there twice


@settings(max_examples=150, deadline=None)
@given(
    said=st.none() | st.dictionaries(st.sampled_from(["only", "order", "ignore"]), st.lists(STRINGS)), data=st.data()
)
def test_a_price_cap_is_put_among_what_the_client_says_of_hosts(said: dict | None, data: st.DataObject):
    members = {
        "model": "m",
        "é\u2028": data.draw(PLAIN),
        "provider": Swap("null", '{"max_price":' + CAP.decode() + "}"),
    }
    if said is not None:
        members["provider"] = Grown(said, '"max_price":' + CAP.decode())
    raw, wanted = spelled(Case("", members, Rewrite()), data.draw(st.integers(0, 2**32)))

    assert with_price_cap(raw, CAP) == wanted


# What is left out of a conversation, and for how long it is kept

LONG = st.sampled_from(["x" * 2049, "é\u2028" * 700, 'a"\\b\n' * 600, "\U0001f600\x7f" * 500])


def left_out(draw: st.DrawFn) -> Swap:
    """Draw a long text, in either way of writing it, and what stands for it."""
    text = draw(LONG)
    size = len(text.encode())
    note = f'"[lockpin: tool result of {size} bytes left out to stay in the budget]"'
    return Swap(json.dumps(text, ensure_ascii=draw(st.booleans())), note)


def an_hour(draw: st.DrawFn) -> dict:
    ttl = draw(st.sampled_from([None, '"5m"', '"1h"', '"1\\u0068"']))
    five = '"5m"'
    return {"type": "ephemeral"} | ({} if ttl is None else {"ttl": Swap(ttl, five if "1" in ttl else ttl)})


@st.composite
def lighter_messages(draw: st.DrawFn) -> Case:
    mark = {"cache_control": an_hour(draw)}
    called = {"type": "tool_use", "id": "a", "name": "f", "input": {draw(STRINGS): draw(STRINGS)}}
    parts = [{"type": "text", "text": left_out(draw)} | mark, {"type": "text", "text": draw(STRINGS)}]
    given = {"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": parts}
    said = [
        {"role": "assistant", "content": [called]},
        {"role": "user", "content": [given, {"type": "text", "text": "1h"}]},
    ]
    members = {
        "model": "m",
        "max_tokens": 5,
        "messages": said,
        "system": [{"type": "text", "text": draw(STRINGS)} | mark],
    }
    return Case("anthropic_messages", members | mark, Rewrite())


@st.composite
def lighter_chats(draw: st.DrawFn) -> Case:
    given = {"role": "tool", "tool_call_id": draw(STRINGS), "content": left_out(draw), "cache_control": an_hour(draw)}
    after = {"role": "tool", "tool_call_id": "b", "content": draw(LONG)}
    said = [given, *[{"role": "tool", "tool_call_id": "c", "content": draw(STRINGS)}] * 8, after]
    return Case("openai_chat", {"model": "m", "messages": said, "user": draw(STRINGS)}, Rewrite())


@st.composite
def lighter_responses(draw: st.DrawFn) -> Case:
    given = {"type": "function_call_output", "call_id": draw(STRINGS), "output": left_out(draw)}
    parts = [{"type": "input_text", "text": left_out(draw)}]
    items = [given, {"type": "custom_tool_call_output", "call_id": "a", "output": parts}]
    return Case("openai_responses", {"model": "m", "input": items, "metadata": draw(NOTES)}, Rewrite())


@st.composite
def lighter_contents(draw: st.DrawFn) -> Case:
    key = draw(st.sampled_from(["functionResponse", "function_response"]))
    given = {key: {"name": "f", "response": {"a": [left_out(draw), 1.50], "b": draw(STRINGS)}}}
    members = {"contents": [{"role": "user", "parts": [{"text": draw(STRINGS)}, given]}]}
    if draw(st.booleans()):
        return Case("code_assist", {"model": "m", "project": draw(STRINGS), "request": members}, Rewrite())
    return Case("gemini", members, Rewrite())


@st.composite
def lighter_converse(draw: st.DrawFn) -> Case:
    point = {"cachePoint": an_hour(draw) | {"type": "default"}}
    content = [{"text": left_out(draw)}, {"json": {draw(STRINGS): left_out(draw)}}]
    given = {"toolResult": {"toolUseId": "a", "content": content}}
    members = {"messages": [{"role": "user", "content": [given, point]}], "system": [{"text": draw(STRINGS)}, point]}
    return Case("bedrock_converse", members, Rewrite())


@pytest.mark.parametrize(
    "cases",
    [lighter_messages, lighter_chats, lighter_responses, lighter_contents, lighter_converse],
    ids=lambda one: one.__name__,
)
@settings(max_examples=60)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_nothing_is_left_out_but_what_may_go(cases: Callable, data: st.DataObject, seed: int):
    case = data.draw(cases())
    raw, wanted = spelled(case, seed)

    made = wire_named(case.wire).lightened(request(raw), cache_5m=True, trim=9)

    assert made == wanted
    wire_named(case.wire).parse(request(made))


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire.name not in FORMS], ids=lambda wire: wire.name)
@pytest.mark.parametrize(
    "twice",
    [
        r'"max_tokens": 1, "max_tokens": 2',
        r'"max_tokens": 1, "max\u005ftokens": 2',
        r'"é": 1, "\u00e9": 1',
        r'"\ud83d\ude00": 1, "😀": 1',
        r'"metadata": {"a": "x", "\u0061": "y"}',
        r'"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "tex\u0074": "y"}]}]',
    ],
)
def test_a_member_that_is_there_twice_in_whatever_spelling_is_a_bad_request(wire: Wire, twice: str):
    raw = ('{"model": "m", "contents": [], "input": "x", "prompt": "x", ' + twice + "}").encode()
    if wire.name == "anthropic_batches":
        raw = b'{"requests": [{"custom_id": "a", "params": %b}]}' % raw

    with pytest.raises(WireError, match="twice in one object") as refused:
        wire.parse(request(raw, "anthropic.m" if wire.name == "bedrock_invoke" else "m"))

    assert refused.value.code == "bad_request"
