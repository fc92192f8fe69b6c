"""Changes an input as a program would that gets a field wrong: JSON stays JSON, also inside the events of a stream.

Bytes that are changed blindly hardly ever stay JSON, and what is no JSON is refused on its first line. So most changes
are to a tree: a value becomes an odd one, or one that stands elsewhere in the corpus, or is there twice or not at all.
"""

import json
import random
from collections.abc import Callable, Iterable

from inputs import HEAD, PLAIN, joined, split

type Mutate = Callable[[bytes, int, int], bytes]  # input, most bytes, seed

ODD = (
    *(None, True, False, 0, 1, -1, 2, 5, 99, 1024, 4096, 10**6, 10**9, 10**9 + 1, 10**15, 10**16, 10**30, 1.5, 1e22),
    *(
        "",
        "x",
        "0",
        "12",
        "auto",
        "default",
        "priority",
        "flex",
        "fast",
        "us",
        "global",
        "standard",
        "\ud800",
        "é" * 40,
    ),
    *(
        "\U0001d160" * 9,
        "\u0344" * 9,
        " " * 300,
        "Xq." * 60,
        "z" * 1500,
        "\u1e9b\u0323" * 300,
        "2026-11-29",
        "1h",
        "5m",
        "ephemeral",
    ),
    *([], {}, [[]], [{}], {"type": "text"}, {"id": "x"}, {"a": {"b": []}}),
)
_MOST_NODES = 600


class TreeMutator:
    """Mutates inputs with what stands in a corpus; `blindly` mutates bytes."""

    def __init__(self, corpus: Iterable[bytes], blindly: Callable[[bytes, int], bytes]) -> None:
        self._blindly = blindly
        self._by_key: dict[str, list[object]] = {}
        for data in corpus:
            for line in _documents(split(data)[1]):
                self._learn(line, "")
        self._keys = sorted(self._by_key)

    def __call__(self, data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        kind = rng.randrange(10)
        head, body = split(data)
        if kind == 0:
            return bytes(self._blindly(data, most))
        if kind <= 2:
            head = _other_head(head, rng)
        if kind > 1:
            body = self._other_body(body, rng) or bytes(self._blindly(body, max(1, most - HEAD - 1)))
        return joined(head, body)[:most]

    def _other_body(self, body: bytes, rng: random.Random) -> bytes | None:
        """Change the tree, or one of those that stand in the lines of a stream; None: there is none."""
        tree = _read(body)
        if tree is not None:
            return self._written(self._changed(tree, rng), rng)
        lines = body.split(b"\n")
        places = [at for at, line in enumerate(lines) if line.startswith((b"data:", b"{"))]
        if not places:
            return None
        at = rng.choice(places)
        if rng.randrange(4) == 0:
            return b"\n".join(_other_lines(lines, at, rng))
        start = 5 if lines[at].startswith(b"data:") else 0
        found = _read(lines[at][start:])
        if found is None:
            return None
        lines[at] = lines[at][:start] + self._written(self._changed(found, rng), rng)
        return b"\n".join(lines)

    def _changed(self, tree: object, rng: random.Random) -> object:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            nodes = list(_nodes(tree))
            if not nodes:
                return self._any(rng)
            home, key = rng.choice(nodes)
            self._change(home, key, rng)
        return tree

    def _change(self, home: dict | list, key: str | int, rng: random.Random) -> None:
        kind = rng.randrange(8)
        if kind == 0:
            del home[key]
        elif kind <= 2:
            home[key] = _copy(rng.choice(ODD))
        elif kind <= 4 and isinstance(key, str) and key in self._by_key:
            home[key] = _copy(rng.choice(self._by_key[key]))
        elif kind == 5 and isinstance(home, list):
            home.insert(rng.randrange(len(home) + 1), _copy(rng.choice([*home, self._any(rng)])))
        elif kind <= 6 and isinstance(home, dict) and self._keys:
            name = rng.choice(self._keys)
            home[name] = _copy(rng.choice(self._by_key[name]))
        elif isinstance(home[key], int) and not isinstance(home[key], bool):
            home[key] = max(0, home[key] + rng.choice((-1, 1, 7, -home[key] // 2, home[key])))
        else:
            home[key] = self._any(rng)

    def _any(self, rng: random.Random) -> object:
        if not self._keys or rng.randrange(2):
            return _copy(rng.choice(ODD))
        return _copy(rng.choice(self._by_key[rng.choice(self._keys)]))

    def _learn(self, value: object, key: str) -> None:
        if key:
            known = self._by_key.setdefault(key, [])
            if len(known) < 40 and value not in known:
                known.append(value)
        for name, item in value.items() if isinstance(value, dict) else ():
            self._learn(item, name)
        for item in value if isinstance(value, list) else ():
            self._learn(item, "")

    @staticmethod
    def _written(tree: object, rng: random.Random) -> bytes:
        text = json.dumps(tree, ensure_ascii=rng.randrange(3) == 0, separators=rng.choice(((",", ":"), (", ", ": "))))
        return text.encode("utf-8", "replace")


def _other_head(head: bytes, rng: random.Random) -> bytes:
    changed = bytearray(head.ljust(HEAD, b"0")[:HEAD] or PLAIN)
    for _ in range(rng.choice((1, 1, 2, 4))):
        changed[rng.randrange(HEAD)] = rng.choice((rng.randrange(256), 0x30 + rng.randrange(10), 0x2F, 0x30))
    return bytes(changed)


def _other_lines(lines: list[bytes], at: int, rng: random.Random) -> list[bytes]:
    """Repeat, take away or move an event, or end the lines in another way."""
    kind = rng.randrange(4)
    if kind == 0:
        return [*lines[:at], *lines[at : at + 2], *lines[at:]]
    if kind == 1:
        return lines[:at] + lines[at + 1 :]
    if kind == 2:
        other = rng.randrange(len(lines))
        return [*lines[:other], lines[at], b"", *lines[other:]]
    return [line.removesuffix(b"\r") + rng.choice((b"", b"\r")) for line in lines]


def _documents(body: bytes) -> list[object]:
    found = _read(body)
    if found is not None:
        return [found]
    trees = [_read(line.removeprefix(b"data:")) for line in body.split(b"\n")]
    return [tree for tree in trees if tree is not None]


def _read(text: bytes) -> object | None:
    try:
        return json.loads(text) if len(text) < 1 << 17 else None
    except (ValueError, RecursionError):
        return None


def _nodes(tree: object) -> Iterable[tuple[dict | list, str | int]]:
    """Walk places in a tree: what holds them, and where."""
    left, found = [tree], 0
    while left and found < _MOST_NODES:
        home = left.pop()
        items = home.items() if isinstance(home, dict) else enumerate(home) if isinstance(home, list) else ()
        for key, item in items:
            found += 1
            yield home, key
            if isinstance(item, dict | list):
                left.append(item)


def _copy(value: object) -> object:
    return json.loads(json.dumps(value)) if isinstance(value, dict | list) else value
