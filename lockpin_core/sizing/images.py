"""How many tokens an image is at most, read or drawn, by its size and what a model's provider says. Knows no prices.

A rule is used only where it is a sure upper bound, whatever the provider rounds; elsewhere the model's ceiling stands.
Providers make large images smaller before they count: the ceiling stands for their largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Protocol

from lockpin_core.call import Image, Picture

_LARGEST_SIDE = 1 << 20  # pixels; more is no size that a decoder takes


class ImageRule(Protocol):
    """What the price table says of a model: which rule, and the numbers in it."""

    @property
    def kind(self) -> str: ...
    @property
    def numbers(self) -> Mapping[str, Decimal]: ...


type _Count = Callable[[int, int, str, Mapping[str, Decimal]], Fraction | int | None]


def image_tokens(image: Image, rule: ImageRule | None, ceiling: int | None) -> int | None:
    """Bound an image by the model's rule and its size, never above the model's `ceiling`; None: it has no bound."""
    known = [bound for bound in (_by_rule(image, rule), ceiling) if bound is not None]
    return min(known, default=None)


def picture_tokens(picture: Picture, rule: ImageRule | None, ceiling: int | None) -> int | None:
    """Bound the output of one picture by the model's rule and what is asked, never above `ceiling`; None: no bound."""
    drawn = None if rule is None or rule.kind not in _DRAWN else _DRAWN[rule.kind](picture, rule.numbers)
    known = [bound for bound in (drawn, ceiling) if bound is not None]
    return min(known, default=None)


def _openai_grid(picture: Picture, numbers: Mapping[str, Decimal]) -> int:
    """Count a grid of so many cells on the longer side, as the quality says, grown with the area of the picture.

    The largest picture of the best quality stands for a size that is left to the model or not read, and for a quality
    that is unknown. Source: the calculator of OpenAI's guide to image generation, as taken down in the provider's forum
    ("gpt-image-2 output pricing calculator", 2026-06-05) and borne out by bills stated there; read 2026-11.
    """
    best = max(int(numbers[quality]) for quality in ("low", "medium", "high"))
    cells = int(numbers[picture.quality]) if picture.quality in ("low", "medium", "high") else best
    most = _grid_tokens(cells, cells, int(numbers["pixels"]))
    width, height = picture.width or 0, picture.height or 0
    if not (0 < width <= _LARGEST_SIDE and 0 < height <= _LARGEST_SIDE):
        return most
    longer, shorter = max(width, height), min(width, height)
    across = (2 * cells * shorter + longer) // (2 * longer)  # rounded half up, as the calculator does
    return min(most, _grid_tokens(cells, max(1, across), width * height))


def _grid_tokens(along: int, across: int, pixels: int) -> int:
    return _up(along * across * (2_000_000 + pixels), 4_000_000)


def _by_rule(image: Image, rule: ImageRule | None) -> int | None:
    if rule is None or rule.kind not in _RULES:
        return None
    width, height = image.width or 0, image.height or 0
    if not (0 <= width <= _LARGEST_SIDE and 0 <= height <= _LARGEST_SIDE):
        return None
    tokens = _RULES[rule.kind](width, height, image.detail.lower(), rule.numbers)
    return None if tokens is None else math.ceil(tokens)


def _anthropic(longest: int) -> _Count:
    """Count pixels / 750, or patches of 28 × 28 where that is more, after the longest side was brought to `longest`.

    The provider calls the division an approximation, so a twentieth and 16 tokens come on top. Source: Anthropic's
    vision guide, "calculate image costs", read 2026-11.
    """

    def count(width: int, height: int, detail: str, numbers: Mapping[str, Decimal]) -> Fraction | int | None:
        if not width or not height:
            return None
        longer = max(width, height)
        if longer > longest:
            width, height = _up(width * longest, longer), _up(height * longest, longer)
        tokens = max(_up(width * height, 750), _tiles(width, height, 28))
        return tokens + _up(tokens, 20) + 16

    return count


def _openai_tiles(width: int, height: int, detail: str, numbers: Mapping[str, Decimal]) -> Fraction | int | None:
    """Count tiles of 512 pixels, after the image was fitted into 2048 × 2048 and its shortest side brought to 768.

    Whether a small image is made larger is not said, so the larger of both counts. Source: OpenAI's guide to images and
    vision, "calculating costs", read 2026-11.
    """
    base, tile = Fraction(numbers["base"]), Fraction(numbers["tile"])
    if detail == "low":
        return base
    if not width or not height:
        return None
    longer = max(width, height)
    if longer > 2048:
        width, height = _up(width * 2048, longer), _up(height * 2048, longer)
    shorter = min(width, height)
    tiles = _tiles(_up(width * 768, shorter), _up(height * 768, shorter), 512)
    return base + tile * (max(tiles, _tiles(width, height, 512)) if shorter <= 768 else tiles)


def _openai_patches(width: int, height: int, detail: str, numbers: Mapping[str, Decimal]) -> Fraction | int | None:
    """Count patches of 32 pixels times the model's factor; `patches` is the most of them unless the original is taken.

    Which models take the original unasked is not said, so only a detail that is none cuts. Source: OpenAI's guide to
    images and vision, "calculating costs", read 2026-11.
    """
    if not width or not height:
        return None
    patches = _tiles(width, height, 32)
    if detail in ("low", "high"):
        patches = min(patches, int(numbers["patches"]))
    return patches * Fraction(numbers["multiplier"])


def _gemini_tiles(width: int, height: int, detail: str, numbers: Mapping[str, Decimal]) -> Fraction | int | None:
    """Count one tile up to 384 × 384, else tiles of two thirds of the shorter side, between 256 and 768 pixels.

    Source: Google's guides to image understanding and to counting tokens, Gemini 2 and later, read 2026-11.
    """
    if not width or not height:
        return None
    tile = Fraction(numbers["tile"])
    if max(width, height) <= 384:
        return tile
    return tile * _tiles(width, height, max(256, min(768, min(width, height) * 2 // 3)))


def _gemini_resolution(width: int, height: int, detail: str, numbers: Mapping[str, Decimal]) -> Fraction | int | None:
    """Give what the media resolution allows, whatever the size; unsaid is high.

    Source: Google's guide to media resolution, Gemini 3 and later, read 2026-11.
    """
    return _RESOLUTIONS.get(detail.removeprefix("media_resolution_"))


def _fixed(width: int, height: int, detail: str, numbers: Mapping[str, Decimal]) -> Fraction | int | None:
    """Give the same for any image, unless more detail is asked for than is usual."""
    is_usual = detail.removeprefix("media_resolution_") in _USUAL
    return Fraction(numbers["tokens"]) if is_usual else None


_RESOLUTIONS: Mapping[str, int] = {
    "low": 280,
    "medium": 560,
    "high": 1120,
    "ultra_high": 2240,
    "": 1120,
    "unspecified": 1120,
}
_USUAL = frozenset({"", "auto", "unspecified", "low", "medium", "high"})
_RULES: Mapping[str, _Count] = {
    "anthropic": _anthropic(1568),
    "anthropic_large": _anthropic(2576),
    "openai_tiles": _openai_tiles,
    "openai_patches": _openai_patches,
    "gemini_tiles": _gemini_tiles,
    "gemini_resolution": _gemini_resolution,
    "fixed": _fixed,
}
_DRAWN: Mapping[str, Callable[[Picture, Mapping[str, Decimal]], int]] = {"openai_grid": _openai_grid}


def _tiles(width: int, height: int, side: int) -> int:
    return _up(width, side) * _up(height, side)


def _up(number: int, divisor: int) -> int:
    return -(-number // divisor)
