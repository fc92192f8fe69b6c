import pytest

from lockpin_core.call import Request
from lockpin_core.errors import WireError
from lockpin_core.wire.bedrock_models import (
    bedrock_error,
    bedrock_model,
    count_path,
    is_claude,
    is_opaque,
    stated_count,
    streams,
)

ARN = "arn:aws:bedrock:us-east-1:123456789012:"


def request(model: str | None, path: str = "/model/m/converse") -> Request:
    return Request("POST", "h", path, {}, b"{}", model)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("us.anthropic.claude-opus-5", "us.anthropic.claude-opus-5"),
        (f"{ARN}inference-profile/us.anthropic.claude-opus-5", "us.anthropic.claude-opus-5"),
        (
            "arn:aws-cn:bedrock:cn-north-1::foundation-model/anthropic.claude-haiku-4-5-v1:0",
            "anthropic.claude-haiku-4-5-v1:0",
        ),
        (f"{ARN}application-inference-profile/abc", f"{ARN}application-inference-profile/abc"),
        (f"{ARN}provisioned-model/abc", f"{ARN}provisioned-model/abc"),
        (f"{ARN}default-prompt-router/anthropic.claude:1", f"{ARN}default-prompt-router/anthropic.claude:1"),
        ("arn:aws:sagemaker:us-east-1:1:endpoint/e", "arn:aws:sagemaker:us-east-1:1:endpoint/e"),
        (f"x{ARN}inference-profile/us.a.b", f"x{ARN}inference-profile/us.a.b"),
    ],
)
def test_the_name_behind_an_arn_is_read_where_amazon_defines_it(said: str, name: str):
    assert bedrock_model(request(said)) == name


@pytest.mark.parametrize("said", [None, "", "a\nb", "x" * 300])
def test_what_is_no_name_is_a_bad_request(said: str | None):
    with pytest.raises(WireError) as refused:
        bedrock_model(request(said))

    assert refused.value.code == "bad_request"


@pytest.mark.parametrize("end", ["prompt/ABCDEFGHIJ", "prompt/ABCDEFGHIJ:1"])
def test_a_prompt_that_amazon_keeps_is_refused_by_name(end: str):
    with pytest.raises(WireError, match="a prompt that Amazon keeps") as refused:
        bedrock_model(request(ARN + end))

    assert refused.value.code == "unpriced_tool"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("anthropic.claude-opus-5", True),
        ("us-gov.anthropic.claude-opus-5", True),
        ("global.anthropic.claude-opus-5", True),
        ("amazon.nova-lite-v1:0", False),
        ("x.y.anthropic.claude", False),
        (f"{ARN}default-prompt-router/anthropic.claude:1", False),
        ("notanthropic.claude", False),
    ],
)
def test_claude_is_known_by_its_makers_name(name: str, found: bool):
    assert is_claude(name) is found


def test_an_arn_is_opaque_and_a_name_is_not():
    assert is_opaque(f"{ARN}application-inference-profile/abc")
    assert not is_opaque("anthropic.claude-opus-5")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/model/m/converse", False),
        ("/model/m/converse-stream", True),
        ("/model/m/Converse-Stream/", True),
        ("/model/m/invoke", False),
        ("/model/m/invoke-with-response-stream", True),
    ],
)
def test_the_path_says_whether_the_reply_streams(path: str, found: bool):
    assert streams(request("m", path)) is found


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("us.anthropic.claude-haiku-4-5-v1:0", "/model/anthropic.claude-haiku-4-5-v1:0/count-tokens"),
        (f"{ARN}inference-profile/eu.anthropic.claude-opus-5", "/model/anthropic.claude-opus-5/count-tokens"),
        ("amazon.nova-lite-v1:0", None),
        (f"{ARN}application-inference-profile/abc", None),
        (f"{ARN}prompt/abc", None),
    ],
)
def test_tokens_are_counted_by_the_model_itself_whatever_profile_serves_it(name: str, path: str | None):
    assert count_path(request(name)) == path


@pytest.mark.parametrize(
    ("body", "tokens"),
    [(b'{"inputTokens":42}', 42), (b"{}", None), (b'{"inputTokens":-1}', None), (b"[]", None), (b"\xff", None)],
)
def test_a_count_is_read_or_says_nothing(body: bytes, tokens: int | None):
    assert stated_count(body) == tokens


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"__type":"ThrottlingException","message":"x"}', "ThrottlingException"),
        (b'{"message":"x"}', None),
        (b"", None),
        (b'{"__type":5}', None),
    ],
)
def test_the_name_of_an_error_is_read_where_the_body_has_it(body: bytes, name: str | None):
    assert bedrock_error(body) == name
