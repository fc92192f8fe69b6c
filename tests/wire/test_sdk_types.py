"""Walks the request types of the installed SDKs: what they can send is bounded or refused, and known by name."""

import json
import re
import types
import typing
from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

import pytest
import typing_extensions
from anthropic.types import message_create_params
from anthropic.types.beta import message_create_params as beta_message_create_params
from google.genai import types as gemini_types
from openai.types import completion_create_params as legacy_create_params
from openai.types import embedding_create_params
from openai.types.beta import response_compact_params as beta_response_compact_params
from openai.types.beta import response_create_params as beta_response_create_params
from openai.types.chat import completion_create_params
from openai.types.responses import response_compact_params, response_create_params
from pydantic import BaseModel

from lockpin_core.call import Request
from lockpin_core.errors import WireError
from lockpin_core.wire import (
    anthropic_shapes,
    gemini_shapes,
    openai_completions,
    openai_embeddings,
    openai_shapes,
    responses_shapes,
    responses_tools,
    wire_named,
)
from lockpin_core.wire.protocol import Wire
from lockpin_core.wire.tally import Shape

WRAPPERS = (
    typing_extensions.Required,
    typing_extensions.NotRequired,
    typing.Required,
    typing.NotRequired,
    typing.Annotated,
)
REQUIRED = (typing_extensions.Required, typing.Required)
ANTHROPIC = (
    message_create_params.MessageCreateParamsStreaming,
    message_create_params.MessageCreateParamsNonStreaming,
    beta_message_create_params.MessageCreateParamsStreaming,
    beta_message_create_params.MessageCreateParamsNonStreaming,
)
OPENAI = (
    completion_create_params.CompletionCreateParamsStreaming,
    completion_create_params.CompletionCreateParamsNonStreaming,
)
PROMPTS = (
    ("openai_completions", legacy_create_params.CompletionCreateParamsStreaming, {"model": "m", "prompt": "x"}),
    ("openai_completions", legacy_create_params.CompletionCreateParamsNonStreaming, {"model": "m", "prompt": "x"}),
    ("openai_embeddings", embedding_create_params.EmbeddingCreateParams, {"model": "m", "input": "x"}),
)
RESPONSES = (
    response_create_params.ResponseCreateParamsStreaming,
    response_create_params.ResponseCreateParamsNonStreaming,
    beta_response_create_params.ResponseCreateParamsStreaming,
    beta_response_create_params.ResponseCreateParamsNonStreaming,
)
COMPACT = (response_compact_params.ResponseCompactParams, beta_response_compact_params.ResponseCompactParams)
HEADERS_OF_THE_SDK = {"betas", "user_profile_id", "workspace_id"}  # parameters that it sends as headers


def bare(hint: Any) -> Any:
    while get_origin(hint) in WRAPPERS:
        hint = get_args(hint)[0]
    return hint.__value__ if isinstance(hint, typing.TypeAliasType) else hint


def is_object(hint: Any) -> bool:
    return typing_extensions.is_typeddict(hint) or (isinstance(hint, type) and issubclass(hint, BaseModel))


def hints(kind: Any) -> dict[str, Any]:
    if typing_extensions.is_typeddict(kind):
        return {key: bare(hint) for key, hint in get_type_hints(kind).items()}
    return {info.alias or key: bare(info.annotation) for key, info in kind.model_fields.items()}


def required(kind: Any) -> set[str]:
    if typing_extensions.is_typeddict(kind):
        # Their annotations are texts, so `__required_keys__` does not know of `Required`.
        marked = get_type_hints(kind, include_extras=True)
        return {key for key, hint in marked.items() if get_origin(hint) in REQUIRED}
    return {info.alias or key for key, info in kind.model_fields.items() if info.is_required()}


def is_list(hint: Any) -> bool:
    origin = get_origin(hint)
    return origin is list or getattr(origin, "__name__", "") in ("Iterable", "Sequence", "SequenceNotStr")


def smallest(hint: Any) -> object:
    """Make a value of a type, as small as it can be."""
    hint = bare(hint)
    if get_origin(hint) in (typing.Literal, typing_extensions.Literal):
        return get_args(hint)[0]
    if get_origin(hint) in (typing.Union, types.UnionType):
        return smallest(get_args(hint)[0])
    if is_object(hint):
        return {key: smallest(item) for key, item in hints(hint).items() if key in required(hint)}
    if is_list(hint):
        return []
    if get_origin(hint) is dict or hint is dict:
        return {}
    return {int: 1, float: 1.5, bool: True, type(None): None}.get(hint, "x")


