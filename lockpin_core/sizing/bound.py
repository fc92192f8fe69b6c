"""The byte bound: no tokenizer makes more of a body than this, and no reply bills more.

Byte-level BPE never makes more than one token of a byte. For Claude and unknown tokenizers 4/3 of the bytes after
Unicode NFC, and 4 tokens a string, is the most that was measured; it is not proved. Knows no prices and no wire.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from lockpin_core.call import Ceiling, Content, Parsed, Quote
from lockpin_core.sizing.images import ImageRule, image_tokens, picture_tokens
from lockpin_core.usage import PIECE_UNITS, Unit, add

UNSEEN_CHAIN = "previous_response_id"  # why input is hidden where an earlier reply is named and was not seen
_ENDLESS_OUTPUT = "neither the request nor the price table limits its output; set a limit in the request"
_BESIDE_OUTPUT = (
    "more than an output limit of the request may be billed, such as reasoning beside it, and the price table does not "
    "state how much"
)
_FRAME = 500  # hidden instructions of a request as a whole
# What Claude is told about tools in other formats than its own: up to 530 tokens in Anthropic's tables, and newer
# tokenizers give up to 1.5 times as many. Of the templates of models whose tokenizer nobody publishes nothing is known.
_TOOL_USE = 1000
_PER_MESSAGE = 10
_PER_STRING = 4  # what a short string adds on Claude


class ModelFacts(Protocol):
    """What sizing needs of a model; None: nobody has said."""

    @property
    def context_tokens(self) -> int | None: ...
    @property
    def max_output_tokens(self) -> int | None: ...
    @property
    def tokenizer(self) -> str: ...
    @property
    def image_tokens(self) -> int | None: ...
    @property
    def image_rule(self) -> ImageRule | None: ...
    @property
    def images_beyond_window(self) -> bool: ...
    @property
    def picture_rule(self) -> ImageRule | None: ...


def ceiling(parsed: Parsed, model: ModelFacts, output_limit: int | None) -> Ceiling | None:
    """Bound a call; None where its prompt or its output has no bound.

    `output_limit` is the limit in force for a choice, None where the call goes out without one.
    """
    if parsed.fees.keys() & PIECE_UNITS:  # the model bills by those: see `admission.billed_by`
        return Ceiling(0, 0, parsed.prompt_units, parsed.output_units, parsed.fees)
    prompt = prompt_bound(parsed.content, model)
    output = output_bound(model, output_limit) if parsed.clamped or output_limit is None else output_limit
    if parsed.picture is not None:
        output = picture_tokens(parsed.picture, model.picture_rule, output)
    if prompt is None or output is None:
        return None
    if parsed.beyond_limit and model.max_output_tokens is None:
        return None
    if parsed.rounds > 1:  # what the provider's tools add may fill the window each time
        if model.context_tokens is None:
            return None
        prompt += (parsed.rounds - 1) * model.context_tokens
    return Ceiling(
        prompt=prompt,
        output=output_times(parsed) * output + fixed_output(parsed, model),
        prompt_units=parsed.prompt_units,
        output_units=parsed.output_units,
        fees=parsed.fees,
        name_sum=parsed.name_sum,
        left_out=min(parsed.left_out, prompt),
        rest=parsed.chain_rest,
        refills=parsed.rounds - 1,
        window=(model.context_tokens or 0) if parsed.rounds > 1 else 0,
    )


def together(first: Quote, second: Quote) -> Quote:
    """Bound requests of one call together, each of which has a bound of its own."""
    one, other = first.ceiling, second.ceiling
    ceiling = Ceiling(
        prompt=one.prompt + other.prompt,
        output=one.output + other.output,
        prompt_units=one.prompt_units | other.prompt_units,
        output_units=one.output_units | other.output_units,
        fees=add(one.fees, other.fees),
        requests=one.requests + other.requests,
        name_sum=one.name_sum + other.name_sum,
    )
    is_endless = first.is_endless or second.is_endless
    return Quote(first.most + second.most, first.tokens + second.tokens, ceiling, is_endless)


def missing_bound(parsed: Parsed, model: ModelFacts, name: str, limit: int | None) -> str:
    """Say why a call has no bound, and what would give it one: an entry of the configuration for the model's `name`."""
    needs: dict[str, str] = {}  # by key, why it is needed
    if images_bound(parsed.content, model) is None and (model.context_tokens is None or model.images_beyond_window):
        needs["image_tokens"] = "nobody states how many tokens an image is that it reads"
    if model.context_tokens is None and (parsed.content.hidden is not None or parsed.rounds > 1):
        needs["context_tokens"] = "the request does not show all that it reads, and nobody states the most"
    output = None if parsed.beyond_limit else limit
    drawn = parsed.picture is not None and picture_tokens(parsed.picture, model.picture_rule, output) is not None
    if not drawn and output_bound(model, output) is None:
        needs["max_output_tokens"] = _BESIDE_OUTPUT if parsed.beyond_limit else _ENDLESS_OUTPUT
        if parsed.picture is not None or Unit.AUDIO_OUT in parsed.output_units:
            made = "a picture that it draws" if parsed.picture is not None else "what it says"
            needs["max_output_tokens"] = f"nobody states how many tokens {made} takes"
    if not needs:
        return "the request does not show all that it reads, and images of it would count beyond the context window"
    keys = ", ".join(f"{key}: TOKENS" for key in needs)
    return f'{next(iter(needs.values()))}; to state the most, add to lockpin.yaml: pricing: {{"{name}": {{{keys}}}}}'


