import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transcripts import FORMATS, Use, request_of

from lockpin_core.call import Request
from lockpin_core.wire import WIRES, wire_named
from lockpin_core.wire.tool_steps import make_step

each_format = pytest.mark.parametrize("name", FORMATS)
LIST, READ = Use("ls", {"path": "src", "all": True}, "a.py\nb.py"), Use("read", {"path": "src/a.py"}, "x = 1")


def steps(name, *turns):
    request = request_of(name, turns)
    wire = wire_named(name)
    wire.parse(request)  # it is a body that passes
    return list(wire.tool_steps(request))


def seen(step):
    return step.name, step.is_empty, step.is_error


@each_format
def test_steps_come_last_turn_first_and_those_of_one_turn_together(name):
    found = steps(name, [LIST], [READ, LIST], [READ])

    assert [step.name for step in found[:1]] == ["read"]
    assert sorted(step.name for step in found[1:3]) == ["ls", "read"]
    assert [step.name for step in found[3:]] == ["ls"]
    turns = [step.turn for step in found]
    assert turns[1] == turns[2]
    assert turns[0] > turns[1] > turns[3]


@each_format
def test_same_call_with_the_same_result_is_known_again_under_another_id(name):
    first, second, third = steps(name, [LIST], [LIST], [READ])[::-1]

    assert (first.arguments, first.result, first.likeness) == (second.arguments, second.result, second.likeness)
    assert third.arguments != first.arguments
    assert third.result != first.result


@each_format
def test_each_call_of_a_turn_has_its_own_result(name):
    other = Use("ls", {"path": "doc"}, "c.md")
    two = {step.arguments: step.result for step in steps(name, [LIST, other])}
    alone = {step.arguments: step.result for one in (LIST, other) for step in steps(name, [one])}

    assert two == alone


@each_format
def test_a_call_without_its_result_is_a_step_that_says_nothing_of_one(name):
    (step,) = steps(name, [LIST._replace(result=None)])

    assert (step.name, step.result, step.is_empty, step.is_error) == ("ls", b"", False, False)


@each_format
def test_no_more_is_read_than_is_asked_for_and_nothing_raises_at_any_body(name):
    wire = wire_named(name)
    request = request_of(name, [[LIST]])
    for body in (b"", b"{", b"[]", b"{}", b'{"messages": 3, "input": {}, "contents": "x", "request": []}'):
        assert list(wire.tool_steps(replace(request, body=body))) == []


ODD = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.sampled_from(["tool_use", "function_call", "tool"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "messages",
                    "input",
                    "contents",
                    "request",
                    "role",
                    "content",
                    "parts",
                    "type",
                    "tool_calls",
                    "id",
                    "call_id",
                    "tool_use_id",
                    "name",
                    "arguments",
                    "function",
                    "functionCall",
                    "functionResponse",
                    "toolUse",
                    "toolResult",
                    "output",
                    "result",
                    "response",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@given(body=ODD)
def test_whatever_a_body_holds_reading_its_steps_raises_nothing(wire, body):
    request = Request("POST", "h", "/", {}, json.dumps(body).encode(), "m")

    for step in wire.tool_steps(request):
        assert step.turn >= 0


@pytest.mark.parametrize(
    "result",
    [
        *("", " \n", "[]", "{}", "null", "None", "(no output)", "No matches found", "no results found.", "0 files found"),
        *("No files found", "Tool ran without output", '{"results": [], "total": 0}', '{"status": "ok", "rows": []}'),
        'Chunk ID: 3fa9c1\nWall time: 0.05 seconds\n',
    ],
)  # fmt: skip
def test_results_that_are_empty(result):
    assert seen(make_step(0, "t", {}, result)) == ("t", True, False)


@pytest.mark.parametrize(
    "result",
    [
        *("Error: no such file", "error: bad flag", "Traceback (most recent call last):", "ValueError: x", "fatal: not a"),
        *("requests.exceptions.ConnectionError: refused", "File not found", "bash: foo: command not found", "Timeout"),
        *("Exit code 1\nboom", "Exit code: 2\nOutput:\n", "Process exited with code 1\nOutput:", "Permission denied"),
        *('{"error": "nope"}', '{"success": false}', '{"ok": false, "rows": []}', '{"status": "failed"}'),
        *("Error 500: internal", "Error: 404 Not Found", '{"output": "x", "metadata": {"exit_code": 1}}'),
    ],
)  # fmt: skip
def test_results_that_are_failures(result):
    assert seen(make_step(0, "t", {}, result)) == ("t", False, True)


@pytest.mark.parametrize(
    "result",
    [
        *("a.py", "0", "errors: 0, running 45%", "error: null", "errors: 3", "Failed: 3, passed: 9", "no errors", "not ready yet", "running", "Exit code: 0"),
        *('{"status": "running", "percent": 3}', '{"error": null, "state": "pending"}', '{"success": true, "n": 4}'),
        *("The word error stands in this text.", '["a"]', "Nothingness", "no more than 3 files were changed"),
    ],
)  # fmt: skip
def test_results_that_say_something(result):
    assert seen(make_step(0, "t", {}, result)) == ("t", False, False)


def test_what_the_format_says_of_a_failure_holds_whatever_the_text_is():
    assert make_step(0, "t", {}, "all is well", failed=True).is_error
    for name in ("anthropic_messages", "bedrock_invoke", "gemini_interactions", "bedrock_converse", "gemini"):
        (step,) = steps(name, [LIST._replace(failed=True)])
        assert step.is_error, name


def test_arguments_are_the_same_whatever_order_and_spaces_they_are_written_with():
    written = ('{"a": 1, "b": [2]}', '{"b":[2],"a":1}', {"b": [2], "a": 1})

    assert len({make_step(0, "t", one).arguments for one in written}) == 1
    assert make_step(0, "t", '{"a": 1, "b": [3]}').arguments != make_step(0, "t", written[0]).arguments


def test_what_agents_write_around_a_result_that_is_another_each_time_does_not_count():
    def result(found):
        return make_step(0, "t", {}, found).result

    assert result("Exit code: 0\nWall time: 0.1 seconds\nOutput:\nx") == result(
        "Exit code: 0\nWall time: 7 seconds\nOutput:\nx"
    )
    assert result('{"output": "x", "metadata": {"exit_code": 0, "duration_seconds": 0.1}}') == result(
        '{"output": "x", "metadata": {"exit_code": 0, "duration_seconds": 0.4}}'
    )
    assert result("Exit code: 0\nWall time: 0.1 seconds\nOutput:\nx") != result(
        "Exit code: 0\nWall time: 0.1 seconds\nOutput:\ny"
    )
    assert result("took 0.1 s") != result("took 0.2 s")


def test_of_several_calls_in_one_turn_those_between_reasoning_and_outputs_are_told_apart():
    def item(kind, call_id, **more):
        return {"type": kind, "call_id": call_id, **more}

    def call(call_id):
        return item("function_call", call_id, name="t", arguments="{}")

    def output(call_id, found):
        return item("function_call_output", call_id, output=found)

    items = [call("a"), call("b"), output("a", "1"), output("b", "2"), call("c"), output("c", "1"), call("d")]
    body = json.dumps({"model": "m", "input": items}).encode()
    found = list(wire_named("openai_responses").tool_steps(Request("POST", "h", "/v1/responses", {}, body)))

    assert [step.turn for step in found] == [6, 4, 1, 1]
    assert found[1].result == found[3].result != found[2].result
