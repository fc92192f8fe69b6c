"""Values of the configuration: one reader for each kind, and the sections that hold them. Knows no key by name.

A reader takes a node and gives the value, or raises ConfigError: place, value, what is allowed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType

from lockpin_core.config_yaml import Items, Node, Table, Text, Where, shown
from lockpin_core.errors import ConfigError
from lockpin_core.money import MOST, Money
from lockpin_core.names import ALLOWED, canonical
from lockpin_core.secret_forms import NO_SECRET, holds_secret

type Reader[T] = Callable[[Node], T]

_NUMBER = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_ALIKE, _BEYOND_DOUBT = 0.6, 0.8  # of difflib: from there on a key is taken for another
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WALL = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_MAX_INT = 2**63 - 1  # what the ledger stores
_LEAST_SHARE = Decimal("1e-9")
# Files among the system's zones that are none: this machine's own, and those that count leap seconds or are copies.
_NO_ZONES = ("localtime", "posixrules", "Factory")
_NO_ZONE_FOLDERS = ("posix/", "right/")


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with a fixed set of keys, each folded to its one spelling; options lie over it."""

    where: Where
    entries: Mapping[str, Node]
    path: str = ""  # in the keys' one spelling; `where` has them as written
    options: Mapping[str, Text] = field(default_factory=dict)  # path → value

    def get[T](self, key: str, read: Reader[T], default: T) -> T:
        """Read a key: the option's value, else the file's, else the default. Both are checked."""
        value = read(self.entries[key]) if key in self.entries else default
        option = self.options.get(self._path(key))
        return value if option is None else read(option)

    def need[T](self, key: str, read: Reader[T], allowed: str) -> T:
        """Read a key that must be there."""
        if key not in self.entries:
            raise self.where.error(f"has no {key}; {allowed}")
        return read(self.entries[key])

    def section(self, key: str, keys: tuple[str, ...]) -> Section:
        """Open a mapping inside; empty where it is absent or null."""
        node = self.entries.get(key, Table(self.where.at(self.where.line or 1, key)))
        return section(node, keys, path=self._path(key), options=self.options)

    def only[T](self, key: str, read: Reader[T], *usual: T) -> None:
        """Check a key whose feature is not built: the first of `usual` is its default, the others turn it off."""
        for node in (self.entries.get(key), self.options.get(self._path(key))):
            if node is not None and read(node) not in usual:
                raise not_built(node)

    def empty(self, key: str) -> None:
        """Check a list or mapping whose feature is not built."""
        match self.entries.get(key):
            case None | Items(items=()) | Text(is_null=True):
                pass
            case Table(entries=entries) if not entries:
                pass
            case node:
                raise not_built(node)

    def _path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def section(
    node: Node,
    keys: tuple[str, ...],
    *,
    path: str = "",
    options: Mapping[str, Text] = MappingProxyType({}),
    unbuilt: Collection[str] = (),
    instead: Mapping[str, str] = MappingProxyType({}),
) -> Section:
    """Open a mapping that may hold these keys. Unknown keys and a key in two spellings are errors.

    `unbuilt` are keys among them that no error names as allowed; `instead` says of keys that people look for here, and
    that are none, what there is in their place.
    """
    built_keys = [key for key in keys if key not in unbuilt]
    if isinstance(node, Text) and node.is_null:
        return Section(node.where, {}, path, options)
    if not isinstance(node, Table):
        raise wrong(node, f"a mapping of {', '.join(built_keys)} is allowed")
    entries: dict[str, Node] = {}
    for spelled, entry in node.entries.items():
        key = folded(spelled)
        if key not in keys:
            words = instead.get(key) or f"there is no such key; {_allowed_keys(key, built_keys)}"
            raise entry.where.error(f"is {shown(entry)}, but {words}")
        if key in entries:
            first = entries[key].where
            raise entry.where.error(f"is {shown(entry)}, and line {first.line} says {key} too; one spelling is allowed")
        entries[key] = entry
    return Section(node.where, entries, path, options)


