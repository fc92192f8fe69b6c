import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from lockpin_core.keys import digest_of

SECRET = re.compile(r"lp_[0-9a-z]{52}\n")


def made(lockpin, *words):
    """Make a key; give its secret and its id."""
    done = lockpin("key", "create", "--user", "ann@corp.com", *words)
    assert done.returncode == 0, done.stderr
    assert SECRET.fullmatch(done.stdout)
    return done.stdout.strip(), re.search(r"key (k-[0-9a-z]{10}) of", done.stderr)[1]


def listed(lockpin):
    return {key["key"]: key for key in json.loads(lockpin("key", "list", "--format", "json").stdout)}


def known(home, secret):
    with closing(sqlite3.connect(home.ledger)) as books:
        sql = 'SELECT "key", until IS NULL FROM key_digests WHERE digest = ?'
        return books.execute(sql, (digest_of(secret),)).fetchone()


def test_secret_alone_is_on_standard_output_and_the_words_are_not(lockpin, home):
    done = lockpin("key", "create", "--user", " Ann@Corp.com ")

    assert SECRET.fullmatch(done.stdout)
    key, _ = known(home, done.stdout.strip())
    assert done.stderr == (
        f"lockpin: key {key} of ann@corp.com is made, good until it is revoked; nobody can show its secret again\n"
    )


def test_key_is_shown_with_all_that_it_stands_for(lockpin):
    _, key = made(
        lockpin, "--team", "web", "--group", "platform", "--group", "ml", "--ring", "ring1", "--project", "site",
        "--tag", "env=ci", "--tag", "cost=7", "--expires", "30d", "--name", "Ann's laptop",
    )  # fmt: skip

    shown = json.loads(lockpin("key", "show", key, "--format", "json").stdout)

    created, expires = (datetime.fromisoformat(shown.pop(name)) for name in ("created", "expires"))
    assert expires - created == timedelta(days=30)
    assert shown == {
        "key": key, "name": "Ann's laptop", "user": "ann@corp.com", "team": "web", "groups": ["ml", "platform"],
        "ring": "ring1", "project": "site", "tags": {"cost": "7", "env": "ci"}, "state": "active", "revoked": None,
        "rotated": None, "limits": [],
    }  # fmt: skip
    assert listed(lockpin)[key]["tags"] == {"cost": "7", "env": "ci"}
    lines = [line.split(None, 1) for line in lockpin("key", "show", key).stdout.splitlines()]
    assert lines[0] == ["FACT", "VALUE"]
    assert [line for line in lines if line[0] in ("user", "groups", "tags")] == [
        ["user", "ann@corp.com"],
        ["groups", "ml, platform"],
        ["tags", "cost=7, env=ci"],
    ]


def test_keys_are_listed_with_their_state(lockpin):
    _, first = made(lockpin)
    _, second = made(lockpin, "--team", "web")
    lockpin("key", "revoke", first)

    table = [line.split() for line in lockpin("key", "list").stdout.splitlines()]
    rows = [line.split(",") for line in lockpin("key", "list", "--output", "csv").stdout.splitlines()]

    assert table[0] == [
        "KEY",
        "USER",
        "TEAM",
        "GROUPS",
        "RING",
        "PROJECT",
        "TAGS",
        "NAME",
        "STATE",
        "CREATED",
        "EXPIRES",
    ]
    assert table[1][:9] == [first, "ann@corp.com", *["-"] * 6, "revoked"]
    assert table[2][:9] == [second, "ann@corp.com", "web", *["-"] * 5, "active"]
    assert rows[0] == (
        [
            "key",
            "name",
            "user",
            "team",
            "groups",
            "ring",
            "project",
            "tags",
            "state",
            "created",
            "expires",
            "revoked",
            "rotated",
        ]
    )
    assert [row[0] for row in rows[1:]] == [first, second]


def test_no_keys_say_how_to_make_one_and_make_no_ledger(lockpin, home):
    done = lockpin("key", "list")

    assert done.stdout == "no keys yet; `lockpin key create --user ID` makes one\n"
    assert not home.ledger.exists()


def test_other_secret_ends_the_one_before_at_once(lockpin, home):
    before, key = made(lockpin)

    done = lockpin("key", "rotate", key)

    assert SECRET.fullmatch(done.stdout) and done.stdout.strip() != before
    assert f"key {key} of ann@corp.com has another secret, good until it is revoked" in done.stderr
    assert "the one before is good no more" in done.stderr
    assert known(home, before) == (key, 0)
    assert known(home, done.stdout.strip()) == (key, 1)
    assert listed(lockpin)[key]["rotated"] is not None


