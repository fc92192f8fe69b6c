import json

import pytest

from lockpin_core.call import Request
from lockpin_core.wire import wire_named

SIGNED = {"authorization": "AWS4-HMAC-SHA256 Credential=x"}


def moved(wire: str, path: str, body: bytes, model: str, path_model: str | None = None, **headers: str):
    request = Request("POST", "h", path, headers, body, path_model)
    return wire_named(wire).with_model(request, model)


@pytest.mark.parametrize(
    "wire", ["anthropic_messages", "openai_chat", "openai_responses", "openai_completions", "gemini_interactions"]
)
def test_model_in_the_body_is_another_and_every_other_byte_stays(wire: str):
    made = moved(wire, "/v1/x", '{ "é":"\\u00e9", "mo\\u0064el" : "a\\u002fb" ,"max_tokens":9 }'.encode(), 'ä"b')

    assert made is not None
    assert made.body == '{ "é":"\\u00e9", "mo\\u0064el" : "\\u00e4\\"b" ,"max_tokens":9 }'.encode()
    assert (made.path, made.path_model) == ("/v1/x", None)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b'{"model":"a","request":{"x": 1}}', b'{"model":"b","request":{"x": 1}}'),
        (b'{"model":"a","request":{ "model" : "models/a" }}', b'{"model":"b","request":{ "model" : "b" }}'),
        (b'{"request":{"model":null}, "model":"a"}', b'{"request":{"model":null}, "model":"b"}'),
    ],
)
def test_model_in_an_envelope_is_another_wherever_it_says_it(body: bytes, wanted: bytes):
    made = moved("code_assist", "/v1internal:generateContent", body, "b")

    assert made is not None
    assert made.body == wanted


@pytest.mark.parametrize(
    ("wire", "path", "path_model", "model", "wanted"),
    [
        ("gemini", "/v1beta/models/g-1:generateContent", "g-1", "g-2", "/v1beta/models/g-2:generateContent"),
        ("gemini", "/v1/models/g-1%3AstreamGenerateContent", "g-1", "g-2", "/v1/models/g-2%3AstreamGenerateContent"),
        ("anthropic_messages", "/p/models/c@1:rawPredict", "c@1", "c@2", "/p/models/c%402:rawPredict"),
        (
            "bedrock_converse",
            "/model/us.a.m-v1%3A0/converse-stream",
            "us.a.m-v1:0",
            "b.n-v2:0",
            "/model/b.n-v2%3A0/converse-stream",
        ),
        (
            "bedrock_converse",
            "/model/arn%3aaws%3abedrock%3A%3A1%3Ainference-profile%2Fx/converse",
            "arn:aws:bedrock::1:inference-profile/x",
            "arn:aws:bedrock::1:inference-profile/y",
            "/model/arn%3Aaws%3Abedrock%3A%3A1%3Ainference-profile%2Fy/converse",
        ),
        ("bedrock_invoke", "/model/anthropic.a/invoke", "anthropic.a", "anthropic.b", "/model/anthropic.b/invoke"),
        ("gemini", "/v1/m-x/models/m.x:generateContent", "m.x", "g-2", "/v1/m-x/models/g-2:generateContent"),
        ("gemini", "/v1/models/a+(b).c:generateContent", "a+(b).c", "g-2", "/v1/models/g-2:generateContent"),
        ("gemini", "/v1/mine/models/mine:generateContent", "mine", "g-2", "/v1/mine/models/g-2:generateContent"),
        (
            "openai_chat",
            "/openai/deployments/chat/chat/completions",
            "chat",
            "other",
            "/openai/deployments/other/chat/completions",
        ),
        (
            "openai_chat",
            "/openai/deployments/Mine/chat/completions",
            "Mine",
            "other",
            "/openai/deployments/other/chat/completions",
        ),
    ],
)
def test_model_in_the_path_is_another(wire: str, path: str, path_model: str, model: str, wanted: str):
    made = moved(wire, path, b'{"a": 1}', model, path_model)

    assert made is not None
    assert (made.path, made.path_model, made.body) == (wanted, model, b'{"a": 1}')


def test_body_that_repeats_the_model_of_the_path_says_the_same():
    made = moved("gemini", "/v1/models/g:generateContent", b'{"model": "models/g", "contents": []}', "h", "g")

    assert made is not None
    assert json.loads(made.body) == {"model": "h", "contents": []}
    assert wire_named("gemini").parse(made).model == "h"


def test_body_that_says_nothing_beside_the_path_stays():
    made = moved("openai_chat", "/openai/deployments/a/chat/completions", b'{"model": null}', "b", "a")

    assert made is not None
    assert (made.path, made.body) == ("/openai/deployments/b/chat/completions", b'{"model": null}')


def test_name_with_a_slash_is_none_for_a_path():
    assert moved("gemini", "/v1/models/g:generateContent", b"{}", "google/g2", "g") is None


def test_path_that_does_not_show_its_model_keeps_it():
    assert moved("gemini", "/v1/elsewhere", b"{}", "b", "g") is None


def test_messages_for_amazon_go_to_no_other_maker():
    assert moved("bedrock_invoke", "/model/anthropic.a/invoke", b"{}", "meta.llama", "anthropic.a") is None


@pytest.mark.parametrize("wire", ["bedrock_converse", "bedrock_invoke", "anthropic_messages", "openai_responses"])
def test_signed_call_keeps_its_model(wire: str):
    request = Request("POST", "h", "/model/anthropic.a/invoke", SIGNED, b'{"model":"a"}', "anthropic.a")

    assert wire_named(wire).with_model(request, "anthropic.b") is None


def test_call_on_a_plan_keeps_its_model():
    login = {"authorization": "Bearer sk-ant-oat01-x"}

    assert moved("anthropic_messages", "/v1/messages", b'{"model":"a"}', "b", **login) is None


@pytest.mark.parametrize("wire", ["openai_embeddings", "openai_images", "anthropic_batches", "gemini_embed"])
def test_other_formats_name_no_other_model(wire: str):
    assert moved(wire, "/v1/x", b'{"model":"a"}', "b") is None
