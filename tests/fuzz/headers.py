"""Target: whatever stands in the headers, a call is charged to one plain task, or refused; and nothing of ours leaves."""

import re

from desks import PROVIDERS
from inputs import Choices, split
from lockpin_addons.identity import (
    OWN_PREFIX,
    IdentityError,
    client_product,
    own_headers,
    proxy_credentials,
    read_payers,
    strip_own,
)
from lockpin_addons.route import Bound, lower_headers, override_fault
from mitmproxy import http

from lockpin_core.clients import client_of

TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-zA-Z]+")
DEFAULT = "default"
MAX_NAME = 128  # characters
PROVIDER = PROVIDERS.all()[0]
TASKS = (None, "a", "fix%2Dlogin", "a%2Fb", "%00", "é", "%C3%A9", "x" * 300, "", "%", "%FF")
FOR_US = (b"proxy-authorization", b"proxy-connection")


def run(data: bytes) -> None:
    head, body = split(data)
    choices = Choices(head)
    headers = http.Headers(tuple(_fields(body)))
    lowered = lower_headers(headers)
    assert list(lowered) == list(
        dict.fromkeys(name.decode("utf-8", "surrogateescape").lower() for name, _ in headers.fields)
    )
    _check_payers(headers, lowered, choices)
    assert len(client_product(lowered)) <= 64 and client_product(lowered).isascii()
    assert client_of(lowered).patience_s > 0
    _check_override(headers, choices)
    _check_strip(headers)


def _fields(body: bytes) -> list[tuple[bytes, bytes]]:
    """Give the lines as mitmproxy gives them: it refuses a name that is no token."""
    lines = [line.partition(b":") for line in body.split(b"\n") if line]
    return [(name, value.strip()) for name, _, value in lines if TOKEN.fullmatch(name)]


def _check_payers(headers: http.Headers, lowered: dict[str, str], choices: Choices) -> None:
    path_task, is_own = choices.pick(TASKS), False
    try:
        said = proxy_credentials(lowered) if choices.flag() else None
        user = said.user if said is not None else choices.pick((None, "me", "a b", "x/y", "é" * 200))
        is_own = "x-lockpin-task" in own_headers(headers)
        from_session = choices.flag()
        payers = read_payers(
            headers, lowered, proxy_user=user, path_task=path_task, default_task=DEFAULT, from_session=from_session
        )
    except IdentityError as error:
        assert 0 < len(str(error)) < 300 and str(error).isprintable(), str(error)
        return
    for name in (payers.task, *([payers.project] if payers.project is not None else [])):
        assert 1 <= len(name) <= MAX_NAME and name.isprintable() and "/" not in name and name == name.strip(), name
    assert len(dict(payers.tags)) == len(payers.tags), "a tag is there twice"
    assert all(key and value and f"{key}{value}".isprintable() for key, value in payers.tags), payers.tags
    if not is_own and user is None and path_task is None and not from_session:
        assert payers.task == DEFAULT
    assert (payers.key, payers.user, payers.team, payers.groups, payers.ring) == (None, None, None, (), None)


def _check_override(headers: http.Headers, choices: Choices) -> None:
    query = choices.pick(("", "?$httpMethod=GET", "?a=b&%24httpMethod=DELETE", "?HTTPMETHOD=GET"))
    request = http.Request("h", 443, b"POST", b"https", b"", b"/v1/x" + query.encode(), b"HTTP/1.1", headers, b"", None,
                           0.0, 0.0)  # fmt: skip
    fault = override_fault(request, Bound(PROVIDER, "h", request.path))
    overrides = {b"x-http-method-override", b"x-http-method", b"x-method-override"}
    is_named = any(name.lower() in overrides for name, _ in headers.fields)
    assert (fault is not None) == (is_named or bool(query)), (fault, headers)


def _check_strip(headers: http.Headers) -> None:
    before = headers.fields
    strip_own(headers)
    gone = [field for field in before if field not in headers.fields]
    assert all(name.lower().startswith(OWN_PREFIX) or name.lower() in FOR_US for name, _ in gone), gone
    assert not [name for name, _ in headers.fields if name.lower().startswith(OWN_PREFIX) or name.lower() in FOR_US]