def test_grace_is_said_with_its_end(lockpin, home):
    before, key = made(lockpin, "--expires", "1h")

    done = lockpin("key", "rotate", key, "--grace", "10m", "--expires", "2h")

    with closing(sqlite3.connect(home.ledger)) as books:
        (since, until) = books.execute(
            "SELECT (SELECT max(since) FROM key_digests), until FROM key_digests WHERE digest = ?", (digest_of(before),)
        ).fetchone()
    assert until - since == 600 * 10**6
    ends = f"{datetime.fromtimestamp(until // 10**6, UTC):%M:%S}Z; nobody can show"
    assert re.search(rf"the one before ends at \S+T\d\d:{ends}", done.stderr)
    shown = listed(lockpin)[key]
    hours = datetime.fromisoformat(shown["expires"]) - datetime.fromisoformat(shown["rotated"])
    assert hours == timedelta(hours=2)


def test_revoked_key_stays_revoked(lockpin):
    _, key = made(lockpin)

    assert lockpin("key", "revoke", key).stdout == f"key {key} of ann@corp.com is revoked\n"
    again = lockpin("key", "revoke", key)
    assert again.returncode == 0
    assert again.stdout.startswith(f"key {key} of ann@corp.com was revoked already, at 20")
    rotated = lockpin("key", "rotate", key)
    assert (rotated.returncode, rotated.stdout) == (1, "")
    assert f"key {key} was revoked at" in rotated.stderr


@pytest.mark.parametrize("verb", ["show", "rotate", "revoke"])
@pytest.mark.parametrize("is_used", [False, True])
def test_unknown_key_is_one_line(lockpin, verb, is_used):
    if is_used:
        made(lockpin)
    done = lockpin("key", verb, "k-nobody")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'lockpin: no key "k-nobody"; `lockpin key list` shows the ids\n'


@pytest.mark.parametrize("verb", ["show", "rotate", "revoke"])
def test_secret_in_the_place_of_an_id_is_not_repeated(lockpin, verb):
    secret, _ = made(lockpin)
    done = lockpin("key", verb, secret)

    assert done.returncode == 1
    assert secret[3:] not in done.stdout + done.stderr
    assert 'no key "lp_…"' in done.stderr


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 2, "--user is missing"),
        (("--user", " "), 2, 'user " " is not allowed; 1 to 256 printable characters are'),
        (("--user", "ann", "--team", "a/b"), 2, 'team "a/b" is not allowed'),
        (("--user", "ann", "--tag", "env"), 2, 'tag "env" is not allowed; k=v is'),
        (("--user", "ann", "--expires", "soon"), 2, '--expires is "soon"; a time from 1s to 36500d, such as 30d, is'),
        (("--user", "ann", "--expires", "0s"), 2, '--expires is "0s"; a time from 1s'),
        (("--user", "ann", "--expires", "36501d"), 2, "a time from 1s to 36500d"),
    ],
)
def test_misuse_is_one_line_and_makes_nothing(lockpin, home, words, status, said):
    done = lockpin("key", "create", *words)

    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not home.ledger.exists()


def test_grace_that_is_none_is_one_line(lockpin):
    _, key = made(lockpin)

    for wrong in ("-1h", "91d", "x"):
        done = lockpin("key", "rotate", key, f"--grace={wrong}")
        assert (done.returncode, done.stdout) == (2, "")
        assert f'--grace is "{wrong}"; a time from 0s to 90d, such as 1h, is allowed' in done.stderr


def test_every_change_is_an_event_with_who_and_no_secret(lockpin):
    secret, key = made(lockpin, "--expires", "30d")
    other = lockpin("key", "rotate", key).stdout.strip()
    lockpin("key", "revoke", key)

    done = lockpin("ledger", "events", "--format", "json")

    events = json.loads(done.stdout)
    assert [(e["code"], e["who"], e["loosens"]) for e in events] == [
        ("key_created", "tester", True),
        ("key_rotated", "tester", False),
        ("key_revoked", "tester", False),
    ]
    assert not any(word[3:] in done.stdout for word in (secret, other))
    assert lockpin("verify").returncode == 0


