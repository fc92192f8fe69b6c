"""Clients that are known by name. The figures are those that were measured with the clients themselves."""

import pytest

from lockpin_core.clients import client_of, patience_s

LITELLM = {"x-stainless-raw-response": "true", "x-stainless-read-timeout": "600.0"}
PI = dict.fromkeys(("session_id", "x-client-request-id"), "01a22e4a-f234-7212-9c1d-62a59fcc79ad")


@pytest.mark.parametrize(
    ("headers", "session_header", "patience_s", "refusal"),
    [
        ({"user-agent": "claude-cli/2.1.197 (external, sdk-cli)"}, "x-claude-code-session-id", 280, "plain"),
        ({"user-agent": "codex_exec/0.171.0 (Debian)"}, "session-id", 280, "failed_response"),
        ({"user-agent": "reqwest", "originator": "codex_exec"}, "session-id", 280, "failed_response"),
        ({"user-agent": "opencode/1.18.33"}, "x-session-id", 280, "at_once"),
        ({"user-agent": "litellm/1.81.10"}, None, 280, "400"),
        ({"user-agent": "OpenAI/Python 2.20.0"} | LITELLM, None, 280, "400"),
        ({"user-agent": "AsyncOpenAI/Python 2.20.0"} | LITELLM, None, 280, "400"),
        ({"user-agent": "OpenAI/JS 6.26.0"} | PI, "session_id", 280, "plain"),
        ({"user-agent": "OpenAI/Python 3.57.0"}, None, 280, "plain"),
        ({"user-agent": "OpenAI/Python 3.57.0"} | PI, None, 280, "plain"),
        ({"user-agent": "Anthropic/JS 1.14.0"}, None, 280, "plain"),
        ({"user-agent": "GeminiCLI-tui/0.61.0/gemini-3.5-flash"}, None, 50, "plain"),
        ({"user-agent": "Boto3/1.44.8"}, None, 50, "plain"),
        ({"user-agent": "my agent claude-cli/2"}, None, 50, "plain"),
        ({}, None, 50, "plain"),
    ],
)
def test_a_client_is_known_by_how_its_name_begins(headers, session_header, patience_s, refusal):
    found = client_of(headers)

    assert (found.session_header, found.patience_s, found.refusal) == (session_header, patience_s, refusal)


@pytest.mark.parametrize(
    ("agent", "signs", "other"),
    [
        ("OpenAI/Python 2.20.0", LITELLM, {"x-stainless-raw-response": "stream"}),
        ("OpenAI/Python 2.20.0", LITELLM, {"x-stainless-read-timeout": "600"}),  # the SDK's own
        ("OpenAI/Python 2.20.0", LITELLM, {"x-stainless-raw-response": ""}),
        ("OpenAI/JS 6.26.0", PI, {"session_id": "of my own"}),
        ("OpenAI/JS 6.26.0", PI, {"session_id": PI["session_id"] + "0"}),
        ("OpenAI/JS 6.26.0", PI, {"x-client-request-id": ""}),
        ("my/OpenAI/JS 6.26.0", PI, {}),
    ],
)
def test_one_that_speaks_through_an_sdk_is_known_by_all_that_it_sends_besides(agent, signs, other):
    found = client_of({"user-agent": agent} | signs | other)

    assert (found.session_header, found.refusal) == (None, "plain")


OPENAI = {"user-agent": "OpenAI/Python 3.57.0"}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, 280),
        ({"x-stainless-read-timeout": "600"}, 280),
        ({"x-stainless-read-timeout": "12"}, 11),
        ({"x-stainless-timeout": "60"}, 59),
        ({"x-stainless-timeout": "60", "x-stainless-read-timeout": "12.5"}, 11.5),
        ({"x-stainless-read-timeout": "0.5"}, 0),
        ({"x-stainless-timeout": "NOT_GIVEN"}, 280),
        ({"x-stainless-timeout": "-5"}, 280),
        ({"x-stainless-timeout": "1e9"}, 280),
        ({"x-stainless-timeout": "9" * 400}, 280),
    ],
)
def test_nobody_is_kept_waiting_longer_than_it_says_that_it_waits(said, expected):
    assert patience_s(OPENAI | said) == expected


def test_one_that_nobody_knows_may_say_that_it_waits_for_less():
    assert patience_s({"x-stainless-timeout": "30"}) == 29
    assert patience_s({"x-stainless-timeout": "300"}) == 50
