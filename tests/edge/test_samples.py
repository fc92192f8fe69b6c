"""Every sample reply through real proxies with the real SDKs: the client's bytes, and what the ledger makes of them."""

import gzip
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path

import anthropic
import genai_prices
import openai
import processes
import pytest
import sdks
from processes import DATA, until

LIMIT = 700  # output tokens of every call: below what a second of hidden thinking can be (400 + 512)

# Dollars per million tokens, from the vendors' price pages as both genai-prices 0.2.3 and litellm 1.110.2 have them.
SHIPPED = {
    "claude-sonnet-5-5": {"input": "2", "output": "10", "cache_read": "0.1", "5m": "2.5", "1h": "4"},
    "claude-opus-5-5": {"input": "4", "output": "20", "cache_read": "0.2", "5m": "5", "1h": "8"},
    "gpt-5.4-2026-03-05": {"input": "2.5", "output": "15", "cache_read": "0.25"},
    "gpt-5.6-luna-2026-07-08": {"input": "0.2", "output": "1.2", "cache_read": "0.02", "30m": "0.25"},
    "gpt-audio-1.5": {"input": "2.5", "output": "10", "audio_in": "32", "audio_out": "64"},
}
# Models of compatible vendors: priced by the user. The figures are made up so that no two units can be mixed up.
OWN = {
    "glm-x": {"input": "0.6", "output": "2.2", "cache_read": "0.11"},
    "deepseek-chat": {"input": "0.28", "output": "0.42", "cache_read": "0.028"},
    "mistral-medium-latest": {"input": "1.5", "output": "7.5", "cache_read": "0.15"},
    "kimi-k3": {"input": "0.7", "output": "2.9", "cache_read": "0.13"},
    "openai/gpt-5.5": {"input": "5", "output": "30", "cache_read": "0.5"},
    "anthropic/claude-opus-5": {"input": "5", "output": "25", "cache_read": "0.5", "5m": "6.25"},
    "qwen3-max": {"input": "1.2", "output": "6", "cache_read": "0.24", "5m": "1.51"},
    "some/compat-model": {"input": "0.3", "output": "1.1"},
    "local/model": {"input": "0.17", "output": "0.71"},
    "grok-4.5": {"input": "2.1", "output": "6.3", "cache_read": "0.37"},
}
RATES = SHIPPED | OWN
SEARCH_USD = Decimal("0.01")  # each web search
UNITS = {  # unit of the expected reading → (our unit, name of its rate)
    "input_uncached": ("input", "input"),
    "cache_read": ("cache_read", "cache_read"),
    "cache_write_5m": ("cache_write_5m", "5m"),
    "cache_write_1h": ("cache_write_1h", "1h"),
    "cache_write_30m": ("cache_write_30m", "30m"),
    "output": ("output", "output"),
    "audio_in": ("audio_in", "audio_in"),
    "audio_out": ("audio_out", "audio_out"),
}
ANTHROPIC_SUBSETS = ("audio_in", "image_in")  # in this family they are inside the uncached input
FACTORS = {"anthropic_messages_fast_long_context": Decimal("2") * Decimal("1.1")}  # fast mode, inference in the US
WITHOUT_MODEL = {  # their expected reading names no model; the request asks for the one that the reply states
    "anthropic_compat_stream_usage_only_in_delta": "glm-x",
    "anthropic_messages_stream_web_search": "claude-sonnet-5-5",
    "vertex_anthropic_raw_predict": "claude-sonnet-5-5",
}
KEYS = {"input": "input_per_mtok", "output": "output_per_mtok", "cache_read": "cache_read_per_mtok"}
CONFIG = """
upstreams: {{api.openai.com: "{origin}", api.anthropic.com: "{origin}"}}
daily_usd: 1000
pricing:
{pricing}
"""