def is_meant(spelled: str, keys: Collection[str]) -> bool:
    """Say whether one of these keys is meant beyond doubt, perhaps with a slip of the hand."""
    key = folded(spelled)
    return key in keys or any(max(_likeness(key, known)) >= _BEYOND_DOUBT for known in keys)


def folded(spelled: str) -> str:
    """Bring `limitUSD` and `inputPerMTok` to `limit_usd` and `input_per_mtok`."""
    words = spelled.replace("USD", "Usd").replace("MTok", "Mtok")
    return re.sub(r"(?<=[a-z0-9])[A-Z]", lambda match: f"_{match.group().lower()}", words)


def wrong(node: Node, allowed: str) -> ConfigError:
    """Make the error of a value: what it is, what is allowed."""
    if isinstance(node, Text) and holds_secret(node.text):
        allowed = f"it {NO_SECRET}"
    return node.where.error(f"is {shown(node)}; {allowed}")


def not_built(node: Node) -> ConfigError:
    """Make the error of a value whose feature this version does not have."""
    return node.where.error(f"is {shown(node)}; that is not in this version")


def optional[T](read: Reader[T]) -> Reader[T | None]:
    """Also read null."""
    return lambda node: None if isinstance(node, Text) and node.is_null else read(node)


def text(node: Node) -> str:
    """Read a name or path: any text but an empty one."""
    return _scalar(node, "a text is allowed")


def one_of(*words: str) -> Reader[str]:
    """Read one of these words."""
    allowed = f"{', '.join(words[:-1])} or {words[-1]} is allowed" if len(words) > 1 else f"{words[0]} is allowed"

    def read(node: Node) -> str:
        word = _scalar(node, allowed)
        if word not in words:
            raise wrong(node, allowed)
        return word

    return read


def built[T](read: Reader[T], *values: T) -> Reader[T]:
    """Read a value of which this version has these."""

    def read_built(node: Node) -> T:
        value = read(node)
        if value not in values:
            raise not_built(node)
        return value

    return read_built


def truth(node: Node) -> bool:
    """Read true or false, not in quotes."""
    if not isinstance(node, Text) or not node.plain or node.text.lower() not in ("true", "false"):
        raise wrong(node, "true or false is allowed")
    return node.text.lower() == "true"


def amount(node: Node) -> Money:
    """Read dollars: positive, at most nine decimals."""
    return _money(node, 1, "a positive amount is allowed")


def cost(node: Node) -> Money:
    """Read what something has cost: as an amount, and it may be nothing."""
    return _money(node, 0, "an amount of 0 or more is allowed")


def whole(low: int, high: int = _MAX_INT) -> Reader[int]:
    """Read a whole number from `low` to `high`."""
    allowed = f"a whole number of {low} or more is allowed"
    if high != _MAX_INT:
        allowed = f"a whole number from {low} to {high} is allowed"

    def read(node: Node) -> int:
        words = _scalar(node, allowed)
        if not re.fullmatch(r"[0-9]{1,19}", words) or not low <= int(words) <= high:
            raise wrong(node, allowed)
        return int(words)

    return read


def ratio(node: Node) -> str:
    """Read a share above 0 and up to 1, as the shortest decimal text: 0.80 → "0.8"."""
    allowed = "a share above 0 and up to 1, such as 0.8, is allowed"
    words = _scalar(node, allowed)
    if not _NUMBER.fullmatch(words) or len(words) > 12 or not 0 < Decimal(words) <= 1:
        raise wrong(node, allowed)
    if Decimal(words) < _LEAST_SHARE or Decimal(words) % _LEAST_SHARE:
        raise wrong(node, f"{allowed}, with at most nine decimals")
    return f"{Decimal(words).normalize():f}"


def ratios(node: Node) -> tuple[str, ...]:
    """Read a list of shares, lowest first, each once."""
    return tuple(sorted(set(listed(ratio)(node)), key=Decimal))


def duration_ms(node: Node) -> int:
    """Read a duration into milliseconds: 500ms, 60s, 5m, 24h, 30d."""
    return _duration_ms(node, "a duration such as 500ms, 60s, 5m, 24h or 30d is allowed")


