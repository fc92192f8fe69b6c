"""Every field, content, step and tool of the SDK's types is known here: read, or refused by its name."""

import importlib

import pytest

from lockpin_core.errors import WireError
from lockpin_core.wire.interaction_shapes import CONFIG, CONTENTS, REQUEST, STEPS, TOOLS
from lockpin_core.wire.tally import Shape, Tally

TYPES = "google.genai._gaos.types.interactions"


def fields(module: str, name: str) -> set[str]:
    found = getattr(importlib.import_module(f"{TYPES}.{module}"), name)
    return {(field.alias or key) for key, field in found.model_fields.items()}


def variants(module: str, name: str) -> dict[str, type]:
    return getattr(importlib.import_module(f"{TYPES}.{module}"), name)


def known(shape: Shape) -> set[str]:
    return {*shape.known, *shape.refused}


def test_every_field_of_a_request_is_known():
    assert fields("createmodelinteraction", "CreateModelInteraction") <= known(REQUEST)
    assert fields("createagentinteraction", "CreateAgentInteraction") <= known(REQUEST)
    assert fields("generationconfig", "GenerationConfig") <= known(CONFIG)


@pytest.mark.parametrize(
    ("module", "table", "shapes"),
    [("content", "_CONTENT_VARIANTS", CONTENTS), ("step", "_STEP_VARIANTS", STEPS)],
)
def test_every_content_and_step_is_known_with_all_its_fields(module: str, table: str, shapes: dict):
    found = variants(module, table)

    assert found.keys() == shapes.keys()
    for kind, made in found.items():
        assert {field.alias or key for key, field in made.model_fields.items()} <= known(shapes[kind]), kind


def test_every_tool_is_read_or_refused_by_its_name():
    for kind, made in variants("tool", "_TOOL_VARIANTS").items():
        if kind in TOOLS:
            assert {field.alias or key for key, field in made.model_fields.items()} <= known(TOOLS[kind])
            continue
        with pytest.raises(WireError, match=f'"{kind}" \\(the provider') as refused:
            REQUEST.read({"tools": [{"type": kind}]}, Tally())
        assert refused.value.code == "unpriced_tool"
