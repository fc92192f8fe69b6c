import json
from dataclasses import replace

import pytest
from talks import Turn, asked, body_of

from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named

LONG = "x" * 3000
MARKER = "[lockpin: tool result of 3000 bytes left out to stay in the budget]"
HOUR = {"type": "ephemeral", "ttl": "1h"}
FIVE = {"type": "ephemeral", "ttl": "5m"}
PLAN = {"authorization": "Bearer sk-ant-oat01-x"}
TEXT = {"type": "text", "text": LONG}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
WIRE = wire_named("anthropic_messages")


def body(*messages: dict, **fields: object) -> dict:
    return {"model": "claude-sonnet-5-5", "max_tokens": 9, "messages": [*messages], **fields}


def user(*blocks: dict) -> dict:
    return {"role": "user", "content": [*blocks]}


def result(content: object, **fields: object) -> dict:
    return {"type": "tool_result", "tool_use_id": "a", "content": content, **fields}


def lightened(told: dict, *, cache_5m: bool = False, trim: int = 9, **headers: str) -> dict | None:
    made = WIRE.lightened(asked("anthropic_messages", told, **headers), cache_5m=cache_5m, trim=trim)
    return None if made is None else json.loads(made)


def first_block(told: dict | None) -> dict:
    assert told is not None
    return told["messages"][0]["content"][0]


def test_texts_of_a_result_go_and_all_else_in_it_stays():
    parts = [TEXT | {"cache_control": HOUR}, IMAGE, {"type": "text", "text": "short"}]

    made = lightened(body(user(result(parts, is_error=True, cache_control=FIVE))))

    assert first_block(made) == result(
        [{"type": "text", "text": MARKER, "cache_control": HOUR}, IMAGE, {"type": "text", "text": "short"}],
        is_error=True,
        cache_control=FIVE,
    )


def test_result_of_many_short_texts_is_as_long_as_they_are_together():
    made = lightened(body(user(result([{"type": "text", "text": "y" * 1100}] * 2))))

    marker = "[lockpin: tool result of 1100 bytes left out to stay in the budget]"
    assert first_block(made) == result([{"type": "text", "text": marker}] * 2)


