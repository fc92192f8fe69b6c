"""What is thought beside the output limit, where a provider bills that: knows no field of any format."""

from __future__ import annotations

import fnmatch
from dataclasses import replace

from lockpin_core.call import Parsed
from lockpin_core.prices import Model
from lockpin_core.providers import Provider

_LAST_THOUGHT = 128  # an allowance: with what words a model is told that its budget is used up is not known


def thinking_beside(parsed: Parsed, provider: Provider, model: Model) -> Parsed:
    """Bound once what is thought beside the output limit: by the request's budget where the model keeps to it, else by
    the model's whole output, or by a budget that is larger.
    """
    keeps = any(fnmatch.fnmatchcase(model.id, glob) for glob in provider.thinking_budget)
    if parsed.has_budget and keeps:
        return replace(parsed, thinking=parsed.thinking + _LAST_THOUGHT)
    return replace(parsed, beyond_limit=True, thinking=max(0, parsed.thinking - (model.max_output_tokens or 0)))