def variants(hint: Any, seen: set[Any], path: str) -> Iterator[tuple[str, object]]:
    """Make values that use each alternative that a type has, one at a time; each object type is opened once."""
    hint = bare(hint)
    if get_origin(hint) in (typing.Union, types.UnionType):
        for one in get_args(hint):
            yield from variants(one, seen, path)
    elif is_object(hint):
        if hint in seen:
            return
        seen.add(hint)
        base = smallest(hint)
        assert isinstance(base, dict)
        here = f"{path}:{hint.__name__}"
        yield here, base
        for key, item in hints(hint).items():
            for where, value in variants(item, seen, f"{here}.{key}"):
                yield where, {**base, key: value}
    elif is_list(hint):
        for where, value in variants(get_args(hint)[0], seen, path):
            yield where, [value]
    elif get_origin(hint) in (typing.Literal, typing_extensions.Literal):
        for value in get_args(hint):
            yield f"{path}={value}", value
    else:
        yield path, smallest(hint)


def requests(root: Any, base: dict[str, object]) -> dict[str, object]:
    """Make one request for each variant of each field of a request type."""
    return {
        where: {**base, key: value}
        for key, hint in hints(root).items()
        if key not in HEADERS_OF_THE_SDK
        for where, value in variants(hint, set(), key)
    }


def outcome(wire: Wire, body: object) -> str:
    """Say what becomes of a request: "bounded", "hidden" input, or the code of the refusal."""
    try:
        parsed = wire.parse(Request("POST", "h", "/p", {}, json.dumps(body).encode()))
    except WireError as error:
        return error.code
    return "hidden" if parsed.content.hidden else "bounded"


def unclear(wire: Wire, made: dict[str, object]) -> dict[str, str]:
    found = {where: outcome(wire, body) for where, body in made.items()}
    return {where: what for where, what in found.items() if what not in ("bounded", "hidden", "unpriced_tool")}


@pytest.mark.parametrize("root", ANTHROPIC)
def test_every_variant_of_a_messages_request_is_bounded_or_refused(root: Any):
    made = requests(root, {"model": "m", "max_tokens": 1, "messages": []})

    assert unclear(wire_named("anthropic_messages"), made) == {}
    assert len(made) > 200


@pytest.mark.parametrize("root", ANTHROPIC)
def test_only_two_things_of_a_messages_request_are_refused(root: Any):
    made = requests(root, {"model": "m", "max_tokens": 1, "messages": []})
    wire = wire_named("anthropic_messages")

    refused = [where for where, body in made.items() if outcome(wire, body) not in ("bounded", "hidden")]

    # Another payer, and a tool of the provider's that a message defines.
    assert [where for where in refused if "bill_to=user_profile" not in where and ".definition:" not in where] == []


@pytest.mark.parametrize("root", OPENAI)
def test_every_variant_of_a_chat_request_is_bounded_or_refused(root: Any):
    made = requests(root, {"model": "m", "messages": []})

    assert unclear(wire_named("openai_chat"), made) == {}
    assert len(made) > 100


@pytest.mark.parametrize(("name", "root", "base"), PROMPTS)
def test_every_variant_of_a_request_of_prompts_is_bounded(name: str, root: Any, base: dict[str, object]):
    made = requests(root, base)

    assert {where: what for where, body in made.items() if (what := outcome(wire_named(name), body)) != "bounded"} == {}
    assert len(made) >= len(hints(root))
    shape = openai_embeddings.REQUEST if name == "openai_embeddings" else openai_completions.REQUEST
    assert set(hints(root)) <= shape.known


@pytest.mark.parametrize("root", [*RESPONSES, *COMPACT])
def test_every_variant_of_a_responses_request_is_bounded_or_refused(root: Any):
    made = requests(root, {"model": "m", "input": "hi", "store": False})

    if root in COMPACT:
        made.pop("model")  # it may be null there, and then has no price
    assert unclear(wire_named("openai_compact" if root in COMPACT else "openai_responses"), made) == {}
    assert len(made) > 100


def typed(hint: Any, seen: set[Any]) -> Iterator[tuple[str, Any]]:
    """Give the object types of a union, by each of their `type` words."""
    hint = bare(hint)
    if is_object(hint):
        kind = hints(hint).get("type")
        words = [word for part in (kind, *get_args(kind)) for word in get_args(part) if isinstance(word, str)]
        yield from ((word, hint) for word in words or get_args(kind) if isinstance(word, str))
        return
    for one in get_args(hint):
        yield from typed(one, seen)


def content_of(*messages: Any) -> list[tuple[str, Any]]:
    return [pair for message in messages for pair in typed(hints(message)["content"], set())]


