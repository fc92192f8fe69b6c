import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.call import Content, Image, Request
from lockpin_core.sizing.bound import prompt_bound
from lockpin_core.sizing.counts import Counts, content_key, counted_here, counted_there
from lockpin_core.sizing.tokenizer import _SHIPPED, ENCODINGS, count
from lockpin_core.wire import wire_named


@dataclass(frozen=True, slots=True)
class Facts:
    context_tokens: int | None = 1_000_000
    max_output_tokens: int | None = 100
    tokenizer: str = "o200k_base"
    image_tokens: int | None = 1_445
    image_rule: None = None
    images_beyond_window: bool = False


CONTENT = Content(text_bytes=1_000, nfc_bytes=1_000, strings=10, messages=3, schema_bytes=90, images=(Image(),))


def test_count_of_our_own_takes_schemas_images_and_frame_with_it():
    assert counted_here(CONTENT, Facts(), 250) == 250 + 120 + 500 + 30 + 1_445
    assert counted_here(replace(CONTENT, extra_tokens=7, images=()), Facts(), 250) == 250 + 120 + 500 + 30 + 7


def test_count_of_our_own_is_none_where_the_body_does_not_show_all():
    assert counted_here(replace(CONTENT, hidden="file"), Facts(), 250) is None
    assert counted_here(CONTENT, Facts(image_tokens=None, context_tokens=None), 250) is None


def test_count_of_our_own_is_never_above_the_windows():
    assert counted_here(CONTENT, Facts(context_tokens=700), 250) == 700
    assert counted_here(replace(CONTENT, prompts=3), Facts(context_tokens=700), 250) == 2_100


def test_count_of_the_provider_gets_two_percent_and_64_tokens():
    assert [counted_there(tokens) for tokens in (0, 1, 50, 51, 1_000)] == [64, 66, 115, 117, 1_084]


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_count_is_used_where_it_is_smaller_than_the_bytes_and_never_else(size, tokens):
    content = Content(text_bytes=size, nfc_bytes=size, strings=1, messages=1)
    by_bytes = prompt_bound(content, Facts())

    counted = counted_here(content, Facts(), tokens)

    assert prompt_bound(replace(content, counted=counted), Facts()) == min(by_bytes, counted)
    assert counted >= min(tokens, 1_000_000)


def test_count_replaces_the_window_of_hidden_input():
    hidden = replace(CONTENT, hidden="file", counted=counted_there(5_000))

    assert prompt_bound(hidden, Facts()) == 5_164


def test_counts_are_kept_by_content_and_the_last_used_ones_stay():
    counts = Counts(most=2)
    first, second, third = (content_key("o200k_base", [text]) for text in ("a", "b", "c"))
    counts.put(first, 1)
    counts.put(second, 2)

    assert counts.get(first) == 1
    counts.put(third, 3)

    assert (counts.get(first), counts.get(second), counts.get(third)) == (1, None, 3)


def test_keys_tell_content_and_kind_apart():
    keys = [
        content_key("o200k_base", ["ab"]),
        content_key("cl100k_base", ["ab"]),
        content_key("o200k_base", ["a", "b"]),
        content_key("o200k_base", ["a", "b", ""]),
        content_key("o200k_base", ["ab\ud800"]),
        content_key("o200k_base", []),
    ]

    assert len(set(keys)) == len(keys)
    assert content_key("o200k_base", [b"ab"]) == keys[0]


TEXTS = st.text(max_size=40) | st.sampled_from(["hello world", " " * 300, "日本語" * 40, "Xq." * 50, "\U00012000" * 30])
PARTS = st.builds(lambda text: {"type": "text", "text": text}, TEXTS)
CALLS = st.builds(
    lambda name, text: {
        "id": name,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps({"a": text})},
    },
    TEXTS,
    TEXTS,
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.just("user"), "content": TEXTS | st.lists(PARTS, max_size=3)})
    | st.fixed_dictionaries({"role": st.just("assistant"), "tool_calls": st.lists(CALLS, min_size=1, max_size=3)})
    | st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": TEXTS, "content": TEXTS}),
    max_size=6,
)
TOOLS = st.lists(
    st.builds(
        lambda name, text: {
            "type": "function",
            "function": {"name": name, "description": text, "parameters": {"type": "object", "properties": {text: {}}}},
        },
        TEXTS,
        TEXTS,
    ),
    max_size=3,
)


def shown(value: object) -> Iterator[str]:
    """Give every text that a provider puts into the prompt for a message."""
    match value:
        case str():
            yield value
        case dict():
            yield from (text for key, item in value.items() if key not in ("type", "id") for text in shown(item))
        case list():
            yield from (text for item in value for text in shown(item))


