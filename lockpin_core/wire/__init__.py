"""The formats that Lockpin reads, one class each. Order matters nowhere; the tuple is the list."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lockpin_core.call import Refusal, Reply
from lockpin_core.wire.anthropic_batches import AnthropicBatches
from lockpin_core.wire.anthropic_messages import AnthropicMessages
from lockpin_core.wire.bedrock_converse import BedrockConverse
from lockpin_core.wire.bedrock_invoke import BedrockInvoke
from lockpin_core.wire.gemini import CodeAssist, Gemini
from lockpin_core.wire.gemini_embed import GeminiEmbed
from lockpin_core.wire.gemini_interactions import GeminiInteractions
from lockpin_core.wire.openai_audio import OpenAISpeech, OpenAITranscriptions
from lockpin_core.wire.openai_chat import OpenAIChat
from lockpin_core.wire.openai_completions import OpenAICompletions
from lockpin_core.wire.openai_embeddings import OpenAIEmbeddings
from lockpin_core.wire.openai_images import OpenAIImages
from lockpin_core.wire.openai_responses import OpenAICompact, OpenAIResponses
from lockpin_core.wire.protocol import Wire
from lockpin_core.wire.refusals import anthropic_refusal, bedrock_refusal, gemini_refusal, openai_refusal

type RefusalShape = Callable[[Refusal, Mapping[str, object]], Reply]

WIRES: tuple[Wire, ...] = (
    AnthropicMessages(),
    AnthropicBatches(),
    OpenAIChat(),
    OpenAIResponses(),
    OpenAICompact(),
    OpenAIEmbeddings(),
    OpenAICompletions(),
    OpenAICompletions("compatible_completions", default_limit=None),
    OpenAIImages(),
    OpenAISpeech(),
    OpenAITranscriptions(),
    Gemini(),
    CodeAssist(),
    GeminiEmbed(),
    GeminiInteractions(),
    BedrockConverse(),
    BedrockInvoke(),
)

_BY_NAME = {wire.name: wire for wire in WIRES}
_SHAPES: Mapping[str, RefusalShape] = {
    "anthropic": anthropic_refusal,
    "openai": openai_refusal,
    "gemini": gemini_refusal,
    "bedrock": bedrock_refusal,
}


def wire_named(name: str) -> Wire:
    """Give the wire that a provider file names. Raises KeyError where there is none."""
    return _BY_NAME[name]


def refusal_shape(name: str) -> RefusalShape:
    """Give the error shape for a host's calls that no wire reads; OpenAI's where the name says nothing."""
    return _SHAPES.get(name, openai_refusal)
