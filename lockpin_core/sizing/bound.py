"""The byte bound: no tokenizer makes more of a body than this, and no reply bills more.

Byte-level BPE never makes more than one token of a byte. For Claude and unknown tokenizers 4/3 of the bytes after
Unicode NFC, and 4 tokens a string, is the most that was measured; it is not proved. Knows no prices and no wire.
"""

from __future__ import annotations

from typing import Protocol

from lockpin_core.call import Ceiling, Content, Parsed

_FRAME = 500  # hidden instructions of a request as a whole
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
    def images_beyond_window(self) -> bool: ...


def ceiling(parsed: Parsed, model: ModelFacts, output_limit: int | None) -> Ceiling | None:
    """Bound a call; None where its prompt or its output has no bound.

    `output_limit` is the limit in force for a choice, None where the call goes out without one.
    """
    prompt = prompt_bound(parsed.content, model)
    output = output_bound(model, output_limit)
    if prompt is None or output is None:
        return None
    return Ceiling(
        prompt=prompt,
        output=parsed.choices * output + parsed.extra_output,
        prompt_units=parsed.prompt_units,
        output_units=parsed.output_units,
        fees=parsed.fees,
    )


def prompt_bound(content: Content, model: ModelFacts) -> int | None:
    """Bound the prompt's tokens: from what is seen, never above the context window; hidden parts may fill it.

    Where images are billed beyond the window, theirs come on top, and what is hidden has no bound: it may be images.
    """
    window = model.context_tokens
    if content.hidden is not None or (content.images and model.image_tokens is None):
        return None if model.images_beyond_window else window
    images = content.images * (model.image_tokens or 0)
    seen = _text_bound(content, model.tokenizer) + content.extra_tokens + _FRAME + _PER_MESSAGE * content.messages
    if model.images_beyond_window:
        return _at_most(seen, window) + images
    return _at_most(seen + images, window)


def output_bound(model: ModelFacts, limit: int | None) -> int | None:
    """Bound a choice's output by its limit and the model's maximum, whichever are known."""
    known = [bound for bound in (limit, model.max_output_tokens) if bound is not None]
    return min(known, default=None)


def _text_bound(content: Content, tokenizer: str) -> int:
    schema = _up(4 * content.schema_bytes, 3)
    if tokenizer == "bytes":
        return content.text_bytes + schema
    return _up(4 * content.nfc_bytes, 3) + _PER_STRING * content.strings + _up(4 * schema, 3)


def _at_most(number: int, limit: int | None) -> int:
    return number if limit is None else min(number, limit)


def _up(number: int, divisor: int) -> int:
    return -(-number // divisor)
