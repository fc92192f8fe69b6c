"""The most that a provider may bill for a request, and replies within it: by hand and by true tokenizers.

No bound of the product's takes part in it.
"""

import fnmatch
import json
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import pricebook
from bodies import Body, Other
from desks import NOW, PROVIDERS
from forms import sent
from hypothesis import strategies as st

from lockpin_core.admission import Incoming, Priced, priced
from lockpin_core.call import Call, Charge, Ending, Outcome, Payers, Portion, Reading, Terms
from lockpin_core.config import Config
from lockpin_core.prices import Model, PriceTable, shipped_dir
from lockpin_core.providers import Provider
from lockpin_core.settlement import settle
from lockpin_core.sizing import tokenizer
from lockpin_core.usage import Unit, Usage
from lockpin_core.wire import wire_named

TALKER = {  # a model that speaks, which no price list has at present
    "input": "1",
    "output": "8",
    "audio_in": "3",
    "audio_out": "12",
    "image_in": "2",
    "context_tokens": "200000",
    "max_output_tokens": "8000",
    "fees": {"search_prompt": "0.035", "web_search": "0"},
}
FACTS = {  # that no price list states
    "gpt-image-2": {"image_tokens": "1536"},
    "gpt-4o-mini-tts": {"max_output_tokens": "2000"},
}
PRICES = PriceTable.load(shipped_dir(), {"talker": TALKER, **FACTS})
CONFIG = Config(None, shipped_dir())
DONE = Outcome(Ending.DONE, 200)
OUTPUTLESS = ("openai_embeddings", "gemini_embed")
KNOWN = {  # a model of each wire, of which everything is known
    "anthropic_messages": ("anthropic", "claude-opus-5-5"),
    "anthropic_batches": ("anthropic", "claude-opus-5-5"),
    **dict.fromkeys(("bedrock_converse", "bedrock_invoke"), ("bedrock", "anthropic.claude-opus-5-5")),
    "gemini": ("gemini", "gemini-2.5-flash"),
    "code_assist": ("code_assist", "gemini-2.5-flash"),
    "gemini_embed": ("gemini", "gemini-embedding-2"),
    "gemini_interactions": ("gemini", "gemini-2.5-flash"),
    "openai_completions": ("openai", "gpt-3.5-turbo-instruct"),
    "compatible_completions": ("deepseek", "deepseek-v4-pro"),
    "openai_embeddings": ("openai", "text-embedding-3-small"),
    **dict.fromkeys(("openai_responses", "openai_compact"), ("openai", "gpt-6.1-sol")),
    "openai_chat": ("openai", "gpt-audio-1.5"),
    "openai_images": ("openai", "gpt-image-2"),
    "openai_speech": ("openai", "gpt-4o-mini-tts"),
    "openai_transcriptions": ("openai", "gpt-4o-transcribe"),
}
HEARD = 10  # tokens of a second of sound, at OpenAI


# How many tokens a request is at most


@cache
def encoder(name: str) -> Callable[[str], list[int]]:
    found = tokenizer._SHIPPED._get(name)
    assert found is not None
    return found.encode_ordinary


def tokens_of(text: str, name: str) -> int:
    """Count a text: exactly where its tokenizer is published, else the most that one like it was seen to make."""
    if name in tokenizer.ENCODINGS:
        whole = text.encode("utf-8", "replace").decode()
        return sum(len(encoder(name)(whole[at : at + 9000])) for at in range(0, len(whole), 9000))
    if name == "bytes":
        return len(text.encode("utf-8", "surrogatepass"))
    normal = unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")
    return -(-4 * len(normal) // 3) + 4


SHOWN = (  # members of a request whose content a model reads
    *("messages", "system", "input", "instructions", "prompt", "suffix", "contents", "systemInstruction", "content"),
    "system_instruction",
    *("requests", "request"),
)
SCHEMAS = (
    *("tools", "functions", "response_format", "text", "output_config", "generationConfig"),
    *("toolConfig", "outputConfig"),
)
AS_JSON = ("input", "args", "response", "arguments", "action", "tools", "json")  # inside of those
NOT_TEXT = (
    "data",
    "url",
    "image_url",
    "file_data",
    "fileUri",
    "file_id",
    "id",
    "role",
    "type",
    "mimeType",
    "model",
    "bytes",
)


def texts(value: object, key: str = "") -> Iterator[str]:
    """Give what a model reads of a value: texts as they are, what is called with as JSON."""
    if key in NOT_TEXT:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item, key if isinstance(item, dict) else "")
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in AS_JSON and isinstance(item, dict | list) and key != "request":
                yield as_json(item)
            else:
                yield from texts(item, name)


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def shown(told: Mapping) -> Iterator[str]:
    """Give all that a model reads of a request."""
    told = told.get("request", told)
    for name in SHOWN:
        if isinstance(value := told.get(name), list) and value and type(value[0]) is dict:
            for item in value:
                yield from texts(item)
        elif value is not None:
            yield from texts(value)
    for name in SCHEMAS:
        if isinstance(value := told.get(name), dict | list) and value:
            yield as_json(value)


