"""What is free, what is billed, what is neither: every host and path of every provider file, through real proxies.

The budget is a billionth of a dollar: no call that costs anything fits. What a path is, the test works out for itself from the files' patterns.
"""

import contextlib
import http.client
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import processes
import pytest
from processes import until

from lockpin_core.prices import shipped_dir
from lockpin_core.providers import Provider, Providers

PROVIDERS = Providers.load(shipped_dir()).all()
WRITING = ("POST", "PUT", "PATCH")
READING = ("GET", "HEAD", "OPTIONS", "DELETE")
NO_CALL = ("bad_request", "unknown_model", "unpriced_tool")
NOWHERE = ("/", "/never/heard/of", "/v1/never")


def plain(pattern: str) -> str:
    """Write a pattern out as one of those that it stands for."""
    return pattern.replace("{model}", "m1").replace("{arn}", "arn:aws:x1/y1").replace("*", "x1")


def hosts_of(provider: Provider) -> list[str]:
    return [plain(host) for host in provider.hosts]


EVERY_HOST = [host for provider in PROVIDERS for host in hosts_of(provider)]


def is_like(pattern: str, path: str) -> bool:
    """Match `*` with one segment, at the end with one or more; `{model}` with a part of one, `{arn}` with two."""
    text = re.escape(pattern).replace(re.escape("{model}"), "[^/]+").replace(r"\*", "[^/]+")
    text = text.replace(re.escape("{arn}"), "arn:[^/]+/[^/]+")
    if pattern.endswith("/*"):
        text = text.removesuffix("[^/]+") + ".+"
    return re.fullmatch(text, path, re.IGNORECASE) is not None


def fate(provider: Provider, method: str, path: str) -> str:
    """Say what must become of a call: "free", "billed" or "unknown"."""
    below = [one.rstrip("/") for one in provider.metered_below]
    if method in READING or (below and not any(is_like(one, path) or is_like(f"{one}/*", path) for one in below)):
        return "free"
    if any(verb == method and is_like(pattern, path) for verb, pattern in provider.free):
        return "free"
    return "billed" if method == "POST" and any(is_like(wire, path) for wire in provider.wires) else "unknown"


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy

    @contextlib.contextmanager
    def connection(self) -> Iterator[http.client.HTTPConnection]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=30)) as found:
            yield found

    def seen(self, since: int = 0) -> list[tuple[str, str, str]]:
        """List what has reached the provider."""
        return [(one["method"], one["headers"]["host"], one["path"]) for one in self.origin.calls()[since:]]


def ask(line: http.client.HTTPConnection, method: str, host: str, path: str, **headers: str) -> tuple[int, dict, dict]:
    """Call through the proxy as a client that knows it does; give status, headers and the JSON of the reply."""
    body = b"{}" if method in WRITING else None
    named = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    line.request(method, f"http://{host}{path}", body, named)
    reply = line.getresponse()
    raw = reply.read()
    return reply.status, {name.lower(): value for name, value in reply.headers.items()}, json.loads(raw) if raw else {}


@contextlib.contextmanager
def running(folder, kind: str, limit: str) -> Iterator[Rig]:
    with processes.origin(folder) as origin:
        upstreams = "".join(f'  "{host}": "{origin.url}"\n' for host in EVERY_HOST)
        with processes.proxy(folder, f"upstreams:\n{upstreams}daily_usd: {limit}\n", kind=kind) as proxy:
            yield Rig(origin, proxy)
            assert "Traceback" not in proxy.printed()


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("paths"), request.param, "0.000000001") as found:
        yield found
        kinds = found.proxy.rows("SELECT DISTINCT kind FROM rows WHERE kind NOT IN ('event', 'refusal')")
        assert not kinds  # no hold, and nothing that is free leaves a row


by_provider = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)


