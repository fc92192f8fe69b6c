"""Request bodies as real programs send them, and the most that a provider may bill for each, written by hand.

`TEXT` in a body stands for the text that a test puts there. What may be billed is said in the provider's terms: how
often it may read the prompt, how often it may write a whole output limit, what it may write to its cache, its fees.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from forms import MP3, silence

TEXT = "\x00text\x00"
SEARCH_LIMIT = 5  # calls of the provider's tools that Lockpin allows where a request does not say
CALLS = 10  # what it takes them to be where no request can say


@dataclass(frozen=True)
class Other:
    """Another model that may run within the call; `model` as the body has it, to be put in by the test."""

    reads: int = 1  # times that it reads the prompt, the first time with what was said before
    carries: int = 0  # output tokens of others that it may read the first time
    fills: bool = False  # what tools brought in before may fill its window even the first time
    limit: int | None = 0  # tokens that it writes each time; None: the model's most
    follows: bool = False  # its limit falls with that of the request, and no more than that is said before it


@dataclass(frozen=True)
class Use:
    """A tool that a limit holds to so many calls, after each of which the prompt is read again; and each one's fees."""

    calls: int
    fees: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Body:
    name: str
    wire: str
    told: Mapping
    limit: int | None  # output tokens of a choice; None: the model's most
    choices: int = 1
    reads: int = 1  # samplings of the prompt, each after the first of whatever fills the window
    again: int = 0  # samplings of the prompt as it is, by the same model
    writes: int = 1  # samplings that may each have the whole limit
    beside: int = 0  # output tokens beside the limit
    thinks: int = 0  # tokens of thinking beside the limit in each sampling of a choice, by a `thinking_budget`
    beyond: bool = False  # as much as the model can write may come beside the limit
    cached: tuple[str, ...] = ()  # units that prompt tokens may be written to the cache as
    seconds: int = 0  # of sound in it
    made: tuple[str, ...] = ("output",)  # units that output tokens may be
    hears: bool = False  # prompt tokens may be sound
    speaks: bool = False  # output tokens may be sound
    images: int = 0
    fees: Mapping[str, int] = field(default_factory=dict)
    others: tuple[Other, ...] = ()
    hides: bool = False  # the prompt may fill the window
    prompts: int = 1
    uses: tuple[Use, ...] = ()  # tools of the provider's of which a limit may make less
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"{self.wire}: {self.name}"

    def with_text(self, text: str, model: str, other: str) -> dict:
        """Give the body with a text, a model, and another model where it names one."""
        whole = json.dumps(self.told, ensure_ascii=True)
        places = {TEXT: text, "MODEL": model, "OTHER": other}
        for place, said in places.items():
            whole = whole.replace(json.dumps(place)[1:-1], json.dumps(said)[1:-1])
        return json.loads(whole)


SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Where it is. Zażółć gęślą jaźń."},
        "n": {"type": "integer"},
    },
    "required": ["path"],
    "additionalProperties": False,
}
NAMES = ("Read", "Edit", "Bash", "Grep", "WebFetch", "TodoWrite")
MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
ONE_SEARCH = {"web_search": 1}
DESCRIPTION = "Runs a command in a shell, and gives what it wrote. Use it with care: nothing asks a second time.\n" * 3
CLAUDE_TOOLS = [{"name": name, "description": DESCRIPTION, "input_schema": SCHEMA} for name in NAMES]
FUNCTIONS = [
    {"type": "function", "function": {"name": n, "description": DESCRIPTION, "parameters": SCHEMA}} for n in NAMES
]
RESPONSE_TOOLS = [
    {"type": "function", "name": n, "description": DESCRIPTION, "strict": True, "parameters": SCHEMA} for n in NAMES
]
TURNS = [
    {"role": "user", "content": [{"type": "text", "text": TEXT}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Let me see.", "signature": "EqoBCkgIBxABGAIiQ"},
            {"type": "tool_use", "id": "toolu_01", "name": "Read", "input": {"path": TEXT, "n": 3}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_01", "content": TEXT, **MARK}]},
]
WEB = {"type": "web_search_20250305", "name": "web_search"}
FETCH = {"type": "web_fetch_20250910", "name": "web_fetch"}
RUN = {"type": "code_execution_20250825", "name": "code_execution"}
ADVISOR = {"type": "advisor_20260301", "name": "advisor", "model": "OTHER", "max_tokens": 2048}
MARKED_5M, MARKED_1H = ("cache_write_5m",), ("cache_write_5m", "cache_write_1h")
OPENAI_WRITES = ("cache_write_30m",)  # newer models write without being asked


def _claude(name: str, *, limit: int = 32_000, told: Mapping | None = None, **facts: object) -> Body:
    messages = [{"role": "user", "content": TEXT}]
    made = {"model": "MODEL", "max_tokens": limit, "messages": messages, **(told or {})}
    return Body(name, "anthropic_messages", made, limit, **facts)


CLAUDE = [
    _claude("a prompt"),
    _claude(
        "Claude Code, a turn",
        told={
            "stream": True,
            "system": [
                {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197"},
                {"type": "text", "text": "You are a CLI.", **HOUR},
                {"type": "text", "text": TEXT, **HOUR},
            ],
            "messages": TURNS,
            "tools": CLAUDE_TOOLS,
            "metadata": {"user_id": '{"device_id":"0","session_id":"1"}'},
            "thinking": {"type": "enabled", "budget_tokens": 31_999},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "output_config": {"effort": "medium"},
        },
        cached=MARKED_1H,
    ),
    _claude(
        "Claude Code, a title",
        limit=512,
        told={
            "temperature": 1,
            "tools": [],
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        },
    ),
    _claude("marked for five minutes", told={"system": [{"type": "text", "text": TEXT, **MARK}]}, cached=MARKED_5M),
    _claude("fast", told={"speed": "fast"}),
    _claude("in the US", told={"inference_geo": "us"}),
    _claude(
        "searches",
        told={"tools": [{**WEB, "max_uses": 3}]},
        reads=4,
        writes=4,
        fees={"web_search": 3},
        uses=(Use(3, ONE_SEARCH),),
    ),
    _claude(
        "searches without a limit",
        told={"tools": [WEB, *CLAUDE_TOOLS]},
        reads=1 + SEARCH_LIMIT,
        writes=1 + SEARCH_LIMIT,
        fees={"web_search": SEARCH_LIMIT},
        uses=(Use(SEARCH_LIMIT, ONE_SEARCH),),
    ),
    _claude(
        "searches, fetches and runs code",
        told={"tools": [{**WEB, "max_uses": 2}, FETCH, RUN]},
        reads=1 + 2 + SEARCH_LIMIT + CALLS,
        writes=1 + 2 + SEARCH_LIMIT + CALLS,
        fees={"web_search": 2, "code_session": 1},
        uses=(Use(2, ONE_SEARCH), Use(SEARCH_LIMIT)),
    ),
    _claude(
        "asks an advisor once, after all that it had to say",
        told={"tools": [{**ADVISOR, "max_uses": 1}]},
        reads=2,
        writes=2,
        others=(Other(reads=1, carries=32_000, limit=2048),),
    ),
    _claude(
        "asks an advisor what it found",
        told={"tools": [{**ADVISOR, "max_uses": 2}, {**FETCH, "max_uses": 1}]},
        reads=4,
        writes=4,
        others=(Other(reads=2, fills=True, limit=2048),),
    ),
    _claude(
        "falls back",
        limit=4000,
        told={"fallbacks": [{"model": "OTHER", "max_tokens": 9000}]},
        others=(Other(carries=4000, limit=9000, follows=True),),
    ),
    _claude(
        "falls back with what it found",
        limit=4000,
        told={"fallbacks": [{"model": "OTHER"}], "tools": [{**FETCH, "max_uses": 2}]},
        reads=3,
        writes=3,
        others=(Other(reads=3, fills=True, limit=4000, follows=True),),
    ),
    _claude(
        "compacts",
        told={"context_management": {"edits": [{"type": "compact_20260112"}]}},
        again=1,  # for the summary
        writes=2,
    ),
]


def _chat(name: str, *, limit: int | None = 4000, told: Mapping | None = None, **facts: object) -> Body:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}]
    limits = {} if limit is None else {"max_completion_tokens": limit}
    made = {"model": "MODEL", **limits, "messages": messages, **(told or {})}
    return Body(name, "openai_chat", made, limit, **{"cached": OPENAI_WRITES, **facts})


CHAT_TURNS = [
    {"role": "developer", "content": "You are a helper."},
    {"role": "user", "content": [{"type": "text", "text": TEXT}, {"type": "text", "text": TEXT}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "Read", "arguments": '{"path": "a"}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": TEXT},
]
PICTURE = {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "high"}}
CHAT = [
    _chat("a prompt"),
    _chat("a prompt without a limit", limit=None, told={"stream": True}),
    _chat("an agent's turn", told={"messages": CHAT_TURNS, "tools": FUNCTIONS, "stream": True, "n": 2}, choices=2),
    _chat("a prediction", told={"prediction": {"type": "content", "content": "abc é " * 40}}, beside=280),
    _chat(
        "a schema", told={"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}}
    ),
    _chat("thinks for a while", told={"thinking_budget": 9000, "n": 2}, choices=2, thinks=9000),
    _chat("kept for long", told={"prompt_cache_retention": "24h"}, cached=("cache_write_30m", "cache_write_12h")),
    _chat(
        "marked as for Claude",
        told={"messages": [{"role": "user", "content": [{"type": "text", "text": TEXT, **HOUR}]}]},
        cached=("cache_write_30m", *MARKED_1H),
    ),
    _chat(
        "a picture",
        told={"messages": [{"role": "user", "content": [{"type": "text", "text": TEXT}, PICTURE]}]},
        images=1,
    ),
    _chat("speech", told={"modalities": ["text", "audio"], "audio": {"voice": "ash", "format": "wav"}}, speaks=True),
    _chat("another's limit", told={"max_completion_tokens": None, "max_tokens": 4000, "best_of": 3}, choices=3),
]


def _response(name: str, *, limit: int | None = 8000, told: Mapping | None = None, **facts: object) -> Body:
    limits = {} if limit is None else {"max_output_tokens": limit}
    made = {"model": "MODEL", "input": TEXT, **limits, **(told or {})}
    return Body(name, "openai_responses", made, limit, **{"cached": OPENAI_WRITES, **facts})


ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": TEXT}]},
    {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA" * 40},
    {"type": "function_call", "call_id": "c", "name": "Read", "arguments": '{"path": "a"}'},
    {"type": "function_call_output", "call_id": "c", "output": TEXT},
]
FILES = {"type": "file_search", "vector_store_ids": ["vs"]}
BOX = {"type": "code_interpreter", "container": {"type": "auto", "memory_limit": "4g"}}
MCP = {"type": "mcp", "server_label": "l", "server_url": "https://x", "require_approval": "never"}
RESPONSES = [
    _response("a prompt"),
    _response("a turn", told={"input": ITEMS, "tools": RESPONSE_TOOLS, "store": False, "stream": True}),
    _response(
        "kept for half a day",
        told={"prompt_cache_options": {"ttl": "12h"}},
        cached=("cache_write_30m", "cache_write_12h"),
    ),
    _response("deep", told={"reasoning": {"effort": "high", "mode": "pro"}}, beyond=True),
    _response("in the background", told={"background": True}),
    _response(
        "a file",
        told={"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
        hides=True,
        images=1,
    ),
    _response(
        "a picture",
        told={"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x/y.png"}]}]},
        images=1,
    ),
    _response(
        "searches", told={"tools": [{"type": "web_search"}], "max_tool_calls": 3}, reads=4, fees={"web_search": 3}
    ),
    _response(
        "searches and thinks after each",
        told={"tools": [{"type": "web_search"}], "max_tool_calls": 3, "thinking_budget": 9000},
        reads=4,
        thinks=9000,
        fees={"web_search": 3},
        uses=(Use(3, ONE_SEARCH),),
    ),
    _response(
        "searches without a limit",
        told={"tools": [{"type": "web_search"}, *RESPONSE_TOOLS]},
        reads=1 + SEARCH_LIMIT,
        fees={"web_search": SEARCH_LIMIT},
        uses=(Use(SEARCH_LIMIT, ONE_SEARCH),),
    ),
    _response(
        "searches files and runs code",
        told={"tools": [FILES, BOX], "max_tool_calls": 2},
        reads=3,
        fees={"file_search": 2, "code_session": 2 * 4},  # a container of four gigabytes is four
    ),
    _response("a server's tools", told={"tools": [MCP]}, reads=1 + SEARCH_LIMIT, uses=(Use(SEARCH_LIMIT),), hides=True),
    _response(
        "compacts",
        told={"context_management": [{"type": "compaction", "compact_threshold": 9000}]},
        reads=2,
        writes=2,
    ),
]
COMPACTED = [Body("a conversation", "openai_compact", {"model": "MODEL", "input": ITEMS}, None, cached=OPENAI_WRITES)]


def _gemini(name: str, *, limit: int | None = 5000, told: Mapping | None = None, **facts: object) -> Body:
    config = {} if limit is None else {"generationConfig": {"maxOutputTokens": limit}}
    made = {"contents": [{"role": "user", "parts": [{"text": TEXT}]}], **config, **(told or {})}
    return Body(name, "gemini", made, limit, **facts)


GEMINI_TURNS = [
    {"role": "user", "parts": [{"text": TEXT}]},
    {
        "role": "model",
        "parts": [
            {"text": "Hm.", "thought": True},
            {"functionCall": {"name": "Read", "args": {"path": TEXT}}, "thoughtSignature": "Q2k"},
        ],
    },
    {"role": "user", "parts": [{"functionResponse": {"name": "Read", "response": {"output": TEXT}}}]},
]
THOUGHT = {
    "generationConfig": {"maxOutputTokens": 5000, "candidateCount": 2, "thinkingConfig": {"thinkingBudget": 700}}
}
DECLARED = [
    {"functionDeclarations": [{"name": n, "description": DESCRIPTION, "parametersJsonSchema": SCHEMA} for n in NAMES]}
]
GEMINI = [
    _gemini("a prompt"),
    _gemini("a prompt without a limit", limit=None),
    _gemini(
        "Gemini CLI, a turn",
        limit=None,
        told={
            "systemInstruction": {"role": "user", "parts": [{"text": TEXT}]},
            "contents": GEMINI_TURNS,
            "tools": DECLARED,
            "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
            "generationConfig": {"temperature": 1, "topP": 0.95, "thinkingConfig": {"includeThoughts": True}},
        },
    ),
    _gemini("two candidates that think beside their limit", told=THOUGHT, choices=2, beside=2 * 700),
    _gemini(
        "a picture",
        told={"contents": [{"parts": [{"text": TEXT}, {"inline_data": {"mime_type": "image/png", "data": "AA"}}]}]},
        images=1,
    ),
    _gemini(
        "a sound",
        told={"contents": [{"parts": [{"text": TEXT}, {"fileData": {"mimeType": "audio/mp3", "fileUri": "files/x"}}]}]},
        hides=True,
        images=1,
        hears=True,
    ),
    _gemini("what is kept", told={"cachedContent": "cachedContents/x"}, hides=True, images=1, hears=True),
    _gemini(
        "searches",
        told={"tools": [{"googleSearch": {}}]},
        hides=True,
        images=1,
        beyond=True,
        fees={"search_prompt": 1},  # where each query costs, the call is refused
    ),
]
ASSISTED = [
    Body(
        "Gemini CLI on a plan",
        "code_assist",
        {"model": "MODEL", "project": "p", "user_prompt_id": "u", "request": GEMINI[2].told},
        None,
    )
]
COMPLETIONS = [
    Body(
        "two prompts",
        "",
        {"model": "MODEL", "prompt": [TEXT, "x"], "max_tokens": 100, "n": 2},
        100,
        choices=4,
        prompts=2,
    ),
    Body("the best of three", "", {"model": "MODEL", "prompt": TEXT, "max_tokens": 50, "best_of": 3}, 50, choices=3),
    Body("ids", "", {"model": "MODEL", "prompt": [1, 2, 3], "max_tokens": 50}, 50),
]
COMPLETED = [Body(b.name, wire, b.told, b.limit, b.choices, prompts=b.prompts) for b in COMPLETIONS for wire in
             ("openai_completions", "compatible_completions")]  # fmt: skip
INTERACTIONS = [
    Body(
        "an interaction",
        "gemini_interactions",
        {"model": "MODEL", "input": TEXT, "generation_config": {"max_output_tokens": 50}},
        50,
    ),
    Body(
        "an interaction whose history is sent",
        "gemini_interactions",
        {
            "model": "MODEL",
            "system_instruction": TEXT,
            "store": False,
            "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
            "input": [
                {"type": "user_input", "content": [{"type": "text", "text": TEXT}]},
                {"type": "function_call", "id": "c", "name": "f", "arguments": {"path": TEXT}},
                {"type": "function_result", "call_id": "c", "name": "f", "result": TEXT},
            ],
        },
        None,
    ),
]
BATCHES = [
    Body(
        "a batch",
        "anthropic_batches",
        {
            "requests": [
                {
                    "custom_id": name,
                    "params": {
                        "model": "MODEL",
                        "max_tokens": 50,
                        "inference_geo": "us",
                        "messages": [{"role": "user", "content": TEXT}],
                    },
                }
                for name in ("a", "b", "c")
            ]
        },
        50,
        writes=3,
    ),
]
EMBEDDED = [
    Body("a text", "openai_embeddings", {"model": "MODEL", "input": TEXT}, 0),
    Body("texts", "openai_embeddings", {"model": "MODEL", "input": [TEXT, "x", TEXT], "dimensions": 256}, 0, prompts=3),
    Body("a content", "gemini_embed", {"content": {"parts": [{"text": TEXT}]}}, 0),
    Body(
        "contents",
        "gemini_embed",
        {"requests": [{"model": "models/MODEL", "content": {"parts": [{"text": TEXT}]}, "taskType": "X"}] * 2},
        0,
        prompts=2,
    ),
]
PICTURES = [  # a grid of 16 cells a side of 1024 × 1024 pixels: 256 × 3,048,576 / 4,000,000, and of 96 × 54
    Body(
        "a picture", "openai_images",
        {"model": "MODEL", "prompt": TEXT, "size": "1024x1024", "quality": "low"}, 196, made=("output", "image_out"),
    ),
    Body(
        "three of the largest, on the way too", "openai_images",
        {"model": "MODEL", "prompt": TEXT, "size": "3840x2160", "quality": "high", "n": 3, "partial_images": 2,
         "images": [{"image_url": "data:image/png;base64,AA"}], "stream": True},
        13_342, choices=3, again=2, beside=3 * 2 * 100, images=1, made=("output", "image_out"),
    ),
]  # fmt: skip
SPOKEN = [
    Body("a speech", "openai_speech", {"model": "MODEL", "input": TEXT, "voice": "ash"}, None, speaks=True, made=()),
    Body("a sound", "openai_transcriptions", {"model": "MODEL", "prompt": TEXT, "file": silence(12.5)}, None,
         hears=True, seconds=13),
    Body("a packed sound", "openai_transcriptions", {"model": "MODEL", "prompt": TEXT, "file": MP3, "stream": True},
         None, hears=True, hides=True),
]  # fmt: skip


def _converse(name: str, *, limit: int | None = 5000, told: Mapping | None = None, **facts: object) -> Body:
    config = {} if limit is None else {"inferenceConfig": {"maxTokens": limit}}
    made = {"messages": [{"role": "user", "content": [{"text": TEXT}]}], **config, **(told or {})}
    return Body(name, "bedrock_converse", made, limit, **facts)


POINT = {"cachePoint": {"type": "default", "ttl": "1h"}}
SPECS = [{"toolSpec": {"name": n, "description": DESCRIPTION, "inputSchema": {"json": SCHEMA}}} for n in NAMES]
PNG = {"image": {"format": "png", "source": {"bytes": "AA"}}}
PDF = {"document": {"format": "pdf", "name": "d", "source": {"bytes": "AA"}}}
CONVERSED = [
    _converse("a prompt"),
    _converse("a prompt without a limit", limit=None),
    _converse("in a signed body without a limit", limit=None, headers={"authorization": "AWS4-HMAC-SHA256 x"}),
    _converse(
        "an agent, a turn",
        told={
            "system": [{"text": TEXT}, POINT],
            "messages": [
                {"role": "user", "content": [{"text": TEXT}]},
                {
                    "role": "assistant",
                    "content": [
                        {"reasoningContent": {"reasoningText": {"text": "Let me see.", "signature": "EqoBCkgIBxABG"}}},
                        {"toolUse": {"toolUseId": "tooluse_1", "name": "Read", "input": {"path": TEXT, "n": 3}}},
                    ],
                },
                {"role": "user", "content": [{"toolResult": {"toolUseId": "tooluse_1", "content": [{"text": TEXT}]}}]},
            ],
            "toolConfig": {"tools": [*SPECS, POINT], "toolChoice": {"auto": {}}},
            "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 4000}},
        },
        cached=MARKED_1H,
    ),
    _converse("a picture", told={"messages": [{"role": "user", "content": [{"text": TEXT}, PNG]}]}, images=1),
    _converse("a document", told={"messages": [{"role": "user", "content": [{"text": TEXT}, PDF]}]}, hides=True),
]
_NOT_INVOKED = ("model", "stream", "speed")
INVOKED = [
    Body(
        body.name,
        "bedrock_invoke",
        {key: said for key, said in body.told.items() if key not in _NOT_INVOKED} | {"anthropic_version": "2026-10-21"},
        body.limit,
        cached=body.cached,
    )
    for body in CLAUDE[:4]
]


WRITTEN = [
    *(*CLAUDE, *CHAT, *RESPONSES, *COMPACTED, *GEMINI, *ASSISTED, *COMPLETED, *INTERACTIONS, *BATCHES, *EMBEDDED),
    *(*CONVERSED, *INVOKED, *PICTURES, *SPOKEN),
]
