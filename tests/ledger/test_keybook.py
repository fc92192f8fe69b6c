"""How keys stand in the file: the events of their changes, and that nothing else is there."""

import json
from datetime import timedelta

import pytest

from lockpin_core.errors import CommandError
from lockpin_core.keys import digest_of, facts_of, new_secret
from lockpin_core.ledger.maintain import backup
from lockpin_core.ledger.prune import plan, prune
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.ledger.verify import verify
from tests.ledger import everything
from tests.ledger.desk import NOON, SqliteDesk
from tests.ledger.key_contract import DAY, FACTS, FIRST, HOUR, SECOND, THIRD, asked, make, rotate

NOON_US = int(NOON.timestamp()) * 10**6
DAY_US, HOUR_US = 86_400 * 10**6, 3600 * 10**6


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


def events(desk):
    rows = desk.query("SELECT code, at, data FROM rows WHERE kind = 'event' AND code LIKE 'key_%' ORDER BY id")
    return [(row["code"], row["at"], json.loads(row["data"])) for row in rows]


def test_every_change_is_one_event_that_says_who_what_and_whether_it_loosens(desk):
    make(desk, lifetime=DAY)
    desk.clock.pass_by(hours=1)
    rotate(desk, grace=HOUR)
    rotate(desk, THIRD, lifetime=DAY)
    desk.admin.key_revoke("k1", who="bob")
    desk.admin.key_revoke("k1", who="cy")  # it is already

    facts = {
        "user": "ann@corp.com", "team": "web", "groups": ["ml", "platform"], "ring": "ring1", "project": "site",
        "tags": {"cost": "7", "env": "ci"}, "name": "Ann's laptop",
    }  # fmt: skip
    later = NOON_US + HOUR_US
    assert events(desk) == [
        ("key_created", NOON_US, {"who": "ada", "key": "k1", "expires": NOON_US + DAY_US, "loosens": True, **facts}),
        ("key_rotated", later,
         {"who": "ada", "key": "k1", "until": later + HOUR_US, "expires": NOON_US + DAY_US, "loosens": False}),
        ("key_rotated", later,
         {"who": "ada", "key": "k1", "until": later, "expires": later + DAY_US, "loosens": True}),
        ("key_revoked", later, {"who": "bob", "key": "k1", "loosens": False}),
    ]  # fmt: skip
    assert verify(desk.path).wrong is None


def test_change_that_is_refused_leaves_nothing(desk):
    make(desk)
    before = [list(map(tuple, desk.query(f"SELECT * FROM {table}"))) for table in ("rows", "keys", "key_digests")]

    for wrong in (lambda: make(desk, digest=SECOND), lambda: make(desk, "k2"), lambda: rotate(desk, FIRST)):
        with pytest.raises(CommandError):
            wrong()

    after = [list(map(tuple, desk.query(f"SELECT * FROM {table}"))) for table in ("rows", "keys", "key_digests")]
    assert after == before


def test_reader_lists_keys_as_they_are_at_an_instant(desk):
    make(desk, lifetime=DAY)
    make(desk, "k2", SECOND)
    desk.admin.key_revoke("k2", who="ada")

    with LedgerReader(desk.path) as reader:
        assert [(key.id, key.over) for key in reader.keys(now=NOON)] == [("k1", None), ("k2", "revoked")]
        assert [key.over for key in reader.keys(now=NOON + DAY)] == ["expired", "revoked"]
        assert reader.keys(now=NOON) == desk.admin.key_list()


def test_backup_has_the_keys(desk):
    make(desk)
    made = backup(desk.path, None, now=NOON, new_id=desk.new_id)

    assert made.verdict.wrong is None
    with LedgerReader(made.path) as reader:
        assert [key.id for key in reader.keys(now=NOON)] == ["k1"]


def test_rows_may_go_and_the_keys_they_made_stay(desk):
    everything.fill(desk)
    desk.ledger.stop()  # what is open is charged
    desk.ledger = desk.open()
    desk.clock.pass_by(days=2)
    desk.look_after()
    desk.clock.pass_by(days=200)
    desk.admin.key_create("new", facts_of("new@corp.com"), FIRST, lifetime=None, who="ada")
    keys = desk.admin.key_list()

    wanted = plan(desk.path, desk.clock() - timedelta(days=100))
    prune(desk.path, wanted, clock=desk.clock, new_id=desk.new_id, who="ada")

    assert len(desk.query("SELECT 1 FROM rows WHERE code = 'key_created'")) == 1
    assert desk.admin.key_list() == keys
    assert asked(desk, digest_of("3")).id == "k1"
    assert verify(desk.path).wrong is None
    desk.admin.key_rotate("k1", SECOND, grace=HOUR, lifetime=DAY, who="ada")
    assert verify(desk.path).wrong is None
    with everything.forging(desk.path) as books:
        books.execute("UPDATE keys SET revoked = NULL WHERE id = 'k2'")
    assert "key k2: revoked is nothing, and its rows say" in verify(desk.path).wrong.words


def test_no_file_has_a_secret_or_tells_a_digest_in_a_row(desk):
    secrets = [new_secret() for _ in range(4)]
    first, second, third, unknown = map(digest_of, secrets)
    make(desk, digest=first, facts=FACTS)
    rotate(desk, second, grace=HOUR)
    make(desk, "k2", third)
    desk.admin.key_revoke("k2", who="ada")
    for digest in (first, second, third, unknown):
        asked(desk, digest)
    with pytest.raises(CommandError):
        desk.admin.key_revoke(secrets[0], who="ada")
    backup(desk.path, None, now=NOON, new_id=desk.new_id)

    files = [path for path in desk.path.parent.rglob("*") if path.is_file()]
    assert {"ledger.sqlite3", "ledger.sqlite3-wal"} < {path.name for path in files}
    for path in files:
        assert not any(secret[3:].encode() in path.read_bytes() for secret in secrets), path
    rows = "".join(str(tuple(row)) for row in desk.query("SELECT * FROM rows"))
    for digest in (first, second, third):
        assert digest.hex() not in rows.lower() and str(digest) not in rows
