import base64
import json

import pytest

from lockpin_core.owners import account_of, owner_of

RESPONSES = "/v1/projects/acme/locations/global/publishers/openai/v1/responses"
CLAIMS = {"iss": "https://sts.example/one", "oid": "me", "sub": "pair"}


def signed(key: str, signature: str, day: str = "20261130") -> str:
    scope = f"{day}/us-east-1/bedrock/aws4_request"
    return f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders=host;x-amz-date, Signature={signature}"


def token(claims: object, signature: str = "c2ln") -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"Bearer eyJhbGciOiJSUzI1NiJ9.{payload}.{signature}"


def test_a_signature_is_its_access_keys():
    owner = owner_of(signed("AKIAONE", "aa"), "/")

    assert owner == owner_of(signed("AKIAONE", "bb", "20261201"), "/other")
    assert owner != owner_of(signed("AKIATWO", "aa"), "/")


def test_a_token_is_its_subjects_of_its_issuer():
    owner = owner_of(token(CLAIMS | {"exp": 1}), "/")

    assert owner == owner_of(token(CLAIMS | {"exp": 2}, "b3RoZXI"), "/")
    assert owner != owner_of(token(CLAIMS | {"oid": "you"}), "/")
    assert owner != owner_of(token(CLAIMS | {"iss": "https://sts.example/two"}), "/")
    assert owner_of(token({"iss": "i", "sub": "s"}), "/") == owner_of(token({"iss": "i", "sub": "s", "exp": 2}), "/")


def test_an_opaque_token_of_googles_is_the_projects_that_it_is_sent_to():
    owner = owner_of("Bearer ya29.one", RESPONSES)

    assert owner == owner_of("Bearer ya29.two", f"{RESPONSES}/resp_1?alt=sse")
    assert owner != owner_of("Bearer ya29.one", RESPONSES.replace("acme", "umbrella"))


@pytest.mark.parametrize(
    "header",
    [
        *(
            "",
            "Bearer sk-one",
            "Bearer a.b.c",
            "Bearer a.bnVsbA.c",
            "Bearer ya29.one",
            "Bearer two words",
            "Basic a.b.c",
            "AWS4-HMAC-SHA256",
        ),
        token([]),
        token({"iss": "i"}),
        token({"iss": "i", "sub": ["s"]}),
        token({"sub": "s"}),
        "Bearer a." + base64.urlsafe_b64encode(b"[" * 100_000).decode().rstrip("=") + ".c",
    ],
    ids=lambda header: header[:24],
)
def test_of_a_header_of_which_nothing_else_is_known_its_key_counts_or_all_of_it(header):
    kept = header.removeprefix("Bearer ")
    assert owner_of(header, "/v1/responses") == (header if " " in kept else kept)


def test_a_key_is_the_same_account_in_whatever_header_it_stands():
    found = account_of({"x-api-key": "sk one"}, "", "/")

    for headers, query in (
        ({"api-key": "sk one"}, ""),
        ({"x-goog-api-key": " sk one "}, ""),
        ({}, "?key=sk%20one"),
        ({"x-goog-api-key": "sk one"}, "?key=sk%20one"),
    ):
        assert account_of(headers, query, "/") == found
    token = account_of({"x-api-key": "sk-one"}, "", "/")
    for scheme in ("Bearer ", "bearer ", "BEARER  ", " Bearer "):
        assert account_of({"authorization": f"{scheme}sk-one"}, "", "/") == token
        assert account_of({"authorization": f"{scheme}sk-one", "x-api-key": "sk-one"}, "", "/") == token


def test_other_keys_and_more_of_them_are_other_accounts():
    pairs = [("x-api-key", "a"), ("x-api-key", "b"), ("authorization", "Basic a"), ("authorization", "Bearer c")]
    told = [{name: value} for name, value in pairs]
    told += [{}, {"x-api-key": "a", "authorization": "Bearer b"}, {"x-api-key": "a", "authorization": "Bearer c"}]

    assert len({account_of(headers, "", "/") for headers in told}) == len(told)
