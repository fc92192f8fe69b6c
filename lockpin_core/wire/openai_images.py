"""OpenAI's Images format: pictures drawn from a prompt, and from other images. Knows field names; knows no prices.

The output is bounded by what is asked of a picture, its input by the bytes and by the sizes of its images. Each picture
of several is billed as if it were asked for alone, its prompt too. An edit is a form or JSON.
Source: OpenAI's Images reference (`generations`, `edits`), its guide to image generation, and the request types of its
SDK, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from lockpin_core.call import Content, Image, Parsed, Picture, Refusal, Reply, Request, Rewrite
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.jsonbody import check_plain, plain_word, read_body, shown, shown_name, whole
from lockpin_core.wire.media import image_at, image_of
from lockpin_core.wire.multipart import Form, is_form, read_form
from lockpin_core.wire.openai_chat import asked_model
from lockpin_core.wire.openai_images_usage import ImagesScanner, ImagesStreamScanner
from lockpin_core.wire.protocol import Scanner, Wire
from lockpin_core.wire.refusals import openai_refusal
from lockpin_core.wire.replies import stated_error
from lockpin_core.wire.tally import Tally, Unknown, each, fold, shape, unpriced

MAX_PICTURES = 10  # what the provider accepts as `n`
MAX_IMAGES = 16  # what it accepts of images to edit
_MAX_PARTIAL = 100
_PARTIAL_TOKENS = 100  # of output for each picture that is sent on the way, says the guide
_BESIDE_IMAGE = 200  # tokens of text that come with an image: up to 41 were billed, and nobody says how many
_SIZE = re.compile(r"([0-9]{1,6})x([0-9]{1,6})")
_COUNTS = ("n", "partial_images", "output_compression")  # a form has texts for them
_FILES = ("image", "image[]", "mask", "markup")

_IMAGE = shape("an image", uncounted="image_url file_id", unknown=Unknown.REFUSE)


def _take_image(value: object, tally: Tally) -> None:
    """Count an image of a JSON body: in a `data:` URL with its size, elsewhere with none that could be known."""
    _IMAGE.read(value, Tally())
    _add_image(image_at(value.get("image_url") if isinstance(value, dict) else None), tally)


def _take_images(value: object, tally: Tally) -> None:
    """Count the images to edit, of which no provider takes more."""
    if isinstance(value, list):
        _check_images(len(value))
    _EACH_IMAGE(value, tally)


def _check_images(count: int) -> None:
    if count > MAX_IMAGES:
        raise WireError(f"the request has {count} images to edit; at most {MAX_IMAGES} are allowed")


def _add_image(image: Image, tally: Tally) -> None:
    tally.images.append(image)
    tally.extra_tokens += _BESIDE_IMAGE


_EACH_IMAGE = each(_take_image, "images")
_ANOTHER = "another model writes what is drawn, and no limit of the request bounds that"
_FRAMES = "each frame is drawn by itself, and nobody states what that takes"
_SETTINGS = (
    "n size quality partial_images stream background complexity input_fidelity moderation output_compression "
    "output_format response_format safety_identifier style user"
)
REQUEST = shape(
    "the request",
    rules={"images": _take_images, "mask": _take_image},
    uncounted=f"model prompt {_SETTINGS}",
    refused={"svg": _ANOTHER, "frame_count": _FRAMES, "frame_duration_ms": _FRAMES},
    unknown=Unknown.REFUSE,
)


class OpenAIImages(Wire):
    """`POST /v1/images/generations` and `/v1/images/edits`."""

    name = "openai_images"
    has_limit = False
    min_output = 1
    cut_rule = "hold"
    reads_headers = frozenset({"content-type"})

    def parse(self, request: Request) -> Parsed:
        """Read a request for pictures. Raises WireError where it is malformed or holds what cannot be bounded."""
        try:
            return _parse(request)
        except RecursionError:
            raise WireError("the body is nested too deeply") from None

    def rewrite(
        self,
        request: Request,
        change: Rewrite,
        *,
        output_field: str = "max_completion_tokens",
        parsed: Parsed | None = None,
    ) -> bytes:
        """Give the body as it is: the output is what is asked of the pictures."""
        return request.body

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for a 2xx reply."""
        return ImagesStreamScanner(asked) if streamed else ImagesScanner(asked)

    def error_code(self, body: bytes) -> str | None:
        """Give `error.code` of an error body, else its type."""
        return stated_error(body, "code", "type")

    def refuse(self, refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
        """Put a refusal into OpenAI's error shape."""
        return openai_refusal(refusal, lockpin)


def _parse(request: Request) -> Parsed:
    content_type, tally = request.headers.get("content-type", ""), Tally()
    form = read_form(request.body, content_type) if is_form(content_type) else None
    members = read_body(request.body).members if form is None else _members(form, tally)
    REQUEST.read(members, tally)
    check_plain(members, _SETTINGS)
    prompt = members.get("prompt")
    if type(prompt) is not str:
        raise WireError(f"prompt is {shown(prompt)}; a string is needed")
    tally.texts.append(prompt)
    _check_format(members.get("output_format"))
    pictures = whole(members.get("n"), "n", low=1, high=MAX_PICTURES) or 1
    partial = whole(members.get("partial_images"), "partial_images", high=_MAX_PARTIAL) or 0
    return Parsed(
        model=_model(members.get("model") if request.path_model is None else request.path_model),
        streamed=_flag(members.get("stream"), "stream"),
        content=_times(tally.content(), pictures),
        output_limit=None,
        choices=pictures,
        output_settable=False,
        extra_output=pictures * partial * _PARTIAL_TOKENS,
        prompt_units=frozenset({Unit.INPUT, Unit.IMAGE_IN} if tally.images else {Unit.INPUT}),
        output_units=frozenset({Unit.OUTPUT, Unit.IMAGE_OUT}),
        picture=_picture(members.get("size"), members.get("quality")),
    )


def _members(form: Form, tally: Tally) -> dict[str, object]:
    """Bring a form to what it would be as JSON; its files are counted as images."""
    for name, files in form.files.items():
        if name not in _FILES:
            raise WireError(f"the file {shown_name(name)} is not known, so its cost cannot be bounded", "unpriced_tool")
        _check_images(len(files))
        for file in files:
            _add_image(image_of(file.data), tally)
    members: dict[str, object] = {}
    for name, texts in form.texts.items():
        plain, _, inner = name.partition("[")
        if plain in members:
            raise WireError(f"the form has the field {shown_name(plain)} in several ways; one is allowed")
        # No field of this format is a list or an object of texts, but for what is refused.
        members[plain] = list(texts) if inner else _value(name, texts[0])
    return members


def _value(name: str, text: str) -> object:
    if name in _COUNTS and re.fullmatch("[0-9]{1,9}", text):
        return int(text)
    return text == "true" if name == "stream" and text in ("true", "false") else text


def _model(name: object) -> str:
    """Read the name of a model. Raises WireError, also where there is none: the provider's own choice moves."""
    if name is None:
        unpriced("a request that leaves the model to the provider")
    return asked_model(name)


def _check_format(value: object) -> None:
    said = plain_word(value, "output_format")
    match None if said is None else fold(said):
        case None | "png" | "jpeg" | "webp":
            return
        case "svg":
            unpriced(f'output_format "svg" ({_ANOTHER})')
        case "gif":
            unpriced(f'output_format "gif" ({_FRAMES})')
    unpriced("an output_format other than png, jpeg and webp")


def _picture(size: object, quality: object) -> Picture:
    said = plain_word(size, "size") or ""
    found = _SIZE.fullmatch(said)
    grade = plain_word(quality, "quality") or ""
    return Picture(int(found[1]), int(found[2]), grade) if found else Picture(quality=grade)


def _flag(value: object, field: str) -> bool:
    if value is not None and type(value) is not bool:
        raise WireError(f"{field} is {shown(value)}; true or false is allowed")
    return bool(value)


def _times(content: Content, pictures: int) -> Content:
    """Count a prompt once for each picture."""
    return replace(
        content,
        text_bytes=content.text_bytes * pictures,
        nfc_bytes=content.nfc_bytes * pictures,
        strings=content.strings * pictures,
        messages=pictures,
        images_times=pictures,
        extra_tokens=content.extra_tokens * pictures,
        prompts=pictures,
    )
