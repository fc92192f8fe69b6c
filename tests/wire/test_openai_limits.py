"""The output limit of a chat under the name that its host obeys: what counts as one, and what is made of another."""

import json

import pytest

from lockpin_core.call import Parsed, Request, Rewrite
from lockpin_core.errors import WireError
from lockpin_core.wire.openai_chat import OpenAIChat

WIRE = OpenAIChat()
OLD, NEW = "max_tokens", "max_completion_tokens"
BY_MODEL = (("new-*", (NEW, OLD)), ("old-*", (OLD,)), ("*", (NEW,)))


def request(raw: bytes, fields: tuple[str, ...] = (OLD,)) -> Request:
    return Request("POST", "h", "/chat/completions", {}, raw, output_fields=(("*", fields),))


def parse(fields: tuple[str, ...], **limits: object) -> Parsed:
    return WIRE.parse(request(json.dumps({"model": "m", "messages": [], **limits}).encode(), fields))


@pytest.mark.parametrize(
    ("fields", "sent", "limit", "unheeded"),
    [
        ((OLD,), {OLD: 5}, 5, None),
        ((OLD,), {NEW: 5}, None, 5),
        ((NEW,), {OLD: 5}, None, 5),
        ((NEW, OLD), {OLD: 5}, 5, None),
        ((OLD, NEW), {NEW: 5}, 5, None),
        ((OLD,), {}, None, None),
        ((OLD,), {OLD: None, NEW: 5}, None, 5),
        # Both, at a host that may ignore one of them, or may not: the larger bounds it in any case.
        ((OLD,), {OLD: 5, NEW: 9}, 9, None),
        ((OLD,), {OLD: 9, NEW: 5}, 9, None),
    ],
)
def test_a_limit_counts_where_the_host_obeys_it(fields, sent, limit, unheeded):
    parsed = parse(fields, **sent)

    assert (parsed.output_limit, parsed.unheeded_limit) == (limit, unheeded)


def test_both_limits_at_a_host_that_obeys_both_are_refused_and_a_bad_one_everywhere():
    with pytest.raises(WireError, match="are both set"):
        parse((NEW, OLD), **{OLD: 5, NEW: 5})
    with pytest.raises(WireError, match="max_completion_tokens is a string"):
        parse((OLD,), **{NEW: "5"})


@pytest.mark.parametrize(("model", "limit"), [("new-1", 5), ("New-1", 5), ("old-1", 5), ("none", None)])
def test_what_a_host_obeys_may_go_by_the_model(model, limit):
    named = {"model": model, "messages": [], OLD: 5}
    asks = Request("POST", "h", "/chat/completions", {}, json.dumps(named).encode(), output_fields=BY_MODEL)
    by_path = Request("POST", "h", "/x", {}, json.dumps(named).encode(), path_model=model, output_fields=BY_MODEL)

    assert WIRE.parse(asks).output_limit == limit
    assert WIRE.parse(by_path).output_limit == limit


@pytest.mark.parametrize(
    ("fields", "raw", "wanted"),
    [
        ((OLD,), b'{"model":"m","max_tokens": 9}', b'{"model":"m","max_tokens": 7}'),
        ((OLD,), b'{"model":"m","max_completion_tokens" :9 }', b'{"model":"m","max_tokens" :7 }'),
        ((OLD,), b'{"model":"m","max_completion_tokens"\n:\t3}', b'{"model":"m","max_tokens"\n:\t3}'),
        ((NEW,), b'{"max_tokens":9,"model":"m"}', b'{"max_completion_tokens":7,"model":"m"}'),
        ((NEW, OLD), b'{"model":"m","max_tokens": 9}', b'{"model":"m","max_tokens": 7}'),
        ((OLD,), b'{"model":"m"}', b'{"max_tokens":7,"model":"m"}'),
        ((NEW, OLD), b'{"model":"m"}', b'{"max_completion_tokens":7,"model":"m"}'),
        ((OLD,), b'{"model":"m","max_completion_tokens":null}', b'{"max_tokens":7,"model":"m","max_completion_tokens":null}'),
        # One that the host may obey after all is never above the limit.
        ((OLD,), b'{"model":"m","max_tokens":null,"max_completion_tokens":9}', b'{"model":"m","max_tokens":7,"max_completion_tokens":7}'),
        ((OLD,), b'{"model":"m","max_tokens":5,"max_completion_tokens":9}', b'{"model":"m","max_tokens":5,"max_completion_tokens":7}'),
        # A name in a spelling of its own is left.
        (
            (OLD,), b'{"model":"m","max\\u005fcompletion_tokens":9}', b'{"max_tokens":7,"model":"m","max\\u005fcompletion_tokens":7}',
        ),
    ],
)  # fmt: skip
def test_a_limit_is_set_where_the_host_obeys_it(fields, raw, wanted):
    asks = request(raw, fields)

    assert WIRE.rewrite(asks, Rewrite(max_output=7), output_field=NEW) == wanted

    told = raw.replace(b'"model"', b'"messages":[],"model"')
    asks = request(told, fields)
    if {OLD: 1, NEW: 1}.keys() != set(fields):
        parsed = WIRE.parse(asks)
        assert WIRE.rewrite(asks, Rewrite(7), parsed=parsed) == WIRE.rewrite(asks, Rewrite(7))


def test_a_member_with_much_room_before_its_value_keeps_its_name():
    raw = b'{"model":"m","max_completion_tokens":' + b" " * 300 + b"9}"

    changed = WIRE.rewrite(request(raw), Rewrite(max_output=7))

    assert changed == b'{"max_tokens":7,"model":"m","max_completion_tokens":' + b" " * 300 + b"7}"


def test_a_name_in_a_message_is_no_limit():
    raw = b'{"messages":[{"role":"user","content":"\\"max_completion_tokens\\":9"}],"model":"m"}'

    assert WIRE.rewrite(request(raw), Rewrite(max_output=7)) == b'{"max_tokens":7,' + raw[1:]
    assert WIRE.with_model(request(raw), "n").body == raw.replace(b'"m"', b'"n"')


def test_asking_for_usage_alone_leaves_limits_as_they_are():
    raw = b'{"model":"m","max_completion_tokens":9}'

    assert WIRE.rewrite(request(raw), Rewrite(ask_usage=True)) == (
        b'{"stream_options":{"include_usage":true},' + raw[1:]
    )


@pytest.mark.parametrize(
    ("fields", "raw", "wanted"),
    [
        ((OLD,), b'{"model":"m", "max_completion_tokens": 9}', b'{"model":"n", "max_tokens": 9}'),
        ((OLD,), b'{"model":"m", "max_tokens": 9}', b'{"model":"n", "max_tokens": 9}'),
        ((NEW, OLD), b'{"model":"m", "max_tokens": 9}', b'{"model":"n", "max_tokens": 9}'),
        ((NEW,), b'{"max_tokens": 9,"model":"m"}', b'{"max_completion_tokens": 9,"model":"n"}'),
        ((OLD,), b'{"model":"m"}', b'{"model":"n"}'),
        ((OLD,), b'{"model":"m", "max_completion_tokens": null}', b'{"model":"n", "max_completion_tokens": null}'),
        ((NEW,), b'{"max_tokens":null ,"model":"m"}', b'{"max_tokens":null ,"model":"n"}'),
    ],
)
def test_with_another_model_the_limit_goes_where_the_host_obeys_it(fields, raw, wanted):
    assert WIRE.with_model(request(raw, fields), "n").body == wanted