def ids(told: Mapping) -> int:
    """Count token ids that stand for text."""
    given = told.get("prompt") or told.get("input")
    flat = (
        [one for item in given for one in (item if isinstance(item, list) else [item])]
        if isinstance(given, list)
        else []
    )
    return sum(type(one) is int for one in flat)


def true_tokens(body: Body, told: Mapping, model: Model) -> int:
    """Bound the prompt: its texts, a few tokens around each message, what explains tools, and its images."""
    inner = told.get("request", told)
    messages = next(
        (inner[name] for name in ("messages", "contents", "input", "prompt") if isinstance(inner.get(name), list)), []
    )
    explained = inner.get("toolConfig" if body.wire == "bedrock_converse" else "tools")
    around = 8 + 5 * len(messages) + (600 if explained is not None and "claude" in model.id else 0)
    batch = inner.get("requests") if body.wire == "anthropic_batches" else None
    around += sum(20 + 600 * ("tools" in one["params"]) for one in batch or [] if "params" in one)
    around += HEARD * body.seconds
    size = around + ids(told) + sum(tokens_of(text, model.tokenizer) for text in shown(told))
    window = model.context_tokens
    if body.hides or (body.images and model.image_tokens is None):
        assert window is not None, "an unknown prompt was held"
        return window * body.prompts
    # Nothing asks for the highest resolution, which alone takes more than this of a Gemini of today.
    is_fixed = model.image_rule is not None and model.image_rule.kind == "gemini_resolution"
    drawn = body.images * (1120 if is_fixed else model.image_tokens or 0)
    if window is None:
        return size + drawn
    whole = window * body.prompts
    return min(size, whole) + drawn if model.images_beyond_window else min(size + drawn, whole)


# Who is asked, and how


@dataclass(frozen=True, repr=False)
class Asked:
    body: Body
    told: Mapping
    found: Priced
    call: Call
    other: Model | None = None

    def __repr__(self) -> str:
        return (
            f"{self.body!r} to {self.call.provider} {self.model.id} at {self.call.host}: {self.call.quote}, {self.told}"
        )

    @property
    def model(self) -> Model:
        return self.found.model


@cache
def places(wire: str) -> tuple[tuple[Provider, str, tuple[str, ...]], ...]:
    """List who speaks a format, at which path, and the models that they sell there."""
    names: dict[str, list[str]] = {}
    for seller, name in PRICES.names():
        names.setdefault(seller, []).append(name)
    found = []
    for provider in PROVIDERS.all():
        path = next((path for path, spoken in provider.wires.items() if spoken == wire), None)
        sellers = [provider.name, *pricebook.file_of(provider.name).get("prices_from", [])]
        models = tuple(name for seller in sellers for name in names.get(seller, []))
        if path is not None and models:
            found.append((provider, path, models))
    return tuple(found)


def host_of(provider: Provider, which: int = 0) -> str:
    return provider.hosts[which % len(provider.hosts)].replace("*", "x")


def path_of(pattern: str, model: str, *, streamed: bool) -> str:
    path = pattern.replace("{model}", model).replace("*", "x")
    verb = "streamGenerateContent" if streamed else "generateContent"
    return path.replace("generatecontent", verb).replace("stream" + verb, verb)


