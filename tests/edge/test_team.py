"""Team mode through real sockets: whoever calls is who the key's record names, and nothing of ours reaches a provider."""

import json
import socket
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import client
import processes
import pytest
import teams
from processes import until
from teams import REAL, basic, raw, send

ALICE = (
    "--team",
    "web",
    "--group",
    "ml",
    "--group",
    "platform",
    "--ring",
    "ring1",
    "--project",
    "search",
    "--tag",
    "env=ci",
)
OF_ALICE = {
    "user": "alice@corp.com", "team": "web", "groups": '["ml","platform"]', "ring": "ring1", "project": "search",
    "tags": '{"env":"ci"}',
}  # fmt: skip


USED_UP = """
budgets: [{name: gus, scope: user, users: [gus], window: day, limit_usd: 0.0001, action: enforce}]
"""


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory):
    with teams.team(tmp_path_factory.mktemp("team"), USED_UP, kind=request.param) as found:
        found.key("Alice@Corp.com", *ALICE)
        found.key("bob")
        yield found
        seen = found.reached()
        for key in found.keys.values():
            assert key.secret not in seen and key.secret not in found.proxy.printed()
        assert "x-lockpin" not in seen.lower() and "proxy-auth" not in seen.lower()
        printed = found.proxy.printed()
        assert "Traceback" not in printed and "crashed" not in printed and "fault of Lockpin" not in printed


def alice(rig):
    return rig.keys["Alice@Corp.com"].secret


def of_alice(rig, **more):
    return OF_ALICE | {"key": rig.keys["Alice@Corp.com"].id} | more


def sent(rig):
    return len(rig.origin.calls())


def last_headers(rig):
    return rig.origin.calls()[-1]["headers"]


