import json

import pytest
from talks import asked

from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named

LONG = "x" * 3000
MARKER = "[lockpin: tool result of 3000 bytes left out to stay in the budget]"
HOUR = {"type": "ephemeral", "ttl": "1h"}
FIVE = {"type": "ephemeral", "ttl": "5m"}
CHAT, RESPONSES = wire_named("openai_chat"), wire_named("openai_responses")
SAID = {"role": "assistant", "content": "so"}


def chat(*messages: dict, **fields: object) -> dict:
    return {"model": "m", "messages": [*messages], **fields}


def response(*items: dict, **fields: object) -> dict:
    return {"model": "m", "input": [*items], **fields}


def lightened(wire: str, told: dict, *, cache_5m: bool = False, trim: int = 9) -> dict | None:
    made = wire_named(wire).lightened(asked(wire, told), cache_5m=cache_5m, trim=trim)
    return None if made is None else json.loads(made)


# Chats


@pytest.mark.parametrize("role", ["tool", "function"])
def test_texts_of_a_result_go_and_images_beside_them_stay(role: str):
    image = {"type": "image_url", "image_url": {"url": "DATA:image/png;base64,AA"}}
    mark = {"cache_control": FIVE, "prompt_cache_breakpoint": {"mode": "explicit"}}
    parts = [{"type": "text", "text": LONG} | mark, image]

    made = lightened("openai_chat", chat({"role": role, "tool_call_id": "a", "name": "f", "content": parts}))

    assert made is not None
    assert made["messages"][0]["content"] == [{"type": "text", "text": MARKER} | mark, image]
    assert made["messages"][0].keys() == {"role", "tool_call_id", "name", "content"}


@pytest.mark.parametrize(
    "beside",
    [
        {"type": "image_url", "image_url": {"url": "https://h/i.png"}},
        {"type": "file", "file": {"file_id": "f"}},
        {"type": "text", "text": "x", "annotations": [1]},
    ],
)
def test_result_that_refers_to_something_stays(beside: dict):
    content = [{"type": "text", "text": LONG}, beside]

    assert lightened("openai_chat", chat({"role": "tool", "tool_call_id": "a", "content": content})) is None


@pytest.mark.parametrize(
    ("thought", "count"),
    [
        ({"reasoning_details": [{"type": "reasoning.text", "text": "t", "signature": "s"}]}, 0),
        ({"thinking_blocks": [{"type": "thinking", "thinking": "t", "signature": "s"}]}, 0),
        ({"reasoning_details": [{"type": "reasoning.summary", "summary": "t"}]}, 1),
        ({"reasoning_content": "t"}, 1),
    ],
)
def test_nothing_begins_to_be_left_out_before_a_thought_that_is_signed(thought: dict, count: int):
    turns = [message for _ in range(4) for message in (SAID, {"role": "tool", "tool_call_id": "a", "content": LONG})]
    turns[6] = SAID | thought

    told = chat(*turns) | {"model": "anthropic/claude-opus-5.5"}
    assert CHAT.trimmable(asked("openai_chat", told)) == count
    assert CHAT.trimmable(asked("openai_chat", told | {"model": "anthropic/claude-sonnet-4.5"})) == 1
    assert CHAT.trimmable(asked("openai_chat", told | {"model": "openai/gpt-6"})) == 1


def test_every_hour_in_the_cache_of_another_makers_model_is_five_minutes():
    def marked(ttl: dict) -> dict:
        mark = {"cache_control": ttl}
        tool = {"type": "function", "function": {"name": "f", "parameters": {"cache_control": HOUR}}}
        part = {"type": "text", "text": "x"}
        said = {"role": "user", "content": [part | mark, part]}
        return chat(said | mark, said, **mark, tools=[tool | mark])

    made = lightened("openai_chat", marked(HOUR), cache_5m=True, trim=0)

    assert made == marked(FIVE)
    assert Unit.CACHE_WRITE_1H not in CHAT.parse(asked("openai_chat", made)).prompt_units
    assert lightened(
        "openai_chat", {key: item for key, item in marked(HOUR).items() if key != "cache_control"}, cache_5m=True
    )


def known_chat(*messages: dict) -> bytes | None:
    return CHAT.conversation(asked("openai_chat", chat(*messages)))


def test_first_user_message_of_a_chat_is_the_same_as_text_and_as_part():
    part = {"type": "text", "text": "task", "cache_control": HOUR}
    plain = known_chat({"role": "system", "content": "s"}, {"role": "user", "content": "task"})

    assert plain == known_chat({"role": "user", "content": [part]}, SAID)
    assert plain != known_chat({"role": "user", "content": [part, part]})
    assert known_chat(SAID) is None


# Responses