def ask(
    body: Body,
    place: tuple[Provider, str],
    name: str,
    *,
    text: str = "hello",
    other: str = "",
    more: Mapping | None = None,
    host: int = 0,
) -> Asked:
    """Make a call, and hold for it. Raises Refused where no cap could hold."""
    provider, pattern = place
    told = body.with_text(text, name, other) | (more or {})
    path = path_of(pattern, name.replace("/", "%2F"), streamed=False)
    raw, kind = sent(body.wire, told)
    came = Incoming(
        "c", provider, host_of(provider, host), "POST", path, {**body.headers, **kind}, raw, False,
        Payers("t", "box"), "test/1", path_model=name if "{model}" in pattern else None,
    )  # fmt: skip
    wire = wire_named(body.wire)
    found = priced(came, wire, wire.parse(came.request()), PRICES, NOW)
    second = PRICES.find(provider.name, other, NOW) if body.others else None
    return Asked(body, told, found, found.call(None), second)


# What the provider may bill


@dataclass(frozen=True)
class Bill:
    """The most that may be billed, in tokens and pieces."""

    prompt: int
    output: int
    prompt_units: tuple[str, ...]
    output_units: tuple[str, ...]
    fees: Mapping[str, int]
    others: tuple[tuple[int, int], ...]  # prompt and output of other models


def bill(asked: Asked, *, limit: int | None = None) -> Bill:
    """Work out the most that may be billed; `limit`: the output limit in force, where it is not the request's."""
    body, model, told = asked.body, asked.model, asked.told
    if model.piece is not None:  # what is billed instead of tokens
        characters = len(str(told.get("input", "")).encode("utf-16-le", "surrogatepass")) // 2
        pieces = body.seconds if model.piece is Unit.SECOND else characters
        return Bill(0, 0, ("input",), ("output",), {model.piece.value: pieces}, ())
    first = true_tokens(body, told, model)
    sound = {"audio_in"} if body.hears else set()
    drawn = {"image_in"} if body.images else set()
    at_most = limit if limit is not None else body.limit
    wrote = body.choices * body.writes * written(model, at_most)
    provider = asked.found.incoming.provider
    keeps = body.thinks > 0 and any(fnmatch.fnmatchcase(model.id, glob) for glob in provider.thinking_budget)
    is_beyond = body.beyond or (provider.output_beside_limit and not keeps)
    thought = body.choices * body.reads * body.thinks if not is_beyond else 0  # or it is part of all that may come
    beyond = body.choices * body.writes * written(model, None) if is_beyond and body.wire not in OUTPUTLESS else 0
    return Bill(
        first * (1 + body.again) + (body.reads - 1) * (model.context_tokens or 0),
        wrote + body.beside + thought + beyond,
        ("input", "cache_read", *body.cached, *sorted(sound | drawn)),
        (*body.made, *(["audio_out"] if body.speaks else [])),
        body.fees,
        tuple(
            bill_other(fallen(one, limit), body, told, asked.other) for one in body.others if asked.other is not None
        ),
    )


def fallen(one: Other, limit: int | None) -> Other:
    """Give what another model may do where the request's limit is lowered to this one."""
    if limit is None or not one.follows:
        return one
    return replace(one, carries=min(one.carries, limit), limit=None if one.limit is None else min(one.limit, limit))


def bill_other(one: Other, body: Body, told: Mapping, model: Model) -> tuple[int, int]:
    window = model.context_tokens or 0
    first = window if one.fills else min(true_tokens(body, told, model) + one.carries, window)
    return first + (one.reads - 1) * window, one.reads * written(model, one.limit)


def written(model: Model, limit: int | None) -> int:
    known = [most for most in (limit, model.max_output_tokens) if most is not None]
    return min(known)


def tier_asked(told: Mapping) -> str | None:
    """Give the service tier that a request names; on Bedrock it stands in an object."""
    said = told.get("service_tier") or told.get("serviceTier")
    return said.get("type") if isinstance(said, Mapping) else said


