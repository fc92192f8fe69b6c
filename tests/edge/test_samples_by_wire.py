"""The samples of the formats that `test_samples` has not: each as its provider's reply, through real proxies.

Every unit has a price of its own, made up so that no two can be mixed up; priority costs twice, and whoever draws
thrice.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import client
import processes
import pytest
import sdks
from processes import DATA, until

USD_PER_MTOK = {
    "cache_audio": "0.4",
    "input": "2", "cache_read": "0.3", "cache_write_30m": "2.7", "cache_write_12h": "4.1", "output": "11",
    "audio_in": "5", "image_in": "3", "image_out": "31",
}  # fmt: skip
USD_EACH = {"web_search": "0.013", "search_prompt": "0.035", "file_search": "0.0025", "code_session": "0.031"}
FACTS = {"max_output_tokens": "8000", "context_tokens": "200000", "tokenizer": "bytes"}
DRAWER = "gpt-image-2.6-sunburst"  # draws where a reply does not say who did
TIER_FACTOR = {"priority": 2, "fast": 2, "ON_DEMAND_PRIORITY": 2}
TOOLS = {  # as the samples count them → our unit; the others cost nothing, or are tokens of another model
    "web_search": "web_search",
    "google_search_queries": "web_search",
    "google_search_prompts": "search_prompt",
    "file_search": "file_search",
    "code_interpreter": "code_session",
}
MODELS = {  # of samples that name none
    "gemini": "gemini-3.8-flash",
    "gemini_embed": "gemini-embedding-001",
    "code_assist": "gemini-3.8-flash",
    "openai_responses": "gpt-6.1-sol",
}
CACHED_SOUND = {"gemini_generate_cached_thoughts": 500}  # of `cache_read`, as its note says
LIMIT = 6000


@dataclass(frozen=True)
class Sample:
    path: Path
    wire: str
    expect: dict = field(repr=False)

    @property
    def name(self) -> str:
        return self.path.name.split(".")[0]

    @property
    def meta(self) -> dict:
        return self.expect.get("_meta", {})

    @property
    def status(self) -> int:
        return self.expect.get("status") or self.meta.get("status") or 200

    @property
    def streamed(self) -> bool:
        return self.path.suffix == ".sse"

    @property
    def body(self) -> bytes:
        """Give what the provider sends: an error of the Responses samples stands in an envelope with its status."""
        raw = self.path.read_bytes()
        return json.dumps(json.loads(raw)["body"]).encode() if self.is_enveloped else raw

    @property
    def is_enveloped(self) -> bool:
        return self.meta.get("terminal") == "http_error"

    @property
    def model(self) -> str:
        return self.expect.get("model") or self.meta.get("model") or MODELS[self.wire]

    @property
    def complete(self) -> bool:
        return self.status == 200 and bool(self.expect.get("complete") or self.meta.get("usage_known"))

    @property
    def is_queued(self) -> bool:
        return self.meta.get("terminal") == "queued"

    @property
    def usage(self) -> dict[str, int]:
        """Give what the sample uses, by our units; what is drawn is another model's."""
        stated = self.expect.get("usage") or self.expect
        found = {unit: stated.get(unit, 0) for unit in USD_PER_MTOK} | {"input": stated["input_uncached"]}
        if self.wire in ("gemini", "code_assist"):  # there they are inside the uncached input
            found["input"] -= found["audio_in"] + found["image_in"]
        found["cache_audio"] = CACHED_SOUND.get(self.name, 0)
        found["cache_read"] -= found["cache_audio"]
        for tool, calls in stated["server_tool_calls"].items():
            if tool in TOOLS:
                found[TOOLS[tool]] = calls
        return {unit: count for unit, count in found.items() if count}

    @property
    def drawn(self) -> dict[str, int]:
        said = self.meta.get("tool_usage_image_gen", {})
        named = {"text_in": "input", "image_in": "image_in", "image_out": "image_out"}
        return {named[unit]: count for unit, count in said.items()}

    @property
    def nano(self) -> int:
        """Work out its price: a dollar per million tokens is a thousand nanodollars a token."""
        tier = self.meta.get("service_tier") or self.expect.get("traffic_type")
        total = tokens_nano(self.usage) * TIER_FACTOR.get(tier, 1) + tokens_nano(self.drawn) * 3
        total += sum(Decimal(USD_EACH[unit]) * count * 10**9 for unit, count in self.usage.items() if unit in USD_EACH)
        stated = Decimal(self.meta.get("reported_cost_usd") or 0) * 10**9
        return math.ceil(max(total, stated))

    @property
    def url(self) -> str:
        host = {"xai_responses": "xai", "perplexity_agent": "perplexity", "openrouter_cost": "openrouter/api"}
        match self.wire:
            case "openai_responses":
                return f"/{host.get(self.name, 'openai')}/v1/responses"
            case "openai_embeddings":
                return f"/{host.get(self.name, 'openai')}/v1/embeddings"
            case "openai_completions":
                return "/deepseek/beta/completions" if self.name == "nonstream_cached_fim" else "/openai/v1/completions"
            case "gemini_embed":
                return f"/gemini/v1beta/models/{self.model}:batchEmbedContents"
        verb = "streamGenerateContent?alt=sse" if self.streamed else "generateContent"
        if self.wire == "code_assist":
            return f"/code_assist/v1internal:{verb}"
        if self.name.startswith("vertex"):
            return f"/vertex/v1/projects/p/locations/global/publishers/google/models/{self.model}:{verb}"
        return f"/gemini/v1beta/models/{self.model}:{verb}"

    @property
    def request(self) -> dict:
        stream = {"stream": True} if self.streamed else {}
        contents = {
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            "generationConfig": {"maxOutputTokens": LIMIT},
        }
        match self.wire:
            case "openai_responses":
                background = {"background": True} if "background" in self.name else {}
                return {"model": self.model, "input": "hi", "max_output_tokens": LIMIT} | stream | background
            case "openai_embeddings":
                return {"model": self.model, "input": "hi"}
            case "openai_completions":
                prompts = ["hi", "ho"] if "two_prompts" in self.name else "hi"
                asks = {"stream_options": {"include_usage": True}} if self.streamed else {}
                return {"model": self.model, "prompt": prompts, "max_tokens": LIMIT} | stream | asks
            case "gemini_embed":
                return {"requests": [{"model": f"models/{self.model}", "content": {"parts": [{"text": "hi"}]}}]}
            case "code_assist":
                return {"model": self.model, "project": "p", "request": contents}
        return contents


