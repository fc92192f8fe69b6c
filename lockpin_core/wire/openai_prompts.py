"""Prompts in the four forms that embeddings and legacy completions take: a text, texts, token ids, lists of them.

Knows no prices. Source: OpenAI's references of both, `input` and `prompt`, read 2026-11.
"""

from __future__ import annotations

from lockpin_core.errors import WireError
from lockpin_core.wire.jsonbody import shown
from lockpin_core.wire.tally import Tally, unpriced


def read_prompts(value: object, name: str, tally: Tally) -> int:
    """Count prompts, each token id as a token, and give how many they are. Raises WireError."""
    if type(value) is str:
        tally.texts.append(value)
        return 1
    if type(value) is not list:
        raise WireError(f"{name} is {shown(value)}; a string or a list is needed")
    if value and type(value[0]) is int:
        _ids(value, name, tally)
        return 1
    for item in value:
        _prompt(item, name, tally)
    return max(1, len(value))


def _prompt(item: object, name: str, tally: Tally) -> None:
    if type(item) is str:
        tally.texts.append(item)
    elif type(item) is list:
        _ids(item, name, tally)
    elif type(item) is dict:
        unpriced(f"{name} with other things than text and token ids")
    else:
        raise WireError(f"{name} has {shown(item)} in its list; strings or lists of token ids are allowed")


def _ids(ids: list[object], name: str, tally: Tally) -> None:
    for item in ids:
        if type(item) is not int or item < 0:
            raise WireError(f"{name} has {shown(item)} among its token ids; whole numbers from 0 are allowed")
    tally.extra_tokens += len(ids)
