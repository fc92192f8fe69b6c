"""Which key a request presents, from whatever place, and that one in a wrong place is refused by name."""

import base64
from urllib.parse import unquote

import pytest
from desks import PROVIDERS
from hypothesis import given, settings
from hypothesis import strategies as st
from lockpin_addons.credentials import Presented, presented, with_real_key
from lockpin_addons.identity import Credentials, IdentityError, strip_own
from lockpin_addons.route import Bound
from mitmproxy import http

from lockpin_core.secret_forms import holds_key

KEY, OTHER = "lp_" + "a1" * 26, "lp_" + "b2" * 26
REAL = "sk-real/+="


def bound(path="/v1/messages", *, by_base_url=True, task=None):
    provider = PROVIDERS.by_name("anthropic")
    assert provider is not None
    return Bound(provider, "api.anthropic.com", path, by_base_url, task)


def basic(text):
    return "Basic " + base64.b64encode(text.encode()).decode()


def find(*fields, path="/v1/messages", by_base_url=True, said=(), task=None, is_token=lambda _: False):
    headers = http.Headers([(name.encode("latin-1"), value.encode()) for name, value in fields])
    return presented(headers, bound(path, by_base_url=by_base_url, task=task), said, is_token)


def refused(*fields, **more):
    with pytest.raises(IdentityError) as raised:
        find(*fields, **more)
    message = str(raised.value)
    assert KEY not in message and OTHER not in message and message.isprintable()
    return raised.value.code, message


SLOTS = {
    "bearer": (("Authorization", f"Bearer {KEY}"),),
    "bearer in another case": (("AUTHORIZATION", f"bEaReR   {KEY}"),),
    "no scheme": (("authorization", KEY),),
    "x-api-key": (("x-api-key", KEY),),
    "x-api-key with space": (("X-Api-Key", f" {KEY}\t"),),
    "x-goog-api-key": (("x-goog-api-key", KEY),),
    "api-key": (("api-key", KEY),),
    "two slots": (("x-api-key", KEY), ("Authorization", f"Bearer {KEY}")),
    "slot and header of ours": (("x-api-key", KEY), ("X-Lockpin-Key", KEY)),
}


@pytest.mark.parametrize("fields", SLOTS.values(), ids=SLOTS)
def test_a_key_in_a_slot_of_a_base_url_stands_for_the_providers(fields):
    assert find(*fields) == Presented(KEY, in_slot=True)


@pytest.mark.parametrize("query", [f"?key={KEY}", f"?alt=sse&key={KEY}", f"?key=lp%5F{KEY[3:]}&alt=sse"])
def test_a_key_in_the_query_of_a_base_url_stands_for_the_providers(query):
    assert find(path="/v1/x" + query) == Presented(KEY, in_slot=True)


@pytest.mark.parametrize("by_base_url", [True, False])
def test_a_key_of_the_proxys_own_places_is_in_no_slot(by_base_url):
    expected = Presented(KEY, in_slot=False)
    said = (Credentials("fix", KEY), None)

    assert find(("X-LOCKPIN-KEY", f"  {KEY} "), by_base_url=by_base_url) == expected
    assert find(by_base_url=by_base_url, said=said) == expected
    assert find(("x-lockpin-key", KEY), by_base_url=by_base_url, said=(*said, Credentials("a", KEY))) == expected
    assert find(("authorization", "Bearer sk-mine"), by_base_url=by_base_url, said=said) == expected


def test_what_is_no_key_is_none():
    nothing = Presented(None, in_slot=False)

    assert find() == nothing
    assert (
        find(("authorization", "Bearer sk-mine"), ("x-api-key", "sk-ant"), said=(Credentials("t", "task"),)) == nothing
    )
    assert find(path="/v1/x?key=AIza&lp_=1") == nothing