def tokens_nano(usage: dict[str, int]) -> Decimal:
    return sum(
        (Decimal(USD_PER_MTOK[unit]) * 1000 * n for unit, n in usage.items() if unit in USD_PER_MTOK), Decimal(0)
    )


def load(wire: str) -> list[Sample]:
    found = []
    for expect in sorted((DATA / wire).glob("*.expect.json")):
        name = expect.name.split(".")[0]
        (path,) = [one for one in expect.parent.glob(f"{name}.*") if not one.name.endswith(".expect.json")]
        found.append(Sample(path, wire, json.loads(expect.read_text())))
    return found


SAMPLES = [
    sample
    for wire in ("openai_responses", "gemini", "gemini_embed", "code_assist", "openai_embeddings", "openai_completions")
    for sample in load(wire)
    if sample.name != "gemini_count_tokens"  # of a free path
]
named = pytest.mark.parametrize


def pricing() -> str:
    """Write the prices: of each model all units, and priority at twice as much."""

    def rates(factor: int) -> dict[str, str]:
        return {unit: str(Decimal(usd) * factor) for unit, usd in USD_PER_MTOK.items()}

    entry = {**rates(1), **FACTS, "fees": USD_EACH, "tiers": {"priority": rates(2)}}
    names = sorted({sample.model for sample in SAMPLES})
    return json.dumps(dict.fromkeys(names, entry) | {DRAWER: {**rates(3), **FACTS}})


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory) -> Iterator[tuple[processes.Origin, processes.Proxy]]:
    folder = tmp_path_factory.mktemp("by_wire")
    hosts = (
        "api.openai.com", "api.x.ai", "api.perplexity.ai", "openrouter.ai", "api.deepseek.com",
        "generativelanguage.googleapis.com", "aiplatform.googleapis.com", "cloudcode-pa.googleapis.com",
    )  # fmt: skip
    with processes.origin(folder) as origin:
        upstreams = json.dumps(dict.fromkeys(hosts, origin.url))
        config = f"upstreams: {upstreams}\ndaily_usd: 1000\npricing: {pricing()}\n"
        with processes.proxy(folder, config, kind=request.param) as proxy:
            yield origin, proxy
            assert "Traceback" not in proxy.printed()


