import pytest

from lockpin_core.call import Request
from lockpin_core.wire.signatures import is_presigned, is_signed


def request(headers: dict[str, str] | None = None, *, presigned: bool = False) -> Request:
    return Request("POST", "h", "/model/m/converse", headers or {}, b"{}", "m", presigned)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("AWS4-HMAC-SHA256 Credential=AK/20261101/us-east-1/bedrock/aws4_request, Signature=0", True),
        ("AWS4-ECDSA-P256-SHA256 Credential=AK/20261101/bedrock/aws4_request, Signature=0", True),
        (" aws4-hmac-sha256 Credential=AK/20261101/us-east-1/bedrock/aws4_request, Signature=0", True),
        ("Bearer bedrock-api-key-x", False),
        ("", False),
    ],
)
def test_every_version_of_the_signature_is_one(said: str, found: bool):
    assert is_signed(request({"authorization": said})) is found
    assert not is_signed(request())


def test_a_request_that_was_signed_beforehand_is_signed():
    assert is_signed(request(presigned=True))
    assert is_signed(request({"authorization": "Bearer k"}, presigned=True))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (
            "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK%2F20261101&X-Amz-SignedHeaders=host&X-Amz-Signature=0",
            True,
        ),
        ("?a=1&X-Amz-Signature=0", True),
        ("X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256", True),
        ("?x-amz-signature=0", True),
        ("?X%2DAmz%2DSignature=0", True),
        ("?X-Amz-Signature", True),
        ("?X-Amz-Date=20261101T000000Z", False),
        ("?signature=0&key=X-Amz-Signature", False),
        ("?", False),
        ("", False),
    ],
)
def test_a_signature_in_a_query_is_seen(query: str, found: bool):
    assert is_presigned(query) is found