def statable(provider: str, asked: str | None, maker: str) -> list[str | None]:
    """List the service tiers that a reply may state where the request said this; unsaid ones are the maker's."""
    if asked == "batch":
        return ["batch"]
    tree = pricebook.file_of(provider)
    names = tree.get("tier_names", {})
    plain = [None, "standard", *(word for word, name in names.items() if name == "standard")]
    word = "unsaid" if asked is None else names.get(asked.lower(), asked.lower())
    unsaid = pricebook.file_of(maker).get("unsaid_tiers", [])
    return [*plain, *unsaid] if word == "unsaid" else [*plain, asked]


def geos(asked: Asked) -> list[str | None]:
    """List the regions that a reply may state: where the request names none the workspace's, or where the host is."""
    if not asked.body.wire.startswith("anthropic_") or "claude" not in asked.model.id:
        return [None]
    first = asked.told["requests"][0]["params"] if "requests" in asked.told else asked.told
    if named := first.get("inference_geo"):
        return [named]
    provider = asked.found.incoming.provider
    regional = provider.geo_of(asked.call.host) not in (None, "global")
    unsaid = ["us"] if regional else pricebook.file_of(provider.name).get("unsaid_geos", [])
    priced = {*asked.model.geos, *(asked.other.geos if asked.other is not None else {})}
    return [None, "global", "not_available", *(geo for geo in unsaid if regional or geo in priced)]


@dataclass(frozen=True)
class Worst:
    """Answers every question with what costs most."""

    unit: int = 0

    def total(self, most: int) -> int:
        return most

    def split(self, total: int, units: tuple[str, ...]) -> Usage:
        return {Unit(units[self.unit % len(units)]): total}

    def pick(self, choices: list) -> object:
        return choices[self.unit % len(choices)]


@dataclass(frozen=True)
class Drawn:
    """Answers every question with what is drawn: often the most."""

    draw: Callable

    def total(self, most: int) -> int:
        return self.draw(st.just(most) | st.integers(0, most))

    def split(self, total: int, units: tuple[str, ...]) -> Usage:
        first, second = (self.draw(st.sampled_from(units)) for _ in range(2))
        part = self.draw(st.just(total) | st.integers(0, total))
        return {Unit(second): total - part, Unit(first): part} if first != second else {Unit(first): total}

    def pick(self, choices: list) -> object:
        return self.draw(st.sampled_from(choices))


def reading_of(asked: Asked, most: Bill, chooser: Worst | Drawn) -> Reading:
    """Make a reply that bills within the bill."""
    provider, told = asked.found.incoming.provider.name, asked.told
    usage: dict[Unit, int] = {}
    for total, units in ((most.prompt, most.prompt_units), (most.output, most.output_units)):
        usage |= chooser.split(chooser.total(total), units)
    usage |= {Unit(fee): chooser.total(count) for fee, count in most.fees.items()}
    others = [
        Portion(
            asked.other.id,
            {**chooser.split(chooser.total(prompt), most.prompt_units), Unit.OUTPUT: chooser.total(output)},
        )
        for prompt, output in most.others
        if asked.other is not None
    ]
    is_batch = asked.body.wire == "anthropic_batches"
    tier = chooser.pick(statable(provider, "batch" if is_batch else tier_asked(told), asked.model.provider))
    speed = chooser.pick(["fast", "standard", None]) if told.get("speed") == "fast" else None
    geo = chooser.pick(geos(asked)[::-1])
    name = chooser.pick([None, asked.found.parsed.model])
    return Reading(
        (Portion(name, usage), *others), complete=True, terminal=True, model=name, terms=Terms(tier, speed, geo)
    )


def assert_covered(asked: Asked, most: Bill, chooser: Worst | Drawn, call: Call | None = None) -> None:
    held = call or asked.call
    charge = settle(held, reading_of(asked, most, chooser), DONE, asked.found.tariff(CONFIG))
    assert isinstance(charge, Charge)
    assert charge.amount <= held.quote.most
    assert charge.tokens <= held.quote.tokens


def place_of(wire: str, provider_name: str) -> tuple[Provider, str]:
    return next((provider, path) for provider, path, _ in places(wire) if provider.name == provider_name)
