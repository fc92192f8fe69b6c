"""Which models may be taken instead of another one, by `fallbacks` or `cheaper`. Pure; knows names alone."""

from __future__ import annotations

from collections.abc import Iterator

from lockpin_core.config_near_cap import Instead

ANY = "*"


def substitutes(instead: Instead, provider: str, *models: str) -> tuple[str, ...]:
    """List what to try in place of a provider's model, in order, each as "provider/model" and once.

    `models` are all the names of the one model: as the request has it, and as the price table does. What is said of the
    model comes before what is said of all models of its provider; the model itself is no substitute.
    """
    own = {f"{provider}/{model}" for model in models}
    return tuple({name: None for name in _named(instead, provider, models) if name not in own})


def _named(instead: Instead, provider: str, models: tuple[str, ...]) -> Iterator[str]:
    for model in (*dict.fromkeys(models), ANY):
        yield from instead.get(f"{provider}/{model}", ())


def parts(name: str) -> tuple[str, str]:
    """Part "provider/model" at its first slash: a model may have more of them."""
    provider, _, model = name.partition("/")
    return provider, model