def true_tokens(messages: list, tools: list, encoding: str) -> int:
    """Count a chat as the provider does: 4 tokens around a message, 3 to begin the reply, tools as they are written."""
    texts = [text for message in messages for text in shown(message)]
    written = json.dumps(tools, ensure_ascii=False) if tools else ""
    return count([*texts, written], encoding) + 4 * len(messages) + 3


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=60, deadline=None)
@given(messages=MESSAGES, tools=TOOLS)
def test_no_bound_of_a_chat_is_below_its_true_tokens(encoding: str, messages: list, tools: list):
    raw = json.dumps({"model": "m", "messages": messages, "tools": tools}).encode()
    request, wire = Request("POST", "h", "/p", {}, raw), wire_named("openai_chat")
    content, texts = wire.parse(request).content, wire.texts(request)
    facts = Facts(tokenizer=encoding)
    true = true_tokens(messages, tools, encoding)

    counted = counted_here(content, facts, count(texts, encoding))

    assert true <= counted <= prompt_bound(content, facts)
    assert true <= prompt_bound(content, replace(facts, tokenizer="claude"))


@pytest.mark.parametrize(("wire", "field"), [("openai_embeddings", "input"), ("openai_completions", "prompt")])
@settings(max_examples=60, deadline=None)
@given(prompts=st.lists(TEXTS | st.lists(st.integers(0, 199_997), max_size=5), min_size=1, max_size=5))
def test_no_bound_of_prompts_is_below_their_true_tokens(wire: str, field: str, prompts: list):
    request = Request("POST", "h", "/p", {}, json.dumps({"model": "m", field: prompts}).encode())
    content, texts = wire_named(wire).parse(request).content, wire_named(wire).texts(request)
    true = sum(len(one) if isinstance(one, list) else count([one], "o200k_base") for one in prompts)

    counted = counted_here(content, Facts(context_tokens=None), count(texts, "o200k_base"))

    assert true <= counted <= prompt_bound(content, Facts(context_tokens=None))


# Items of a Responses call, rendered in the way that OpenAI has published for its open models (Harmony): each between
# special tokens, functions as a namespace of TypeScript.

NAMES = st.from_regex(r"[a-zA-Z_]{1,12}", fullmatch=True)
TYPES = st.sampled_from(["string", "number", "boolean", "integer"])
FIELDS = st.fixed_dictionaries({"type": TYPES}, optional={"description": TEXTS, "enum": st.lists(TEXTS, max_size=3)})
FUNCTIONS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.just("function"),
            "name": NAMES,
            "parameters": st.fixed_dictionaries(
                {"type": st.just("object"), "properties": st.dictionaries(NAMES, FIELDS, max_size=4)}
            ),
        },
        optional={"description": TEXTS},
    ),
    max_size=3,
)
ITEMS = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "developer"]), "content": TEXTS})
    | st.builds(lambda text: {"role": "user", "content": [{"type": "input_text", "text": text}]}, TEXTS)
    | st.fixed_dictionaries(
        {"type": st.just("function_call"), "call_id": NAMES, "name": NAMES, "arguments": TEXTS.map(json.dumps)}
    )
    | st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": NAMES, "output": TEXTS}),
    max_size=8,
)


def typescript(functions: list) -> str:
    lines = ["# Tools", "", "## functions", "", "namespace functions {", ""]
    for one in functions:
        lines += [f"// {line}" for line in one.get("description", "").splitlines()]
        lines.append(f"type {one['name']} = (_: {{")
        for name, field in one["parameters"]["properties"].items():
            lines += [f"// {line}" for line in field.get("description", "").splitlines()]
            kinds = " | ".join(json.dumps(word, ensure_ascii=False) for word in field.get("enum", ())) or field["type"]
            lines.append(f"{name}?: {kinds},")
        lines += ["}) => any;", ""]
    return "\n".join([*lines, "} // namespace functions"]) if functions else ""


def rendered(item: dict) -> tuple[str, str]:
    """Give the head and the body of a message."""
    match item.get("type"):
        case "function_call":
            return f"assistant to=functions.{item['name']} commentary json", item["arguments"]
        case "function_call_output":
            return "functions.tool to=assistant commentary", item["output"]
    content = item["content"]
    return item["role"], content if isinstance(content, str) else "".join(part["text"] for part in content)


def oracle_tokens(texts: list[str], encoding: str) -> int:
    """Count by the published tokenizer itself, text by text as special tokens divide them."""
    return sum(len(_SHIPPED._get(encoding).encode_ordinary(text)) for text in texts)


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=100, deadline=None)
@given(items=ITEMS, functions=FUNCTIONS, instructions=TEXTS)
def test_no_bound_of_a_responses_call_is_below_its_true_tokens(
    encoding: str, items: list, functions: list, instructions: str
):
    told = {"model": "m", "input": items, "tools": functions, "instructions": instructions}
    raw = json.dumps(told, ensure_ascii=False).encode("utf-8", "replace")
    request, wire = Request("POST", "h", "/p", {}, raw), wire_named("openai_responses")
    content, texts, facts = wire.parse(request).content, wire.texts(request), Facts(tokenizer=encoding)

    counted = counted_here(content, facts, count(texts, encoding))

    told = json.loads(raw)
    said = oracle_tokens([text for item in told["input"] for text in rendered(item)] + [told["instructions"]], encoding)
    defined = oracle_tokens([typescript(told["tools"])], encoding)
    assert said <= count(texts, encoding)
    assert defined <= 4 * content.schema_bytes / 3 + 25  # for what stands around all functions
    assert said + defined + 4 * (len(items) + 2) + 3 <= counted <= prompt_bound(content, facts)