def send(rig, sample: Sample) -> client.Answer:
    order: dict = {"status": sample.status}
    order |= {"body": sample.body.decode()} if sample.is_enveloped else {"file": f"{sample.wire}/{sample.path.name}"}
    if sample.streamed:
        order |= {"type": "text/event-stream", "chunk": 7}
    answer = client.call(rig[1], sample.url, sample.request, x_origin=sdks.order(**order)["x-origin"])
    assert (answer.status, answer.body) == (sample.status, sample.body)
    return answer


def rows_of(rig, answer: client.Answer, count: int = 2) -> list:
    query = "SELECT * FROM rows WHERE call = ? ORDER BY id"
    found = until(lambda: len(rows := rig[1].rows(query, answer.headers["x-lockpin-call"])) == count and rows)
    assert found[0]["kind"] == "hold"
    return found


@named("sample", [s for s in SAMPLES if s.complete], ids=lambda s: f"{s.wire}-{s.name}")
def test_a_complete_sample_passes_unchanged_and_is_charged_its_price(rig, sample):
    _, charge = rows_of(rig, send(rig, sample))

    assert (charge["kind"], charge["estimated"], charge["failed"], charge["reason"]) == ("charge", 0, 0, None)
    whole = {u: sample.usage.get(u, 0) + sample.drawn.get(u, 0) for u in {**sample.usage, **sample.drawn}}
    assert json.loads(charge["usage"]) == whole
    assert charge["tokens"] == sum(count for unit, count in whole.items() if unit in USD_PER_MTOK)
    assert charge["usd"] == sample.nano


@named(
    "sample",
    [s for s in SAMPLES if s.status == 200 and not s.complete and not s.is_queued],
    ids=lambda s: f"{s.wire}-{s.name}",
)
def test_a_sample_that_states_no_usage_at_its_end_is_charged_its_hold(rig, sample):
    hold, charge = rows_of(rig, send(rig, sample))

    assert (charge["kind"], charge["estimated"]) == ("charge", 1)
    assert charge["reason"] in ("stream_cut", "no_usage")
    assert charge["usd"] == hold["usd"] > LIMIT * 11_000


@named("sample", [s for s in SAMPLES if s.status >= 400], ids=lambda s: f"{s.wire}-{s.name}")
def test_an_error_passes_unchanged_and_costs_nothing_or_its_estimated_input(rig, sample):
    answer = send(rig, sample)
    hold, end = rows_of(rig, answer)

    if sample.status < 500:
        assert (end["kind"], end["usd"], end["failed"]) == ("void", 0, 1)
    else:
        tokens = math.ceil(len(rig[0].calls()[-1]["body"]) / 3)
        assert (end["kind"], end["estimated"], end["failed"], end["reason"]) == ("charge", 1, 1, "failed")
        assert json.loads(end["usage"]) == {"input": tokens}
        assert end["usd"] == tokens * 2000 < hold["usd"]


def test_the_background_samples_belong_to_one_call(rig):
    """The first leaves the hold; the poll that has the second settles it."""
    queued, polled = (
        next(s for s in SAMPLES if s.name == f"responses_background_{word}") for word in ("queued", "polled")
    )
    answer = send(rig, queued)
    rows_of(rig, answer, 1)

    name = json.loads(polled.path.read_bytes())["id"]
    order = sdks.order(file=f"openai_responses/{polled.path.name}")["x-origin"]
    shown = client.call(rig[1], f"/openai/v1/responses/{name}", method="GET", x_origin=order)

    assert shown.body == polled.path.read_bytes()
    _, charge = rows_of(rig, answer)
    assert (json.loads(charge["usage"]), charge["usd"]) == (polled.usage, polled.nano)


def test_every_sample_is_in_one_of_these_tests():
    kinds = [(s.complete, s.status == 200 and not s.complete, s.status >= 400) for s in SAMPLES]

    assert all(sum(each) == 1 for each in kinds)
    assert all(sum(column) > 5 for column in zip(*kinds, strict=True))
