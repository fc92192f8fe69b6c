"""How hosts and paths are spelled, and which spellings are one: canonical forms, and patterns over them. Pure.

A path is judged in a canonical form, so that no spelling of a billed path is missed; a free one must stand plainly.
Knows no provider.
"""

from __future__ import annotations

import fnmatch
import functools
import ipaddress
import re
import unicodedata
from collections.abc import Iterable
from urllib.parse import unquote

RESIDUE = re.compile(r"[%\\;\x00-\x1f\x7f]")  # what a server might read differently from us
_FULL_STOP = "\u3002"  # the one dot of IDNA that NFKC leaves
_AROUND = "[]. \t\r\n\v\f"
_LONGEST_HOST = 1024


@functools.lru_cache(maxsize=1024)
def canonical_host(host: str) -> str:
    """Write a host as its owner does: in ASCII and lower case, without brackets, dots or space round it; never raises.

    Whatever is a dot to a resolver is one here, in every script, so that a look-alike of a host is that host.
    """
    host = host[:_LONGEST_HOST]  # no host is longer, and a long row of marks takes long to normalise
    bare = unicodedata.normalize("NFKC", host).replace(_FULL_STOP, ".").strip(_AROUND)
    try:
        name = bare.encode("idna").decode("ascii")
    except UnicodeError:
        name = bare  # no name that a resolver knows: compared as it stands
    return _address(name.lower())


def _address(name: str) -> str:
    """Write an IPv6 address in its shortest form; anything else stays as it is."""
    try:
        return ipaddress.IPv6Address(name).compressed if ":" in name else name
    except ValueError:
        return name


def canonical_path(raw: str) -> str:
    """Write a path as billed paths are listed: no query, decoded once, slashes and dots resolved, lower case."""
    return normal(raw).lower()


def is_plain_path(raw: str) -> bool:
    """Say whether a path reads the same for everybody: nothing in it is coded, doubled or dotted."""
    return RESIDUE.search(raw) is None and normal(raw) == raw.split("?", 1)[0]


def normal(raw: str) -> str:
    """Write a path without query, decoded once, slashes and dots resolved; its case is kept."""
    path = unquote(re.split(r"[?#]", raw, maxsplit=1)[0])
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", ".") and not (segment.lower() == "v1" and kept and kept[-1].lower() == "v1"):
            kept.append(segment)
    return "/" + "/".join(kept)


def matches(pattern: str, path: str) -> bool:
    """Match segments: a last `*` stands for one or more, any other for exactly one."""
    wanted, given = pattern.split("/"), path.split("/")
    if len(given) < len(wanted) or (len(given) > len(wanted) and wanted[-1] != "*"):
        return False
    return all(_is_segment(want, have) for want, have in zip(wanted, given, strict=False))


def _is_segment(want: str, have: str) -> bool:
    """Match one segment; `*` and `{model}` stand for any text in it."""
    if want in ("*", have):
        return True
    want = want.replace("{model}", "*")
    return "*" in want and fnmatch.fnmatchcase(have.lower(), want.lower())


@functools.lru_cache(maxsize=256)
def path_patterns(paths: tuple[tuple[str, str], ...]) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Make patterns of billed paths: `*` is one segment, `{model}` a name in one segment, which is kept.

    `{arn}` is a model too: a name of Amazon's, which has a slash in it.
    """

    def pattern(path: str) -> re.Pattern[str]:
        text = re.escape(path).replace(r"\*", "[^/]+").replace(re.escape("{model}"), "(?P<model>[^/]+?)")
        text = text.replace(re.escape("{arn}"), "(?P<model>arn:[^/]+/[^/]+)")
        return re.compile(text, re.IGNORECASE)

    return tuple((pattern(path), wire) for path, wire in paths)


def is_below(path: str, prefixes: Iterable[str]) -> bool:
    """Say whether a path is one of these folders or stands in one."""
    return any(matches(prefix.rstrip("/") + "/*", path) or matches(prefix.rstrip("/"), path) for prefix in prefixes)


def hides(raw: str, prefixes: Iterable[str]) -> bool:
    """Say whether a path that resolves elsewhere spells out a metered folder on its way, or may to some server."""
    spelled = re.sub("/+", "/", unquote(raw.split("?", 1)[0])).lower()
    if RESIDUE.search(spelled):  # also in a segment that dots took away
        return True
    return any(re.search(re.escape(prefix).replace(r"\*", "[^/]+"), spelled) for prefix in prefixes)


@functools.lru_cache(maxsize=256)
def host_pattern(hosts: tuple[str, ...]) -> re.Pattern[str]:
    """Make the pattern of hosts; `*` is one or more characters of one label."""
    return re.compile("|".join(re.escape(host).replace(r"\*", "[^.]+") for host in hosts))
