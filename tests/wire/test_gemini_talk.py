import json

import pytest
from talks import asked

from lockpin_core.wire import wire_named

LONG = "x" * 3000
MARKER = "[lockpin: tool result of 3000 bytes left out to stay in the budget]"
GEMINI, INTERACTIONS = wire_named("gemini"), wire_named("gemini_interactions")
CALL = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}]}


def lightened(wire: str, told: dict, *, trim: int = 9) -> dict | None:
    made = wire_named(wire).lightened(asked(wire, told), cache_5m=True, trim=trim)
    return None if made is None else json.loads(made)


def response(value: object, **fields: object) -> dict:
    return {"functionResponse": {"name": "f", "response": value, **fields}}


def contents(*parts: dict) -> dict:
    return {"contents": [CALL, {"role": "user", "parts": [*parts]}]}


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"output": LONG}, {"output": MARKER}),
        ({"a": [1, {"b": LONG}], "c": "short", "d": None}, {"a": [1, {"b": MARKER}], "c": "short", "d": None}),
    ],
)
def test_texts_of_a_result_go_wherever_they_stand_in_it(value: dict, wanted: dict):
    assert lightened("gemini", contents(response(value, id="1"))) == contents(response(wanted, id="1"))


def test_result_in_the_other_spelling_and_alone_in_place_of_lists_goes_too():
    told = {"contents": {"role": "user", "parts": {"function_response": {"name": "f", "response": {"output": LONG}}}}}

    made = lightened("gemini", told)

    assert made is not None
    assert made["contents"]["parts"] == {"function_response": {"name": "f", "response": {"output": MARKER}}}


def test_pictures_beside_a_result_stay_and_a_file_elsewhere_keeps_all_of_it():
    picture = {"inlineData": {"mimeType": "image/png", "data": "AA"}}
    with_picture, with_file = (
        response({"output": LONG}, parts=[one]) for one in (picture, {"fileData": {"fileUri": "u"}})
    )

    assert lightened("gemini", contents(with_picture)) == contents(response({"output": MARKER}, parts=[picture]))
    assert lightened("gemini", contents(with_file)) is None


def test_what_the_providers_own_tools_gave_stays():
    part = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": LONG}}

    assert lightened("gemini", contents(part, {"toolResponse": {"output": LONG}})) is None


def test_conversation_that_the_provider_keeps_is_left_alone():
    told = {"contents": contents(response({"output": LONG}))["contents"] * 5}

    assert GEMINI.trimmable(asked("gemini", told)) == 2
    assert GEMINI.trimmable(asked("gemini", told | {"continuationToken": "t"})) == 0


def known(told: dict) -> bytes | None:
    return GEMINI.conversation(asked("gemini", told))


def test_first_user_content_is_the_same_with_and_without_its_role_and_list():
    part = {"text": "task"}
    plain = known({"contents": [{"role": "user", "parts": [part]}, CALL]})

    assert plain == known({"contents": {"parts": part}})
    assert plain != known({"contents": [{"parts": [part, part]}]})
    assert known({"contents": [CALL]}) is None


# Interactions


def interaction(*steps: dict, **fields: object) -> dict:
    return {"model": "m", "input": [*steps], **fields}


def step(result: object, **fields: object) -> dict:
    return {"type": "function_result", "call_id": "a", "name": "f", "result": result, **fields}


PICTURE = {"type": "image", "mime_type": "image/png", "data": "AA"}


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        (LONG, MARKER),
        ({"a": [LONG]}, {"a": [MARKER]}),
        ([{"type": "text", "text": LONG}, PICTURE], [{"type": "text", "text": MARKER}, PICTURE]),
    ],
)
def test_texts_of_a_function_result_go(result: object, wanted: object):
    assert lightened("gemini_interactions", interaction(step(result))) == interaction(step(wanted))


@pytest.mark.parametrize(
    "one",
    [
        step(LONG, signature="s"),
        step([{"type": "text", "text": LONG}, {"type": "image", "uri": "u"}]),
        step([{"type": "text", "text": LONG}, {"type": "document", "mime_type": "text/plain", "data": "AA"}]),
        {"type": "code_execution_result", "call_id": "a", "result": LONG},
    ],
)
def test_step_that_is_signed_or_refers_to_something_stays(one: dict):
    assert lightened("gemini_interactions", interaction(one)) is None


def test_interaction_that_goes_on_from_another_is_left_alone():
    told = interaction(*[{"type": "function_call", "id": "a", "name": "f", "arguments": {}}, step(LONG)] * 5)

    assert INTERACTIONS.trimmable(asked("gemini_interactions", told)) == 2
    told |= {"previous_interaction_id": "i"}
    assert INTERACTIONS.trimmable(asked("gemini_interactions", told)) == 0
    assert lightened("gemini_interactions", told) is None
    assert INTERACTIONS.conversation(asked("gemini_interactions", told)) is None


def test_what_the_user_says_first_is_the_same_in_every_form():
    text = {"type": "text", "text": "task"}

    def started(given: object) -> bytes | None:
        return INTERACTIONS.conversation(asked("gemini_interactions", {"model": "m", "input": given}))

    plain = started("task")
    assert plain == started(text) == started([text]) == started([{"role": "user", "content": "task"}])
    assert plain == started([{"type": "user_input", "content": [text]}, {"type": "model_output", "content": [text]}])
    assert plain != started([text, text]) is not None
    assert started([{"type": "model_output", "content": [text]}]) is None
    assert started([step("x")]) is None
