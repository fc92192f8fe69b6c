"""What an agent sees of limits over a window: their headers on each reply, and refusals in the provider's own form."""

import json
import socket
from datetime import UTC, datetime, timedelta

import client
import processes
import pytest
import sdks
from processes import until
from streams import SSE, finished

CONFIG = """
upstreams: {{api.anthropic.com: "{origin}", api.openai.com: "{origin}"}}
daily_usd: null
refusal: {refusal}
queue: {{wait: 0s}}
pricing:
  dollar: {{input_per_mtok: 0, output_per_mtok: 1000, max_output_tokens: 1000, context_tokens: 100000}}
budgets:
- {{name: dev, scope: machine, window: day, limit_usd: 2, action: enforce, alert_at: [0.5]}}
- {{name: soft, scope: org, window: week, limit_usd: 1, alert_at: []}}
- {{name: runs, scope: tag, tags: [env=ci], window: rolling, period: 24h, limit_tokens: 1000, alert_at: [0.5]}}
"""
CHAT, MESSAGES = "/openai/v1/chat/completions", "/anthropic/v1/messages"
HI = [{"role": "user", "content": "hi"}]
ASKED = {"model": "dollar", "messages": HI, "max_tokens": 1000}
WIRES = {
    "anthropic": (MESSAGES, ASKED),
    "openai": (CHAT, ASKED),
    "gemini": (
        "/gemini/v1beta/models/dollar:generateContent",
        {"contents": [{"parts": [{"text": "hi"}]}], "generationConfig": {"maxOutputTokens": 1000}},
    ),
    "bedrock": (
        "/bedrock/model/dollar/converse",
        {"messages": [{"role": "user", "content": [{"text": "hi"}]}], "inferenceConfig": {"maxTokens": 1000}},
    ),
}


def midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def monday(now: datetime) -> datetime:
    return midnight(now) + timedelta(days=6 - now.weekday())


def spend(proxy, tokens: int, **headers: str) -> client.Answer:
    answer = client.call(proxy, CHAT, ASKED | {"max_tokens": tokens}, **headers)
    assert answer.status == 200
    return answer


@pytest.fixture(params=["auto", "provider"])
def used(request, tmp_path):
    """Give a proxy with $1.20 spent of each limit, and the answers that this took."""
    with processes.origin(tmp_path) as origin:
        config = CONFIG.format(origin=origin.url, refusal=request.param)
        with processes.proxy(tmp_path, config) as proxy:
            answers = [spend(proxy, 600), spend(proxy, 600, x_lockpin_tag="env=ci, run=7")]
            yield proxy, answers, request.param


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_replies_name_each_budget_past_a_step_and_refusals_the_window_that_is_in_the_way(used):
    proxy, (first, second), setting = used
    now = datetime.now(UTC)
    told = [
        f"dev; scope=machine; used=60%; state=alert; reset={stamp(midnight(now))}",
        f"soft; scope=org; used=120%; state=exceeded; reset={stamp(monday(now))}",
    ]

    assert "x-lockpin-budget" not in first.headers  # 0.60 of $2, and of $1 without a step
    lines = second.headers["x-lockpin-budget"].split(", ")
    assert lines[0] == told[0]
    assert lines[1].startswith("runs; scope=tag; used=61%; state=alert; reset=")  # 10 in and 600 out, of 1,000
    assert lines[2:] == told[1:]
    order = sdks.order(**SSE, body=finished("messages", 10))
    streamed = client.call(proxy, MESSAGES, ASKED | {"max_tokens": 10, "stream": True}, **order)
    assert (streamed.status, streamed.headers["x-lockpin-budget"]) == (200, ", ".join(told))
    until(lambda: len(proxy.settled(3)) == 3)
    for shape in WIRES:
        refused(proxy, shape, setting)


def refused(proxy, shape: str, setting: str) -> None:
    path, body = WIRES[shape]

    answer = client.call(proxy, path, body, authorization="Bearer k")

    now, found = datetime.now(UTC), answer.json["lockpin"]
    left_s = (midnight(now) - now).total_seconds()
    assert {key: found[key] for key in ("code", "limit", "scope", "subject", "period", "limit_usd", "resets_at")} == {
        "code": "budget_exceeded", "limit": "dev", "scope": "machine", "subject": socket.gethostname(),
        "period": "day", "limit_usd": 2, "resets_at": stamp(midnight(now)),
    }  # fmt: skip
    assert found["transient"] is False
    assert left_s <= found["retry_after_s"] <= left_s + 30
    assert found["spent_usd"] == 1.21
    message = answer.json.get("error", answer.json)["message"]
    assert message.startswith('lockpin: budget "dev" (machine, day) would pass its $2.00 limit: spent $1.21, in flight')
    assert f"; resets {stamp(midnight(now))}" in message
    assert answer.headers["x-should-retry"] == "false"
    if setting == "auto":
        assert (answer.status, answer.headers.get("retry-after")) == (402, None)
        return
    assert (answer.status, answer.headers["retry-after"]) == (429, str(found["retry_after_s"]))
    quota = {
        "anthropic": lambda: answer.json["error"]["type"] == "rate_limit_error",
        "openai": lambda: {answer.json["error"][key] for key in ("type", "code")} == {"insufficient_quota"},
        "gemini": lambda: (answer.json["error"]["status"], answer.json["error"]["code"]) == ("RESOURCE_EXHAUSTED", 429),
        "bedrock": lambda: answer.headers["x-amzn-errortype"] == "ThrottlingException",
    }
    assert quota[shape](), json.dumps(answer.json)


def test_steps_that_are_passed_and_limits_without_room_are_events_once(used):
    proxy, *_ = used
    for _ in range(2):
        assert client.call(proxy, CHAT, ASKED).code == "budget_exceeded"
    client.all_written(proxy)

    rows = proxy.rows(
        "SELECT code, data FROM rows WHERE kind = 'event' AND code IN ('threshold_passed', 'limit_refused') ORDER BY id"
    )

    told = [(row["code"], json.loads(row["data"])) for row in rows]
    machine = socket.gethostname()
    assert [(code, data["budget"], data["subject"], data.get("step")) for code, data in told] == [
        ("threshold_passed", "dev", machine, "0.5"),
        ("threshold_passed", "runs", "env=ci", "0.5"),
        ("limit_refused", "dev", machine, None),
    ]
    assert (told[0][1]["spent_nano"], told[0][1]["limit_nano"]) == (1_200_000_000, 2_000_000_000)
    assert (told[1][1]["spent_tokens"], told[1][1]["limit_tokens"]) == (610, 1000)