def duration_within(low_ms: int, high_ms: int, allowed: str) -> Reader[int]:
    """Read a duration into milliseconds that is neither shorter nor longer than these."""

    def read(node: Node) -> int:
        found = _duration_ms(node, allowed)
        if not low_ms <= found <= high_ms:
            raise wrong(node, allowed)
        return found

    return read


def wall_minutes(node: Node) -> int:
    """Read a time of day into minutes after midnight: "06:30" is 390."""
    allowed = "a time of day from 00:00 to 23:59 is allowed"
    if node.where.line is not None:  # YAML takes 06:30 for a number
        allowed = 'a time of day from "00:00" to "23:59", in quotes, is allowed'
    match = _WALL.fullmatch(_scalar(node, allowed))
    if match is None:
        raise wrong(node, allowed)
    return int(match[1]) * 60 + int(match[2])


def zone(node: Node) -> str:
    """Read the name of a time zone."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # slow to import, and most configurations name none

    allowed = "a time zone such as UTC or Europe/Berlin is allowed"
    name = _scalar(node, allowed)
    try:
        if name in _NO_ZONES or name.startswith(_NO_ZONE_FOLDERS):
            raise ValueError(name)
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: "Europe" is a folder of zones
        raise wrong(node, allowed) from error
    return name


def label(node: Node) -> str:
    """Read a task's or budget's name."""
    allowed = f"a name of {ALLOWED}, is allowed"
    written = _scalar(node, allowed)
    name = canonical(written)
    if name is None or written != written.strip():
        raise wrong(node, allowed)
    return name


def listed[T](read: Reader[T]) -> Reader[tuple[T, ...]]:
    """Read a list of such values; null is an empty one."""

    def read_all(node: Node) -> tuple[T, ...]:
        if isinstance(node, Text) and node.is_null:
            return ()
        if not isinstance(node, Items):
            raise wrong(node, "a list, such as [a, b], is allowed")
        return tuple(read(item) for item in node.items)

    return read_all


def keyed[T](read: Reader[T]) -> Reader[dict[str, T]]:
    """Read a mapping whose keys are names of the user's; null is an empty one."""

    def read_all(node: Node) -> dict[str, T]:
        if isinstance(node, Text) and node.is_null:
            return {}
        if not isinstance(node, Table):
            raise wrong(node, "a mapping is allowed")
        return {key: read(entry) for key, entry in node.entries.items()}

    return read_all


def _money(node: Node, least: int, allowed: str) -> Money:
    words = _scalar(node, allowed)
    try:
        money = Money.parse(words) if _NUMBER.fullmatch(words) else None
    except ValueError as error:
        raise wrong(node, f"{allowed}, with at most nine decimals and up to a billion") from error
    if money is not None and money > MOST:
        raise wrong(node, f"{allowed}, up to a billion")
    if money is None or money.nano < least:
        raise wrong(node, allowed)
    return money


def _duration_ms(node: Node, allowed: str) -> int:
    match = _DURATION.fullmatch(_scalar(node, allowed))
    if match is None:
        raise wrong(node, allowed)
    return int(match[1]) * _UNIT_MS[match[2]]


def _scalar(node: Node, allowed: str) -> str:
    if not isinstance(node, Text) or node.is_null or not node.text:
        raise wrong(node, allowed)
    return node.text


def _allowed_keys(key: str, keys: Sequence[str]) -> str:
    """Name the key that is meant, by its whole or by its beginning: "dayly" is `daily_usd`; else all of them."""
    best = max(keys, key=lambda known: max(_likeness(key, known)), default=None)
    if best is not None and max(_likeness(key, best)) >= _ALIKE:
        return f"did you mean {best}?"
    return f"allowed are {', '.join(keys)}"


def _likeness(key: str, known: str) -> tuple[float, float]:
    """Say how much a key is like a known one, and like the words of it that have its length."""
    key, beginning = key.lower(), "_".join(known.split("_")[: key.count("_") + 1])
    return tuple(difflib.SequenceMatcher(None, key, text).ratio() for text in (known, beginning))  # type: ignore[return-value]
