"""Any request body to any path that is metered, and what its provider may bill at least as much as: read a second time.

The body is read here by plain `json`, field by field, as its format's reference has it. It is no full reading: what is
not looked for here counts as nothing. So a bound of the product's may be larger than this bill, and never smaller.
"""

import email
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from bills import KNOWN, OUTPUTLESS, PRICES, Asked, host_of, path_of
from bodies import MARKED_1H, MARKED_5M, OPENAI_WRITES, SEARCH_LIMIT, Body
from desks import NOW, PROVIDERS
from forms import BOUNDARY
from inputs import Choices

from lockpin_core.admission import Incoming, Priced, priced
from lockpin_core.call import Call, Payers
from lockpin_core.prices import Model
from lockpin_core.providers import Metered, Provider
from lockpin_core.wire import WIRES, wire_named

DEFAULT_COMPLETION = 16  # tokens that a completion has where nobody says
LIMITS = {
    "anthropic_messages": ("max_tokens",),
    "bedrock_invoke": ("max_tokens",),
    "openai_chat": ("max_completion_tokens", "max_tokens"),
    "openai_responses": ("max_output_tokens",),
    "openai_completions": ("max_tokens",),
    "compatible_completions": ("max_tokens",),
}
TIERLESS = (
    "gemini_embed",
    "code_assist",
    "anthropic_batches",
    "openai_images",
    "openai_speech",
    "openai_transcriptions",
)
TIERS = {wire.name: "service_tier" for wire in WIRES if wire.name not in TIERLESS} | {"gemini": "serviceTier"}
CLAUDES = ("anthropic_messages", "bedrock_invoke")
COUNTED = (
    "openai_chat",
    "openai_completions",
    "compatible_completions",
    "openai_images",
)  # a request may ask for several choices
HEADERS = (
    {},
    {"authorization": "Bearer sk-ant-oat01-x"},
    {"authorization": "AWS4-HMAC-SHA256 Credential=x"},
    {"x-vertex-ai-llm-shared-request-type": "priority"},
    {"content-type": f"multipart/form-data; boundary={BOUNDARY}"},
)
A_FORM = len(HEADERS) - 1
SEARCHES = re.compile("web_search|web_fetch|advisor")
HOSTED = re.compile("web_search|file_search|code_interpreter|mcp|x_search")
PROVIDER_MODELS = {
    provider.name: tuple(model.id for model in PRICES.models(provider.name)[:40]) for provider in PROVIDERS.all()
}


@dataclass(frozen=True)
class Place:
    """Where a format is spoken."""

    provider: Provider
    pattern: str
    wire: str


def _places(wire: str) -> tuple[Place, ...]:
    found = [
        Place(provider, pattern, spoken)
        for provider in PROVIDERS.all()
        for pattern, spoken in provider.wires.items()
        if spoken == wire
    ]
    return tuple(sorted(found, key=lambda place: place.provider.name != KNOWN[wire][0]))


PLACES = {wire.name: _places(wire.name) for wire in WIRES}
NAMES = tuple(sorted(PLACES))


def incoming(choices: Choices, body: bytes) -> tuple[str, Incoming]:
    """Address a body to one of the places that speak a format; give the format, and the call."""
    name = choices.pick(NAMES)
    place = choices.pick(PLACES[name])
    models = PROVIDER_MODELS[place.provider.name] or (KNOWN[name][1],)
    model = choices.pick((KNOWN[name][1], *(one for one in models if "/" not in one)))
    path = path_of(place.pattern, model, streamed=choices.flag())
    route = place.provider.route("POST", path)
    assert isinstance(route, Metered), (path, route)
    came = Incoming(
        "c", place.provider, host_of(place.provider, choices.number()), "POST", path, choices.pick(HEADERS), body,
        False, Payers("t", "box"), "test/1", path_model=route.model,
    )  # fmt: skip
    return route.wire, came


def price(came: Incoming, wire_name: str, choices: Choices) -> Priced:
    """Parse and price a call; one to a model that nobody knows as if it were to one that the provider sells.

    Raises WireError and Refused.
    """
    wire = wire_named(wire_name)
    parsed = wire.parse(came.request())
    if PRICES.find(came.provider.name, parsed.model, NOW) is None:
        models = PROVIDER_MODELS[came.provider.name] or (KNOWN[wire_name][1],)
        parsed = replace(parsed, model=choices.pick(models))
    return priced(came, wire, parsed, PRICES, NOW)


def told_by(came: Incoming) -> dict:
    """Read a body that parsed by what the standard library has, a form's texts too."""
    kind = came.headers.get("content-type")
    if kind is None or not came.body.startswith(b"--"):
        return json.loads(came.body)
    parts = email.message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + came.body).get_payload()
    texts = {
        str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True).decode()
        for part in parts
        if part.get_filename() is None
    }
    return {name: int(text) if text.isdecimal() and name == "n" else text for name, text in texts.items()}


def bare(model: Model) -> Model:
    """Take every byte for a token, where the tokenizer is one that may make as many."""
    return model if model.tokenizer == "claude" else replace(model, tokenizer="bytes")


def asked(found: Priced, call: Call, told: Mapping, *, limit: int | None = None) -> Asked:
    """Put together what is billed; `limit`: the output limit in force where it is not the request's."""
    body = _body(found, told)
    told = {key: item for key, item in told.items() if _means(found.wire.name, key, item)}
    return Asked(body if limit is None else replace(body, limit=limit), told, found, call)


