from pathlib import Path

import pytest

from lockpin_core.config import parse
from lockpin_core.errors import ConfigError
from lockpin_core.oidc import ClaimNames, Issuer

FILE = Path("lockpin.yaml")


def read(words):
    return parse(f"mode: team\noidc: {words}\n", FILE).oidc


def test_identity_provider_with_the_usual_claims():
    assert read("{issuer: 'https://login.acme.example/', audience: lockpin}") == Issuer(
        "https://login.acme.example/", "lockpin", ClaimNames("email", "groups", "ring")
    )
    assert read("null") is None


def test_claims_are_named():
    found = read(
        "{issuer: 'https://a.example:8443/realms/x', audience: a, claims: {user: sub, groups: roles, ring: r}}"
    )

    assert found.claims == ClaimNames("sub", "roles", "r")


@pytest.mark.parametrize("address", ["http://127.0.0.1:8080", "http://localhost/x"])
def test_this_machine_is_asked_in_plain(address):
    assert read(f"{{issuer: '{address}', audience: a}}").url == address


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("{audience: a}", "has no issuer; the address of the identity provider is needed"),
        ("{issuer: 'https://a.example'}", "has no audience; for whom its tokens are made"),
        ("{issuer: 'http://a.example', audience: a}", "an address as tokens name it in iss"),
        ("{issuer: 'ftp://a.example', audience: a}", "an address as tokens name it in iss"),
        ("{issuer: 'https://a.example?x=1', audience: a}", "an address as tokens name it in iss"),
        ("{issuer: 'https://u:p@a.example', audience: a}", "an address as tokens name it in iss"),
        ("{issuer: 'https://a.example:99999', audience: a}", "an address as tokens name it in iss"),
        ("{issuer: 'https:///x', audience: a}", "an address as tokens name it in iss"),
        ("{issuer: [x], audience: a}", "a text is allowed"),
        ("{issuer: 'https://a.example', audience: a, claims: {team: t}}", "there is no such key"),
        ("{issuer: 'https://a.example', audience: a, keys: k}", "there is no such key"),
        ("yes", "a mapping of issuer, audience, claims is allowed"),
    ],
)
def test_what_cannot_be_used_says_where(words, fault):
    with pytest.raises(ConfigError, match=r"lockpin\.yaml:2: ") as raised:
        read(words)

    assert fault in str(raised.value)


def test_it_is_for_teams():
    with pytest.raises(ConfigError, match="oidc is for mode: team; in solo mode nobody is asked who calls"):
        parse("oidc: {issuer: 'https://a.example', audience: a}\n", FILE)