def test_ids_are_offered_by_tab(lockpin):
    _, key = made(lockpin)
    for verb in ("show", "rotate", "revoke"):
        done = lockpin(_LOCKPIN_COMPLETE="complete_bash", COMP_WORDS=f"lockpin key {verb} k-", COMP_CWORD="3")
        assert done.stdout.split() == [key]


def test_secret_that_cannot_be_printed_is_said(lockpin, home, surroundings):
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "lockpin_cli.main", "key", "create", "--user", "ann"]
        done = subprocess.run(
            command, cwd=home.path, env=surroundings, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )

    assert done.returncode == 1
    assert "done, but the answer cannot be written: No space left on device" in done.stderr


def test_no_file_of_the_home_has_a_secret(lockpin, home):
    first, key = made(lockpin, "--name", "laptop")
    second = lockpin("key", "rotate", key, "--grace", "1h").stdout.strip()
    words = "".join(
        done.stdout + done.stderr
        for done in (
            lockpin("key", "show", second), lockpin("key", "revoke", first), lockpin("key", "list", "--format", "json"),
            lockpin("key", "show", key), lockpin("ledger", "events", "--all"), lockpin("ledger", "backup"),
            lockpin("key", "revoke", key), lockpin("verify"), lockpin("key", "rotate", key),
            lockpin("key", "create", "--user", f"{first}\n"), lockpin("budget", "status"),
        )
    )  # fmt: skip
    files = [path for path in home.path.rglob("*") if path.is_file()]

    assert len(files) >= 2
    for secret in (first, second):
        assert secret[3:] not in words
        assert not any(secret[3:].encode() in path.read_bytes() for path in files)


def test_running_ledger_sees_what_a_command_has_changed_at_its_next_question(lockpin, ledger):
    first, key = made(lockpin)

    def asked(secret):
        found = ledger.key(digest_of(secret)).result(10)
        return found and (found.id, found.over)

    assert asked(first) == (key, None)
    second = lockpin("key", "rotate", key).stdout.strip()
    assert (asked(first), asked(second)) == ((key, "rotated"), (key, None))
    lockpin("key", "revoke", key)
    assert (asked(first), asked(second)) == ((key, "revoked"), (key, "revoked"))


def test_limit_of_a_key_is_a_budget_for_it_alone(lockpin, home):
    done = lockpin("key", "create", "--user", "ci", "--limit-usd", "20", "--limit-tokens", "5000", "--window", "day")
    _, other = made(lockpin)

    key, _ = known(home, done.stdout.strip())
    assert "good until it is revoked; its own limit: day, limit $20.00, 5,000 tokens; nobody can show" in done.stderr
    with closing(sqlite3.connect(home.ledger)) as books:
        (definition, source) = books.execute("SELECT definition, source FROM budgets WHERE name = ?", (key,)).fetchone()
    told = json.loads(definition)
    assert source == "command"
    assert (told["scope"], told["keys"], told["enforce"], told["window"]) == ("key", [key], True, "day")
    assert (told["limit_nano"], told["limit_tokens"]) == (20 * 10**9, 5000)
    (limit,) = json.loads(lockpin("key", "show", key, "--format", "json").stdout)["limits"]
    assert (limit["budget"], limit["key"], limit["limit_usd"], limit["spent_usd"]) == (key, f"key:{key}", 20, 0)
    assert (
        "limit    day, limit $20.00, 5,000 tokens; spent $0.00 and 0 tokens, held $0.00 and 0 tokens\n"
        in lockpin("key", "show", key).stdout
    )
    assert json.loads(lockpin("key", "show", other, "--format", "json").stdout)["limits"] == []
    events = json.loads(lockpin("ledger", "events", "--format", "json").stdout)
    assert [event["code"] for event in events] == ["key_created", "budget_defined", "key_created"]
    assert lockpin("verify").returncode == 0


def test_limit_of_a_key_is_changed_like_any_budget_and_stays_its_own(lockpin):
    _, key = made(lockpin, "--limit-usd", "20", "--window", "rolling", "--period", "24h")

    assert "limit_usd was $20.00, is $30.00" in lockpin("budget", "set", key, "--limit-usd", "30").stdout

    (limit,) = json.loads(lockpin("key", "show", key, "--format", "json").stdout)["limits"]
    assert (limit["limit_usd"], limit["window"]) == (30, "rolling 24h")
    _, other = made(lockpin)
    assert json.loads(lockpin("key", "show", other, "--format", "json").stdout)["limits"] == []


