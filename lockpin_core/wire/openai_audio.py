"""OpenAI's Audio formats: text that is spoken, and sound that is written down. Knows field names; knows no prices.

What a model bills by is not known here: a request says its most in tokens, and in characters or seconds beside.
Source: OpenAI's Audio reference (`speech`, `transcriptions`, `translations`) and the request types of its SDK, read
2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lockpin_core.call import Parsed, Refusal, Reply, Request, Rewrite
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.jsonbody import check_plain, read_body, shown, shown_name
from lockpin_core.wire.media import wav_size
from lockpin_core.wire.multipart import File, Form, read_form
from lockpin_core.wire.openai_audio_usage import SoundScanner, SpeechStreamScanner, TextScanner, TextStreamScanner
from lockpin_core.wire.openai_chat import asked_model
from lockpin_core.wire.protocol import Scanner, Wire
from lockpin_core.wire.refusals import openai_refusal
from lockpin_core.wire.replies import stated_error
from lockpin_core.wire.tally import Tally, Unknown, scalars, shape, unpriced

_SETTINGS = "response_format speed stream_format"
SPEECH = shape(
    "the request",
    "input instructions voice",
    {"voice": scalars},
    uncounted=f"model {_SETTINGS}",
    unknown=Unknown.REFUSE,
)
_WAV_TYPES = frozenset({"", "audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave", "application/octet-stream"})
_READ = ("prompt", "keywords[]", "languages[]", "language", "known_speaker_names[]")  # what of a form a model reads
_PLAIN = ("model", "response_format", "temperature", "stream", "timestamp_granularities[]", "include[]")
_REFERENCES = "known_speaker_references[]"  # sounds that a model hears besides
_JSON_FORMATS = ("json", "verbose_json", "diarized_json")  # replies in any other are texts, and state nothing
_CHUNKS = re.compile(r"chunking_strategy(?:\[.*)?")
FORM = frozenset({"file", *_READ, *_PLAIN, _REFERENCES})


class _Audio(Wire):
    """What both formats have in common: nothing in a body is ever changed."""

    has_limit = False
    min_output = 1
    cut_rule = "hold"

    def rewrite(
        self,
        request: Request,
        change: Rewrite,
        *,
        output_field: str = "max_completion_tokens",
        parsed: Parsed | None = None,
    ) -> bytes:
        """Give the body as it is: it has no output limit."""
        return request.body

    def error_code(self, body: bytes) -> str | None:
        """Give `error.code` of an error body, else its type."""
        return stated_error(body, "code", "type")

    def refuse(self, refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
        """Put a refusal into OpenAI's error shape."""
        return openai_refusal(refusal, lockpin)


class OpenAISpeech(_Audio):
    """`POST /v1/audio/speech`."""

    name = "openai_speech"

    def parse(self, request: Request) -> Parsed:
        """Read a request for speech. Raises WireError where it is malformed or holds what cannot be bounded.

        The sound passes as it comes, whatever its format: so the reply counts as a stream. A character beyond the first
        65,536 counts twice, as in UTF-16: nobody says which of both is billed.
        """
        try:
            members = read_body(request.body).members
            tally = Tally()
            SPEECH.read(members, tally)
            check_plain(members, _SETTINGS)
        except RecursionError:
            raise WireError("the body is nested too deeply") from None
        text = members.get("input")
        if type(text) is not str:
            raise WireError(f"input is {shown(text)}; a string is needed")
        tally.messages = 1
        return Parsed(
            model=asked_model(members.get("model") if request.path_model is None else request.path_model),
            streamed=True,
            content=tally.content(),
            output_limit=None,
            output_settable=False,
            output_units=frozenset({Unit.AUDIO_OUT}),
            fees={Unit.CHARACTER: len(text.encode("utf-16-le", "surrogatepass")) // 2},
        )

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for a 2xx reply: events, or sound."""
        return SpeechStreamScanner() if streamed else SoundScanner(asked)


class OpenAITranscriptions(_Audio):
    """`POST /v1/audio/transcriptions` and `/v1/audio/translations`."""

    name = "openai_transcriptions"
    reads_headers = frozenset({"content-type"})

    def parse(self, request: Request) -> Parsed:
        """Read a form with a sound. Raises WireError where it is malformed or holds what cannot be bounded.

        Uncompressed WAV shows how long it is. Any other sound may fill the model's window, as one block; its seconds
        have no bound.
        """
        form = read_form(request.body, request.headers.get("content-type", ""))
        _check(form)
        file, tally = form.files["file"][0], Tally()
        size = _length(file) if _REFERENCES not in form.texts else None
        tally.texts += [text for name in _READ for text in form.texts.get(name, ())]
        tally.messages, tally.prompt_units = 1, {Unit.INPUT, Unit.AUDIO_IN}
        if size is None:
            tally.hide("sound")
        else:
            tally.extra_tokens += size[1]
        (named,) = form.texts.get("model", (None,))
        return Parsed(
            model=asked_model(named if request.path_model is None else request.path_model),
            streamed=_streams(form),
            content=tally.content(),
            output_limit=None,
            output_settable=False,
            prompt_units=frozenset(tally.prompt_units),
            fees={} if size is None else {Unit.SECOND: size[0]},
            text_reply=form.texts.get("response_format", ("json",))[0] not in _JSON_FORMATS,
        )

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for a 2xx reply."""
        return TextStreamScanner(asked) if streamed else TextScanner(asked)


def _check(form: Form) -> None:
    """Refuse what is not known, or is known to have no bound."""
    if any(_CHUNKS.fullmatch(name) for name in form.texts):
        unpriced('"chunking_strategy" (the sound is read in parts, and nobody says in how many)')
    unknown = sorted({*form.texts, *form.files} - FORM)
    if unknown:
        raise WireError(f"field {shown_name(unknown[0])} is not known, so its cost cannot be bounded", "unpriced_tool")
    if form.files.keys() != {"file"} or "file" in form.texts:
        raise WireError("the form has no file, or more than one; one field `file` is needed")


def _length(file: File) -> tuple[int, int] | None:
    """Bound the seconds and tokens of a WAV; one that is not called so may be read as something else."""
    is_called = file.name.lower().endswith(".wav") and file.content_type in _WAV_TYPES
    return wav_size(file.data) if is_called else None


def _streams(form: Form) -> bool:
    (said,) = form.texts.get("stream", ("false",))
    if said not in ("true", "false"):
        raise WireError("stream is another word; true or false is allowed")
    return said == "true"