@dataclass(frozen=True)
class Sample:
    path: Path
    wire: str
    expect: dict = field(repr=False)

    @property
    def name(self) -> str:
        return self.path.name.split(".")[0]

    @property
    def streamed(self) -> bool:
        return ".sse" in self.path.name

    @property
    def status(self) -> int:
        return self.expect.get("status") or self.expect.get("_meta", {}).get("status") or 200

    @property
    def is_gzip(self) -> bool:
        return self.path.suffix == ".gz"

    @property
    def model(self) -> str:
        stated = self.expect.get("model") or self.expect.get("_meta", {}).get("model")
        default = "claude-sonnet-5-5" if self.wire == "anthropic_messages" else "gpt-5.4-2026-03-05"
        return stated or WITHOUT_MODEL.get(self.name, default)

    @cached_property
    def body(self) -> bytes:
        """Give what the provider sends: an OpenAI error sample stands in an envelope with its status and headers."""
        raw = self.path.read_bytes()
        return json.dumps(json.loads(raw)["body"]).encode() if self.is_enveloped else raw

    @property
    def is_enveloped(self) -> bool:
        return self.wire == "openai_chat" and self.status >= 400

    @property
    def complete(self) -> bool:
        return self.expect.get("complete") or self.expect.get("_meta", {}).get("usage_known", False)

    @property
    def stated_nano(self) -> Decimal:
        """Give what the reply itself says that it cost."""
        return Decimal(self.expect.get("_meta", {}).get("reported_cost_usd") or 0) * 10**9

    @property
    def by_model(self) -> dict[str, dict]:
        usage = self.expect.get("usage", self.expect)
        return self.expect.get("per_model") or {self.model: usage}

    def order(self) -> dict[str, str]:
        told: dict = {"status": self.status, "headers": {}}
        if self.is_enveloped:
            envelope = json.loads(self.path.read_bytes())
            headers = {name: text for name, text in envelope["headers"].items() if name != "content-type"}
            told |= {"body": self.body.decode(), "headers": headers}
        else:
            told |= {"file": f"{self.wire}/{self.path.name}", "headers": self.expect.get("headers", {})}
        if self.streamed:
            told |= {"type": "text/event-stream; charset=utf-8", "chunk": 7}
        if self.is_gzip:
            told |= {"encoding": "gzip"}
        return sdks.order(**told)


def load(wire: str, suffix: str) -> list[Sample]:
    found = []
    for expect in sorted((DATA / wire).glob("*.expect.json")):
        stem = expect.name.removesuffix(".expect.json")
        (path,) = [p for p in expect.parent.glob(f"{stem}{suffix}") if not p.name.endswith(".expect.json")]
        found.append(Sample(path, wire, json.loads(expect.read_text())))
    return found


MESSAGES, CHAT = load("anthropic_messages", ""), load("openai_chat", ".*")
SAMPLES = MESSAGES + CHAT
INJECTED = ("azure_stream", "sse_crlf_split", "vllm_continuous_stream")  # those that end with a usage chunk


def usage_chunk(sample: Sample) -> bytes:
    """Give the last event before the terminal one, its blank line included."""
    blank = b"\r\n\r\n" if b"\r\n\r\n" in sample.body else b"\n\n"
    events = sample.body.split(blank)
    (found,) = [event for event in events if b'"choices":[]' in event and b'"usage":{' in event]
    return found + blank


def counts(usage: dict, wire: str) -> dict[str, int]:
    """Bring expected units to the ledger's names."""
    skipped = ANTHROPIC_SUBSETS if wire == "anthropic_messages" else ()
    found = {unit: usage[key] for key, (unit, _) in UNITS.items() if usage.get(key) and key not in skipped}
    searches = usage["server_tool_calls"].get("web_search", 0)
    return found | ({"web_search": searches} if searches else {})


def nano(usage: dict[str, int], model: str, factor: Decimal = Decimal(1)) -> Decimal:
    """Price units in nanodollars, not yet rounded: a dollar per million tokens is a thousand nanodollars a token."""
    names = dict(UNITS.values())
    tokens = sum(count * Decimal(RATES[model][names[u]]) * 1000 for u, count in usage.items() if u != "web_search")
    return tokens * factor + usage.get("web_search", 0) * SEARCH_USD * 10**9


