import json

import pytest

from lockpin_core.call import Parsed, Request
from lockpin_core.errors import WireError
from lockpin_core.wire.openai_responses import TOOL_LIMIT, OpenAIResponses
from lockpin_core.wire.responses_tools import TOOLS


def parse(*tools: dict, **more: object) -> Parsed:
    body = json.dumps({"model": "m", "input": "hi", "tools": list(tools), **more}).encode()
    return OpenAIResponses().parse(Request("POST", "h", "/v1/responses", {}, body))


def test_tools_are_counted_as_schema_and_not_as_text_too():
    tool = {"type": "function", "name": "f", "description": "d" * 1000, "parameters": {"type": "object"}}

    content = parse(tool).content

    assert content.schema_bytes == len(json.dumps([tool]))
    assert content.text_bytes < 100


def test_servers_list_of_tools_is_hidden_input():
    assert parse({"type": "mcp", "server_label": "s", "server_url": "u"}).content.hidden == "mcp"
    assert parse({"type": "web_search"}).content.hidden is None


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "local_shell"},
        {"type": "apply_patch"},
        {"type": "computer"},
        {"type": "shell", "environment": {"type": "local"}},
        {"type": "tool_search", "execution": "client"},
    ],
)
def test_tool_that_the_provider_describes_has_an_allowance(tool: dict):
    assert parse(tool, tool).content.extra_tokens == 2 * 4096
    assert parse({"type": "function", "name": "f"}).content.extra_tokens == 0


@pytest.mark.parametrize(
    "field", [{"ranking": {"model": "x"}}, {"search_budget": {"a": 1}}, {"container": {"type": "auto"}}]
)
def test_unknown_object_in_a_tool_is_refused(field: dict):
    with pytest.raises(WireError, match=next(iter(field))) as refused:
        parse({"type": "web_search", **field})

    assert refused.value.code == "unpriced_tool"


def test_unknown_word_in_a_tool_passes():
    assert parse({"type": "web_search", "indexed_web_access": True, "brand_new": "x"}).rounds == 1 + TOOL_LIMIT


@pytest.mark.parametrize(
    "agents", [{"enabled": True}, {}, {"enabled": None}, {"enabled": 0}, [], "x"], ids=lambda value: str(value)
)
def test_agents_of_the_provider_are_refused_unless_they_are_plainly_off(agents: object):
    with pytest.raises(WireError):
        parse(multi_agent=agents)

    assert parse(multi_agent={"enabled": False}).rounds == 1


def test_hosted_tools_are_known_by_all_their_names():
    assert {"web_search", "web_search_2025_08_26", "web_search_preview", "file_search", "mcp"} <= TOOLS.keys()
