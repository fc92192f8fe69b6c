"""Tokens of an identity provider: what is taken, and every way in which one is not."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from lockpin_core.oidc import ClaimNames, Issuer, TokenError, claimed, is_for, is_token, published_keys, read

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
ISSUER = Issuer("https://id.acme.example", "lockpin")
TOLD = {
    "iss": "https://id.acme.example", "aud": "lockpin", "sub": "00u1", "email": "Alice@Corp.com",
    "groups": ["platform", "ml"], "ring": "ring1", "exp": NOW.timestamp() + 600,
}  # fmt: skip


class Signer(NamedTuple):
    """A key pair of the identity provider's."""

    private: object
    algorithm: str
    name: str

    def published(self) -> dict:
        made = jwt.get_algorithm_by_name(self.algorithm).to_jwk(self.private.public_key(), as_dict=True)
        return {**made, "kid": self.name, "use": "sig", "alg": self.algorithm}

    def sign(self, told: dict, **header: object) -> str:
        return jwt.encode(told, self.private, algorithm=self.algorithm, headers={"kid": self.name, **header})


RSA = Signer(rsa.generate_private_key(65537, 2048), "RS256", "r1")
SIGNERS = (
    RSA,
    Signer(RSA.private, "PS384", "r2"),
    Signer(ec.generate_private_key(ec.SECP256R1()), "ES256", "e1"),
    Signer(ed25519.Ed25519PrivateKey.generate(), "EdDSA", "d1"),
)
KEYS = published_keys({"keys": [signer.published() for signer in SIGNERS]})


@pytest.mark.parametrize("signer", SIGNERS, ids=lambda signer: signer.algorithm)
def test_token_says_who_calls(signer: Signer):
    token = signer.sign(TOLD)

    caller = read(token, KEYS, ISSUER, NOW)

    assert is_token(token)
    assert (caller.user, caller.groups, caller.ring) == ("alice@corp.com", ("ml", "platform"), "ring1")
    assert caller.expires == NOW + timedelta(seconds=600)


def test_claims_are_those_that_are_named():
    issuer = Issuer("https://id.acme.example", "lockpin", ClaimNames(user="sub", groups="roles", ring="zone"))

    caller = read(RSA.sign({**TOLD, "roles": "admins"}), KEYS, issuer, NOW)

    assert (caller.user, caller.groups, caller.ring) == ("00u1", ("admins",), None)


@pytest.mark.parametrize(
    ("groups", "read_as"),
    [
        (["/platform", "ml"], ("ml", "platform")),
        (["/platform", "platform"], ("platform",)),
        ("/platform", ("platform",)),
        (["R/D", "/a/b", "//x", "ml"], ("ml",)),
        (["", " ", "/", "..", "ml"], ("ml",)),
        ([1, None, ["web"], {"a": "b"}, True, "ml"], ("ml",)),
        (["CN=" + "x" * 130, "a\nb", "ml"], ("ml",)),
        (["R/D"], ()),
        ("", ()),
        ([], ()),
        (None, ()),
    ],
)
def test_a_group_that_can_be_no_name_here_is_left_out_and_keeps_nobody_out(groups: object, read_as: tuple[str, ...]):
    assert read(RSA.sign(TOLD | {"groups": groups}), KEYS, ISSUER, NOW).groups == read_as


@pytest.mark.parametrize(
    ("ring", "read_as"), [("", None), ("  ", None), ("/", None), (None, None), ("/ring1", "ring1"), (" r 2 ", "r 2")]
)
def test_an_empty_ring_is_none_and_one_by_its_path_is_that_ring(ring: object, read_as: str | None):
    assert read(RSA.sign(TOLD | {"ring": ring}), KEYS, ISSUER, NOW).ring == read_as


def without(claim: str) -> dict:
    return {name: said for name, said in TOLD.items() if name != claim}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (TOLD | {"iss": "https://id.acme.example/"}, "another identity provider"),
        (TOLD | {"iss": "https://evil.example"}, "another identity provider"),
        (TOLD | {"aud": "other"}, "another audience"),
        (TOLD | {"aud": ["a", "b"]}, "another audience"),
        (without("exp"), "no claim exp"),
        (without("aud"), "no claim aud"),
        (without("iss"), "no claim iss"),
        (TOLD | {"exp": "tomorrow"}, "claim exp is no time"),
        (TOLD | {"exp": 1e40}, "claim exp is no time"),
        (TOLD | {"exp": True}, "claim exp is no time"),
        (TOLD | {"nbf": NOW.timestamp() + 31}, "not good yet"),
        (without("email"), "claim email names no user"),
        (TOLD | {"email": ["alice@corp.com"]}, "claim email names no user"),
        (TOLD | {"email": "a\nb"}, "claim email names no user"),
        (TOLD | {"email_verified": False}, "was not verified"),
        (TOLD | {"groups": {"a": 1}}, "claim groups is no list"),
        (TOLD | {"groups": 7}, "claim groups is no list"),
        (TOLD | {"groups": False}, "claim groups is no list"),
        (TOLD | {"groups": ["g"] * 1001}, "claim groups is no list of up to 1000 groups"),
        (TOLD | {"ring": 7}, "claim ring is no name that is allowed"),
        (TOLD | {"ring": ["ring1"]}, "claim ring is no name that is allowed"),
        (TOLD | {"ring": "a/b"}, "claim ring is no name that is allowed"),
    ],
)
def test_what_does_not_hold_is_not_taken(told: dict, words: str):
    with pytest.raises(TokenError, match=words) as raised:
        read(RSA.sign(told), KEYS, ISSUER, NOW)

    assert not raised.value.is_over
    assert "alice" not in str(raised.value).lower()


