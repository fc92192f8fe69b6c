"""Where a task's name comes from, and what becomes of one that nothing may be called by."""

import base64

import pytest
from lockpin_addons.identity import IdentityError, proxy_credentials, read_payers
from mitmproxy import http

ODD = ["", " ", ".", "..", "a/b", "\x1b[31m", "x" * 129]


def payers(header=None, user=None, path=None, session=None, *, from_session=True):
    fields = {} if header is None else {"X-Lockpin-Task": header}
    lowered = {"user-agent": "claude-cli/2.1.197"} | ({} if session is None else {"x-claude-code-session-id": session})
    return read_payers(
        http.Headers(**{name.replace("-", "_"): value for name, value in fields.items()}), lowered, proxy_user=user,
        path_task=path, default_task="default", from_session=from_session,
    )  # fmt: skip


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("place", ["header", "user", "path"])
def test_odd_name_is_refused_wherever_it_stands(place, name):
    with pytest.raises(
        IdentityError, match=r"must be 1 to 128 printable characters without a slash, and not \. or \.\."
    ):
        payers(**{place: name})


@pytest.mark.parametrize("name", ODD[1:])
def test_odd_session_id_is_refused_too(name):
    with pytest.raises(IdentityError, match="the session id, which names the task, must be 1 to 128"):
        payers(session=name)


@pytest.mark.parametrize("coded", ["%2e", "%2E%2e", "%20", "a%2Fb", "%00"])
@pytest.mark.parametrize("place", ["header", "path"])
def test_odd_name_is_refused_also_where_it_is_coded(place, coded):
    with pytest.raises(IdentityError, match="must be 1 to 128"):
        payers(**{place: coded})


def test_session_id_that_is_no_name_does_not_matter_where_none_is_asked_for():
    assert payers(session="..", from_session=False).task == "default"
    assert payers(session="..", header="fix").task == "fix"
    assert payers(session="").task == "default"


def test_user_name_that_is_empty_is_not_none():
    coded = {name: f"Basic {base64.b64encode(name.encode()).decode()}" for name in (":task", "fix:a:b", "fix")}
    found = {name: proxy_credentials({"proxy-authorization": value}) for name, value in coded.items()}

    assert {name: (said.user, said.password) for name, said in found.items()} == {
        ":task": ("", "task"), "fix:a:b": ("fix", "a:b"), "fix": ("fix", "")
    }  # fmt: skip
    assert proxy_credentials({}) is None


def test_the_password_of_credentials_stands_in_no_line_of_a_log():
    said = proxy_credentials({"proxy-authorization": f"Basic {base64.b64encode(b'fix:secret').decode()}"})

    assert "secret" not in repr(said)


def test_a_tag_is_the_same_however_its_letters_are_made():
    headers = http.Headers([(b"X-Lockpin-Tag", "cafe\u0301=e\u0301".encode())])

    found = read_payers(headers, {}, proxy_user=None, path_task=None, default_task="d", from_session=False)

    assert found.tags == (("caf\u00e9", "\u00e9"),)


KEY = "lp_" + "a1" * 26
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm5AY29ycC5jb20ifQ.xhYxl3fGYGPZ2LXvJmPCTg"  # {"alg":"HS256"}, {"sub":"ann@corp.com"}


@pytest.mark.parametrize("secret", [KEY, JWT, KEY.replace("_", "%5F")], ids=["key", "token", "coded"])
@pytest.mark.parametrize("place", ["header", "user", "path", "session"])
def test_a_secret_is_no_name_also_where_nobody_needs_a_key(place, secret):
    with pytest.raises(IdentityError, match="has a key's secret or a token in it; leave that out") as raised:
        payers(**{place: secret})

    assert secret[3:] not in str(raised.value)
    for name in ("X-Lockpin-Project", "X-Lockpin-Tag"):
        headers = http.Headers([(name.encode(), f"env={secret}".encode())])
        with pytest.raises(IdentityError, match="has a key's secret or a token in it; leave that out"):
            read_payers(headers, {}, proxy_user=None, path_task=None, default_task="d", from_session=False)


def tags(*texts):
    headers = http.Headers([(b"X-Lockpin-Tag", ", ".join(texts).encode())])
    return read_payers(headers, {}, proxy_user=None, path_task=None, default_task="d", from_session=False).tags


def test_a_call_has_up_to_sixteen_tags_of_up_to_128_letters():
    most = [f"{n:a>128}={n:b>128}" for n in range(16)]

    assert tags(*most) == tuple(sorted((f"{n:a>128}", f"{n:b>128}") for n in range(16)))
    assert tags(*most[:15], *most[:15]) == tags(*most[:15])  # said twice, it is one
    assert tags("branch=feature/x") == (("branch", "feature/x"),)
    with pytest.raises(IdentityError, match="the call has more than 16 tags; up to 16 are allowed, its key's own too"):
        tags(*(f"t{n}=1" for n in range(17)))


@pytest.mark.parametrize("tag", ["a" * 129 + "=1", "a=" + "1" * 129, "a", "=1", "a=", "a= ", "", "a=\x07", "a=\u200b"])
def test_an_odd_tag_is_refused_in_one_line_that_says_what_is_allowed(tag):
    with pytest.raises(IdentityError) as raised:
        tags("env=ci", tag)

    assert (raised.value.code, str(raised.value)) == (
        "bad_request",
        "header x-lockpin-tag must read k=v, k2=v2; each of 1 to 128 printable characters without a comma",
    )
