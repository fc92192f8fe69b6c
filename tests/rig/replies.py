"""Every sample reply under tests/data, and the call that it answers: a request of its kind, priced and held."""

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pricebook
from desks import NOW, PROVIDERS
from forms import MP3, sent, silence

from lockpin_core.admission import Incoming, Priced, priced
from lockpin_core.call import Call, Parsed, Payers, Reading
from lockpin_core.config import Config
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.providers import Metered
from lockpin_core.settlement import Tariff
from lockpin_core.wire import wire_named
from lockpin_core.wire.protocol import Wire

DATA = Path(__file__).resolve().parents[1] / "data"
LIMIT = 8192  # output tokens of every call: more than any sample has, and than a second of hidden thinking can be
OWN = {  # models that no shipped price knows: the user's, with figures that cannot be mixed up
    "glm-x": {"input": "0.6", "output": "2.2", "cache_read": "0.11"},
    "deepseek-chat": {"input": "0.28", "output": "0.42", "cache_read": "0.028"},
    "some/compat-model": {"input": "0.3", "output": "1.1"},
    "local/model": {"input": "0.17", "output": "0.71"},
    "voyage-4": {"input": "0.06"},
    "openai/text-embedding-3-small": {"input": "0.021"},
}
FACTS = {"context_tokens": "200000", "max_output_tokens": "32000"}
BOUNDED = {
    "perplexity/sonar": {"context_tokens": "128000"},  # without it its tools have no bound
    "gpt-image-2": {"image_tokens": "1536"},  # nor has an image that it reads
    "gpt-4o-mini-tts": {"max_output_tokens": "2000"},  # nor what it says
}
PRICES = PriceTable.load(shipped_dir(), {name: entry | FACTS for name, entry in OWN.items()} | BOUNDED)
CONFIG = Config(None, Path("nowhere"))