# Ways to present a key: header fields, fields of the CONNECT (None: a base URL), and what the origin must see of it.
WAYS = {
    "x-api-key": (lambda key: [("x-api-key", key)], None, ("x-api-key", REAL["anthropic"])),
    "bearer": (lambda key: [("Authorization", f"Bearer {key}")], None, ("authorization", f"Bearer {REAL['anthropic']}")),
    "header and own key": (
        lambda key: [("X-LOCKPIN-key", key), ("x-api-key", "sk-own")], None, ("x-api-key", "sk-own"),
    ),
    "plain proxy credentials": (lambda key: [basic("fix", key), ("x-api-key", "sk-own")], None, ("x-api-key", "sk-own")),
    "password of the CONNECT": (
        lambda key: [("x-api-key", "sk-own")], lambda key: [basic("fix", key)], ("x-api-key", "sk-own"),
    ),
    "header in a tunnel": (
        lambda key: [("x-lockpin-key", key), ("x-api-key", "sk-own")], lambda key: [], ("x-api-key", "sk-own"),
    ),
    "all of them, the same": (
        lambda key: [("x-lockpin-key", f" {key} "), ("x-api-key", "sk-own"), basic("fix", key)],
        lambda key: [basic("fix", key)], ("x-api-key", "sk-own"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_call_is_charged_to_whom_its_key_names(rig, way):
    fields, connect, (name, value) = WAYS[way]
    key = alice(rig)

    answer, rows = rig.ask(
        fields(key), connect=None if connect is None else connect(key), way="base_url" if connect is None else "connect"
    )

    assert answer.status == 200, answer.body
    assert rig.payer(rows) == of_alice(rig)
    assert last_headers(rig)[name] == value
    assert not any("lockpin" in other or "proxy" in other for other in last_headers(rig))


def test_a_key_in_the_query_of_a_base_url_becomes_the_real_one(rig):
    path = "/gemini/v1beta/models/plain-model:generateContent?alt=json&key={}"
    body = {"contents": [{"parts": [{"text": "hi"}]}], "generationConfig": {"maxOutputTokens": 9}}

    answer, rows = rig.ask(path=path.format(alice(rig)), content=json.dumps(body).encode())

    assert answer.status == 200, answer.body
    assert rig.payer(rows) == of_alice(rig)
    assert rig.origin.calls()[-1]["path"] == f"/v1beta/models/plain-model:generateContent?alt=json&key={REAL['gemini']}"


def test_a_task_is_named_as_ever_and_a_tag_is_added(rig):
    key = alice(rig)
    told = [("x-lockpin-key", key)]

    _, by_user = rig.ask(way="connect", connect=[basic("fix login", key)])
    _, by_path = rig.ask(told, path="/t/fix-path/anthropic/v1/messages")
    _, by_header = rig.ask([*told, ("X-Lockpin-Task", "other"), ("X-Lockpin-Tag", "run=7, env=ci")])

    assert [rows[0]["task"] for rows in (by_user, by_path, by_header)] == ["fix login", "fix-path", "other"]
    assert rig.payer(by_header) == of_alice(rig, tags='{"env":"ci","run":"7"}')


def test_who_has_used_up_a_limit_gets_round_it_by_no_name(rig):
    key, before = rig.key("Gus").secret, sent(rig)
    tricks = [
        [], [("X-Lockpin-User", "bob")], [("X-Lockpin-Task", "other")], [("X-Lockpin-Tag", "user=bob")],
        [("X-Lockpin-Key-Id", rig.keys["bob"].id)], [("User-Agent", "claude-cli/2.1"), ("X-Claude-Code-Session-Id", "b")],
        [basic("bob", key)],
    ]  # fmt: skip

    found = [rig.ask([("x-api-key", key), *fields])[0] for fields in tricks]
    found += [
        rig.ask([("x-api-key", key)], path="/t/bob/anthropic/v1/messages", body={"metadata": {"user_id": "bob"}})[0]
    ]

    assert {(answer.status, answer.json["lockpin"]["subject"]) for answer in found} == {(402, "gus")}
    asked = rig.origin.calls()[before:]  # how many tokens the prompts have, which costs nothing
    assert {(entry["path"], entry["headers"].get("x-api-key")) for entry in asked} == {
        ("/v1/messages/count_tokens", REAL["anthropic"])
    }
    assert rig.ask([("x-api-key", rig.keys["bob"].secret)])[0].status == 200


# What a caller may make up; the key stays who pays.
FORGED = {
    "names of accounts": (
        [("X-Lockpin-User", "boss"), ("X-Lockpin-Team", "board"), ("X-Lockpin-Group", "all"), ("X-Lockpin-Ring", "ring0"),
         ("X-Lockpin-Org", "x"), ("X-Lockpin-Key-Id", "k-0")], {}),
    "our words of replies": ([("X-Lockpin-Degraded", "ledger"), ("X-Lockpin-Uncapped", "no_limit"),
                              ("X-Lockpin-Degrade", "off"), ("X-Lockpin-Receipt", "{}")], {}),
    "the body": ([], {"metadata": {"user_id": "boss"}}),
    "the key's own words again": ([("X-Lockpin-Project", "search"), ("X-Lockpin-Tag", "env=ci")], {}),
    "another client's session": ([("User-Agent", "claude-cli/2.1"), ("X-Claude-Code-Session-Id", "boss")], {}),
    "headers of gateways": ([("X-Litellm-Tags", "a"), ("X-User-Id", "boss"), ("X-Forwarded-For", "127.0.0.1"),
                             ("Forwarded", "for=127.0.0.1"), ("X-Real-IP", "127.0.0.1")], {}),
    "an unknown header of ours": ([("X-Lockpin-\u006bey2", "lp_x")], {}),
}  # fmt: skip


def test_a_user_in_an_openai_body_is_nobody(rig):
    told = {"user": "boss", "safety_identifier": "boss", "metadata": {"user": "boss", "team": "board"}, "store": True}

    answer, rows = rig.ask([("Authorization", f"Bearer {alice(rig)}")], path="/openai/v1/chat/completions", body=told)

    assert answer.status == 200, answer.body
    assert rig.payer(rows) == of_alice(rig)
    assert last_headers(rig)["authorization"] == f"Bearer {REAL['openai']}"


@pytest.mark.parametrize("trick", FORGED)
@pytest.mark.parametrize("way", ["base_url", "connect"])
def test_what_a_caller_says_of_itself_changes_no_account(rig, trick, way):
    fields, body = FORGED[trick]
    key = alice(rig)
    told = [("x-api-key", key)] if way == "base_url" else []

    answer, rows = rig.ask([*told, *fields], body=body, way=way, connect=[basic("fix", key)])

    assert answer.status == 200, answer.body
    assert rig.payer(rows) == of_alice(rig)
    assert "x-lockpin-degraded" not in answer.headers


def conflicts(rig):
    """List tricks that contradict the key: header fields, fields of the CONNECT, path, code."""
    key, other = alice(rig), rig.keys["bob"].secret
    own, connect = [("x-lockpin-key", key)], [basic("fix", key)]
    path = "/anthropic/v1/messages"
    return [
        ([("x-lockpin-key", other)], connect, None, "identity_conflict"),
        ([("x-lockpin-key", "x")], connect, None, "identity_conflict"),
        ([("x-lockpin-key", key.upper())], connect, None, "identity_conflict"),
        ([basic("fix", other)], connect, None, "identity_conflict"),
        ([("x-api-key", key)], connect, None, "identity_conflict"),
        ([("Authorization", f"Bearer {other}")], connect, None, "identity_conflict"),
        ([("Cookie", f"a={other}")], connect, None, "identity_conflict"),
        ([*own, ("x-api-key", other)], None, path, "identity_conflict"),
        ([("x-api-key", key), ("Authorization", f"Bearer {other}")], None, path, "identity_conflict"),
        ([*own, basic("fix", other)], None, path, "identity_conflict"),
        ([*own, ("x-api-key", key)], None, f"{path}?key={other}", "identity_conflict"),
        (own, None, f"{path}?key=lp%5F{other[3:]}", "identity_conflict"),
        (own, None, f"{path}?token={other}", "identity_conflict"),
        (own, None, f"/anthropic/{key}/v1/messages", "identity_conflict"),
        (own, None, f"/anthropic/lp%5f{key[3:]}/v1/messages", "identity_conflict"),
        ([*own, ("X-Lockpin-Project", "billing")], None, path, "identity_conflict"),
        ([*own, ("X-Lockpin-Tag", "env=prod")], None, path, "identity_conflict"),
        ([*own, ("X-Lockpin-Tag", f"a={other}")], None, path, "identity_conflict"),
        ([*own, ("X-Lockpin-Task", key)], None, path, "identity_conflict"),
        ([*own, ("Authorization", f"Bearer {key}, Bearer {other}")], None, path, "identity_conflict"),
        ([*own, ("Authorization", f"Bearer\r\n {key}")], None, path, "identity_conflict"),
        ([*own, ("X_Lockpin_Key", other)], None, path, "identity_conflict"),
        ([*own, ("X-Lockpin-Key", key)], None, path, "bad_request"),
        ([*own, ("x-lockpin-KEY", other)], None, path, "bad_request"),
        ([("x-lockpin-key", key + "a" * 9000)], None, path, "bad_request"),
        ([*own, ("X-Lockpin-Tags", "a" * 9000)], None, path, "bad_request"),
        ([*own, ("X-Lockpin-Tags", "a" * 70_000)], None, path, "bad_request"),
        ([*own, ("X-Lockpin-Tag", "a=1, a=2")], None, path, "bad_request"),
        ([("x-api-key", key), ("X-Api-Key", other)], None, path, "bad_request"),
        (own, None, f"/t/{other}/anthropic/v1/messages", "bad_request"),
        ([basic(key, "")], None, path, "bad_request"),
        ([basic(key, "task")], None, path, "bad_request"),
        ([("x-lockpin-key", f"{key}, {other}")], None, path, "key_unknown"),
        ([("x-lockpin-key", f"{key},{key}")], None, path, "key_unknown"),
        ([("x-lockpin-key", f"\u00a0{key}x")], None, path, "key_unknown"),
        ([("x-lockpin-key", key[:-1])], None, path, "key_unknown"),
        ([("x-lockpin-key", "lp_" + "0" * 52)], None, path, "key_unknown"),
        ([("x-lockpin-key", "")], None, path, "key_unknown"),
        ([("x-api-key", "lp_short")], None, path, "key_unknown"),
        ([("x-lockpin-user", "boss")], None, path, "key_required"),
        ([("x-api-key", "sk-own")], None, path, "key_required"),
        ([("x-api-key", "sk-own")], [basic("fix", "task")], None, "key_required"),
        ([("X\u2010Lockpin-Key".encode().decode("latin-1"), "x")], None, path, None),
    ]  # fmt: skip


def test_what_contradicts_the_key_is_refused_by_name_and_charges_nobody(rig):
    before, status = sent(rig), {"identity_conflict": 400, "bad_request": 400, "key_unknown": 401, "key_required": 401}
    for fields, connect, path, code in conflicts(rig):
        answer, rows = rig.ask(fields, connect=connect, path=path, way="base_url" if connect is None else "connect")

        told = (fields, connect, path, answer.body)
        if code is None:  # no header that HTTP knows
            assert answer.status == 400, told
            continue
        assert (answer.status, answer.code) == (status[code], code), told
        assert answer.json["error"]["message"].startswith("lockpin: "), told
        assert answer.headers["x-should-retry"] == "false"
        assert ("www-authenticate" in answer.headers) == (status[code] == 401)
        assert rows == []
        assert not any(key.secret in answer.body.decode() for key in rig.keys.values()), told
    assert sent(rig) == before


def test_a_refused_callers_row_names_nobody_and_no_secret(rig):
    def refused():
        answer, _ = rig.ask([("x-api-key", "sk-own")], path="/t/made-up/anthropic/v1/messages")
        return rig.proxy.rows("SELECT * FROM rows WHERE call = ?", answer.headers["x-lockpin-call"])

    (row,) = until(refused)  # of each second one has a row of its own

    assert (row["kind"], row["code"], row["task"], row["key"], row["user"]) == (
        "refusal", "key_required", "default", None, None
    )  # fmt: skip


def test_a_flood_of_strangers_is_a_row_a_second(rig):
    def rows():
        return rig.proxy.rows("SELECT count(*) AS rows, sum(\"count\") AS calls FROM rows WHERE code = 'key_unknown'")[
            0
        ]

    until(lambda: rows()["calls"] is None or rows()["calls"] >= 0)
    before, calls = rows(), 300
    with rig.opened("base_url") as connection:
        for number in range(calls):
            path = f"/t/made-up-{number}/anthropic/v1/messages"
            data = raw("POST", path, "127.0.0.1", [("x-api-key", f"lp_{number:052}")], b"{}")
            assert send(connection, data).status == 401

    until(lambda: (rows()["calls"] or 0) - (before["calls"] or 0) >= calls)
    assert rows()["rows"] - before["rows"] <= 40  # of at most 20 seconds: the first of each, and the rest as one


FREE = {
    "count": ("POST", "/anthropic/v1/messages/count_tokens"), "models": ("GET", "/openai/v1/models"),
    "delete": ("DELETE", "/openai/v1/files/f"), "count, OpenAI": ("POST", "/openai/v1/responses/input_tokens"),
    "options": ("OPTIONS", "/openai/v1/models"),
}  # fmt: skip


@pytest.mark.parametrize("name", FREE)
def test_whatever_goes_to_a_provider_needs_a_key(rig, name):
    method, path = FREE[name]
    before = sent(rig)

    without, _ = rig.ask(method=method, path=path)

    assert (without.status, without.code) == (401, "key_required")
    assert sent(rig) == before
    answer, _ = rig.ask([("Authorization", f"Bearer {alice(rig)}")], method=method, path=path)
    assert answer.status == 200
    assert last_headers(rig)["authorization"] == f"Bearer {REAL['openai' if 'openai' in path else 'anthropic']}"


def test_health_needs_no_key_and_tells_the_mode(rig):
    answer = client.call(rig.proxy, "/lockpin/healthz", method="GET")

    assert (answer.status, answer.json["mode"]) == (200, "team")


SHAPES = {
    "/anthropic/v1/messages": lambda told: (told["type"], told["error"]["type"]),
    "/openai/v1/chat/completions": lambda told: (told["error"]["code"], told["error"]["type"]),
    "/gemini/v1beta/models/m:generateContent": lambda told: (told["error"]["code"], told["error"]["status"]),
    "/bedrock/model/m/invoke": lambda told: tuple(told),
}
SHAPED = [
    ("error", "key_required"), ("key_required", "key_required"), (401, "UNAUTHENTICATED"), ("message", "lockpin"),
]  # fmt: skip


def test_each_wire_is_refused_in_its_own_shape(rig):
    found = [shape(rig.ask(path=path)[0].json) for path, shape in SHAPES.items()]

    assert found == SHAPED


def test_a_connection_that_is_used_again_has_the_key_of_each_request(rig):
    said = {name: raw("POST", "/anthropic/v1/messages", "h", [("x-api-key", rig.keys[name].secret)], body(11))
            for name in rig.keys}  # fmt: skip
    nobody = raw("POST", "/anthropic/v1/messages", "h", [("x-api-key", "sk-own")], body(11))
    payers = []
    with rig.opened("base_url") as connection:
        for data in (said["bob"], said["Alice@Corp.com"], nobody, said["bob"]):
            answer = send(connection, data)
            rows = rig.proxy.rows("SELECT user FROM rows WHERE call = ?", answer.headers["x-lockpin-call"])
            payers.append((answer.status, rows[0]["user"] if rows else None))

    assert [status for status, _ in payers] == [200, 200, 401, 200]
    assert [user for status, user in payers if status == 200] == ["bob", "alice@corp.com", "bob"]


def body(limit):
    return json.dumps(
        {"model": "plain-model", "max_tokens": limit, "messages": [{"role": "user", "content": "hi"}]}
    ).encode()


def test_what_a_failed_connect_said_is_forgotten(rig):
    with socket.create_connection(("127.0.0.1", rig.proxy.port), 10) as connection:
        refused = send(connection, raw("CONNECT", "10.0.0.1:443", "10.0.0.1:443", [basic("fix", alice(rig))]))
        assert refused.status == 403
        fields = [("x-api-key", rig.keys["bob"].secret)]
        answer = send(connection, raw("POST", "/anthropic/v1/messages", "h", fields, body(12)))

    rows = rig.proxy.rows("SELECT user FROM rows WHERE call = ?", answer.headers["x-lockpin-call"])
    assert (answer.status, rows[0]["user"]) == (200, "bob")


def test_a_second_connect_inside_a_tunnel_changes_no_account(rig):
    with rig.opened("connect", [basic("fix", alice(rig))]) as inside:
        again = send(inside, raw("CONNECT", "api.anthropic.com:443", "api.anthropic.com:443",
                                 [basic("fix", rig.keys["bob"].secret)]))  # fmt: skip
    assert again.status == 400


def test_a_key_that_is_revoked_or_rotated_ends_with_the_next_call(rig):
    made = rig.key("carol")
    assert rig.ask([("x-api-key", made.secret)])[0].status == 200

    done = teams.command(rig.proxy.home, "key", "rotate", made.id)
    assert done.returncode == 0, done.stderr
    old, _ = rig.ask([("x-api-key", made.secret)])
    new, _ = rig.ask([("x-api-key", done.stdout.strip())])
    assert teams.command(rig.proxy.home, "key", "revoke", made.id).returncode == 0
    gone, _ = rig.ask([("x-api-key", done.stdout.strip())])

    assert (old.status, old.code, new.status) == (401, "key_expired", 200)
    assert (gone.status, gone.code) == (401, "key_unknown")


def test_until_when_a_key_is_good_stands_on_each_reply(rig):
    made = rig.key("dora", "--expires", "30d")
    shown = json.loads(teams.command(rig.proxy.home, "key", "show", made.id, "--format", "json").stdout)

    whole, _ = rig.ask([("x-api-key", made.secret)])
    free, _ = rig.ask([("x-api-key", made.secret)], method="GET", path="/anthropic/v1/models")
    refused, _ = rig.ask([("x-api-key", made.secret)], body={"max_tokens": "x"})
    without, _ = rig.ask([("x-api-key", alice(rig))])

    assert {answer.headers.get("x-lockpin-key-expires") for answer in (whole, free, refused)} == {shown["expires"]}
    assert refused.status == 400
    assert "x-lockpin-key-expires" not in without.headers


def test_a_provider_whose_own_key_nobody_has_is_named(rig):
    answer, rows = rig.ask([("Authorization", f"Bearer {alice(rig)}")], path="/groq/openai/v1/chat/completions")

    assert (answer.status, answer.code, rows) == (400, "bad_request", [])
    assert answer.json["error"]["message"] == (
        "lockpin: the proxy has no key of groq's own to put in the place of the Lockpin key; name the variable that has "
        "it in lockpin.yaml: keys: {provider_env: {groq: VARIABLE}}"
    )


@pytest.mark.parametrize("fields", [[("Authorization", "AWS4-HMAC-SHA256 Credential=AKIA/x")], []])
def test_a_signed_call_by_a_base_url_is_refused_by_name(rig, fields):
    query = "" if fields else "?X-Amz-Signature=ab"
    answer, _ = rig.ask([("x-lockpin-key", alice(rig)), *fields], path=f"/bedrock/model/m/invoke{query}")

    assert (answer.status, answer.code) == (400, "bad_request")
    assert "signature covers the host" in answer.json["message"]


def test_a_file_for_a_free_path_needs_a_key_and_gets_the_real_one(rig):
    path, content = "/openai/v1/files", b"x" * 100_000
    before = sent(rig)

    def upload(*fields):
        with rig.opened("base_url") as connection:
            return send(connection, raw("POST", path, "h", fields, content))

    assert (upload().status, upload(("Authorization", "Bearer lp_x")).status, sent(rig)) == (401, 401, before)
    assert upload(("Authorization", f"Bearer {alice(rig)}")).status == 200
    entry = rig.origin.calls()[-1]
    assert (entry["headers"]["authorization"], len(entry["body"])) == (f"Bearer {REAL['openai']}", 100_000)


def test_http_2_is_judged_the_same(rig):
    with rig.opened("connect", [basic("fix", alice(rig))]):
        pass  # the tunnel alone costs nothing
    answer, rows = processes_http2(rig, [("x-lockpin-key", rig.keys["bob"].secret)])
    assert (answer, rows) == (400, "identity_conflict")


def processes_http2(rig, fields):
    import h2.config
    import h2.connection
    import h2.events

    with socket.create_connection(("127.0.0.1", rig.proxy.port), 10) as plain:
        plain.sendall(raw("CONNECT", f"{teams.ANTHROPIC}:443", f"{teams.ANTHROPIC}:443", [basic("fix", alice(rig))]))
        client.read_head(plain)
        with client.tls(plain, rig.proxy, teams.ANTHROPIC, ["h2"]) as inside:
            session = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
            session.initiate_connection()
            head = [
                (":method", "POST"),
                (":path", "/v1/messages"),
                (":scheme", "https"),
                (":authority", teams.ANTHROPIC),
            ]
            session.send_headers(1, [*head, ("content-type", "application/json"), *fields])
            session.send_data(1, body(13), end_stream=True)
            inside.sendall(session.data_to_send())
            status, content = 0, b""
            while data := inside.recv(65536):
                for event in session.receive_data(data):
                    if isinstance(event, h2.events.ResponseReceived):
                        status = int(dict(event.headers)[":status"])
                    if isinstance(event, h2.events.DataReceived):
                        content += event.data
                    if isinstance(event, h2.events.StreamEnded):
                        return status, json.loads(content)["lockpin"]["code"]
    raise AssertionError("the stream did not end")


@pytest.mark.parametrize("fields", [[], [("x-api-key", "lp_" + "0" * 52)], [("transfer-encoding", "chunked")]])
def test_of_a_strangers_body_little_is_received(rig, fields):
    """The refusal comes although most of the body never does."""
    head = raw("POST", "/anthropic/v1/messages", "h", fields).replace(b"Content-Length: 0\r\n", b"")
    is_chunked = any(name == "transfer-encoding" for name, _ in fields)
    length = b"" if is_chunked else b"Content-Length: 50000000\r\n"
    piece = b"x" * 100_000
    with rig.opened("base_url") as connection:
        connection.sendall(
            head[:-2] + length + b"\r\n" + (b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
        )
        reply = client.read_all(connection, 20)

    assert reply.startswith(b"HTTP/1.1 401 ")
    assert b'"code":"key_' in reply.replace(b": ", b":")
    assert b"connection: close" in reply.lower()


def test_what_a_stranger_sends_in_no_form_is_no_row(rig):
    before = rig.proxy.rows("SELECT count(*) AS n FROM rows WHERE code = 'bad_request' AND key IS NULL")[0]["n"]
    answer, _ = rig.ask([("X-HTTP-Method-Override", "GET")])
    large, _ = rig.ask([("x", "a" * 70_000)])
    known, _ = rig.ask([("x-api-key", alice(rig)), ("x-lockpin-task", "a/b")])

    (row,) = until(lambda: rig.proxy.rows("SELECT * FROM rows WHERE call = ?", known.headers["x-lockpin-call"]))
    assert (answer.code, large.code, known.code) == ("bad_request", "key_required", "bad_request")
    assert (row["key"], row["user"]) == (rig.keys["Alice@Corp.com"].id, "alice@corp.com")
    after = rig.proxy.rows("SELECT count(*) AS n FROM rows WHERE code = 'bad_request' AND key IS NULL")[0]["n"]
    assert after == before


def test_what_a_key_has_left_of_its_own_limit_stands_on_replies_and_refusals(rig):
    made = rig.key("fay", "--limit-usd", "0.01", "--window", "day")
    midnights = {next_midnight()}

    whole, rows = rig.ask([("x-api-key", made.secret)])
    streamed, _ = rig.ask([("x-api-key", made.secret)], body={"stream": True})
    refused, _ = rig.ask([("x-api-key", made.secret)], body={"max_tokens": 100_000})

    midnights |= {next_midnight()}
    spent = Decimal(10 * 1000 + rows[0]["output_limit"] * 5000)  # 10 tokens at $1 a million, the whole limit at $5
    left = f"{(Decimal(10**7) - spent) / 10**9:f}"
    assert whole.headers["x-lockpin-key-remaining-usd"] == left.rstrip("0")
    assert 0 < Decimal(streamed.headers["x-lockpin-key-remaining-usd"]) < Decimal(left)  # its hold is in it
    assert (refused.status, refused.json["lockpin"]["scope"], refused.json["lockpin"]["subject"]) == (
        402,
        "key",
        made.id,
    )
    assert Decimal(refused.headers["x-lockpin-key-remaining-usd"]) < Decimal(left)
    assert {answer.headers["x-lockpin-key-resets"] for answer in (whole, streamed, refused)} <= midnights


def next_midnight():
    return f"{(datetime.now(UTC) + timedelta(days=1)).date()}T00:00:00Z"


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_a_team_may_be_served_on_another_address_and_one_person_may_not(kind, tmp_path):
    words = ("--listen-host", "127.0.0.2") if kind == "mitmdump" else ("--host", "127.0.0.2")
    home = processes.make_home(tmp_path)
    config = "mode: team\nallow_hosts: [git.corp]\nkeys: {provider_env: {openai: NOT_SET}}\ntask: {budget_usd: 0.01}\n"
    made = processes.launch(tmp_path, config, kind=kind, arguments=words, home=home)
    try:
        until(lambda: "limit" in made.printed() and "127.0.0.2" in made.printed())
        with socket.create_connection(("127.0.0.2", made.port), 10) as connection:
            health = send(connection, raw("GET", "/lockpin/healthz", f"127.0.0.2:{made.port}", []))
            refused = send(connection, raw("POST", "/openai/v1/chat/completions", f"127.0.0.2:{made.port}", []))
    finally:
        processes.end(made.process)
    alone = processes.launch(tmp_path, "", kind=kind, arguments=words)
    try:
        assert alone.process.wait(processes.PATIENCE_S) == 1
    finally:
        processes.end(alone.process)

    assert (health.status, refused.status, refused.code) == (200, 401, "key_required")
    assert "team     each call to a provider needs a key; other hosts that can be reached: git.corp" in made.printed()
    assert "warning  keys.provider_env: NOT_SET is not set here" in made.printed()
    assert "each task without a budget of its own" not in made.printed()
    assert 'listening on "127.0.0.2" is refused in solo mode' in alone.printed()


def test_while_the_keys_cannot_be_read_nobody_is_known_and_afterwards_all_is_as_before(tmp_path):
    with teams.team(tmp_path) as rig:
        key = rig.key("ann").secret
        assert rig.ask([("x-api-key", key)])[0].status == 200
        teams.settled(rig.proxy)
        away, before = rig.proxy.ledger.with_name("away"), sent(rig)
        rig.proxy.ledger.rename(away)

        answers = [
            client.call(rig.proxy, "/anthropic/v1/messages", {}, x_api_key=key),
            client.call(rig.proxy, "/anthropic/v1/models", method="GET", x_api_key=key),
        ]

        assert [(answer.status, answer.code) for answer in answers] == [(503, "keys_unavailable")] * 2
        assert all(
            answer.headers["retry-after"] == "5" and "x-should-retry" not in answer.headers for answer in answers
        )
        assert "the keys cannot be read: " in answers[0].json["error"]["message"]
        assert sent(rig) == before
        away.rename(rig.proxy.ledger)
        until(lambda: rig.ask([("x-api-key", key)])[0].status == 200)


def test_a_receipt_names_key_and_user_on_the_reply_in_a_refusal_and_from_the_ledger(rig):
    key = rig.keys["Alice@Corp.com"]

    whole, _ = rig.ask([("x-api-key", key.secret)])
    refused, _ = rig.ask([("x-api-key", key.secret)], body={"model": "nobodys"})
    found = []
    for answer, shown in (
        (whole, json.loads(whole.headers["x-lockpin-receipt"])),
        (refused, refused.json["lockpin"]["receipt"]),
    ):
        call = answer.headers["x-lockpin-call"]
        until(lambda call=call: rig.proxy.rows("SELECT 1 FROM rows WHERE call = ? AND kind != 'hold'", call))
        told = json.loads(teams.command(rig.proxy.home, "receipt", call).stdout)
        found += [(one["key"], one["user"]) for one in (shown, told)]

    assert found == [(key.id, "alice@corp.com")] * 4


def test_a_key_in_the_place_of_the_method_does_not_leave(rig):
    key, before = alice(rig), sent(rig)

    answer, _ = rig.ask([("x-lockpin-key", key)], method=key)

    assert (answer.status, answer.code) == (400, "identity_conflict")
    assert sent(rig) == before


@pytest.mark.parametrize("status", [200, 302, 401])
def test_a_provider_that_says_its_own_key_back_says_it_to_nobody(rig, status):
    real = REAL["gemini"]
    said = {
        "x-goog-upload-url": f"https://generativelanguage.googleapis.com/upload?key={real}&upload_id=7",
        "x-other": "as it is",
    }
    order = [("x-origin", json.dumps({"status": status, "headers": said, "body": "{}"}))]

    free, _ = rig.ask(order, method="GET", path=f"/gemini/v1beta/models?key={alice(rig)}")
    file = rig.ask(order, path=f"/gemini/upload/v1beta/files?key={alice(rig)}", content=b"x" * 1000)[0]

    for answer in (free, file):
        assert answer.status == status
        assert answer.headers["x-goog-upload-url"].endswith("/upload?key=...&upload_id=7")
        assert (answer.headers["x-other"], real in str(answer.headers)) == ("as it is", False)
    assert real in rig.origin.calls()[-1]["path"]