def fields_of(root: Any, key: str) -> list[tuple[str, Any]]:
    return list(typed(hints(root)[key], set()))


def object_types(hint: Any) -> list[Any]:
    hint = bare(hint)
    return [hint] if is_object(hint) else [found for one in get_args(hint) for found in object_types(one)]


def kinds() -> Iterator[Any]:
    for root, shapes, where in (
        *((root, anthropic_shapes.BLOCKS, "messages") for root in ANTHROPIC),
        *((root, openai_shapes.PARTS, "messages") for root in OPENAI),
    ):
        for message in object_types(hints(root)[where]):
            for word, kind in content_of(message) if "content" in hints(message) else ():
                yield pytest.param(shapes, word, kind, id=f"{kind.__name__}-{word}")
    for root in ANTHROPIC:
        for word, kind in fields_of(root, "tools"):
            yield pytest.param(anthropic_shapes.TOOLS, word, kind, id=f"{kind.__name__}-{word}")
    for root in RESPONSES:
        for shapes, key in ((responses_shapes.ITEMS, "input"), (responses_tools.TOOLS, "tools")):
            for word, kind in fields_of(root, key):
                yield pytest.param(shapes, word, kind, id=f"{kind.__name__}-{word}")
        for message in object_types(hints(root)["input"]):
            for word, kind in content_of(message) if "content" in hints(message) else ():
                yield pytest.param(responses_shapes.PARTS, word, kind, id=f"{kind.__name__}-{word}")
    for word, kind in fields_of(OPENAI[0], "tools"):
        yield pytest.param(openai_shapes.TOOLS, word, kind, id=f"{kind.__name__}-{word}")


@pytest.mark.parametrize(("shapes", "word", "kind"), {param.id: param for param in kinds()}.values())
def test_every_field_of_a_known_block_or_tool_is_known_by_name(shapes: dict[str, Shape], word: str, kind: Any):
    if word in shapes:
        assert set(hints(kind)) - {"parsed_output"} <= shapes[word].known


@pytest.mark.parametrize(
    ("root", "shape"),
    [
        *((root, anthropic_shapes.REQUEST) for root in ANTHROPIC),
        *((root, openai_shapes.REQUEST) for root in OPENAI),
        *((root, responses_shapes.REQUEST) for root in (*RESPONSES, *COMPACT)),
    ],
)
def test_every_field_of_a_request_is_known_by_name(root: Any, shape: Shape):
    assert set(hints(root)) - HEADERS_OF_THE_SDK <= shape.known | shape.refused.keys()


def test_walk_finds_what_the_sdks_are_known_to_have():
    names = [param.id for param in kinds()]

    assert "ImageBlockParam-image" in names
    assert "BetaAdvisorTool20260301Param-advisor_20260301" in names
    assert "ChatCompletionContentPartInputAudioParam-input_audio" in names


GEMINI: dict[str, Any] = {
    "contents": list[gemini_types.Content],
    "systemInstruction": gemini_types.Content,
    "tools": list[gemini_types.Tool],
    "toolConfig": gemini_types.ToolConfig,
    "safetySettings": list[gemini_types.SafetySetting],
    "generationConfig": gemini_types.GenerationConfig,
}


def snaked(value: Any) -> Any:
    """Spell every name in a value as the provider's other spelling does."""
    if isinstance(value, dict):
        return {re.sub("(?<=[a-z0-9])([A-Z])", r"_\1", key).lower(): snaked(item) for key, item in value.items()}
    return [snaked(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("spelled", [lambda value: value, snaked])
@pytest.mark.parametrize("wire", ["gemini", "code_assist"])
def test_every_variant_of_a_gemini_request_is_bounded_or_refused(wire: str, spelled: Any):
    made = {
        where: spelled({"contents": [], key: value})
        for key, hint in GEMINI.items()
        for where, value in variants(hint, set(), key)
    }
    envelope = {where: {"model": "m", "request": body} for where, body in made.items()}
    bodies = envelope if wire == "code_assist" else {where: {"model": "m", **body} for where, body in made.items()}

    assert unclear(wire_named(wire), bodies) == {}
    assert len(made) > 200


def test_every_field_of_gemini_is_known_by_name():
    for kind, known in (
        (gemini_types.Part, gemini_shapes.PART),
        (gemini_types.Content, gemini_shapes.CONTENT),
        (gemini_types.Tool, gemini_shapes.TOOL),
        (gemini_types.GenerationConfig, gemini_shapes.CONFIG),
        (gemini_types.ThinkingConfig, gemini_shapes.THINKING),
    ):
        assert set(hints(kind)) <= known.known | known.refused.keys()