@pytest.mark.parametrize(
    "beside",
    [
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
        {"type": "image", "source": {"type": "url", "url": "https://h/i.png"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": LONG}},
        {"type": "search_result", "source": "s", "title": "t", "content": [TEXT]},
        {"type": "tool_reference", "tool_name": "f"},
        TEXT | {"citations": [{"type": "char_location"}]},
    ],
)
def test_result_that_refers_to_something_stays(beside: dict):
    assert lightened(body(user(result([TEXT, beside])))) is None


@pytest.mark.parametrize(
    "block",
    [
        {
            "type": "web_fetch_tool_result",
            "tool_use_id": "s",
            "content": {"type": "web_fetch_result", "content": [TEXT]},
        },
        {"type": "mcp_tool_result", "tool_use_id": "s", "content": [TEXT]},
        {"type": "bash_code_execution_tool_result", "tool_use_id": "s", "content": {"stdout": LONG}},
    ],
)
def test_what_the_providers_own_tools_gave_stays_and_is_not_counted(block: dict):
    said = body({"role": "assistant", "content": [block]}, user(result(LONG)))

    made = lightened(said, trim=1)

    assert made is not None
    assert made["messages"] == [{"role": "assistant", "content": [block]}, user(result(MARKER))]


def test_result_that_a_program_of_the_providers_reads_stays_and_is_counted():
    program = {"type": "tool_use", "id": "a", "name": "f", "input": {}, "caller": {"type": "code_execution_20260120"}}
    direct = {"type": "tool_use", "id": "b", "name": "f", "input": {}, "caller": {"type": "direct"}}
    results = user(result(LONG), result(LONG) | {"tool_use_id": "b"})

    made = lightened(body({"role": "assistant", "content": [program, direct]}, results), trim=2)

    assert made is not None
    assert made["messages"][1] == user(result(LONG), result(MARKER) | {"tool_use_id": "b"})
    assert lightened(body({"role": "assistant", "content": [program, direct]}, results), trim=1) is None


@pytest.mark.parametrize("thread", [{"type": "continue", "previous_message_id": "m"}])
def test_conversation_that_the_provider_keeps_is_left_alone(thread: dict):
    told = body(*(user(result(LONG)) for _ in range(9)), thread=thread)

    assert lightened(told) is None
    assert WIRE.trimmable(asked("anthropic_messages", told)) == 0
    assert WIRE.conversation(asked("anthropic_messages", told)) is None


def test_body_of_a_plan_stays():
    assert lightened(body(user(result(LONG)), cache_control=HOUR), cache_5m=True, **PLAN) is None


# Thoughts


def thinking(model: str, *thoughtful: int) -> dict:
    """Make a conversation of six turns, in some of which the model has thought."""
    told = body_of("anthropic_messages", "task", [Turn((LONG,))] * 6) | {"model": model}
    for number in thoughtful:
        told["messages"][1 + 2 * number]["content"].insert(0, THOUGHT)
    return told


@pytest.mark.parametrize(
    ("model", "thoughtful", "count"),
    [
        ("claude-sonnet-5-5", (), 3),
        ("claude-sonnet-5-5", (0,), 3),  # it stands before every result
        ("claude-sonnet-5-5", (1,), 0),
        ("claude-sonnet-5-5", (5,), 0),
        ("claude-fable-5-2", (0, 1, 2, 3, 4, 5), 0),
        ("claude-sonnet-4-5", (1, 5), 3),  # an older model does not look at what stands before a thought
        ("claude-3-7-sonnet-latest", (1, 5), 3),
        ("glm-5", (1, 5), 3),
    ],
)
def test_nothing_begins_to_be_left_out_before_a_thought_that_is_bound(model: str, thoughtful: tuple, count: int):
    assert WIRE.trimmable(asked("anthropic_messages", thinking(model, *thoughtful))) == count


@pytest.mark.parametrize(
    ("model", "count"),
    [
        ("anthropic.claude-sonnet-5-5", 0),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", 3),
        ("arn:aws:bedrock:us-east-1:1:application-inference-profile/x", 0),
    ],
)
def test_model_that_the_path_names_may_bind_its_thoughts(model: str, count: int):
    told = {key: item for key, item in thinking("", 1).items() if key != "model"}
    request = replace(asked("bedrock_invoke", told), path_model=model)

    assert wire_named("bedrock_invoke").trimmable(request) == count


SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 9}


@pytest.mark.parametrize(
    ("model", "thoughtful", "may_change"),
    [
        ("claude-sonnet-5-5", (), True),
        ("claude-sonnet-5-5", (0,), False),
        ("claude-sonnet-4-5", (0,), True),
    ],
)
def test_limit_of_a_tool_stays_where_thoughts_are_bound_to_it(model: str, thoughtful: tuple, may_change: bool):
    parsed = WIRE.parse(asked("anthropic_messages", thinking(model, *thoughtful) | {"tools": [SEARCH]}))

    assert bool(parsed.tools) == may_change
    assert parsed.rounds == 10


def test_what_was_left_out_once_is_left_out_though_the_model_has_thought_since():
    made = lightened(thinking("claude-sonnet-5-5", 4, 5), trim=2)

    assert made is not None
    assert [one["content"][0]["content"] for one in made["messages"][2::2]] == [MARKER, MARKER, *[LONG] * 4]
    assert [one["content"][0] for one in made["messages"][9::2]] == [THOUGHT, THOUGHT]


# The cache


def test_every_hour_in_the_cache_is_five_minutes():
    def marked(ttl: dict) -> dict:
        mark = {"cache_control": ttl}
        nested = result([{"type": "text", "text": "x"} | mark]) | mark
        document = {
            "type": "document",
            "source": {"type": "content", "content": [{"type": "text", "text": "x"} | mark]},
        }
        defined = {"type": "tool_definition", "definition": {"name": "g", "input_schema": {}} | mark}
        return body(
            user(nested, document | mark),
            {"role": "system", "content": [{"type": "tool_addition", "tool": defined} | mark]},
            **mark,
            system=[{"type": "text", "text": "x"} | mark],
            tools=[
                {"name": "f", "input_schema": {}} | mark,
                {"type": "advisor_20260301", "name": "advisor", "model": "a", "max_uses": 1, "caching": ttl},
            ],
        )

    made = lightened(marked(HOUR), cache_5m=True, trim=0)

    assert made == marked(FIVE)
    assert Unit.CACHE_WRITE_1H in WIRE.parse(asked("anthropic_messages", marked(HOUR))).prompt_units
    assert Unit.CACHE_WRITE_1H not in WIRE.parse(asked("anthropic_messages", made)).prompt_units


def test_what_only_looks_like_a_mark_stays():
    said = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {"cache_control": HOUR}}],
    }
    tool = {"name": "f", "input_schema": {"properties": {"cache_control": HOUR}}}
    told = body(said, user({"type": "text", "text": json.dumps({"cache_control": HOUR})}), tools=[tool])

    assert lightened(told, cache_5m=True, trim=0) is None


def test_lives_of_five_minutes_stay_and_without_the_asking_all_do():
    assert lightened(body(user({"type": "text", "text": "1h"} | {"cache_control": FIVE})), cache_5m=True) is None
    assert lightened(body(cache_control=HOUR), cache_5m=False) is None


def test_mark_is_changed_where_it_stands_however_it_is_written():
    raw = '{"messages":[], "é": "1h", "cache_c\\u006fntrol" : { "ttl" :"\\u0031h", "type":"ephemeral"},"max_tokens":1}'

    made = WIRE.lightened(asked("anthropic_messages", raw.encode()), cache_5m=True, trim=0)

    assert made == raw.replace('"\\u0031h"', '"5m"').encode()


# Which conversation it is


def known(*messages: dict) -> bytes | None:
    return WIRE.conversation(asked("anthropic_messages", body(*messages)))


def test_first_user_message_is_the_same_as_text_as_block_and_with_a_mark():
    block = {"type": "text", "text": "task"}
    plain = known({"role": "user", "content": "task"})

    assert plain == known(user(block)) == known(user(block | {"cache_control": HOUR}))
    assert plain == known({"role": "system", "content": "s"}, user({"text": "task", "type": "text"}))
    assert plain != known(user(block, block))
    assert plain != known(user(block | {"text": "tas"}))


def test_values_that_are_no_texts_tell_messages_apart():
    one, other, third = (known(user({"type": "x", "n": n})) for n in (1, 2, None))

    assert len({one, other, third}) == 3


def test_request_without_a_user_message_is_of_no_conversation():
    assert known() is None
    assert known({"role": "assistant", "content": "x"}) is None
