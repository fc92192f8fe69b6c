"""Tokens of an identity provider in the place of keys, through a real proxy: who calls is who the provider has signed."""

import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
import teams
from cryptography.hazmat.primitives.asymmetric import ec
from processes import until
from teams import REAL, basic

from lockpin_core.oidc import LEEWAY

KEYS = {"a": ec.generate_private_key(ec.SECP256R1()), "b": ec.generate_private_key(ec.SECP256R1())}


class Issuer(BaseHTTPRequestHandler):
    """Publishes key a."""

    def do_GET(self):
        url = f"http://127.0.0.1:{self.server.server_port}"
        public = jwt.get_algorithm_by_name("ES256").to_jwk(KEYS["a"].public_key(), as_dict=True)
        told = (
            {"issuer": url, "jwks_uri": f"{url}/keys"} if "openid" in self.path else {"keys": [{**public, "kid": "a"}]}
        )
        content = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def team(folder, more=""):
    """Run a proxy that takes the tokens of an identity provider."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Issuer) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with teams.team(folder, f"oidc: {{issuer: '{url}', audience: lockpin}}\n{more}") as found:
            found.issuer = url
            yield found
            printed = found.proxy.printed()
            assert "Traceback" not in printed and "fault of Lockpin" not in printed and "eyJ" not in printed
        server.shutdown()


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    with team(tmp_path_factory.mktemp("tokens")) as found:
        yield found


def token(rig, *, key="a", name="a", **change):
    told = {"iss": rig.issuer, "aud": "lockpin", "email": "Ann@Corp.com", "groups": ["ml", "web"], "ring": "ring1",
            "exp": datetime.now(UTC).timestamp() + 600}  # fmt: skip
    return jwt.encode(told | change, KEYS[key], algorithm="ES256", headers={"kid": name})


OF_ANN = {"user": "ann@corp.com", "groups": '["ml","web"]', "ring": "ring1"}


def test_a_token_is_whom_its_claims_name_in_each_of_its_places(rig):
    made = token(rig)

    by_slot, slot = rig.ask([("Authorization", f"Bearer {made}")])
    by_header, header = rig.ask([("x-lockpin-key", made), ("x-api-key", "sk-own")])
    by_password, password = rig.ask([("x-api-key", "sk-own")], way="connect", connect=[basic("fix", made)])

    assert [answer.status for answer in (by_slot, by_header, by_password)] == [200] * 3, by_slot.body
    assert [rig.payer(rows) for rows in (slot, header, password)] == [OF_ANN] * 3
    assert "x-lockpin-key-expires" in by_slot.headers
    assert made not in rig.reached() and REAL["anthropic"] in rig.reached()


def test_a_group_by_its_path_is_that_group_and_one_that_can_be_no_name_keeps_nobody_out(rig):
    answer, rows = rig.ask([("x-lockpin-key", token(rig, groups=["/web", "R/D", "", "ml"], ring=""))])

    assert answer.status == 200, answer.body
    assert rig.payer(rows) == {"user": "ann@corp.com", "groups": '["ml","web"]'}


WRONG = {
    "signed by nobody": ({"key": "b"}, 401, "key_unknown", "its signature is not right"),
    "an unknown key": ({"key": "b", "name": "b"}, 401, "key_unknown", "does not publish"),
    "over": ({"exp": 1_700_000_000}, 401, "key_expired", "it has expired"),
    "without a user": ({"email": None}, 401, "key_unknown", "its claim email names no user"),
    "not verified": ({"email_verified": False}, 401, "key_unknown", "its email was not verified"),
    "a ring that is no name": ({"ring": ["r1"]}, 401, "key_unknown", "its claim ring is no name that is allowed"),
    "another audience": ({"aud": "other"}, 401, "key_unknown", "no token of an issuer and an audience that are taken"),
    "another issuer": (
        {"iss": "https://evil.example"},
        401,
        "key_unknown",
        "no token of an issuer and an audience that are taken",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_token_that_is_not_taken_charges_nobody(rig, case):
    change, status, code, words = WRONG[case]
    before = len(rig.origin.calls())

    answer, rows = rig.ask([("x-lockpin-key", token(rig, **change))])

    assert (answer.status, answer.code, rows) == (status, code, [])
    assert words in answer.json["error"]["message"]
    assert len(rig.origin.calls()) == before


def test_a_token_without_a_signature_is_not_taken(rig):
    told = {"iss": rig.issuer, "aud": "lockpin", "email": "boss@corp.com", "exp": datetime.now(UTC).timestamp() + 600}

    for made in (
        jwt.encode(told, None, algorithm="none"),
        jwt.encode(told, "x" * 64, algorithm="HS256"),
        token(rig)[:-9],
    ):
        answer, rows = rig.ask([("x-lockpin-key", made)])
        assert (answer.status, answer.code, rows) == (401, "key_unknown", [])


def test_a_key_beside_a_token_is_a_conflict_also_of_one_person(rig):
    key = rig.key("ann@corp.com")

    answer, _ = rig.ask([("x-lockpin-key", key.secret)], way="connect", connect=[basic("fix", token(rig))])

    assert (answer.status, answer.code) == (400, "identity_conflict")


PLACES = {
    "a tag": lambda made: [("X-Lockpin-Tag", f"t={made}")],
    "a task": lambda made: [("X-Lockpin-Task", made)],
    "a cookie": lambda made: [("Cookie", f"t={made}")],
    "a provider's own header": lambda made: [("Authorization", f"Bearer {made}")],
}


@pytest.mark.parametrize("place", PLACES)
def test_a_token_beside_a_key_is_neither_kept_nor_sent_on(rig, place):
    key, made = rig.key("bob"), token(rig, jti=place)
    before = len(rig.origin.calls())

    answer, rows = rig.ask(
        [*PLACES[place](made), ("x-lockpin-key", key.secret), ("x-api-key", "sk-own")], way="connect"
    )

    assert (answer.status, answer.code, rows) == (400, "identity_conflict", [])
    assert made not in rig.reached() and len(rig.origin.calls()) == before
    assert not any(made.encode() in path.read_bytes() for path in rig.proxy.ledger.parent.iterdir() if path.is_file())
    assert made.encode() not in answer.body


def test_a_provider_that_is_away_leaves_nobody_known(tmp_path):
    more = "oidc: {issuer: 'http://127.0.0.1:9', audience: lockpin}\n"
    with teams.team(tmp_path, more) as rig:
        rig.issuer = "http://127.0.0.1:9"
        answer, _ = rig.ask([("x-lockpin-key", token(rig))])
        key = rig.key("ann")
        by_key, _ = rig.ask([("x-api-key", key.secret)])

    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "keys_unavailable", "5")
    assert by_key.status == 200


def test_a_token_that_ends_while_its_call_waits_for_room_sends_nothing(tmp_path):
    more = """
queue: {wait: 60s}
fit: {output: false}
budgets: [{name: all, scope: org, window: day, limit_usd: 0.003, action: enforce}]
"""
    gate = tmp_path / "gate"

    def ask(secret, **order):
        told = [("x-api-key", secret), ("x-origin", json.dumps({"status": 500, **order}))]
        return rig.ask(told, body={"max_tokens": 400})[0]

    with team(tmp_path, more) as rig, ThreadPoolExecutor(2) as pool:
        running = pool.submit(ask, rig.key("holder").secret, head_gate=str(gate))
        until(lambda: rig.proxy.rows("SELECT 1 FROM open_holds"))
        ends_s = time.time() + 5
        waiting = pool.submit(ask, token(rig, exp=ends_s - LEEWAY.total_seconds()))
        until(lambda: rig.proxy.rows("SELECT 1 FROM waiting"))
        until(lambda: time.time() > ends_s)
        gate.touch()

        assert running.result().status == 500
        answer = waiting.result()
        assert (answer.status, answer.code) == (401, "key_expired")
        assert [entry["path"] for entry in rig.origin.calls()].count("/v1/messages") == 1
        teams.settled(rig.proxy)
