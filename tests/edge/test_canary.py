"""A run through every way in which a call can fail, after which all that was written is searched: no prompt, no reply, no
provider's key and no Lockpin key is in any file, line, error, receipt or header of ours.
"""

import base64
import json
import socket

import client
import processes
import pytest
import sdks
import teams
from canary import where
from processes import until
from teams import REAL, basic, raw, send

PROMPT, REPLY, OWN = "UNIQUE-PROMPT-CANARY-123", "UNIQUE-REPLY-CANARY-456", "sk-own-CANARY-0123456789abcdef"
NAME = "a-name-of-no-prompt"  # names of models, tools and fields are told and kept: they say what was wrong
MORE = """
max_request_mb: 1
oidc: {issuer: "http://127.0.0.1:9", audience: lockpin}
budgets: [{name: small, scope: machine, window: day, limit_usd: 500, action: enforce}]
"""


def token():
    """Make a token of an identity provider that nobody can reach: who it is for is seen, who it is of is not."""
    told = {"iss": "http://127.0.0.1:9", "aud": "lockpin", "email": "ann@corp.com"}
    parts = [json.dumps(part).encode() for part in ({"alg": "ES256", "kid": "a"}, told)]
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "c2lnbmF0dXJl" * 6])


def body(**more):
    return {"messages": [{"role": "user", "content": PROMPT}]} | more


def order(**told):
    return [("x-origin", json.dumps(told))]


