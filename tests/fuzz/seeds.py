"""Writes the seed corpora out of what the other tests have: request bodies, recorded replies, configurations, prices.

`.venv-dev/bin/python tests/fuzz/seeds.py` writes `tests/fuzz/corpus` anew, but for what a run has found: that is in
files named `found-…`, which stay.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "addons"), str(ROOT / "tests" / "rig"), str(HERE)]

import bills  # noqa: E402
import paths  # noqa: E402
import scan  # noqa: E402
import talks  # noqa: E402
from asking import A_FORM, NAMES  # noqa: E402
from forms import FORMS, form  # noqa: E402
from inputs import joined  # noqa: E402
from replies import SAMPLES  # noqa: E402
from richest import BODIES  # noqa: E402

MOST_BYTES = 5000
SKIPPED = (  # nothing of them is ever changed
    *("openai_embeddings", "gemini_embed", "openai_compact"),
    *("openai_images", "openai_speech", "openai_transcriptions"),
)
UNREAD = ("anthropic_batches", "gemini_interactions")  # `asking` does not say what these may be billed
type Seeds = Iterator[tuple[str, bytes]]


def answer(number: int) -> bytes:
    """Write an answer of a line of choices."""
    return bytes([(number + 0x30) % 256])


def requests(choices: bytes, *, skipped: tuple[str, ...] = ()) -> Seeds:
    for at, body in enumerate(BODIES):
        told = body.with_text("hello there, é", bills.KNOWN[body.wire][1], "claude-opus-5-5")
        raw = form(told) if body.wire in FORMS else json.dumps(told, ensure_ascii=False).encode()
        head = answer(NAMES.index(body.wire)) + (b"0000" + answer(A_FORM) if body.wire in FORMS else b"")
        if len(raw) <= MOST_BYTES and body.wire not in (*skipped, *UNREAD):
            yield f"{body.wire}-{at}", joined(head + choices, raw)


def conversations() -> Seeds:
    """Give conversations with long results of tools, and what asks for an hour in the cache."""
    turns = [talks.Turn(("x" * 2100, "ok")), talks.Turn(("é" * 1100,), as_parts=True)]
    for wire in talks.SAID:
        body = talks.body_of(wire, "task", turns)
        body = {key: bills.KNOWN[wire][1] if key == "model" else item for key, item in body.items()}
        if wire in ("anthropic_messages", "bedrock_invoke", "openai_chat"):
            body = {**body, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
        if wire == "bedrock_converse":
            body = {**body, "system": [{"text": "s"}, {"cachePoint": {"type": "default", "ttl": "1h"}}]}
        yield f"talk-{wire}", joined(answer(NAMES.index(wire)), json.dumps(body, ensure_ascii=False).encode())


def replies() -> Seeds:
    for sample in SAMPLES:
        of_kind = scan.answered(sample.folder)
        asked = 1 + of_kind.index(sample) if sample in of_kind else 0
        head = answer(NAMES.index(sample.folder)) + answer(sample.streamed) + answer(asked)
        yield sample.name, joined(head, sample.body[:MOST_BYTES])


def streams() -> Seeds:
    for sample in SAMPLES:
        if sample.streamed or sample.name.endswith("array"):
            yield sample.name, joined(b"", sample.body[:1500])
    yield (
        "line-ends",
        joined(b"000", b"\xef\xbb\xbfdata: a\r\rdata: b\r\ndata: c\n\r\nevent: x\ndata\n: y\n\nid: 1\n\n"),
    )
    yield "array", joined(b"000", b'[{"a": "}\\"{"}\n,\r\n{"b": [{}]}]')


def packed() -> Seeds:
    for kind in range(7):
        for encoding in (1, 2, 3, 4):
            yield f"kind-{kind}-{encoding}", joined(answer(encoding) + answer(0) + answer(kind), b'{"model": "m"}')
    for encoding, kind in ((7, 7), (8, 8), (10, 9), (11, 10)):
        yield f"two-{kind}", joined(answer(encoding) + answer(0) + answer(kind), b'{"model": "m"}')
        yield f"two-bomb-{kind}", joined(answer(encoding) + answer(1) + answer(kind) + answer(63), b"a" * 63)
    for encoding in range(1, 16):
        yield f"bomb-{encoding}", joined(answer(encoding) + answer(1) + answer(encoding) + answer(63), b"\0" * 63)


def configurations() -> Seeds:
    text = (ROOT / "tests" / "config" / "test_config.py").read_text("utf-8")
    yield "defaults", joined(b"", text.split('DEFAULTS = """\\\n', 1)[1].split('"""', 1)[0].encode())
    readme = (ROOT / "README.md").read_text("utf-8")
    block = readme[readme.index("daily_usd:") :].split("\n\n", 1)[0]
    yield "readme", joined(b"", "\n".join(line.removeprefix("    ") for line in block.split("\n")).encode())
    for at, line in enumerate(CONFIGURATIONS):
        yield f"line-{at}", joined(b"", line.encode())
    yield "option", joined(b"1", b"25")
    yield "named-option", joined(b"10", b"daily_usd\n25")


CONFIGURATIONS = (
    "budgets: [{name: dev-daily, scope: user, window: day, limit_usd: 25, action: enforce, alert_at: [0.5, 0.8]}]",
    "budgets: [{name: t, scope: ring, rings: [r], window: rolling, period: 24h, limit_tokens: 2000}]",
    'budgets: [{name: w, scope: org, window: week, limitUSD: 4, timezone: Europe/Berlin, at: "06:30", models: ["a*"]}]',
    "budgets:\n  - name: m\n    scope: machine\n    window: month\n    anchor: 31\n    limit_usd: 1\n",
    "pricing:\n  m: {input_per_mtok: 1, output_per_mtok: 4, cache_read_per_mtok: 0.1, max_output_tokens: 32000}\n  l/*: {free: true}",
    "pricing: {m: {inputPerMTok: 1, output: 2, above: [{tokens: 200000, op: gt, input: 2}], tiers: {flex: {x: 0.5}}}}",
    "models: {azure: {my-deployment: gpt-5.5}}",
    "upstreams: {api.openai.com: 'http://127.0.0.1:9999', a.b: 'https://me:SECRET@b'}",
    "ledger: sqlite:///var/lib/lockpin.sqlite3\ntimezone: Europe/Berlin\ndrain: 5m",
    "ledger: postgresql://me:SECRET@db/lockpin",
    "task: {default: x, budget_usd: 5, alert_at: [0.75]}\nSECRET: 5\nfit: {output: maybe}",
    "a: &a [1]\nb: *a\nc: !tag x\n? [k]\n: v",
    "mode: SECRET\nqueue: {wait: 30s}\nbreaker: {usd: null}",
    "daily_usd: .inf\ndegrade: off\nallow_uncapped: ['h/p*', 'SECRET x']",
)


def headers() -> Seeds:
    for at, lines in enumerate(HEADERS):
        for kind in (b"000", b"010", b"2101"):
            yield f"{at}-{kind.decode()}", joined(kind, "\n".join(lines).encode())


HEADERS = (
    ("X-Lockpin-Task: fix-login-bug", "X-Lockpin-Tag: k=v, k2=v2", "X-Lockpin-Project: p"),
    ("x-lockpin-task: a%2Fb", "X-LOCKPIN-TASK: twice", "Proxy-Authorization: Basic bWU6dGFzaw=="),
    ("user-agent: claude-cli/2.1.197 (external)", "x-claude-code-session-id: 0f4c2e8a", "proxy-connection: close"),
    ("originator: codex_cli", "session-id: abc/def", "Proxy-Authorization: Bearer x"),
    ("X-HTTP-Method-Override: GET", "host: h", "user-agent: opencode/1"),
    ("X-Lockpin-Tag: k=v, k=w", "X-Lockpin-Tag-: ", "X-Lockpin-Project: e\u0301 "),
)


def spellings() -> Seeds:
    for at, provider in enumerate(paths.METERING):
        yield f"plain-{provider.name}", joined(answer(at), b"/v1/models/x?a=b")
        for which in range(min(3, len(provider.wires))):
            yield f"{provider.name}-{which}", joined(answer(at) + b"1" + answer(which) + b"000001", b"")
            yield f"{provider.name}-{which}-odd", joined(answer(at) + b"1" + answer(which) + b"2\x351\x373300110", b"")


def prices() -> Seeds:
    rates = {"litellm_provider": "p", "mode": "chat", "input_cost_per_token": 2e-06, "output_cost_per_token": 1.2e-05}
    more = {
        "cache_creation_input_token_cost": 2.5e-06,
        "cache_creation_input_token_cost_above_1hr": 4e-06,
        "input_cost_per_token_above_200k_tokens": 4e-06,
        "output_cost_per_token_priority": 3e-05,
        "max_input_tokens": "200000",
        "max_output_tokens": 32000,
        "search_context_cost_per_query": {"high": 0.01},
        "provider_specific_entry": {"us": 1.1, "fast": 6},
        "tiered_pricing": [{"range": [0, 32000], "input_cost_per_token": 1e-06}],
        "regional_endpoint_uplift_multiplier": 1.1,
    }
    base = {
        "input_mtok": 2,
        "output_mtok": {"base": 12, "tiers": [{"start": 200000, "price": 24}]},
        "web_searches_kcount": 10,
    }
    dated = [
        {"constraint": None, "prices": base},
        {"constraint": {"start_date": "2026-01-01"}, "prices": {**base, "input_mtok": 1}},
        {"constraint": {"start_date": "2027-01-01"}, "prices": {**base, "input_mtok": 3}},
        {"constraint": {"start_time": "10:00"}, "prices": {**base, "input_mtok": 5}},
    ]
    variants = [
        {"constraint": None, "when": {"service_tier": "priority"}, "prices": {"input_mtok": 4, "output_mtok": 30}},
        {"constraint": None, "when": {"speed": "fast"}, "prices": {"input_mtok": 12, "output_mtok": 72}},
    ]
    model = {
        "id": "m",
        "match": {"or_": [{"equals": "m-1"}, {"equals": "m"}]},
        "context_window": 200000,
        "price_variants": None,
    }
    entry = {
        "input": "1",
        "output": "4",
        "cache_read": "0.1",
        "cache_write": {"5m": "1.25", "1h": "2"},
        "above": [{"tokens": "200000", "op": "gt", "input": "2", "output": "8"}],
        "tiers": {"priority": {"input": "2", "output": "8"}, "flex": {"x": "0.5"}},
        "speeds": {"fast": "6"},
        "geo": {"us": "1.1"},
        "fees": {"web_search": "0.01"},
        "context_tokens": "200000",
        "max_output_tokens": "32000",
        "tokenizer": "o200k_base",
        "image_tokens": "1600",
    }
    in_days = {
        "prices": [{"input": "1", "output": "2"}, {"from": "2026-12-01", "input": "3", "output": "2"}],
        "audio_in": "3",
    }
    for at, told in enumerate(
        (
            {"litellm": {"m": rates}, "later": {"m": {**rates, "output_cost_per_token": 1e-05}}, "entry": entry},
            {"litellm": {"m": {**rates, **more}, "n": rates}, "later": {"m": rates, "n": {**rates, **more}}},
            {"genai": [{"id": "p", "models": [{**model, "prices": base}]}], "later": {"m": rates}},
            {
                "genai": [{"id": "p", "models": [{**model, "prices": dated, "price_variants": variants}]}],
                "litellm": {"m": rates},
            },
            {"entry": {"free": True}, "litellm": {"p/m-2026-01-01": rates, "p/m": {**rates, **more}}},
            {"entry": in_days},
            {"entry": {**entry, "speeds": {"slow": "0.5", "fast": "6"}, "geo": {"eu": "0.9"}}},
        )
    ):
        raw = json.dumps(told).encode()
        yield f"told-{at}", joined(b"", raw)
        for times in range(1, 6):
            yield f"told-{at}-{times}", joined(b"".join(answer(times * place % 97) for place in range(15)), raw)


CORPORA = {
    "parse": lambda: requests(b""),
    "rewrite": lambda: [*requests(b"00000" + b"11", skipped=SKIPPED), *conversations()],
    "scan": replies,
    "sse": streams,
    "decode": packed,
    "config": configurations,
    "headers": headers,
    "paths": spellings,
    "sources": prices,
}


def main() -> None:
    for target, made in CORPORA.items():
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if not old.name.startswith("found-"):
                old.unlink()
        for name, data in made():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