CONFLICTS = {
    "password and header": ((("x-lockpin-key", OTHER),), {"said": (Credentials("t", KEY),)}),
    "password and slot": ((("x-api-key", OTHER),), {"said": (Credentials("t", KEY),)}),
    "connection and request": ((), {"said": (Credentials("t", KEY), Credentials("t", OTHER))}),
    "two slots": ((("x-api-key", KEY), ("authorization", f"Bearer {OTHER}")), {}),
    "slot and query": ((("x-api-key", KEY),), {"path": f"/v1/x?key={OTHER}"}),
    "the query twice": ((), {"path": f"/v1/x?key={KEY}&key={OTHER}"}),
    "another case": ((("x-lockpin-key", KEY.upper()),), {"said": (Credentials("t", KEY),)}),
    "an empty header": ((("x-lockpin-key", ""),), {"said": (Credentials("t", KEY),)}),
    "no key at all": ((("x-lockpin-key", "x"),), {"said": (Credentials("t", KEY),)}),
    "a short one in a slot": ((("x-api-key", "lp_short"),), {"said": (Credentials("t", KEY),)}),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "more"), CONFLICTS.values(), ids=CONFLICTS)
def test_two_keys_that_differ_are_a_conflict(fields, more):
    code, message = refused(*fields, **more)

    assert (code, message) == (
        "identity_conflict", "the call presents two Lockpin keys that differ; one is allowed"
    )  # fmt: skip


PROXY_SLOTS = {
    "authorization": ((("Authorization", f"Bearer {KEY}"),), "header authorization"),
    "x-api-key": ((("X-Api-Key", KEY),), "header x-api-key"),
    "not even a whole one": ((("x-goog-api-key", "lp_x"),), "header x-goog-api-key"),
    "cased": ((("api-key", KEY.upper()),), "header api-key"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "place"), PROXY_SLOTS.values(), ids=PROXY_SLOTS)
@pytest.mark.parametrize("said", [(), (Credentials("t", KEY),)], ids=["alone", "with the same as password"])
def test_a_key_where_the_provider_would_see_it_is_refused_by_name(fields, place, said):
    code, message = refused(*fields, by_base_url=False, said=said)

    assert code == "identity_conflict"
    assert message.startswith(f"a Lockpin key stands in {place}, which goes to api.anthropic.com; give it as")


def test_a_key_in_the_query_is_refused_where_no_base_url_is_called():
    assert refused(path=f"/v1/x?key={KEY}", by_base_url=False)[0] == "identity_conflict"


