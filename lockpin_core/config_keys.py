"""The `keys:` of the configuration: in which variable of the environment each provider's real key is."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lockpin_core.config_values import keyed, section, text, wrong
from lockpin_core.config_yaml import Node

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def read_keys(node: Node) -> Mapping[str, str]:
    """Read provider → variable. Raises ConfigError."""
    none: dict[str, str] = {}
    return section(node, ("provider_env",)).get("provider_env", keyed(_variable), none)


def _variable(node: Node) -> str:
    name = text(node)
    if not _VARIABLE.fullmatch(name):
        raise wrong(node, "the name of a variable of the environment, such as OPENAI_API_KEY, is allowed; never a key")
    return name
