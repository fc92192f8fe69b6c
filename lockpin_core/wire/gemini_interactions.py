"""Gemini's interactions: one turn of a model, streamed or not, or in the background. Knows JSON field names; no prices.

The body names the model. Bounds are those of `generateContent`: the output limit holds for text, and images and sound
are bounded by the model's maximum. What runs at the provider is refused (`interaction_shapes`).
Source: the provider's reference of interactions and the request types of its SDK, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lockpin_core.call import Parsed, Refusal, Reply, Request, Rewrite, Setting, Terms, ToolStep
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.gemini import DRAWS, SPEAKS, bare_model
from lockpin_core.wire.gemini_shapes import listed, schema_bytes
from lockpin_core.wire.gemini_steps import interaction_steps
from lockpin_core.wire.gemini_talk import INTERACTION, NO_MARKS
from lockpin_core.wire.gemini_usage import tier_of
from lockpin_core.wire.interaction_shapes import REQUEST
from lockpin_core.wire.interaction_usage import InteractionScanner, InteractionStreamScanner
from lockpin_core.wire.jsonbody import Body, digest, model_name, plain_word, read_body, shown, whole
from lockpin_core.wire.named import with_model
from lockpin_core.wire.protocol import Scanner, Wire
from lockpin_core.wire.refusals import gemini_refusal
from lockpin_core.wire.replies import error_type, read_object
from lockpin_core.wire.settings import setting_of
from lockpin_core.wire.splice import Splice, lowered
from lockpin_core.wire.tally import Tally, unpriced
from lockpin_core.wire.tool_steps import steps_of

_CONFIG, _LIMIT = "generation_config", "max_output_tokens"
_UNITS: Mapping[object, Unit] = {"text": Unit.OUTPUT, "image": Unit.IMAGE_OUT, "audio": Unit.AUDIO_OUT}


class GeminiInteractions(Wire):
    """`POST …/interactions`."""

    name = "gemini_interactions"
    min_output = 1
    cut_rule = "hold"
    tool_mark = b"function_result"
    error_shape = "gemini"
    links = True
    omits_history = True

    def parse(self, request: Request) -> Parsed:
        """Read a request for an interaction. Raises WireError where it is malformed or holds what cannot be bounded."""
        try:
            return _parse(read_body(request.body))
        except RecursionError:
            raise WireError("the body is nested too deeply") from None

    def rewrite(
        self, request: Request, change: Rewrite, *, output_field: str = _LIMIT, parsed: Parsed | None = None
    ) -> bytes:
        """Set the output limit; other bytes stay."""
        if change.max_output is None:
            return request.body
        body = Splice.of(request.body, parsed.layout if parsed is not None else None)
        given = body.get(_CONFIG) or b""
        config = Splice.of(given if given.startswith(b"{") else b"{}")
        limit = lowered(config.get(_LIMIT), change.max_output)
        return request.body if limit is None else body.having({_CONFIG: config.having({_LIMIT: limit})})

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for a 2xx reply, or for the answer to a poll; then `asked` is not known."""
        return InteractionStreamScanner(asked) if streamed else InteractionScanner(asked)

    def conversation(self, request: Request) -> bytes | None:
        """Digest the first user message, but for its cache marks."""
        return INTERACTION.conversation(request, NO_MARKS)

    def trimmable(self, request: Request) -> int:
        """Count the leading results of tools that are older than the last three turns."""
        return INTERACTION.trimmable(request)

    def lightened(self, request: Request, *, cache_5m: bool, trim: int) -> bytes | None:
        """Shorten lives in the cache, and leave out long texts of leading results."""
        return INTERACTION.lightened(request, cache_5m=cache_5m, trim=trim)

    def with_model(self, request: Request, model: str) -> Request | None:
        """Name another model in the body."""
        return with_model(request, model)

    def same_call(self, request: Request) -> bytes:
        """Digest the call without its output limit."""
        return digest(request, (_LIMIT,))

    def tool_steps(self, request: Request) -> Iterator[ToolStep]:
        """Read the tools of its steps."""
        return steps_of(request, interaction_steps)

    def setting(self, request: Request) -> Setting | None:
        """Digest its tools and its system prompt."""
        return setting_of(request, system=("system_instruction",))

    def error_code(self, body: bytes) -> str | None:
        """Give `error.status` of an error body, else its code."""
        found = read_object(body)
        return None if found is None else error_type(found.get("error"), "status", "code")

    def refuse(self, refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
        """Put a refusal into Google's error shape."""
        return gemini_refusal(refusal, lockpin)


def _parse(body: Body) -> Parsed:
    members = body.members
    tally = Tally()
    REQUEST.read(members, tally)
    model = model_name(members.get("model"))
    if type(members.get("input")) not in (str, list, dict):
        raise WireError(f"input is {shown(members.get('input'))}; a string, an object or a list is needed")
    config = members.get(_CONFIG) or {}
    assert isinstance(config, dict), "its shape was checked"
    limit = whole(config.get(_LIMIT), _LIMIT, low=1)
    streamed, background = (_flag(members.get(key), key) for key in ("stream", "background"))
    tally.messages += 1 + ("system_instruction" in members)
    tally.schema_bytes += schema_bytes(members.get("tools"), members.get("response_format"))
    if plain_word(members.get("cached_content"), "cached_content"):
        tally.hide("cached_content")
        tally.prompt_units |= {Unit.IMAGE_IN, Unit.AUDIO_IN}
    output_units = _output_units(model, members, config)
    # Nobody says that the limit holds for pictures and sound as it does for text: the model's maximum bounds those.
    is_text = output_units == {Unit.OUTPUT}
    return Parsed(
        model=bare_model(model),
        streamed=streamed,
        content=tally.content(),
        output_limit=limit if is_text else None,
        output_settable=is_text,
        prompt_units=frozenset(tally.prompt_units),
        output_units=output_units,
        terms=Terms(tier=tier_of(plain_word(members.get("service_tier"), "service_tier"))),
        chain=plain_word(members.get("previous_interaction_id"), "previous_interaction_id"),
        hides_images=tally.hidden not in (None, "computer_use"),
        background=background,
        layout=body.layout((_CONFIG,)),
    )


def _output_units(model: str, members: Mapping[str, object], config: Mapping[str, object]) -> frozenset[Unit]:
    """Say what output tokens may be billed as."""
    units = {Unit.OUTPUT}
    formats = [one.get("type") for one in listed(members.get("response_format")) if isinstance(one, dict)]
    media = [kind for kind in formats if kind in ("image", "audio")]  # any other object is a schema of text
    for modality in [*listed(members.get("response_modalities")), *media]:
        unit = _UNITS.get(modality.lower()) if type(modality) is str else None
        if unit is None:
            unpriced("a reply in a modality other than text, image and audio")
        units.add(unit)
    if DRAWS.search(model) or config.get("image_config") is not None:
        units.add(Unit.IMAGE_OUT)
    if SPEAKS.search(model) or config.get("speech_config") is not None:
        units.add(Unit.AUDIO_OUT)
    return frozenset(units)


def _flag(value: object, key: str) -> bool:
    if value is not None and type(value) is not bool:
        raise WireError(f"{key} is {shown(value)}; true or false is allowed")
    return value is True
