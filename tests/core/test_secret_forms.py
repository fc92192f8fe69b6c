"""What a key of ours and a signed token look like, wherever they stand in a text; and what only begins so."""

import base64
import json
import time

import pytest

from lockpin_core.keys import new_secret
from lockpin_core.secret_forms import holds_key, holds_secret, holds_token, without_secrets

KEY = "lp_" + "a1" * 26


def token(claims, header=None, signature="c2ln"):
    parts = (json.dumps(part, separators=(",", ":")) for part in (header or {"alg": "ES256", "typ": "JWT"}, claims))
    coded = [base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts]
    return ".".join([*coded, signature])


TOKEN = token({"iss": "https://login.acme.com", "aud": "lockpin", "email": "ann@corp.com"})
AROUND = ["{}", "Bearer {}", "s={}; t=1", "x{}", "a.{}", "{}.b", "{}x", '{{"t":"{}"}}', "https://h/{}?x#y", "é {}"]


def test_every_new_secret_has_the_form_of_one():
    assert all(holds_key(f"a{new_secret()}z") for _ in range(100))


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("secret", [KEY, TOKEN], ids=["key", "token"])
def test_a_secret_is_found_whatever_is_around_it(secret, around):
    text = around.format(secret)

    assert holds_secret(text)
    assert secret[8:30] not in without_secrets(text)


@pytest.mark.parametrize("dot", [".", "%2E", "%252E"])
def test_a_token_is_found_where_it_is_percent_encoded(dot):
    meant = []

    assert holds_token(f"t={TOKEN.replace('.', dot)}", lambda text: meant.append(text) or text == TOKEN)
    assert meant == [TOKEN]


def test_only_tokens_that_are_meant_are_found():
    other = token({"iss": "https://accounts.example", "aud": "provider"})

    assert not holds_token(other, lambda text: text == TOKEN)
    assert holds_token(f"{other}.{TOKEN}", lambda text: text == TOKEN)


@pytest.mark.parametrize(
    "text",
    [
        "", "lp_", "lp_migration", KEY[:-1], "eyes.of.tiger", "ey.ey.ey", "a.b.c", "1.2.3", TOKEN.rpartition(".")[0],
        "eyJhbGciOiJIUzI1NiJ9.bm90IGpzb24gYXQgYWxs.c2ln", token([1, 2, 3, 4, 5, 6, 7, 8, 9]), "%" * 500, "." * 500,
    ],
)  # fmt: skip
def test_what_only_looks_a_little_like_a_secret_is_none(text):
    assert not holds_secret(text)
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    "text", ["ey" * 32768, "ey." * 21845, "ey.e3siYSI6MTIzNDU2Nzg5." * 2900, "." * 65536, "é" * 65536]
)
def test_no_text_takes_long(text):
    least = min(_time(text) for _ in range(5))

    assert least < 0.05


def _time(text):
    begin = time.perf_counter()
    holds_secret(text)
    return time.perf_counter() - begin