GEMINI = "gemini-3.8-flash"
PLACES: Mapping[str, tuple[str, str, str]] = {  # folder → provider, path, model of the request
    "anthropic_messages": ("anthropic", "/v1/messages", "claude-sonnet-5-5"),
    "anthropic_batches": ("anthropic", "/v1/messages/batches", "claude-haiku-5-5"),
    "openai_chat": ("openai", "/v1/chat/completions", "gpt-5.4"),
    "openai_responses": ("openai", "/v1/responses", "gpt-6.1-sol"),
    "openai_completions": ("openai", "/v1/completions", "gpt-3.5-turbo-instruct"),
    "openai_embeddings": ("openai", "/v1/embeddings", "text-embedding-3-small"),
    "openai_images": ("openai", "/v1/images/generations", "gpt-image-2"),
    "openai_speech": ("openai", "/v1/audio/speech", "gpt-4o-mini-tts"),
    "openai_transcriptions": ("openai", "/v1/audio/transcriptions", "gpt-4o-transcribe"),
    "gemini": ("gemini", f"/v1beta/models/{GEMINI}:generateContent", GEMINI),
    "gemini_embed": ("gemini", "/v1beta/models/gemini-embedding-001:batchEmbedContents", "gemini-embedding-001"),
    "gemini_interactions": ("gemini", "/v1beta/interactions", GEMINI),
    "code_assist": ("code_assist", "/v1internal:generateContent", GEMINI),
    "bedrock_converse": ("bedrock", "/model/us.anthropic.claude-opus-5-5/converse", "us.anthropic.claude-opus-5-5"),
    "bedrock_invoke": ("bedrock", "/model/us.anthropic.claude-opus-5-5/invoke", "us.anthropic.claude-opus-5-5"),
}
_VERTEX = "/v1/projects/p/locations/global/publishers"
ELSEWHERE: Mapping[str, tuple[str, str]] = {  # sample → provider and path where not the folder's
    "vertex_anthropic_raw_predict": ("vertex", f"{_VERTEX}/anthropic/models/claude-sonnet-5-5:rawPredict"),
    "vertex_gemini_stream": ("vertex", f"{_VERTEX}/google/models/{GEMINI}:generateContent"),
    "anthropic_compat_stream_usage_only_in_delta": ("zai", "/api/anthropic/v1/messages"),
    "azure_stream": ("azure", "/openai/deployments/gpt-5.4/chat/completions"),
    "error_azure_400_content_filter": ("azure", "/openai/v1/chat/completions"),
    "error_azure_429": ("azure", "/openai/v1/chat/completions"),
    "deepseek_chat": ("deepseek", "/chat/completions"),
    "error_402_deepseek": ("deepseek", "/chat/completions"),
    "mistral_stream": ("mistral", "/v1/chat/completions"),
    "moonshot_stream": ("moonshot", "/v1/chat/completions"),
    "openrouter_byok": ("openrouter", "/api/v1/chat/completions"),
    "openrouter_stream": ("openrouter", "/api/v1/chat/completions"),
    "openrouter_cost": ("openrouter", "/api/v1/embeddings"),
    "error_402_openrouter": ("openrouter", "/api/v1/chat/completions"),
    "refusal_openrouter_http": ("openrouter", "/api/v1/chat/completions"),
    "qwen_explicit_cache": ("qwen", "/compatible-mode/v1/chat/completions"),
    "xai_chat": ("xai", "/v1/chat/completions"),
    "xai_responses": ("xai", "/v1/responses"),
    "perplexity_agent": ("perplexity", "/v1/responses"),
    "image_usage": ("openai", "/v1/images/edits"),
    "nonstream_cached_fim": ("deepseek", "/beta/completions"),
    "error_400_codex_backend": ("chatgpt", "/backend-api/codex/responses"),
    "error_429_codex_usage_limit": ("chatgpt", "/backend-api/codex/responses"),
}
MODELS = {  # of requests whose sample states none that is priced where the request goes
    "error_402_deepseek": "deepseek-v4-pro",
    "error_402_openrouter": "openai/gpt-5.5",
    "refusal_openrouter_http": "openai/gpt-5.5",
    "anthropic_compat_stream_usage_only_in_delta": "glm-x",
    "transcription_duration": "whisper-1",
}
STREAMED = {  # how a path says that it streams
    ":generateContent": ":streamGenerateContent",
    "/converse": "/converse-stream",
    "/invoke": "/invoke-with-response-stream",
}
HEADERS = {"vertex_gemini_stream": {"x-vertex-ai-llm-shared-request-type": "priority"}}
MORE: Mapping[str, Mapping[str, object]] = {  # what the request must have asked for, for such a reply
    "anthropic_messages_fast_long_context": {"speed": "fast"},
    "anthropic_messages_iterations": {
        "tools": [{"type": "advisor_20260301", "name": "advisor", "model": "claude-opus-5-5", "max_uses": 2}],
        "context_management": {"edits": [{"type": "compact_20260112"}]},
    },
    "anthropic_messages_stream_web_search": {
        "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 5}]
    },
    "anthropic_messages_stream_cut_after_start": {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    "chat_nonstream_audio_prediction": {
        "modalities": ["text", "audio"],
        "audio": {"voice": "ash", "format": "wav"},
        "prediction": {"type": "content", "content": "what was there before, and is likely to be there after it"},
    },
    "responses_hosted_tools": {
        "tools": [
            {"type": "web_search"},
            {"type": "file_search", "vector_store_ids": ["vs_1"]},
            {"type": "code_interpreter", "container": {"type": "auto"}},
        ]
    },
    "image_usage": {"images": [{"image_url": "data:image/png;base64,AA"}]},
    "transcription_duration": {"file": silence(8.47), "response_format": "verbose_json"},
    "responses_nonstream": {"prompt_cache_options": {"mode": "implicit", "ttl": "12h"}},
    "perplexity_agent": {"tools": [{"type": "web_search"}]},
    "gemini_grounding_url_context": {"tools": [{"googleSearch": {}}, {"urlContext": {}}]},
    "bedrock_invoke_stream_cut": {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    "responses_background_queued": {"background": True},
    "responses_background_polled": {"background": True},
    "responses_background_cancelled": {"background": True},
}
CACHED_SOUND = {"gemini_generate_cached_thoughts": 500}  # of `cache_read`, as its note says
# A fee of a query has no bound in the request, and under a limit such a call is refused; without one it passes.
UNBOUNDED = ("gemini_grounding_url_context", "gemini_interactions_stream")
# Likewise tools whose number nothing limits there, as far as its pages say.
UNLIMITED = ("perplexity_agent",)
UNITS = (
    *("input_uncached", "cache_read", "cache_write_5m", "cache_write_1h", "cache_write_30m", "cache_write_12h"),
    *("output", "audio_in", "audio_out", "image_in", "image_out", "second"),
)
FEES = {
    "web_search": ("web_search",),
    "file_search": ("file_search",),
    "code_interpreter": ("code_session",),
    "google_search_queries": ("web_search",),
    "google_search_prompts": ("search_prompt",),
}


@dataclass(frozen=True)
class Sample:
    path: Path
    expect: dict = field(repr=False)

    @property
    def folder(self) -> str:
        return self.path.parent.name

    @property
    def name(self) -> str:
        return self.path.name.split(".")[0]

    @property
    def meta(self) -> dict:
        return self.expect.get("_meta", self.expect)

    @property
    def status(self) -> int:
        return self.meta.get("status") or 200

    @property
    def streamed(self) -> bool:
        return ".sse" in self.path.name or self.framed

    @property
    def framed(self) -> bool:
        return ".eventstream" in self.path.name

    @property
    def complete(self) -> bool:
        return bool(self.meta.get("complete") or self.meta.get("usage_known"))

    @property
    def body(self) -> bytes:
        """Give the reply's bytes, decoded; an error of OpenAI's family stands in an envelope with its status."""
        raw = self.path.read_bytes()
        raw = gzip.decompress(raw) if self.path.suffix == ".gz" else raw
        is_enveloped = self.status >= 400 and "_meta" in self.expect
        return json.dumps(json.loads(raw)["body"]).encode() if is_enveloped else raw

    @property
    def model(self) -> str:
        stated = MODELS.get(self.name) or self.meta.get("model") or PLACES[self.folder][2]
        return stated.split(":2023")[0]  # OpenAI states an edition that no price list names

    @property
    def usages(self) -> dict[str, dict[str, int]]:
        """Give the disjoint units by model."""
        whole = self.expect.get("usage") or self.expect
        whole = whole | {"cached_sound": CACHED_SOUND.get(self.name, 0), "second": self.meta.get("billed_seconds", 0)}
        return {
            model: units(usage, self.folder) for model, usage in self.meta.get("per_model", {self.model: whole}).items()
        }

    @property
    def usage(self) -> dict[str, int]:
        """Give the units of all models together."""
        parts = self.usages.values()
        return {unit: sum(part.get(unit, 0) for part in parts) for unit in sorted({u for part in parts for u in part})}


def units(usage: dict, folder: str) -> dict[str, int]:
    """Bring a sample's units to the names of the price files; images and sound inside the input stay there."""
    inside = folder in ("anthropic_messages", "anthropic_batches", "bedrock_converse", "bedrock_invoke")
    found = {unit.removesuffix("_uncached"): usage.get(unit, 0) for unit in UNITS}
    if inside or folder in ("gemini", "gemini_embed", "gemini_interactions", "code_assist"):
        apart = {} if inside else {unit: found[unit] for unit in ("audio_in", "image_in")}
        found |= {"audio_in": 0, "image_in": 0} | apart
        found["input"] -= sum(apart.values())
    found["cache_audio"] = usage.get("cached_sound", 0)
    found["cache_read"] -= found["cache_audio"]
    for kind, times in usage.get("server_tool_calls", {}).items():
        found |= dict.fromkeys(FEES.get(kind, ()), times)
    return {unit: count for unit, count in found.items() if count}


def samples() -> Iterator[Sample]:
    for expect in sorted(DATA.glob("*/*.expect.json")):
        stem = expect.name.removesuffix(".expect.json")
        found = [path for path in expect.parent.glob(f"{stem}*") if ".expect." not in path.name]
        (path,) = [path for path in found if path.name == stem or path.stem == stem]
        yield Sample(path, json.loads(expect.read_text()))


SAMPLES = list(samples())


# The call that a sample answers


@dataclass(frozen=True)
class Asked:
    """A request of the sample's kind, held."""

    found: Priced
    call: Call
    tariff: Tariff

    @property
    def wire(self) -> Wire:
        return self.found.wire

    @property
    def parsed(self) -> Parsed:
        return self.found.parsed

    def reading(self, sample: Sample, body: bytes | None = None) -> Reading:
        # Results are read by a poll, which does not know the request.
        asked = None if sample.path.suffix == ".jsonl" else self.parsed
        scanner = self.wire.scanner(streamed=sample.streamed, asked=asked)
        scanner.feed(sample.body if body is None else body)
        return scanner.result()


def request_body(sample: Sample) -> dict:
    """Make a request whose prompt has as many bytes as the sample has prompt tokens, with what the reply needs."""
    size = sum(count for unit, count in sample.usage.items() if unit in pricebook.PROMPT)
    text, more = "x" * max(size, 8), dict(MORE.get(sample.name, {}))
    writes = [unit for unit in ("cache_write_1h", "cache_write_5m") if sample.usage.get(unit)]
    mark = {"cache_control": {"type": "ephemeral", "ttl": writes[0][-2:]}} if writes else {}
    stream = {"stream": True} if sample.streamed else {}
    messages = [{"role": "user", "content": [{"type": "text", "text": text, **mark}]}]
    match sample.folder:
        case "bedrock_invoke":
            return {"anthropic_version": "bedrock-2023-05-31", "max_tokens": LIMIT, "messages": messages, **more}
        case "bedrock_converse":
            points = [{"cachePoint": {"type": "default", "ttl": writes[0][-2:]}}] if writes else []
            messages = [{"role": "user", "content": [{"text": text}, *points]}]
            return {"messages": messages, "inferenceConfig": {"maxTokens": LIMIT}}
        case "anthropic_messages":
            return {"model": sample.model, "max_tokens": LIMIT, "messages": messages, **stream, **more}
        case "anthropic_batches":
            one = {"model": sample.model, "max_tokens": LIMIT, "messages": messages}
            names = "abcdefghij"[: sum(sample.meta["counts"].values())]  # those of the sample's results
            return {"requests": [{"custom_id": name, "params": one} for name in names]}
        case "openai_chat":
            return {"model": sample.model, "max_completion_tokens": LIMIT, "messages": messages, **stream, **more}
        case "openai_responses":
            return {"model": sample.model, "max_output_tokens": LIMIT, "input": text, **stream, **more}
        case "openai_completions":
            return {"model": sample.model, "max_tokens": 512, "prompt": text, **stream}
        case "openai_embeddings":
            return {"model": sample.model, "input": text}
        case "gemini_interactions":  # without the search that its reply has: a request cannot say how many
            return {
                "model": sample.model, "input": text, "generation_config": {"max_output_tokens": LIMIT}, **stream
            }  # fmt: skip
        case "openai_images":
            asked = {"size": "1024x1024", "quality": "medium"}
            return {"model": sample.model, "prompt": text, **asked, **stream, **more}
        case "openai_speech":
            return {"model": sample.model, "input": text, "voice": "ash", "stream_format": "sse"}
        case "openai_transcriptions":
            return {"model": sample.model, "file": MP3, **stream, **more}
        case "gemini_embed":
            one = {"model": f"models/{sample.model}", "content": {"parts": [{"text": text}]}}
            return {"requests": [one, one]}
    image = {"inlineData": {"mimeType": "image/png", "data": "AA"}}
    sound = {"fileData": {"mimeType": "audio/wav", "fileUri": "files/x"}}
    parts = [
        {"text": text},
        *([image] if "image_in" in sample.usage else []),
        *([sound] if "audio_in" in sample.usage else []),
    ]
    inner = {"contents": [{"role": "user", "parts": parts}], "generationConfig": {"maxOutputTokens": LIMIT}, **more}
    return inner if sample.folder == "gemini" else {"model": sample.model, "request": inner}


def incoming(sample: Sample) -> Incoming:
    provider_name, path, _ = PLACES[sample.folder]
    provider_name, path = ELSEWHERE.get(sample.name, (provider_name, path))
    for plain, streamed in STREAMED.items() if sample.streamed else ():
        path = path[: -len(plain)] + streamed if path.endswith(plain) else path
    provider = PROVIDERS.by_name(provider_name)
    assert provider is not None
    if sample.name in UNLIMITED:
        provider = replace(provider, keeps_tool_limit=True)
    route = provider.route("POST", path)
    assert isinstance(route, Metered)
    host = "me.openai.azure.com" if provider_name == "azure" else provider.base.removeprefix("https://")
    body, kind = sent(route.wire, request_body(sample))
    headers = {**HEADERS.get(sample.name, {}), **kind}
    return Incoming(
        "c1", provider, host, "POST", path, headers, body, False, Payers("t", "box"), "test/1",
        path_model=route.model,
    )  # fmt: skip


def ask(sample: Sample) -> Asked:
    came = incoming(sample)
    route = came.provider.route("POST", came.path)
    assert isinstance(route, Metered)
    wire = wire_named(route.wire)
    parsed = wire.parse(came.request())
    if sample.name in UNBOUNDED:
        parsed = replace(parsed, unbounded_fees=frozenset())
    found = priced(came, wire, parsed, PRICES, NOW)
    return Asked(found, found.call(None), found.tariff(CONFIG))