def pricing_lines() -> str:
    lines = []
    for model, rates in OWN.items():
        entry = {KEYS[name]: rate for name, rate in rates.items() if name in KEYS}
        entry |= {"cache_write_per_mtok": rates["5m"]} if "5m" in rates else {}
        told = ", ".join(f"{key}: {value}" for key, value in entry.items())
        more = "max_output_tokens: 32000, context_tokens: 200000, fees: {web_search: 0.01}"
        lines.append(f"  {model}: {{{told}, {more}}}")
    return "\n".join(lines)


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy
    clients: dict


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("samples")
    with processes.origin(folder) as origin:
        config = CONFIG.format(origin=origin.url, pricing=pricing_lines())
        with (
            processes.proxy(folder, config, kind=request.param) as proxy,
            sdks.openai_client(proxy, "connect") as openai_connect,
            sdks.openai_client(proxy, "base_url") as openai_base,
            sdks.anthropic_client(proxy, "connect") as anthropic_connect,
            sdks.anthropic_client(proxy, "base_url") as anthropic_base,
        ):
            clients = {
                ("openai_chat", "connect"): openai_connect,
                ("openai_chat", "base_url"): openai_base,
                ("anthropic_messages", "connect"): anthropic_connect,
                ("anthropic_messages", "base_url"): anthropic_base,
            }
            yield Rig(origin, proxy, clients)


def send(rig: Rig, way: str, sample: Sample, **more: object) -> tuple[int, dict, bytes]:
    """Call through the SDK; give status, headers and the raw bytes of the reply."""
    client = rig.clients[sample.wire, way]
    ask = {
        "model": sample.model,
        "messages": [sdks.MESSAGE],
        "stream": sample.streamed,
        "extra_headers": sample.order(),
    }
    if sample.wire == "openai_chat":
        create, ask["max_completion_tokens"] = client.chat.completions.with_streaming_response.create, LIMIT
    else:
        create, ask["max_tokens"] = client.messages.with_streaming_response.create, LIMIT
    try:
        with create(**ask, **more) as reply:
            raw = b"".join(reply.http_response.iter_raw())
            return reply.status_code, reply.headers, raw
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        return error.status_code, error.response.headers, error.response.content


def rows_of(rig: Rig, headers: dict) -> tuple:
    """Give hold and resolution of a call; there must be one of each."""
    call = headers["x-lockpin-call"]
    query = "SELECT * FROM rows WHERE call = ? ORDER BY id"
    found = until(lambda: (rows := rig.proxy.rows(query, call)) and len(rows) > 1 and rows)
    assert [row["kind"] for row in found[:1]] == ["hold"]
    assert len(found) == 2
    return found


@pytest.mark.parametrize("way", sdks.WAYS)
@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.complete and s.status == 200], ids=lambda s: s.name)
def test_a_complete_sample_passes_unchanged_and_is_charged_its_price(rig, way, sample):
    status, headers, raw = send(rig, way, sample)

    assert status == 200
    injected = usage_chunk(sample) if sample.name in INJECTED else b""
    assert raw == sample.body.replace(injected, b"")
    _, charge = rows_of(rig, headers)
    assert (charge["kind"], charge["estimated"], charge["failed"], charge["reason"]) == ("charge", 0, 0, None)
    parts = {model: counts(usage, sample.wire) for model, usage in sample.by_model.items()}
    whole: dict[str, int] = {}
    for part in parts.values():
        whole = {unit: whole.get(unit, 0) + part.get(unit, 0) for unit in whole | part}
    assert json.loads(charge["usage"]) == whole
    assert charge["tokens"] == sum(count for unit, count in whole.items() if unit != "web_search")
    factor = FACTORS.get(sample.name, Decimal(1))
    computed = sum(nano(part, model, factor) for model, part in parts.items())
    assert charge["usd"] == math.ceil(max(computed, sample.stated_nano))  # the dearer of the two