def test_limit_of_a_key_is_raised_by_its_name_alone(lockpin):
    _, key = made(lockpin, "--limit-usd", "5", "--window", "day")
    _, other = made(lockpin)

    done = lockpin("budget", "raise", key, "--by", "2")
    assert done.stdout.startswith(f"key:{key}: {key} limit $7.00 until 20")
    assert "limit    day, limit $7.00; spent" in lockpin("key", "show", key).stdout
    assert lockpin("budget", "reset", key).returncode == 0
    wrong = lockpin("budget", "raise", key, "--key", f"key:{other}", "--by", "2")
    assert wrong.returncode == 1
    assert f'budget "{key}" has no account for key "{other}", only for {key}' in wrong.stderr


def test_budget_of_every_key_is_shown_with_each(lockpin):
    _, key = made(lockpin, "--team", "web")
    assert lockpin("budget", "set", "keys", "--scope", "key", "--window", "week", "--limit-usd", "7").returncode == 0

    shown = lockpin("key", "show", key).stdout

    assert "limit    keys: week, limit $7.00; spent $0.00, held $0.00\n" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--limit-usd", "-1"), '--limit-usd is "-1"; a positive amount is allowed'),
        (("--limit-tokens", "0"), "--limit-tokens is"),
        (("--window", "day"), "--window: a window is of a limit; --limit-usd or --limit-tokens is needed"),
        (("--period", "24h"), "--period: a window is of a limit"),
        (("--limit-usd", "1", "--window", "year"), '--window is "year"; '),
        (("--limit-usd", "1", "--window", "rolling"), "a rolling window needs --period"),
        (("--limit-usd", "1", "--period", "24h"), "--period"),
    ],
)
def test_limit_that_cannot_be_is_one_line_and_makes_no_key(lockpin, home, words, said):
    done = lockpin("key", "create", "--user", "ann", *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert lockpin("key", "list", "--format", "json").stdout == "[]\n"


def certificate(home, name, *, days=30):
    """Write a client certificate; give its file and its fingerprint."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    until = datetime.now(UTC) + timedelta(days=days)
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(7).not_valid_before(until - timedelta(days=60)).not_valid_after(until).sign(key, hashes.SHA256())
    )  # fmt: skip
    file = home.path / f"{name}.pem"
    file.write_bytes(made.public_bytes(Encoding.PEM))
    return file, made.fingerprint(hashes.SHA256())


def test_certificate_stands_for_a_key_in_place_of_a_secret(lockpin, home):
    file, fingerprint = certificate(home, "build-7")

    done = lockpin("key", "create", "--user", "ci", "--certificate", str(file))

    key = done.stdout.strip()
    assert (done.returncode, re.fullmatch(r"k-[0-9a-z]{10}", key) is not None) == (0, True)
    assert "who shows its certificate, good until 20" in done.stderr
    with closing(sqlite3.connect(home.ledger)) as books:
        assert books.execute('SELECT "key" FROM key_digests WHERE digest = ?', (fingerprint,)).fetchone() == (key,)


def test_key_with_a_secret_gets_a_certificate(lockpin, home):
    secret, key = made(lockpin)
    file, fingerprint = certificate(home, "next")

    done = lockpin("key", "rotate", key, "--certificate", str(file))

    assert done.stdout == f"{key}\n"
    with closing(sqlite3.connect(home.ledger)) as books:
        sql = 'SELECT digest FROM key_digests WHERE "key" = ? AND until IS NULL'
        assert books.execute(sql, (key,)).fetchall() == [(fingerprint,)]
    assert known(home, secret) != (key, 1)


@pytest.mark.parametrize("fault", ["none", "over", "no file"])
def test_file_without_a_good_certificate_makes_no_key(lockpin, home, fault):
    file, _ = certificate(home, "old", days=-1)
    if fault == "none":
        file.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    if fault == "no file":
        file.unlink()

    done = lockpin("key", "create", "--user", "ci", "--certificate", str(file))

    words = {"none": "has no certificate", "over": "has a certificate that ended at", "no file": "cannot be read"}
    assert done.returncode != 0 and words[fault] in done.stderr and done.stderr.count("\n") == 1
    assert listed(lockpin) == {}
