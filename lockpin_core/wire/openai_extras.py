"""What other vendors add to OpenAI's formats: how long a call may think, whether it searches. Knows no prices, no I/O.

Sources, read 2026-11: OpenRouter's guide to reasoning tokens (`reasoning.max_tokens`), Alibaba Model Studio's to deep
thinking (`enable_thinking`, `thinking_budget`), xAI's to live search (`search_parameters.mode`), Google's to OpenAI
compatibility (`extra_body.google.thinking_config`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

from lockpin_core.errors import WireError
from lockpin_core.wire.jsonbody import shown, shown_name, whole
from lockpin_core.wire.tally import Tally, Unknown, shape, unpriced

_THINKING_CONFIG = shape("thinking_config", "include_thoughts thinking_budget thinking_level", unknown=Unknown.REFUSE)
_GOOGLE = shape("extra_body.google", "", {"thinking_config": _THINKING_CONFIG.read}, unknown=Unknown.REFUSE)
_EXTRA_BODY = shape("extra_body", "", {"google": _GOOGLE.read}, unknown=Unknown.REFUSE)


class Thinking(NamedTuple):
    """What a request says of thinking that may be billed beside its output limit."""

    budget: int  # tokens of each sampling
    is_boundless: bool  # it thinks, and nothing says how long
    has_budget: bool  # `thinking_budget` is among what says how long
    least_output: int  # with a smaller limit a host that knows these budgets refuses the call


def extra_body_rule(value: object, tally: Tally) -> None:
    """Check what Google's hosts take beside OpenAI's fields; no text of it reaches a model."""
    if value:
        _EXTRA_BODY.read(value, Tally())


def search_rule(value: object, tally: Tally) -> None:
    """Check that a search is switched off."""
    mode = cast("dict[str, object]", value).get("mode") if type(value) is dict else None
    if mode != "off":
        words = "the provider searches the web, for a fee and with results as input"
        unpriced(f'"search_parameters" with mode {shown_name(mode)} ({words})')


def thinking(members: Mapping[str, object]) -> Thinking:
    """Read how long a request may think. Raises WireError. To be asked once its shape was checked.

    A host that does not know a budget thinks within the output limit, as it does without one.
    """
    enabled = members.get("enable_thinking")
    if enabled is not None and type(enabled) is not bool:
        raise WireError(f"enable_thinking is {shown(enabled)}; true or false is allowed")
    own = whole(members.get("thinking_budget"), "thinking_budget")
    stated = [own, whole(_inner(members, "reasoning").get("max_tokens"), "reasoning.max_tokens")]
    config = _inner(_inner(_inner(members, "extra_body"), "google"), "thinking_config")
    dynamic = whole(config.get("thinking_budget"), "thinking_budget", low=-1) or 0  # -1: as the model likes, inside
    budgets = [budget for budget in stated if budget is not None]
    # Anthropic's models need the budget below the limit, also where another host serves them.
    inside = [stated[1], _inner(members, "thinking").get("budget_tokens")]
    least = 1 + max((budget for budget in inside if type(budget) is int), default=-1)
    return Thinking(max([*budgets, dynamic, 0]), enabled is True and not budgets, own is not None, least)


def _inner(members: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = members.get(key)
    return cast("dict[str, object]", value) if type(value) is dict else {}