ELSEWHERE = {
    "cookie": ((("Cookie", f"a=b; s={KEY}"),), {}, "header cookie"),
    "user agent": ((("User-Agent", KEY),), {}, "header user-agent"),
    "socket protocol": ((("Sec-WebSocket-Protocol", f"realtime, openai-insecure-api-key.{KEY}"),), {}, "header sec-"),
    "underscores": ((("X_Lockpin_Key", KEY),), {}, "header x_lockpin_key"),
    "hidden in a name": (((KEY, "1"),), {}, "a header's name"),
    "basic": ((("Authorization", basic(f"user:{KEY}")),), {}, "header authorization"),
    "basic user": ((("Authorization", basic(f"{KEY}:")),), {}, "header authorization"),
    "joined": ((("Authorization", f"Bearer {KEY}, Bearer {OTHER}"),), {}, "header authorization"),
    "folded": ((("Authorization", f"Bearer\r\n {KEY}"),), {}, "header authorization"),
    "tab": ((("Authorization", f"Bearer\t{KEY}"),), {}, "header authorization"),
    "cased": ((("X-Other", KEY.upper()),), {}, "header x-other"),
    "wide letters": ((("X-Other", "ｌｐ＿" + KEY[3:]),), {}, "header x-other"),
    "coded": ((("X-Other", f"lp%5F{KEY[3:]}"),), {}, "header x-other"),
    "task": ((("X-Lockpin-Task", KEY),), {}, "header x-lockpin-task;"),
    "tag": ((("X-Lockpin-Tag", f"k={KEY}"),), {}, "header x-lockpin-tag;"),
    "path": ((), {"path": f"/v1/{KEY}/messages"}, "the path, which"),
    "path, coded": ((), {"path": f"/v1/lp%5f{KEY[3:]}"}, "the path, which"),
    "path, coded twice": ((), {"path": f"/v1/lp%255f{KEY[3:]}"}, "the path, which"),
    "another parameter": ((), {"path": f"/v1/x?token={KEY}"}, "the query, which"),
    "the parameter cased": ((), {"path": f"/v1/x?KEY={KEY}"}, "the query, which"),
    "the parameter's name": ((), {"path": f"/v1/x?{KEY}"}, "the query, which"),
    "fragment": ((), {"path": f"/v1/x?a#{KEY}"}, "the query, which"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "more", "place"), ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("by_base_url", [True, False], ids=["base URL", "proxy"])
def test_a_key_in_any_other_place_never_leaves(fields, more, place, by_base_url):
    code, message = refused(*fields, by_base_url=by_base_url, said=(Credentials("t", KEY),), **more)

    assert code == "identity_conflict"
    assert message.startswith(f"a Lockpin key stands in {place}")


NAMES = {
    "alone": {"said": (Credentials(KEY, ""),)},
    "with a password": {"said": (Credentials(KEY, "task"),)},
    "with a key": {"said": (Credentials(OTHER, KEY),)},
    "a piece of one": {"said": (Credentials(KEY[:30], ""),)},
    "in the path": {"task": KEY},
    "in the path, coded": {"task": f"lp%5F{KEY[3:]}"},
}


@pytest.mark.parametrize("more", NAMES.values(), ids=NAMES)
def test_a_key_where_the_tasks_name_belongs_is_refused_and_not_kept(more):
    code, message = refused(**more)

    assert code == "bad_request"
    assert "http://TASK:KEY@HOST:PORT" in message


def test_a_task_that_begins_like_a_key_is_a_task_beside_a_key():
    assert find(said=(Credentials("lp_migration", KEY),)) == Presented(KEY)


def test_a_header_of_ours_that_is_there_twice_or_too_long_is_refused():
    assert refused(("x-lockpin-key", KEY), ("X-Lockpin-Key", KEY)) == (
        "bad_request", "header x-lockpin-key is there twice; once is allowed"
    )  # fmt: skip
    assert refused(("x-lockpin-key", KEY + "a" * 9000))[0] == "bad_request"


@pytest.mark.parametrize("other", [KEY, OTHER, "sk-mine"])
def test_a_slot_that_is_there_twice_is_refused(other):
    code, message = refused(("Authorization", f"Bearer {KEY}"), ("authorization", f"Bearer {other}"))

    assert (code, message) == ("bad_request", "header authorization is there twice; once is allowed")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ((("Authorization", "AWS4-HMAC-SHA256 Credential=AKIA/20261129/us-east-1/bedrock/aws4_request"),), "/model/x/invoke"),
        ((), "/model/x/invoke?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=ab"),
    ],
)  # fmt: skip
def test_a_signed_call_by_a_base_url_is_refused_by_name_and_passes_through_the_proxy(fields, path):
    code, message = refused(*fields, path=path, said=(Credentials("t", KEY),))

    assert code == "bad_request"
    assert message.startswith("an AWS signature covers the host, so a signed call cannot go by a base URL")
    assert find(*fields, path=path, by_base_url=False, said=(Credentials("t", KEY),)) == Presented(KEY)


def test_the_real_key_takes_the_place_of_ours_and_nothing_else_changes():
    fields = [
        (b"Host", b"127.0.0.1:8080"), (b"AUTHORIZATION", b"bearer  " + KEY.encode()), (b"X-Api-Key", KEY.encode()),
        (b"x-goog-api-key", b"AIza-own"), (b"Accept", b"*/*"), (b"accept", b"text/plain"),
    ]  # fmt: skip
    headers = http.Headers(fields)

    path = f"/v1/x?a=%20b&key={KEY}&&c"
    found = with_real_key(headers, bound(path), KEY, REAL)

    assert headers.fields == (
        (b"Host", b"127.0.0.1:8080"), (b"AUTHORIZATION", b"bearer  sk-real/+="), (b"X-Api-Key", b"sk-real/+="),
        (b"x-goog-api-key", b"AIza-own"), (b"Accept", b"*/*"), (b"accept", b"text/plain"),
    )  # fmt: skip
    assert found.path == "/v1/x?a=%20b&key=sk-real%2F%2B%3D&&c"


