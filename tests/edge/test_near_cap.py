"""Calls near the cap through a real proxy: what the provider gets, what the client is told, and what a restart keeps."""

import json
import subprocess
import sys
import urllib.request

import client
import processes
import pytest

CONFIG = """
upstreams: {{api.anthropic.com: "{origin}", api.openai.com: "{origin}", generativelanguage.googleapis.com: "{origin}"}}
pricing:
  pen: {{input_per_mtok: 0, output_per_mtok: 100, max_output_tokens: 50000, context_tokens: 200000, tokenizer: bytes}}
  ink: {{input_per_mtok: 1, output_per_mtok: 5, max_output_tokens: 50000, context_tokens: 200000, tokenizer: bytes}}
  dear: {{input_per_mtok: 1, output_per_mtok: 900, max_output_tokens: 50000, context_tokens: 200000, tokenizer: bytes}}
daily_usd: null
queue: {{wait: 0s}}
cheaper: {{gemini/dear: [gemini/ink], openai/dear: [openai/ink]}}
"""
ANTHROPIC, OPENAI = "/anthropic/v1/messages", "/openai/v1/chat/completions"


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("near")
    with (
        processes.origin(folder) as origin,
        processes.proxy(folder, CONFIG.format(origin=origin.url), kind=request.param) as proxy,
    ):
        yield origin, proxy


