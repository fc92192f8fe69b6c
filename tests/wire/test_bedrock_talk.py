import json
from dataclasses import replace

import pytest
from talks import Turn, asked, body_of

from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named

LONG = "x" * 3000
MARKER = "[lockpin: tool result of 3000 bytes left out to stay in the budget]"
IMAGE = {"image": {"format": "png", "source": {"bytes": "AA"}}}
WIRE = wire_named("bedrock_converse")


def lightened(told: dict, *, cache_5m: bool = False, trim: int = 9) -> dict | None:
    made = WIRE.lightened(asked("bedrock_converse", told), cache_5m=cache_5m, trim=trim)
    return None if made is None else json.loads(made)


def given(*content: dict) -> dict:
    result = {"toolUseId": "a", "status": "error", "content": [*content]}
    return {"messages": [{"role": "user", "content": [{"toolResult": result}, {"cachePoint": {"type": "default"}}]}]}


def test_texts_of_a_result_go_and_all_else_stays():
    made = lightened(given({"text": LONG}, IMAGE, {"json": {"a": [LONG, 1]}}))

    assert made == given({"text": MARKER}, IMAGE, {"json": {"a": [MARKER, 1]}})


@pytest.mark.parametrize(
    "beside",
    [
        {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://b/i"}}}},
        {"document": {"name": "d", "source": {"text": "x"}}},
        {"searchResult": {"source": "s", "title": "t", "content": [{"text": "x"}]}},
    ],
)
def test_result_that_refers_to_something_stays(beside: dict):
    assert lightened(given({"text": LONG}, beside)) is None


@pytest.mark.parametrize(
    ("thought", "count"),
    [
        ({"reasoningText": {"text": "t", "signature": "s"}}, 0),
        ({"redactedContent": "AA"}, 0),
        ({"reasoningText": {"text": "t"}}, 1),
    ],
)
def test_nothing_begins_to_be_left_out_before_a_thought_that_is_signed(thought: dict, count: int):
    told = body_of("bedrock_converse", "task", [Turn((LONG,))] * 4)
    told["messages"][7]["content"].insert(0, {"reasoningContent": thought})

    request = asked("bedrock_converse", told)
    assert WIRE.trimmable(replace(request, path_model="eu.anthropic.claude-opus-5-5")) == count
    assert WIRE.trimmable(replace(request, path_model="anthropic.claude-3-7-sonnet-20250219-v1:0")) == 1
    assert WIRE.trimmable(request) == 1


def test_every_hour_in_the_cache_is_five_minutes():
    def marked(ttl: str) -> dict:
        point = {"cachePoint": {"type": "default", "ttl": ttl}}
        tool = {"toolSpec": {"name": "f", "inputSchema": {"json": {"cachePoint": {"ttl": "1h"}}}}}
        return {
            "system": [{"text": "s"}, point],
            "toolConfig": {"tools": [tool, point]},
            "messages": [{"role": "user", "content": [{"text": "1h"}, point]}],
        }

    made = lightened(marked("1h"), cache_5m=True, trim=0)

    assert made == marked("5m")
    assert Unit.CACHE_WRITE_1H not in WIRE.parse(asked("bedrock_converse", made)).prompt_units
    assert lightened({"messages": [], "toolConfig": "1h"}, cache_5m=True) is None


def known(*messages: dict) -> bytes | None:
    return WIRE.conversation(asked("bedrock_converse", {"messages": [*messages]}))


def test_first_user_message_is_known_without_its_cache_points():
    said = {"role": "user", "content": [{"text": "task"}]}

    assert known(said) == known({"role": "user", "content": [{"text": "task"}, {"cachePoint": {"type": "default"}}]})
    assert known(said) != known({"role": "user", "content": [{"text": "task"}, {"text": "task"}]})
    assert known({"role": "assistant", "content": []}) is None
