"""What a body may lose near a cap, or say of another model: judged by its tokens, all others of which stay."""

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


def _check_model(found: Priced, request: Request, other: Request) -> None:
    if request.path_model is None:
        before = request.body
        if '"model"' not in {json.dumps(key) for key in json.loads(before)}:
            before = before.replace(b"{", b'{"model":""' + (b"," if json.loads(before) else b""), 1)
        assert [new for _, new in changes(before, other.body)] in ([SPELLED], []), "more than the model changes"
    else:
        assert all(new == SPELLED for _, new in changes(request.body, other.body))
        assert other.path_model == OTHER
    assert found.wire.parse(other).model == OTHER
