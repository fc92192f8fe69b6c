"""How many tokens an image is, from its size and what a model's provider says of it. Knows no wire and no prices."""

from __future__ import annotations

from lockpin_core.call import Image


def image_tokens(image: Image, ceiling: int | None) -> int | None:
    """Bound an image by its size, never above the model's `ceiling`; None: it has no bound."""
    return ceiling
