"""Clients that are known by name. The figures are those that were measured with the clients themselves."""

import pytest

from lockpin_core.clients import client_of


@pytest.mark.parametrize(
    ("headers", "session_header", "patience_s", "refusal"),
    [
        ({"user-agent": "claude-cli/2.1.197 (external, sdk-cli)"}, "x-claude-code-session-id", 280, "plain"),
        ({"user-agent": "codex_exec/0.171.0 (Debian)"}, "session-id", 280, "failed_response"),
        ({"user-agent": "reqwest", "originator": "codex_exec"}, "session-id", 280, "failed_response"),
        ({"user-agent": "opencode/1.18.33"}, "x-session-id", 280, "plain"),
        ({"user-agent": "litellm/1.81.10"}, None, 280, "400"),
        ({"user-agent": "OpenAI/Python 3.57.0"}, None, 280, "plain"),
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