@pytest.mark.parametrize("path", ["/v1/x", "/v1/x?", "/v1/x?a=1", "/v1/x#f"])
def test_a_path_without_our_key_stays_as_it_is(path):
    assert with_real_key(http.Headers([]), bound(path), KEY, REAL).path == path


@pytest.mark.parametrize("text", ["", "lp_", "lp_" + "a" * 51, "help_" + "A!" * 40, "%" * 500, "é" * 5000])
def test_what_only_looks_a_little_like_a_key_is_none(text):
    assert not holds_key(text)


TOKEN, FOREIGN = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJhIn0.c2ln", "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJiIn0.c2ln"

OTHER_TOKEN = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJjIn0.c2ln"


def is_token(text):
    return text == TOKEN


def test_a_token_of_ours_stands_for_a_key_in_each_of_its_places():
    bearer = ("Authorization", f"Bearer {TOKEN}")

    assert find(bearer, is_token=is_token) == Presented(TOKEN, in_slot=True)
    assert find(path=f"/v1/x?key={TOKEN}", is_token=is_token) == Presented(TOKEN, in_slot=True)
    assert find(("x-lockpin-key", TOKEN), is_token=is_token) == Presented(TOKEN)
    assert find(said=(Credentials("fix", TOKEN),), by_base_url=False, is_token=is_token) == Presented(TOKEN)


def test_a_token_of_another_issuers_is_the_providers_own():
    bearer = ("Authorization", f"Bearer {FOREIGN}")

    assert find(bearer, said=(Credentials("fix", TOKEN),), is_token=is_token) == Presented(TOKEN)
    assert find(bearer, is_token=is_token) == Presented(None)
    assert find(("Authorization", f"Bearer {TOKEN}")) == Presented(None)  # nobody has said that it is ours


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ((("Authorization", f"Bearer {TOKEN}"),), {"by_base_url": False}),
        ((("Cookie", f"s={TOKEN}"), ("x-lockpin-key", TOKEN)), {}),
        ((("x-lockpin-key", TOKEN),), {"path": f"/v1/{TOKEN}"}),
        ((("x-lockpin-key", TOKEN),), {"path": f"/v1/x?token={TOKEN}"}),
        ((("x-lockpin-key", TOKEN), ("x-api-key", KEY)), {}),
        ((("x-lockpin-key", TOKEN),), {"said": (Credentials("t", KEY),)}),
    ],
)  # fmt: skip
def test_a_token_contradicts_and_leaves_as_little_as_a_key(fields, more):
    with pytest.raises(IdentityError) as raised:
        find(*fields, is_token=is_token, **more)

    assert raised.value.code == "identity_conflict"
    assert TOKEN not in str(raised.value)


TOKEN_ELSEWHERE = {
    "cookie": ((("Cookie", f"a=1; t={TOKEN}"),), {}, "header cookie, which goes to api.anthropic.com"),
    "tag": ((("X-Lockpin-Tag", f"t={TOKEN}"),), {}, "header x-lockpin-tag; "),
    "task": ((("X-Lockpin-Task", TOKEN),), {}, "header x-lockpin-task; "),
    "coded": ((("X-Lockpin-Task", TOKEN.replace(".", "%2E")),), {}, "header x-lockpin-task; "),
    "basic": ((("Authorization", basic(f"ann:{TOKEN}")),), {}, "header authorization, which"),
    "a header's name": (((f"x-{TOKEN}", "1"),), {}, "a header's name, which"),
    "path": ((), {"path": f"/v1/{TOKEN}"}, "the path, which"),
    "query": ((), {"path": f"/v1/x?token={TOKEN}"}, "the query, which"),
    "fragment": ((), {"path": f"/v1/x?a#{TOKEN}"}, "the query, which"),
}