def lockpin(home, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "lockpin_cli.main", *arguments, "--config", str(home / "lockpin.yaml")],
        env={"HOME": str(home), "PYTHONPATH": str(processes.ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def messages(model="pen", limit=32_000, *, said="hi", turns=(), **more):
    return {"model": model, "max_tokens": limit, "messages": [{"role": "user", "content": said}, *turns], **more}


def replied(output, *, stop="end_turn"):
    """Order a reply of so many tokens from the origin."""
    usage = {"input_tokens": 10, "output_tokens": output}
    reply = {"id": "msg_1", "type": "message", "role": "assistant", "model": "pen", "stop_reason": stop,
             "stop_sequence": None, "content": [{"type": "text", "text": "ok"}], "usage": usage}  # fmt: skip
    return json.dumps({"body": json.dumps(reply)})


def ask(proxy, task, body, path=ANTHROPIC, **headers):
    raw = body if isinstance(body, bytes) else json.dumps(body, indent=1).encode()
    return client.call(proxy, path, raw, x_lockpin_task=task, **headers)


def paid(calls):
    return [call for call in calls if not call["path"].endswith("/count_tokens")]


def last_body(origin):
    return paid(origin.calls())[-1]["body"]


def test_a_limit_is_lowered_and_nothing_else(rig):
    origin, proxy = rig
    lockpin(proxy.home, "task", "new", "lowered", "--budget", "1")
    body = json.dumps(messages(metadata={"user_id": "ü"}), indent=3)

    answer = ask(proxy, "lowered", body.encode(), x_origin=replied(7))

    assert answer.status == 200
    assert last_body(origin) == body.replace("32000", "10000")
    assert (answer.headers["x-lockpin-degrade"], answer.headers["x-lockpin-output-limit"]) == ("fit", "10000")


def test_a_call_may_ask_to_be_refused_instead_and_the_header_stays_here(rig):
    origin, proxy = rig
    lockpin(proxy.home, "task", "new", "off", "--budget", "1")
    before = len(origin.calls())

    refused = ask(proxy, "off", messages(), x_lockpin_degrade="off")
    passed = ask(proxy, "off", messages(limit=100), x_lockpin_degrade="off")
    wrong = ask(proxy, "off", messages(limit=100), x_lockpin_degrade="maybe")

    assert (refused.status, refused.json["lockpin"]["fits"]) == (402, {"max_output_tokens": 10_000})
    assert (passed.status, wrong.status, wrong.code) == (200, 400, "bad_request")
    sent = origin.calls()[before:]
    assert len(paid(sent)) == 1
    assert [name for each in sent for name in each["headers"] if name.startswith("x-lockpin")] == []


def test_after_a_cut_answer_the_next_call_is_whole_or_refused_also_by_a_new_process(rig, tmp_path):
    origin, _ = rig
    home = processes.make_home(tmp_path)
    with processes.proxy(tmp_path, CONFIG.format(origin=origin.url), kind="up", home=home) as proxy:
        lockpin(home, "task", "new", "cut", "--budget", "1")
        assert ask(proxy, "cut", messages(), x_origin=replied(50, stop="max_tokens")).status == 200
        on = messages(turns=[{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}])
        assert ask(proxy, "cut", on).status == 402
    with processes.proxy(tmp_path, CONFIG.format(origin=origin.url), kind="up", home=home) as proxy:
        before = len(paid(origin.calls()))
        assert ask(proxy, "cut", on).status == 402
        assert ask(proxy, "cut", messages(said="other"), x_origin=replied(50)).headers["x-lockpin-degrade"] == "fit"
        assert len(paid(origin.calls())) == before + 1


def tool_turn(number, text):
    use = {"type": "tool_use", "id": f"u{number}", "name": "read", "input": {"path": f"f{number}"}}
    result = {"type": "tool_result", "tool_use_id": f"u{number}", "content": text}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def working(turns):
    told = [message for number in range(turns) for message in tool_turn(number, f"{number}" * 9000)]
    return messages("ink", 300, said="fix it", turns=told)


def test_old_tool_results_are_left_out_in_the_same_bytes_from_call_to_call(rig):
    """$0.95 of $1 are spent; six results of 9,000 bytes are $0.054 and more, three of them fit."""
    origin, proxy = rig
    lockpin(proxy.home, "task", "new", "trim", "--budget", "1")
    assert ask(proxy, "trim", messages(limit=9500)).status == 200
    answers, bodies = [], []
    for turns in (6, 7):
        answers.append(ask(proxy, "trim", working(turns), x_origin=replied(1)))
        bodies.append(last_body(origin))

    assert [(answer.status, answer.headers.get("x-lockpin-degrade")) for answer in answers] == [(200, "trim")] * 2
    end = bodies[0].rindex("}", 0, bodies[0].rindex("]"))  # of the last message
    assert bodies[1][:end] == bodies[0][:end]
    assert bodies[0].count("0000") == bodies[0].count("2222") == 0
    assert bodies[0].count("3" * 9000) == bodies[1].count("6" * 9000) == 1


@pytest.mark.parametrize("task", ["cheaper-body", "cheaper-path"])
def test_a_cheaper_model_is_named_where_its_format_names_it(rig, task):
    origin, proxy = rig
    lockpin(proxy.home, "task", "new", task, "--budget", "1")
    if task == "cheaper-body":
        body = {"model": "dear", "messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 5000}
        answer = ask(proxy, task, body, OPENAI, x_origin=json.dumps({"status": 400, "body": "{}"}))
    else:
        body = {"contents": [{"parts": [{"text": "hi"}]}], "generationConfig": {"maxOutputTokens": 5000}}
        path = "/gemini/v1beta/models/dear:generateContent?x=1"
        answer = ask(proxy, task, body, path, x_origin=json.dumps({"status": 400, "body": "{}"}))

    sent = paid(origin.calls())[-1]
    assert answer.headers["x-lockpin-fallback"].endswith("/ink")
    if task == "cheaper-body":
        assert json.loads(sent["body"]) == body | {"model": "ink"}
    else:
        assert (sent["path"], json.loads(sent["body"])) == ("/v1beta/models/ink:generateContent?x=1", body)
    (hold,) = proxy.rows("SELECT model FROM rows WHERE kind = 'hold' AND task = ?", task)
    assert hold["model"] == "ink"
    (told,) = json.loads(lockpin(proxy.home, "calls", "--task", task, "--model", "dear", "--format", "json"))
    assert (told["model"], told["instead_of"]) == ("ink", f"{'openai' if task == 'cheaper-body' else 'gemini'}/dear")


def cut_stream():
    """Order a stream that is cut off at its limit, and that is closed a second after its last event."""
    events = [
        {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "pen",
                                              "content": [], "usage": {"input_tokens": 10, "output_tokens": 1}}},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 50}},
        {"type": "message_stop"},
    ]  # fmt: skip
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return json.dumps({"type": "text/event-stream", "chunk": "event", "body": body, "pace_s": 1})


def test_a_client_that_goes_on_before_the_stream_is_closed_is_not_lowered_again(rig, tmp_path):
    """It goes on at the last event, and waits for the room that the first call still holds."""
    origin, _ = rig
    home = processes.make_home(tmp_path)
    config = CONFIG.format(origin=origin.url).replace("wait: 0s", "wait: 20s")
    with processes.proxy(tmp_path, config, kind="up", home=home) as proxy:
        lockpin(home, "task", "new", "early", "--budget", "1")
        request = urllib.request.Request(
            proxy.url + ANTHROPIC, json.dumps(messages(stream=True)).encode(),
            {"content-type": "application/json", "x-lockpin-task": "early", "x-origin": cut_stream()},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=60) as reply:
            while "message_stop" not in reply.readline().decode():
                pass
            turns = [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
            on = ask(proxy, "early", messages(turns=turns))

        assert (reply.headers["x-lockpin-degrade"], on.status) == ("fit", 402)