@pytest.mark.parametrize(
    ("item", "wanted"),
    [
        ({"type": "function_call_output", "call_id": "a", "output": LONG}, MARKER),
        ({"type": "custom_tool_call_output", "call_id": "a", "output": LONG}, MARKER),
        ({"type": "local_shell_call_output", "id": "a", "output": LONG}, MARKER),
        ({"type": "apply_patch_call_output", "call_id": "a", "status": "failed", "output": LONG}, MARKER),
        (
            {
                "type": "shell_call_output",
                "call_id": "a",
                "output": [{"stdout": LONG, "stderr": "no", "outcome": {"type": "exit", "exit_code": 1}}],
            },
            [{"stdout": MARKER, "stderr": "no", "outcome": {"type": "exit", "exit_code": 1}}],
        ),
        ({"type": "shell_call_output", "call_id": "a", "output": [{"stdout": LONG}]}, [{"stdout": MARKER}]),
        (
            {
                "type": "function_call_output",
                "call_id": "a",
                "output": [
                    {"type": "input_text", "text": LONG},
                    {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
                ],
            },
            [
                {"type": "input_text", "text": MARKER},
                {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
            ],
        ),
    ],
)
def test_texts_of_every_kind_of_result_go(item: dict, wanted: object):
    assert lightened("openai_responses", response(item)) == response(item | {"output": wanted})


@pytest.mark.parametrize(
    "item",
    [
        {
            "type": "function_call_output",
            "call_id": "a",
            "output": LONG,
            "caller": {"type": "program", "caller_id": "p"},
        },
        {
            "type": "function_call_output",
            "call_id": "a",
            "output": [{"type": "input_text", "text": LONG}, {"type": "input_file", "file_id": "f"}],
        },
        {
            "type": "function_call_output",
            "call_id": "a",
            "output": [{"type": "input_text", "text": LONG}, {"type": "input_image", "file_id": "f"}],
        },
        {"type": "computer_call_output", "call_id": "a", "output": {"type": "computer_screenshot", "image_url": LONG}},
    ],
)
def test_result_that_is_no_text_for_the_model_stays_and_is_counted(item: dict):
    short = {"type": "function_call_output", "call_id": "b", "output": LONG}

    assert lightened("openai_responses", response(item, short), trim=1) is None
    assert lightened("openai_responses", response(item, short), trim=2) == response(item, short | {"output": MARKER})


def test_what_the_providers_own_tools_gave_stays_and_is_not_counted():
    call = {"type": "mcp_call", "id": "m", "server_label": "s", "name": "f", "arguments": "{}", "output": LONG}
    reasons = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": LONG}
    own = {"type": "function_call_output", "call_id": "b", "output": LONG}

    made = lightened("openai_responses", response(reasons, call, own), trim=1)

    assert made == response(reasons, call, own | {"output": MARKER})


@pytest.mark.parametrize("kept", [{"previous_response_id": "r"}, {"conversation": "c"}, {"prompt": {"id": "p"}}])
def test_conversation_that_the_provider_keeps_is_left_alone(kept: dict):
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    given = {"type": "function_call_output", "call_id": "a", "output": LONG}
    told = response(*[call, given] * 5, **kept)

    assert lightened("openai_responses", told) is None
    assert RESPONSES.trimmable(asked("openai_responses", told)) == 0


def test_calls_in_one_breath_are_one_turn():
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    given = {"type": "function_call_output", "call_id": "a", "output": "x"}
    turn = [{"type": "reasoning", "summary": []}, call, call, given, given]

    assert RESPONSES.trimmable(asked("openai_responses", response(*turn * 3))) == 0
    assert RESPONSES.trimmable(asked("openai_responses", response(*turn * 4))) == 2


def known(**fields: object) -> bytes | None:
    return RESPONSES.conversation(asked("openai_responses", {"model": "m", **fields}))


def test_first_user_message_is_the_same_as_text_as_item_and_as_part():
    part = {"type": "input_text", "text": "task", "prompt_cache_breakpoint": {"mode": "explicit"}}
    plain = known(input="task")

    assert plain == known(input=[{"role": "user", "content": "task"}])
    assert plain == known(
        input=[{"role": "developer", "content": "d"}, {"type": "message", "role": "user", "content": [part]}]
    )
    assert plain != known(input="other")
    assert known(input=[SAID]) is None


def test_conversation_that_has_a_name_is_known_by_it():
    assert known(input="a", conversation="c") == known(input="b", conversation={"id": "c"}) is not None
    assert known(input="a", conversation="c") != known(input="a", conversation="d")


def test_conversation_that_goes_on_from_a_reply_shows_no_beginning():
    assert known(input="a", previous_response_id="r") is None