def output_times(parsed: Parsed) -> int:
    """Give how often a call may have its whole output limit."""
    return parsed.choices * parsed.output_rounds


def fixed_output(parsed: Parsed, model: ModelFacts) -> int:
    """Give the output that may be billed beside the limit, whatever the limit is."""
    beyond = (model.max_output_tokens or 0) * output_times(parsed) if parsed.beyond_limit else 0
    return parsed.extra_output + parsed.choices * parsed.rounds * parsed.thinking + beyond


def prompt_bound(content: Content, model: ModelFacts) -> int | None:
    """Bound the prompt's tokens: by what was counted or seen, never above the context window; hidden parts may fill it.

    Where images are billed beyond the window, theirs come on top, and what is hidden has no bound: it may be images.
    """
    by_bytes = _byte_bound(content, model)
    known = [bound for bound in (by_bytes, content.counted) if bound is not None]
    return min(known, default=None)


def _byte_bound(content: Content, model: ModelFacts) -> int | None:
    return bound_around(content, model, _text_bound(content, model.tokenizer))


def bound_around(content: Content, model: ModelFacts, text_tokens: int) -> int | None:
    """Bound the prompt where its texts are at most so many tokens: with its schemas, images, allowances and frame."""
    window = None if model.context_tokens is None else content.prompts * model.context_tokens
    images = images_bound(content, model)
    if content.hidden is not None or images is None:
        return None if model.images_beyond_window else window
    schema = _schema_bound(content, model.tokenizer)
    if content.schema_bytes and not content.explains_tools and not _is_byte_level(model.tokenizer):
        schema += _TOOL_USE
    seen = text_tokens + schema + content.extra_tokens + _FRAME + _PER_MESSAGE * content.messages
    if model.images_beyond_window:
        return _at_most(seen, window) + images
    return _at_most(seen + images, window)


def bound_beside_chain(content: Content, endless: ModelFacts) -> int | None:
    """Bound what the body itself brings in, whatever earlier reply it names; None: it does not show all of it."""
    if content.hidden not in (None, UNSEEN_CHAIN):
        return None
    return prompt_bound(replace(content, hidden=None, extra_tokens=0), endless)


def images_bound(content: Content, model: ModelFacts) -> int | None:
    """Bound the tokens of a prompt's images; None where one of them has no bound."""
    if content.images_most is not None:
        return content.images_most
    total = 0
    for image in content.images:
        tokens = image_tokens(image, model.image_rule, model.image_tokens)
        if tokens is None:
            return None
        total += tokens
    return total * content.images_times


def with_images_bounded(content: Content, model: ModelFacts) -> Content:
    """Note the bound of a prompt's images for this model; where one has none, put it first. There may be very many."""
    most = images_bound(content, model)
    if most is not None or len(content.images) < 2:
        return replace(content, images_most=most)
    endless = next(
        image for image in content.images if image_tokens(image, model.image_rule, model.image_tokens) is None
    )
    return replace(content, images=(endless, *content.images))


def output_bound(model: ModelFacts, limit: int | None) -> int | None:
    """Bound a choice's output by its limit and the model's maximum, whichever are known."""
    known = [bound for bound in (limit, model.max_output_tokens) if bound is not None]
    return min(known, default=None)


def _text_bound(content: Content, tokenizer: str) -> int:
    if _is_byte_level(tokenizer):
        return content.text_bytes
    return _up(4 * content.nfc_bytes, 3) + _PER_STRING * content.strings


def _schema_bound(content: Content, tokenizer: str) -> int:
    schema = _up(4 * content.schema_bytes, 3)
    return schema if _is_byte_level(tokenizer) else _up(4 * schema, 3)


def _is_byte_level(tokenizer: str) -> bool:
    return tokenizer != "claude"


def _at_most(number: int, limit: int | None) -> int:
    return number if limit is None else min(number, limit)


def _up(number: int, divisor: int) -> int:
    return -(-number // divisor)