def reply(text, **more):
    usage = {"input_tokens": 10, "output_tokens": 5}
    told = {"id": "msg_1", "type": "message", "role": "assistant", "model": "plain-model", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": text}], "usage": usage}  # fmt: skip
    return json.dumps(told | more)


ECHO = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": f"{PROMPT} {OWN}"}})
SSE = f'event: content_block_delta\ndata: {{"type": "content_block_delta", "delta": {{"text": "{REPLY}"}}}}\n\n'

# What a provider does with a call that was sent.
REPLIES = {
    "whole": {"body": reply(REPLY)},
    "stream": {"body": SSE, "type": "text/event-stream", "chunk": "event"},
    "cut stream": {"body": SSE * 5, "type": "text/event-stream", "chunk": 20, "cut_after": 50},
    "400 that echoes": {"status": 400, "body": ECHO}, "401 that echoes": {"status": 401, "body": ECHO},
    "500 that echoes": {"status": 500, "body": ECHO}, "no JSON": {"body": f"<html>{REPLY}{PROMPT}"},
    "wrong usage": {"body": reply(REPLY, usage={"input_tokens": REPLY, "output_tokens": -1})},
    "another model": {"body": reply(REPLY, model=REPLY)}, "an id": {"body": reply(REPLY, id=f"{REPLY} {OWN}")},
    "a broken encoding": {"body": reply(REPLY), "encoding": "gzip"}, "a cut body": {"body": reply(REPLY), "cut_after": 30},
    "no reply": {"close": "before"}, "a bad head": {"before": f"HTTP/1.1 xyz {REPLY}\r\n{PROMPT}\r\n\r\n", "body": ""},
}  # fmt: skip


def refusals(key, other):
    """List calls that are not sent: header fields, path, content."""
    path, own = "/anthropic/v1/messages", [("x-api-key", key)]
    plain = json.dumps(body(model="plain-model", max_tokens=5)).encode()
    return [
        (own, path, json.dumps(body(model="plain-model", max_tokens=99_000_000)).encode()),
        (own, path, json.dumps(body(model=NAME, max_tokens=5)).encode()),
        (own, path, json.dumps(body(model="plain-model", max_tokens=PROMPT)).encode()),
        (own, path, json.dumps(body(model="plain-model", max_tokens=5, tools=[{"type": NAME}])).encode()),
        (own, path, json.dumps(body(model="plain-model", max_tokens=5, **{NAME: {}})).encode()),
        (own, path, f'{{"model": "plain-model", "{NAME}": "{PROMPT}", "{NAME}": 2}}'.encode()),
        (own, path, f"no JSON {PROMPT}".encode()),
        (own, path, PROMPT.encode() * 100_000),
        ([*own, ("content-encoding", "gzip")], path, plain),
        ([*own, ("content-encoding", NAME)], path, plain),
        (own, f"/anthropic/v1/{OWN}", plain),
        (own, f"/anthropic/v1/nowhere?key={OWN}&q={PROMPT}", plain),
        ([*own, ("X-HTTP-Method-Override", PROMPT)], path, plain),
        ([*own, ("X-Lockpin-Tag", OWN)], path, plain),
        ([*own, ("Upgrade", "websocket"), ("Connection", "upgrade")], path, plain),
        ([], path, plain),
        ([("x-api-key", OWN)], path, plain),
        ([("x-api-key", "lp_" + "0" * 52)], path, plain),
        ([("x-api-key", other)], path, plain),  # revoked
        ([*own, ("x-lockpin-key", other)], path, plain),
        ([("x-lockpin-key", f"{key},{other}")], path, plain),
        ([("x-lockpin-key", token())], path, plain),
        ([("Authorization", f"Bearer {token()}")], path, plain),
        ([("x-lockpin-key", token()), ("Cookie", token())], path, plain),
        ([("x-lockpin-key", token()), *own], path, plain),
        ([*own, ("X-Lockpin-Task", token())], path, plain),
        ([*own, ("User-Agent", key)], path, plain),
        ([*own, ("Cookie", key)], path, plain),
        ([*own, ("X-Lockpin-Task", key)], path, plain),
        ([*own, basic(key, "")], path, plain),
        ([*own, ("Proxy-Authorization", f"Basic {key}")], path, plain),
        (own, f"/anthropic/{key}/v1/messages", plain),
        (own, f"/anthropic/lp%5F{key[3:]}/v1/messages", plain),
        (own, f"/t/{key}/anthropic/v1/messages", plain),
        (own, f"{path}?token={key}", plain),
        ([("Authorization", f"Bearer {key}")], "/groq/openai/v1/chat/completions", plain),
        ([("Authorization", f"Bearer {key}"), ("Host", "other.test")], path, plain),
        ([*own, ("x", "a" * 70_000)], path, plain),
    ]  # fmt: skip


def tunnels(team, key):
    """Say what no proxy likes to hear, in a CONNECT and inside one."""
    for target in ("10.0.0.1:443", f"{key}.test:443", "api.anthropic.com:443 " + key):
        with team.opened("base_url") as connection:
            connection.sendall(raw("CONNECT", target, target, [basic("fix", key), ("x-note", PROMPT)]))
            client.read_all(connection, 2)
    for data in (f"{key} {PROMPT}\r\n\r\n", f"GET /{key} HTTP/9.9\r\n\r\n", f"POST /v1/messages HTTP/1.1\r\n{key} :x\r\n\r\n",
                 f"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: {key}\r\n\r\n"):  # fmt: skip
        for way in ("base_url", "connect"):
            with team.opened(way, [basic("fix", key)]) as connection:
                connection.sendall(data.encode())
                client.read_all(connection, 2)


def play(team, told):
    """Make every call; keep what we ourselves said in `told`."""
    key, gone = team.key("alice", "--team", "web").secret, team.key("eve")
    teams.command(team.proxy.home, "key", "revoke", gone.id)
    for sent in REPLIES.values():
        for fields, way in ([("x-api-key", key)], "base_url"), ([("x-api-key", OWN)], "connect"):
            with team.opened(way, [basic("fix", key)]) as connection:
                content = json.dumps(body(model="plain-model", max_tokens=20)).encode()
                path = "/anthropic/v1/messages" if way == "base_url" else "/v1/messages"
                host = "h" if way == "base_url" else teams.ANTHROPIC
                connection.sendall(raw("POST", path, host, [*fields, *order(**sent)], content))
                told.append(client.read_all(connection, 3).partition(b"\r\n\r\n")[0])
    for fields, path, content in refusals(key, gone.secret):
        answer, _ = team.ask(fields, path=path, content=content)
        told += [answer.body, repr(answer.headers).encode()]
    tunnels(team, key)
    with socket.create_connection(("127.0.0.1", team.proxy.port), 10) as plain:  # its client leaves before the reply
        plain.sendall(raw("POST", "/anthropic/v1/messages", "h", [("x-api-key", key), *order(wait_s=1, body=ECHO)],
                          json.dumps(body(model="plain-model", max_tokens=20)).encode()))  # fmt: skip
    teams.settled(team.proxy)


def without_ledger(team, told):
    away = team.proxy.ledger.with_name("away")
    team.proxy.ledger.rename(away)
    for fields in ([("x-api-key", team.keys["alice"].secret)], []):
        answer, _ = no_rows(team, fields)
        told.append(answer.body)
    away.rename(team.proxy.ledger)
    return answer


def no_rows(team, fields):
    with team.opened("base_url") as connection:
        content = json.dumps(body(model="plain-model", max_tokens=20)).encode()
        return send(connection, raw("POST", "/anthropic/v1/messages", "h", fields, content)), None


COMMANDS = (
    ("report", "--format", "json"), ("report", "--by", "key"), ("calls", "--format", "json"), ("receipt",), ("verify",),
    ("ledger", "events", "--format", "json"), ("key", "list", "--format", "json"), ("budget", "status"),
    ("ledger", "backup", "copy.sqlite3"), ("validate",), ("prices", "explain", "last"),
)  # fmt: skip


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_nothing_that_is_secret_is_written_anywhere(kind, tmp_path):
    told: list[bytes] = []
    home = processes.make_home(tmp_path)
    with teams.team(tmp_path, MORE, kind=kind, home=home) as team:
        play(team, told)
        refused = without_ledger(team, told)
        assert (refused.status, b"keys_unavailable" in b"".join(told)) == (401, True)
        until(lambda: client.call(team.proxy, "/lockpin/healthz", method="GET").status == 200)
        said = [teams.command(home, *words) for words in COMMANDS]
        team.proxy.stop()
        told += [f"{done.stdout}{done.stderr}".encode() for done in said]
        secrets = [
            PROMPT,
            REPLY,
            OWN,
            token(),
            token().split(".")[2],
            *REAL.values(),
            *(key.secret for key in team.keys.values()),
        ]
        printed = team.proxy.printed()

    (home / "told.txt").write_bytes(b"\n".join(told))
    assert team.proxy.ledger.exists() and (home / "copy.sqlite3").exists()
    assert {secret[:20]: where(secret, home) for secret in secrets if where(secret, home)} == {}
    assert "Traceback" not in printed and "fault of Lockpin" not in printed
    assert "sk-ant-REAL" in team.reached() and PROMPT in team.reached()  # the calls were made


def test_the_search_finds_what_is_there(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.bin").write_bytes(b"\0x" + base64.b64encode(b"fix:" + OWN.encode()))
    (tmp_path / "b.txt").write_text(f"key={OWN}")

    assert len(where(OWN, tmp_path)) >= 2
    assert where(PROMPT, tmp_path) == []


def test_the_sdks_name_no_key_in_what_they_raise(tmp_path):
    with teams.team(tmp_path) as team:
        key = team.key("alice").secret
        with sdks.anthropic_client(team.proxy, key=key) as made, pytest.raises(Exception) as raised:
            made.messages.create(model="nobodys", max_tokens=5, messages=[sdks.MESSAGE])

        assert key not in str(raised.value) and REAL["anthropic"] not in str(raised.value)