@pytest.mark.parametrize("way", sdks.WAYS)
@pytest.mark.parametrize("sample", [s for s in CHAT if s.name in INJECTED], ids=lambda s: s.name)
def test_a_client_that_asks_for_usage_gets_its_chunk(rig, way, sample):
    _, headers, raw = send(rig, way, sample, stream_options={"include_usage": True})

    assert raw == sample.body
    _, charge = rows_of(rig, headers)
    assert charge["usd"] == math.ceil(nano(counts(sample.expect, sample.wire), sample.model))


def test_f10_the_origin_is_asked_for_usage_that_the_client_did_not_ask_for(rig):
    sample = next(s for s in CHAT if s.name == "sse_crlf_split")

    _, headers, _ = send(rig, "base_url", sample, metadata={"mark": "f10"})

    rows_of(rig, headers)
    (seen,) = [entry for entry in rig.origin.calls() if '"f10"' in entry["body"]]
    assert json.loads(seen["body"])["stream_options"] == {"include_usage": True}
    assert seen["headers"]["accept-encoding"] == "identity"
    assert not [name for name in seen["headers"] if name.startswith("x-lockpin")]


def test_cache_writes_without_a_lifetime_cost_what_the_request_asked_for(rig):
    """Luna writes for 24 hours: $0.50 per million. Sonnet writes for an hour: $4, the reply saying no lifetime."""
    sample = next(s for s in CHAT if s.name == "sse_crlf_split")
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 1000, "output_tokens": 5}
    reply = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": [],
        "usage": usage,
    }
    block = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}}

    _, headers, _ = send(rig, "base_url", sample, prompt_cache_retention="24h")
    message = rig.clients["anthropic_messages", "base_url"].messages.with_raw_response.create(
        model="claude-sonnet-5-5",
        max_tokens=LIMIT,
        messages=[{"role": "user", "content": [block]}],
        extra_headers=sdks.order(body=json.dumps(reply)),
    )

    _, charge = rows_of(rig, headers)
    assert charge["usd"] == 24 * 200 + 1024 * 20 + 1000 * 500 + 57 * 1200
    _, charge = rows_of(rig, message.headers)
    assert charge["usd"] == 10 * 2000 + 1000 * 4000 + 5 * 10_000


CUT = [s for s in SAMPLES if not s.complete and s.status == 200 and "usage" in s.expect]
CUT_CHAT = [s for s in CHAT if not s.complete and s.status == 200]


@pytest.mark.parametrize("way", sdks.WAYS)
@pytest.mark.parametrize("sample", CUT, ids=lambda s: s.name)
def test_a_cut_messages_stream_is_charged_its_input_and_what_was_generated(rig, way, sample):
    """Both samples think: what is hidden of it may have run for a second or more, which is more than the limit."""
    status, headers, raw = send(rig, way, sample)

    assert (status, raw) == (200, sample.body)
    usage = counts(sample.expect["usage"], sample.wire) | {"output": LIMIT}
    _, charge = rows_of(rig, headers)
    assert (charge["kind"], charge["estimated"], charge["reason"]) == ("charge", 1, "stream_cut")
    assert json.loads(charge["usage"]) == usage
    assert charge["usd"] == math.ceil(nano(usage, sample.model))


@pytest.mark.parametrize("way", sdks.WAYS)
@pytest.mark.parametrize("sample", CUT_CHAT, ids=lambda s: s.name)
def test_a_cut_chat_stream_is_charged_its_hold(rig, way, sample):
    status, headers, raw = send(rig, way, sample)

    assert (status, raw) == (200, sample.body)
    hold, charge = rows_of(rig, headers)
    assert (charge["kind"], charge["estimated"], charge["reason"]) == ("charge", 1, "stream_cut")
    assert charge["usd"] == hold["usd"] > 0


