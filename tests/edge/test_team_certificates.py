"""Who calls by a client certificate that a key was made for, through real sockets."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import teams
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from teams import basic


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    with teams.team(tmp_path_factory.mktemp("certificates")) as found:
        yield found
        printed = found.proxy.printed()
        assert "Traceback" not in printed and "fault of Lockpin" not in printed


def code_of(answer):
    return json.loads(answer.body)["lockpin"]["code"]


def certificate(folder, name, *, days=30):
    """Write a client certificate and its key into one file each."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    until = datetime.now(UTC) + timedelta(days=days)
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(until - timedelta(days=60)).not_valid_after(until)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    file, secret = folder / f"{name}.pem", folder / f"{name}.key"
    file.write_bytes(made.public_bytes(Encoding.PEM))
    secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return file, secret


def by_certificate(rig, shown, fields=(), connect=()):
    body = json.dumps({"model": "plain-model", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]})
    data = teams.raw(
        "POST", "/v1/messages", teams.ANTHROPIC, [("x-api-key", "sk-own"), *fields], body.encode()
    )  # fmt: skip
    with rig.opened("connect", connect, certificate=shown) as connection:
        answer = teams.send(connection, data)
    call = answer.headers.get("x-lockpin-call", "")
    return answer, rig.proxy.rows("SELECT * FROM rows WHERE call = ? AND kind = 'hold'", call)


def key_of(rig, user, file):
    done = teams.command(rig.proxy.home, "key", "create", "--user", user, "--certificate", str(file))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_client_certificate_stands_for_its_key(rig, tmp_path):
    shown = certificate(tmp_path, "build-7")
    key = key_of(rig, "ci", shown[0])

    answer, rows = by_certificate(rig, shown)

    assert (answer.status, rig.payer(rows)) == (200, {"key": key, "user": "ci"})


def test_client_certificate_that_nobody_knows_says_nothing(rig, tmp_path):
    shown, key = certificate(tmp_path, "stranger"), rig.key("eve")

    alone, rows = by_certificate(rig, shown)
    with_key, charged = by_certificate(rig, shown, connect=[basic("fix", key.secret)])

    assert (alone.status, code_of(alone), rows) == (401, "key_unknown", [])
    assert (with_key.status, rig.payer(charged)["user"]) == (200, "eve")


def test_client_certificate_and_the_key_of_another_are_a_conflict(rig, tmp_path):
    shown, other = certificate(tmp_path, "build-8"), rig.key("mallory")
    key_of(rig, "ci", shown[0])

    answer, rows = by_certificate(rig, shown, [("X-Lockpin-Key", other.secret)])

    assert (answer.status, code_of(answer), rows) == (400, "identity_conflict", [])


def test_client_certificate_of_a_revoked_key_is_over(rig, tmp_path):
    shown = certificate(tmp_path, "build-9")
    key = key_of(rig, "ci", shown[0])
    assert teams.command(rig.proxy.home, "key", "revoke", key).returncode == 0

    answer, rows = by_certificate(rig, shown)

    assert (answer.status, code_of(answer), rows) == (401, "key_unknown", [])
