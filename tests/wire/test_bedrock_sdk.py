"""Walks the requests that AWS's own client can make: each member is bounded or refused, and known by its name.

Nothing is sent: the client's service model is data.
"""

import base64
import json
from collections.abc import Iterator

import pytest
from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StringShape, StructureShape

from lockpin_core.call import Parsed, Request
from lockpin_core.errors import WireError
from lockpin_core.wire import wire_named

MODEL = ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2"), "bedrock-runtime")
WIRE = wire_named("bedrock_converse")
OPERATIONS = ("Converse", "ConverseStream")
REFUSED = {  # members that no price is known for, or that are not known yet
    *("guardrailConfig", "promptVariables", "systemTool", "toolAddition", "toolRemoval"),
}


def values(shape: Shape, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Give a value of a shape for each of its members, all that it requires beside it, with the way to the member."""
    if path.count(shape.name) > 1:
        return
    match shape:
        case StructureShape():
            told = {name: plain(shape.members[name]) for name in shape.required_members}
            for name, member in shape.members.items():
                if shape.serialization.get("location") is None and not member.serialization.get("location"):
                    for way, value in values(member, (*path, shape.name)):
                        yield (name, *way), ({} if shape.metadata.get("union") else told) | {name: value}
        case ListShape():
            yield from ((way, [value]) for way, value in values(shape.member, path))
        case MapShape():
            yield from ((way, {"k": value}) for way, value in values(shape.value, path))
        case _:
            yield (), leaf(shape)


def plain(shape: Shape) -> object:
    """Give the first value of a shape."""
    return next((value for _, value in values(shape)), {})


def leaf(shape: Shape) -> object:
    if isinstance(shape, StringShape):
        return shape.enum[0] if shape.enum else "x"
    if shape.type_name == "blob":
        return base64.b64encode(b"x").decode()
    if getattr(shape, "is_document_type", False):
        return {"top_k": 1} if shape.name == "Document" else {}
    return {"integer": 5, "long": 5, "float": 0.5, "double": 0.5, "boolean": True}.get(shape.type_name, "x")


def requests(operation: str) -> Iterator[tuple[tuple[str, ...], dict]]:
    shape = MODEL.operation_model(operation).input_shape
    hi = {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    for way, value in values(shape):
        if way[0] != "modelId":
            yield way, hi | {key: item for key, item in value.items() if key != "modelId"}


ALL = [(operation, way, told) for operation in OPERATIONS for way, told in requests(operation)]


def parsed(told: dict) -> Parsed:
    return WIRE.parse(Request("POST", "h", "/model/m/converse", {}, json.dumps(told).encode(), "anthropic.m"))


@pytest.mark.parametrize(("operation", "way", "told"), ALL, ids=[".".join((o, *way)) for o, way, _ in ALL])
def test_every_member_that_the_client_can_send_is_bounded_or_refused_by_name(operation, way, told):
    if REFUSED & {*way}:
        with pytest.raises(WireError) as refused:
            parsed(told)
        assert refused.value.code == "unpriced_tool"
    else:
        assert isinstance(parsed(told), Parsed)


def test_the_walk_comes_to_what_is_deepest_and_to_what_is_refused():
    ways = {way for _, way, _ in ALL}

    assert ("messages", "content", "toolResult", "content", "document", "source", "s3Location", "uri") in ways
    assert ("toolConfig", "tools", "cachePoint", "ttl") in ways
    assert {*REFUSED} <= {name for way in ways for name in way}
    assert len(ways) > 90


def test_the_verbs_are_those_of_the_clients_operations():
    uris = {name: MODEL.operation_model(name).http["requestUri"] for name in MODEL.operation_names}
    metered = {"Converse", "ConverseStream", "InvokeModel", "InvokeModelWithResponseStream"}
    served = {"converse", "converse-stream", "invoke", "invoke-with-response-stream", "count-tokens"}

    assert {uris[name].rpartition("/")[2] for name in {*metered, "CountTokens"}} == served