@pytest.mark.parametrize("way", sdks.WAYS)
@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.status >= 400], ids=lambda s: s.name)
def test_an_error_passes_unchanged_and_costs_nothing_or_its_estimated_input(rig, way, sample):
    status, headers, raw = send(rig, way, sample)

    assert (status, raw) == (sample.status, sample.body)
    hold, end = rows_of(rig, headers)
    if status < 500:
        assert (end["kind"], end["usd"], end["failed"]) == ("void", 0, 1)
        assert headers["x-lockpin-cost-usd"] == "0"
    else:
        sent = len(rig.origin.calls()[-1]["body"])
        tokens = math.ceil(sent / 3)
        assert (end["kind"], end["estimated"], end["failed"], end["reason"]) == ("charge", 1, 1, "failed")
        assert json.loads(end["usage"]) == {"input": tokens}
        assert end["usd"] == math.ceil(nano({"input": tokens}, sample.model)) <= hold["usd"]


@pytest.mark.parametrize("way", sdks.WAYS)
def test_the_sdks_read_the_streams_as_if_there_were_no_proxy(rig, way):
    chat = next(s for s in CHAT if s.name == "sse_crlf_split")
    thinking = next(s for s in MESSAGES if s.name == "anthropic_messages_stream_gzip")
    ask = {"model": chat.model, "messages": [sdks.MESSAGE], "max_completion_tokens": LIMIT}

    chunks = rig.clients["openai_chat", way].chat.completions.create(stream=True, extra_headers=chat.order(), **ask)
    text = [chunk.choices[0].delta.content or "" for chunk in chunks]
    with rig.clients["anthropic_messages", way].messages.stream(
        model=thinking.model, messages=[sdks.MESSAGE], max_tokens=LIMIT, extra_headers=thinking.order()
    ) as stream:
        message = stream.get_final_message()

    assert "".join(text) == "Grüße 👋"
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert message.usage.output_tokens == 389
    assert gzip.decompress(thinking.body).endswith(b'{"type":"message_stop"}\n\n')


def test_nothing_is_open_and_every_hold_has_one_resolution(rig):
    until(lambda: not rig.proxy.rows("SELECT * FROM open_holds"))

    resolutions = "(SELECT count(*) FROM rows r WHERE r.call = h.call AND r.kind IN ('charge', 'void'))"
    odd = rig.proxy.rows(f"SELECT call FROM rows h WHERE kind = 'hold' AND {resolutions} != 1")
    assert odd == []
    books = rig.proxy.rows(
        "SELECT sum(held_nano) AS held, sum(spent_nano) AS spent FROM accounts WHERE budget = 'daily'"
    )
    charged = rig.proxy.rows("SELECT sum(usd) AS usd FROM rows WHERE kind = 'charge'")
    assert (books[0]["held"], books[0]["spent"]) == (0, charged[0]["usd"])


LISTED = [s for s in SAMPLES if s.complete and s.status == 200 and s.model in SHIPPED and s.name not in FACTORS]
PROMPT = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "cache_write_30m", "audio_in")


@pytest.mark.parametrize("sample", LISTED, ids=lambda s: s.name)
def test_the_rates_above_are_those_of_an_independent_price_list(sample):
    """genai-prices counts the whole prompt as input; the sample with a regional factor, which it lacks, is left out."""
    provider = "anthropic" if sample.wire == "anthropic_messages" else "openai"
    for model, expected in sample.by_model.items():
        usage = counts(expected, sample.wire)
        writes = {unit: usage.get(unit, 0) for unit in PROMPT if unit.startswith("cache_write")}
        asked = genai_prices.Usage(
            input_tokens=sum(usage.get(unit, 0) for unit in PROMPT),
            output_tokens=usage.get("output", 0) + usage.get("audio_out", 0),
            cache_read_tokens=usage.get("cache_read", 0),
            cache_write_tokens=sum(writes.values()),
            cache_write_1h_tokens=writes["cache_write_1h"],
            input_audio_tokens=usage.get("audio_in", 0),
            output_audio_tokens=usage.get("audio_out", 0),
            web_searches=usage.get("web_search", 0),
        )
        found = genai_prices.calc_price(
            asked, model, provider_id=provider, genai_request_timestamp=datetime(2026, 11, 29, tzinfo=UTC)
        )
        assert found.total_price * 10**9 == nano(usage, model)