@by_provider
def test_every_free_path_passes_with_a_used_up_budget(rig, provider):
    before, sent = len(rig.origin.calls()), []
    with rig.connection() as line:
        for host in hosts_of(provider):
            calls = [(method, "/v1/models/m1") for method in READING]
            calls += [(method, plain(pattern)) for method, pattern in provider.free]
            calls += [
                (method, plain(pattern) + "/y1/z1") for method, pattern in provider.free if pattern.endswith("/*")
            ]
            for method, path in calls:
                status, headers, body = ask(line, method, host, path)
                assert status == 200, (method, host, path, body)
                assert not [name for name in headers if name.startswith("x-lockpin")]
                sent.append((method, path))

    assert [(method, path) for method, _, path in rig.seen(before)] == sent


@by_provider
def test_every_other_call_that_could_cost_is_refused_by_its_name(rig, provider):
    wires, free = [plain(one) for one in provider.wires], [plain(one) for _, one in provider.free]
    paths = {*NOWHERE, *wires, *free, *(f"{one}/more" for one in (*wires, *free)), *(f"{one}-more" for one in wires)}
    paths |= {one.rpartition("/")[0] or "/" for one in (*wires, *free)}
    before, sent, counts = len(rig.origin.calls()), [], {"free": 0, "billed": 0, "unknown": 0}
    with rig.connection() as line:
        for host, method, path in ((h, m, p) for h in hosts_of(provider) for m in WRITING for p in sorted(paths)):
            what = fate(provider, method, path)
            counts[what] += 1
            status, _, body = ask(line, method, host, path)
            if what == "free":
                assert status == 200, (method, host, path, body)
                sent.append((method, path))
            elif what == "unknown":
                assert (status, body["lockpin"]["code"]) == (403, "uncapped_call"), (method, host, path, body)
                assert f"{method} {path} on {host} cannot be metered" in body.get("error", body)["message"]
                assert_shape(provider.error_shape, body)
            else:  # an empty body is no call; what matters is that it is read as one, and by whom
                assert (status, body["lockpin"]["code"] in NO_CALL) == (400, True), (method, host, path, body)

    assert [(method, path) for method, _, path in rig.seen(before)] == sent
    assert counts["unknown"]
    assert bool(counts["billed"]) == bool(provider.wires)


@by_provider
def test_a_websocket_is_refused_at_once_wherever_it_could_cost(rig, provider):
    before = len(rig.origin.calls())
    handshake = {
        "connection": "Upgrade", "upgrade": "websocket", "sec_websocket_version": "13",
        "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    with rig.connection() as line:
        for host in hosts_of(provider):
            for path in map(plain, provider.wires):
                status, headers, body = ask(line, "GET", host, path, **handshake)
                assert (status, body["lockpin"]["code"]) == (426, "uncapped_call"), (host, path, body)
                assert headers["x-should-retry"] == "false"
            below = provider.metered_below[0] if provider.metered_below else "/"
            status, _, body = ask(line, "GET", host, f"{plain(below)}never", **handshake)
            assert (status, body["lockpin"]["code"]) == (403, "uncapped_call"), (host, body)

    assert len(rig.origin.calls()) == before


def assert_shape(shape: str, body: dict) -> None:
    error = body.get("error", {})
    match shape:
        case "bedrock":
            assert {*body} == {"message", "lockpin"}
        case "anthropic":
            assert (body["type"], error["type"]) == ("error", "uncapped_call")
        case "gemini":
            assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED")
        case _:
            assert (error["code"], error["type"], error["param"]) == ("uncapped_call", "uncapped_call", None)


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_without_a_limit_unknown_calls_pass_and_say_so(kind, tmp_path):
    with running(tmp_path, kind, "null") as rig, rig.connection() as line:
        for provider in PROVIDERS:
            below = plain(provider.metered_below[0]) if provider.metered_below else "/"
            status, headers, _ = ask(line, "POST", hosts_of(provider)[0], f"{below}never/heard/of")
            assert (status, headers["x-lockpin-uncapped"]) == (200, "no_limit")

        assert len(rig.seen()) == len(PROVIDERS)
        query = "SELECT 1 FROM rows WHERE kind = 'uncapped'"
        until(lambda: len(rig.proxy.rows(query)) == len(PROVIDERS))