def _means(wire: str, key: str, item: object) -> bool:
    """Say whether a member means in this format what it does in others: it may be a word like any other."""
    match key:
        case "tools":
            return bool(item)  # a list of none explains none
        case "request":
            return wire == "code_assist"
        case "toolConfig":
            return wire == "bedrock_converse"
        case "requests":
            return wire in ("anthropic_batches", "gemini_embed")
        case "service_tier" | "serviceTier":
            return key == TIERS.get(wire)
    return True


def _body(found: Priced, told: Mapping) -> Body:
    wire, inner = found.wire.name, told.get("request", told) if found.wire.name == "code_assist" else told
    reads, searches = _reads(wire, inner)
    of_gemini = _number(_either(_config(inner), "candidateCount", "candidate_count"))
    choices = [_number(inner.get(key)) for key in ("n", "best_of")] if wire in COUNTED else [of_gemini]
    return Body(
        "any",
        wire,
        told,
        _limit(found, inner),
        choices=max((count for count in choices if count), default=1),
        reads=reads,
        writes=reads if wire in CLAUDES else 1,
        cached=_cached(wire, told),
        again=(choices[0] or 1) - 1 if wire == "openai_images" else 0,
        speaks=wire == "openai_speech",
        made={"openai_images": ("output", "image_out"), "openai_speech": ()}.get(wire, ("output",)),
        fees={"web_search": searches} if searches else {},
        hides=found.parsed.content.hidden is not None,
    )


def _limit(found: Priced, inner: Mapping) -> int | None:
    wire = found.wire.name
    if wire in ("gemini", "code_assist"):
        config = _config(inner)
        return _number(_either(config, "maxOutputTokens", "max_output_tokens"))
    if wire in OUTPUTLESS:
        return 0
    if wire == "bedrock_converse":
        config = inner.get("inferenceConfig")
        return config.get("maxTokens") if isinstance(config, Mapping) else None
    if wire == "openai_images":
        return _drawn(found.model, inner)
    stated = [inner[key] for key in LIMITS.get(wire, ()) if inner.get(key) is not None]
    if wire == "openai_completions" and not stated:
        return DEFAULT_COMPLETION
    return stated[0] if stated else None


def _drawn(model: Model, inner: Mapping) -> int | None:
    """Count what one picture takes: a grid of cells, with the shape of the picture, more of them the larger it is."""
    if model.picture_rule is None:
        return None
    cells = int(model.picture_rule.numbers.get(str(inner.get("quality")), 96))
    size = re.fullmatch(r"(\d{1,6})x(\d{1,6})", str(inner.get("size")), re.ASCII)
    wide, high = (int(size[1]), int(size[2])) if size else (2880, 2880)
    if not 0 < wide * high <= 2880 * 2880:
        return 0  # the provider draws none of that size
    across = int(cells * Fraction(min(wide, high), max(wide, high)) + Fraction(1, 2))
    return math.ceil(Fraction(cells * across * (2_000_000 + wide * high), 4_000_000))


def _config(inner: Mapping) -> Mapping:
    found = _either(inner, "generationConfig", "generation_config")
    return found if isinstance(found, Mapping) else {}


def _either(tree: Mapping, *names: str) -> object:
    return next((tree[name] for name in names if tree.get(name) is not None), None)


def _number(value: object) -> int | None:
    """Read a count as protocol buffers do too, which take a text for one."""
    return int(value) if isinstance(value, int | float | str) and str(value).lstrip("-").isdecimal() else None


def _reads(wire: str, inner: Mapping) -> tuple[int, int]:
    """Say how often the prompt may be read, and how many searches may be made."""
    tools = inner.get("tools") if wire in (*CLAUDES, "openai_responses") else None
    kinds = [(str(tool.get("type", "")), tool) for tool in tools or []]
    if wire in CLAUDES:
        uses = [(kind, tool.get("max_uses")) for kind, tool in kinds if SEARCHES.match(kind)]
        calls = [(kind, SEARCH_LIMIT if most is None else most) for kind, most in uses]
        return 1 + sum(most for _, most in calls), sum(most for kind, most in calls if kind.startswith("web_search"))
    if wire == "openai_responses" and any(HOSTED.match(kind) for kind, _ in kinds):
        most = inner.get("max_tool_calls")
        calls = SEARCH_LIMIT if most is None else most
        return 1 + calls, calls if any(kind.startswith("web_search") for kind, _ in kinds) else 0
    return 1, 0


def _cached(wire: str, told: Mapping) -> tuple[str, ...]:
    lives = [mark.get("ttl", "5m") for mark in _marks(told)]
    marked = MARKED_1H if "1h" in lives else MARKED_5M if lives else ()
    if wire in CLAUDES:
        return marked
    return (
        OPENAI_WRITES if wire.startswith("openai_") and wire not in ("openai_embeddings", "openai_completions") else ()
    )


UNMARKED = ("input", "arguments", "args", "parameters", "input_schema")  # what a tool is given, or how it must look


def _marks(tree: object) -> Iterator[Mapping]:
    """Walk the marks for the cache that stand where blocks have them."""
    left = [tree]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            mark = one.get("cache_control")
            if isinstance(mark, dict) and mark.get("type") == "ephemeral":
                yield mark
            left += [item for name, item in one.items() if name not in UNMARKED]
        elif isinstance(one, list):
            left += one