@pytest.mark.parametrize(("fields", "more", "place"), TOKEN_ELSEWHERE.values(), ids=TOKEN_ELSEWHERE)
@pytest.mark.parametrize("secret", [KEY, TOKEN, OTHER_TOKEN], ids=["beside a key", "beside itself", "beside another"])
@pytest.mark.parametrize("by_base_url", [True, False], ids=["base URL", "proxy"])
def test_a_token_in_any_other_place_never_leaves_whatever_is_presented(fields, more, place, secret, by_base_url):
    code, message = refused(
        *fields, ("x-lockpin-key", secret), by_base_url=by_base_url, is_token=lambda text: text in (TOKEN, OTHER_TOKEN),
        **more,
    )  # fmt: skip

    assert code == "identity_conflict"
    assert message.startswith(f"a token that stands for a Lockpin key stands in {place}")
    assert TOKEN not in message
    assert find(*fields, ("x-lockpin-key", KEY), **more) == Presented(KEY)  # where nobody says that it is ours


@pytest.mark.parametrize(
    "more", [{"said": (Credentials(TOKEN, KEY),)}, {"task": TOKEN, "said": (Credentials("t", KEY),)}]
)
def test_a_token_where_the_tasks_name_belongs_is_refused(more):
    code, message = refused(is_token=is_token, **more)

    assert (code, TOKEN in message) == ("bad_request", False)


def test_no_key_is_shown_by_what_was_presented():
    assert KEY not in repr(Presented(KEY))


# Pieces of which requests are put together: keys in many spellings, beside what is none.
SPELLED = (
    KEY,
    OTHER,
    KEY.upper(),
    f"lp%5F{KEY[3:]}",
    f"%6Cp_{KEY[3:]}",
    f"lp%255F{KEY[3:]}",
    f"ｌｐ＿{KEY[3:]}",
    KEY[:40],
)
PLAIN = ("", "sk-own", "a=b", "Bearer", "%", "é", "1")
JOINTS = (
    "{0}",
    "Bearer {0}",
    "bearer\t{0}",
    "{0}, {1}",
    "x{0}",
    "{0}x",
    "{1}={0}",
    " {0} ",
    "a\r\n {0}",
    '"{0}"',
    "{1}.{0}",
)
NAMES_OF_HEADERS = (
    "authorization", "Authorization", "x-api-key", "api-key", "X-Goog-Api-Key", "cf-aig-authorization", "cookie",
    "x-lockpin-key", "X-Lockpin-Task", "x-lockpin-tag", "user-agent", "X-Other", "proxy-authorization", "x_lockpin_key",
)  # fmt: skip
texts = st.builds(lambda joint, *parts: joint.format(*parts), st.sampled_from(JOINTS),
                  *[st.one_of(st.sampled_from(SPELLED), st.sampled_from(PLAIN))] * 2)  # fmt: skip
requests = st.lists(st.tuples(st.sampled_from(NAMES_OF_HEADERS), texts), max_size=5)
queries = st.lists(
    st.builds("{}={}".format, st.sampled_from(("key", "Key", "token", "alt", "k%65y")), texts), max_size=3
)


@given(requests, queries, texts, st.booleans(), st.sampled_from((None, KEY, OTHER, "task")))
@settings(max_examples=500, deadline=None)
def test_whatever_a_request_is_made_of_no_key_of_ours_is_left_in_what_leaves(
    fields, parts, segment, by_base_url, password
):
    said = [None if password is None else Credentials("fix", password)]
    headers = http.Headers([(name.encode(), value.encode()) for name, value in fields])
    path = f"/v1/{segment.replace('/', '')}" + ("?" + "&".join(parts) if parts else "")
    where = bound(path.replace("\r\n", ""), by_base_url=by_base_url)
    try:
        found = presented(headers, where, said)
    except IdentityError as error:
        assert KEY[3:] not in str(error).lower() and OTHER[3:] not in str(error).lower()
        return

    if found.in_slot:
        where = with_real_key(headers, where, found.secret, "sk-real")
    strip_own(headers)

    left = " ".join([where.path, *(f"{name!r} {value!r}" for name, value in headers.fields)])
    for _ in range(3):
        assert KEY[3:] not in left and OTHER[3:] not in left, left
        left = unquote(left)
