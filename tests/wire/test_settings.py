import json
from dataclasses import replace

import pytest
from transcripts import FORMATS, request_of

from lockpin_core.wire import WIRES, wire_named

SYSTEM = {
    "anthropic_messages": "system",
    "bedrock_invoke": "system",
    "openai_responses": "instructions",
    "gemini": "systemInstruction",
    "code_assist": "systemInstruction",
    "gemini_interactions": "system_instruction",
    "bedrock_converse": "system",
}
TOOLS = dict.fromkeys(FORMATS, "tools") | {"bedrock_converse": "toolConfig"}


def setting(name, **more):
    request = request_of(name, [])
    told = json.loads(request.body)
    (told["request"] if name == "code_assist" else told).update(more)
    return wire_named(name).setting(replace(request, body=json.dumps(told).encode()))


@pytest.mark.parametrize("name", FORMATS)
def test_other_tools_are_another_setting_and_other_messages_are_none(name):
    first, other = setting(name, **{TOOLS[name]: [{"name": "a"}]}), setting(name, **{TOOLS[name]: [{"name": "b"}]})

    assert first.tools != other.tools
    assert first.system == other.system
    assert setting(name) == setting(name, unknown=1)


@pytest.mark.parametrize("name", SYSTEM)
def test_another_system_prompt_is_another_setting(name):
    first, other = setting(name, **{SYSTEM[name]: "you are a"}), setting(name, **{SYSTEM[name]: "you are b"})

    assert first.system != other.system
    assert first.tools == other.tools


@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_first_messages_of_a_chat_may_be_for_the_system(role):
    def chat(system, said):
        messages = [{"role": role, "content": system}, {"role": "user", "content": said}]
        return setting("openai_chat", messages=[*messages, {"role": role, "content": said}])

    assert chat("a", "x") == chat("a", "y")
    assert chat("a", "x").system != chat("b", "x").system


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_a_body_that_cannot_be_read_has_none(wire):
    assert wire.setting(replace(request_of("openai_chat", []), body=b"--form")) is None