def test_token_ends_when_it_says_with_some_seconds_for_two_clocks():
    token = RSA.sign(TOLD)

    assert read(token, KEYS, ISSUER, NOW + timedelta(seconds=629)).user == "alice@corp.com"
    with pytest.raises(TokenError, match="expired") as raised:
        read(token, KEYS, ISSUER, NOW + timedelta(seconds=630))
    assert raised.value.is_over


def test_token_of_another_key_or_changed_on_the_way_is_not_taken():
    stranger = Signer(rsa.generate_private_key(65537, 2048), "RS256", "r1")
    head, body, signature = RSA.sign(TOLD).split(".")
    forged = base64.urlsafe_b64encode(json.dumps(TOLD | {"email": "boss@corp.com"}).encode()).rstrip(b"=").decode()

    for token in (stranger.sign(TOLD), f"{head}.{forged}.{signature}", f"{head}.{body}.AAAA"):
        with pytest.raises(TokenError, match="signature"):
            read(token, KEYS, ISSUER, NOW)


def test_token_that_names_no_published_key_asks_for_the_keys_anew():
    with pytest.raises(KeyError):
        read(RSA.sign(TOLD, kid="r9"), KEYS, ISSUER, NOW)
    with pytest.raises(KeyError):
        read(jwt.encode(TOLD, RSA.private, algorithm="RS256"), KEYS, ISSUER, NOW)  # which of four?


def test_token_without_a_name_is_checked_with_the_only_key():
    only = published_keys({"keys": [RSA.published()]})

    assert read(jwt.encode(TOLD, RSA.private, algorithm="RS256"), only, ISSUER, NOW).ring == "ring1"


def unsigned(algorithm: str, secret: object = None) -> str:
    """Make a token of no signature, or of one that whoever can read the published keys can make."""
    head = base64.urlsafe_b64encode(json.dumps({"alg": algorithm, "kid": "r1"}).encode()).rstrip(b"=")
    body = base64.urlsafe_b64encode(json.dumps(TOLD).encode()).rstrip(b"=")
    signature = b"" if secret is None else jwt.get_algorithm_by_name(algorithm).sign(head + b"." + body, secret)
    return (head + b"." + body + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "RS1"])
def test_token_that_anybody_could_have_made_is_not_taken(algorithm: str):
    public = json.dumps(RSA.published()).encode()
    token = unsigned(algorithm, public if algorithm == "HS256" else None)

    with pytest.raises(TokenError):
        read(token, KEYS, ISSUER, NOW)


def test_keys_of_other_uses_check_nothing():
    shared = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlYw", "kid": "s", "alg": "HS256"}

    for told in (
        {"keys": [shared]}, {"keys": [RSA.published() | {"use": "enc"}]}, {"keys": []}, {}, {"keys": "r"}, {"keys": [1]},
    ):  # fmt: skip
        with pytest.raises(TokenError, match="publishes no key"):
            published_keys(told)


def test_form_of_a_token():
    assert not is_token("lp_0123456789")
    assert not is_token("ey.a")
    assert not is_token("sk-ant-api03-a.b.c")
    assert not is_token("ey" + "a" * 20_000 + ".b.c")


@pytest.mark.parametrize(
    ("change", "ours"),
    [
        ({}, True), ({"aud": ["other", "lockpin"]}, True), ({"exp": 1}, True), ({"iss": "https://other.example"}, False),
        ({"aud": "other"}, False), ({"aud": None}, False), ({"aud": ["other"]}, False),
    ],
)  # fmt: skip
def test_a_token_says_itself_whether_it_is_for_us(change, ours):
    assert is_for(RSA.sign(TOLD | change), ISSUER) == ours


def test_what_a_token_says_is_told_without_a_check_of_who_made_it():
    made = jwt.encode(TOLD | {"exp": 1}, "x" * 32, algorithm="HS256")

    caller = claimed(made, ISSUER)

    assert (caller.user, caller.groups, caller.ring) == ("alice@corp.com", ("ml", "platform"), "ring1")
    for told in (TOLD | {"email": 1}, without("exp"), TOLD | {"groups": 7}):
        with pytest.raises(TokenError):
            claimed(RSA.sign(told), ISSUER)


@pytest.mark.parametrize("text", ["", "lp_x", "eyJ", "ey.e30.x", "ey.W10.x", "ey.!!.x", "ey.bm8.x", "ey.eyJpc3Mi.x"])
def test_what_is_no_token_is_not_for_us(text):
    assert not is_for(text, ISSUER)


def test_a_token_of_many_brackets_is_not_for_us():
    payload = base64.urlsafe_b64encode(b"[" * 9000).decode().rstrip("=")

    assert not is_for(f"ey.{payload}.x", ISSUER)
