"""Hides what may be a secret in the words of a message. A key lands in a configuration by a slip of the hand; a log,
a ticket or a screen must not have it then. Knows no key by name.
"""

from __future__ import annotations

import re

_URL_USER = re.compile(r"://[^\s\"'/?#]*@|://[^\s\"']*@")  # a password may itself have a slash in it
_USER = re.compile(r"[^\s\"':/@]+:(?!//)[^\s\"'@]+@")  # the same without a scheme
_QUERY = re.compile(r"(://[^\s\"'?#]*)[?#][^\s\"']+")
_PARAMETERS = re.compile(r"\?[\w.~%-]+=[^\s\"']*")  # the same without a scheme; a glob may have a question mark too
_PREFIXED = re.compile(
    r"(?i)(?<![a-z0-9])(sk-|sk_|pk-|pk_|rk_|lp_|gsk_|xai-|fw_|hf_|r8_|AIza|AKIA|ghp_|github_pat_|ya29\.|eyJ)[\w.+/=-]{4,}"
)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{20,}")
# What names are made of: "claude-3-5-sonnet-20241022", "budget_of_team_7", "Llama-3-70B", "qwen2p5-coder".
_SYLLABLE = re.compile(
    r"[a-z]*|[A-Z]*|[A-Z]?[a-z]{1,14}(?:[A-Z]{1,4}[a-z]*){0,2}|[A-Z]?[a-z]{3,10}[0-9](?:p[0-9])?|[0-9]{1,8}"
    r"|[A-Za-z0-9]{1,5}"
)


def masked(text: str) -> str:
    """Put an ellipsis for each key, each long random word, each user in a URL and each query string."""
    text = _USER.sub("…@", _URL_USER.sub("://…@", text))
    text = _PARAMETERS.sub("?…", _QUERY.sub(r"\1?…", text))
    return _TOKEN.sub(_random, masked_keys(text))


def masked_keys(text: str) -> str:
    """Put an ellipsis for each key that says by its beginning what it is; fit for paths, which may have odd names."""
    return _PREFIXED.sub(r"\1…", text)


def _random(found: re.Match[str]) -> str:
    """Tell a random word from a long name: it has digits and letters, and is not made of syllables."""
    word = found[0]
    has_both = re.search("[0-9]", word) and re.search("[A-Za-z]", word)
    is_name = all(_SYLLABLE.fullmatch(part) for part in re.split("[_-]", word))
    return "…" if has_both and not is_name else word
