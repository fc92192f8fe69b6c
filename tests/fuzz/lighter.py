"""What a body may lose near a cap, or say of another model: judged by its tokens, all others of which stay."""

import fnmatch
import json
import re
from collections.abc import Iterator
from dataclasses import replace

from bills import PRICES
from desks import NOW
from inputs import Choices

from lockpin_core.admission import Priced, Refused, priced
from lockpin_core.call import Request

OTHER = "anthropic.other-v1:0"
SPELLED = json.dumps(OTHER)
NOTE = re.compile(r'"\[lockpin: tool result of ([0-9]+) bytes left out to stay in the budget\]"')
CHAT_LIMITS = {"max_tokens", "max_completion_tokens"}
HOUR, FIVE = "1h", '"5m"'
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^"]+')
LEAST = 60  # bytes of the shortest text that a note may stand for


def check(found: Priced, choices: Choices) -> None:
    """Ask for the same call lighter, and for another model; raise AssertionError where more changes than may."""
    request, wire = found.incoming.request(), found.wire
    trim, cache_5m = 9 - choices.number() % 10, not choices.flag()
    made = wire.lightened(request, cache_5m=cache_5m, trim=trim)
    if made is not None:
        _check_lighter(found, request, made, cache_5m=cache_5m, trims=trim > 0)
    other = wire.with_model(request, OTHER)
    if other is not None:
        _check_model(found, request, other)
    assert 0 <= wire.trimmable(request) <= len(request.body)
    said = wire.conversation(request)
    assert said is None or len(said) == 32


def changes(before: bytes, after: bytes) -> Iterator[tuple[str, str]]:
    """List the strings that differ; nothing but strings may."""
    old, new = TOKEN.findall(before.decode()), TOKEN.findall(after.decode())
    assert len(old) == len(new), "there are more tokens, or fewer"
    for one, other in zip(old, new, strict=True):
        if one != other:
            assert one[0] == other[0] == '"', (one, other)
            yield one, other


def _check_lighter(found: Priced, request: Request, made: bytes, *, cache_5m: bool, trims: bool) -> None:
    changed = [*changes(request.body, made)]
    assert changed, "nothing changes, and it is not said so"
    for old, new in changed:
        note, text = NOTE.fullmatch(new), json.loads(old)
        if note is not None:
            assert trims and LEAST < len(text.encode("utf-8", "surrogatepass")) == int(note[1]), (old, new)
        else:
            assert cache_5m and text == HOUR and new == FIVE, (old, new)
    before, parsed = found.wire.parse(request), found.wire.parse(replace(request, body=made))
    assert not before.attested, "an attested body is changed"
    assert parsed.prompt_units <= before.prompt_units
    assert parsed.content.text_bytes <= before.content.text_bytes
    same = replace(parsed, content=before.content, prompt_units=before.prompt_units)
    assert same == before, "something else is asked for"
    try:
        held = found.call(None).quote
    except Refused:
        return
    came = replace(found.incoming, body=made)
    lighter = priced(came, found.wire, replace(parsed, model=found.parsed.model), PRICES, NOW).call(None).quote
    assert lighter.most <= held.most and lighter.tokens <= held.tokens, f"{lighter} > {held}"


def _besides_limit(before: bytes, other: Request) -> list[tuple[str, str]]:
    """List what differs beside the name of a limit, which has a value and goes where the host obeys it."""
    found = [*changes(before, other.body)]
    limits = [change for change in found if {json.loads(text) for text in change} == CHAT_LIMITS]
    for old, new in (map(json.loads, change) for change in limits):
        asked, made = json.loads(before), json.loads(other.body)
        limit = asked.pop(old)
        assert isinstance(limit, int) and limit == made.pop(new), "what has no limit changes its name"
        assert {**asked, "model": OTHER} == {**made, "model": OTHER}, "another member gets the name of a limit"
        heeded = next(fields for glob, fields in other.output_fields if fnmatch.fnmatchcase(OTHER, glob))
        assert new in heeded and old not in heeded, heeded
    return [change for change in found if change not in limits]


def _check_model(found: Priced, request: Request, other: Request) -> None:
    if request.path_model is None:
        before = request.body
        if '"model"' not in {json.dumps(key) for key in json.loads(before)}:
            before = before.replace(b"{", b'{"model":""' + (b"," if json.loads(before) else b""), 1)
        places = 2 if found.wire.name == "code_assist" else 1  # an envelope, and what is in it
        made = [new for _, new in _besides_limit(before, other)]
        assert {*made} <= {SPELLED} and len(made) <= places, "more than the model changes"
    else:
        assert all(new == SPELLED for _, new in _besides_limit(request.body, other))
        assert other.path_model == OTHER
    assert found.wire.parse(other).model == OTHER
