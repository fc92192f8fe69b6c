"""Any life of keys: both ledgers say of every secret what a few lines say that know nothing of tables or events."""

import os
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.errors import CommandError
from lockpin_core.keys import KeyFacts, digest_of
from lockpin_core.ledger.verify import verify
from tests.ledger.backends import SHARED
from tests.ledger.desk import NOON, WAIT_S, MemoryDesk, SqliteDesk

KEYS = ("k0", "k1", "k2")
HOURS = st.sampled_from([0, 1, 2, 5])
LIFETIMES = st.none() | st.sampled_from([1, 3, 24])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("make"), st.sampled_from(KEYS), LIFETIMES),
        st.tuples(st.just("rotate"), st.sampled_from(KEYS), HOURS, LIFETIMES),
        st.tuples(st.just("revoke"), st.sampled_from(KEYS)),
        st.tuples(st.just("pass"), st.integers(0, 5)),
    ),
    max_size=14,
)


@dataclass
class Life:
    """One key's: when it ends, and when each of its secrets does; None: never."""

    expires: int | None
    revoked: bool = False
    secrets: dict[int, int | None] = field(default_factory=dict)

    def over(self, secret, hour):
        if self.revoked:
            return "revoked"
        if self.expires is not None and self.expires <= hour:
            return "expired"
        return "rotated" if self.secrets[secret] is not None and self.secrets[secret] <= hour else None


class Model:
    def __init__(self):
        self.hour, self.lives, self.made = 0, {}, 0

    def make(self, key, lifetime):
        if key in self.lives:
            return None
        self.lives[key] = Life(None if lifetime is None else self.hour + lifetime)
        return self.add(key)

    def rotate(self, key, grace, lifetime):
        life = self.lives.get(key)
        if life is None or life.revoked:
            return None
        if lifetime is None and life.expires is not None and life.expires <= self.hour:
            return None
        for secret, ends in life.secrets.items():
            life.secrets[secret] = self.hour + grace if ends is None else min(ends, self.hour + grace)
        life.expires = life.expires if lifetime is None else self.hour + lifetime
        return self.add(key)

    def revoke(self, key):
        if key not in self.lives:
            return None
        self.lives[key].revoked = True
        return True

    def add(self, key):
        self.made += 1
        self.lives[key].secrets[self.made] = None
        return True


def hours(count):
    return None if count is None else timedelta(hours=count)


def do(desk, step, secret):
    """Take one step; give whether it was taken."""
    what, *said = step
    try:
        if what == "make":
            facts, digest = KeyFacts(user="u"), digest_of(str(secret))
            desk.admin.key_create(said[0], facts, digest, lifetime=hours(said[1]), who="ada")
        elif what == "rotate":
            grace, lifetime = hours(said[1]), hours(said[2])
            desk.admin.key_rotate(said[0], digest_of(str(secret)), grace=grace, lifetime=lifetime, who="ada")
        else:
            desk.admin.key_revoke(said[0], who="ada")
    except CommandError:
        return None
    return True


def compare(desk, model):
    for key, life in model.lives.items():
        for secret in life.secrets:
            found = desk.ledger.key(digest_of(str(secret))).result(WAIT_S)
            ends = life.secrets[secret]
            assert (found.id, found.over) == (key, life.over(secret, model.hour))
            assert found.secret_until == (None if ends is None else NOON + timedelta(hours=ends))
            assert found.expires == (None if life.expires is None else NOON + timedelta(hours=life.expires))
    assert desk.ledger.key(digest_of(str(model.made + 1))).result(WAIT_S) is None


@given(STEPS)
def test_every_ledger_says_of_every_secret_what_its_life_says(steps):
    with tempfile.TemporaryDirectory(dir=SHARED if os.access(SHARED, os.W_OK) else None) as folder:
        desks, model = (MemoryDesk(), SqliteDesk(Path(folder))), Model()
        for step in steps:
            if step[0] == "pass":
                model.hour += step[1]
                for desk in desks:
                    desk.clock.pass_by(hours=step[1])
                continue
            secret = model.made + 1
            taken = getattr(model, step[0])(*step[1:])
            assert [do(desk, step, secret) for desk in desks] == [taken] * 2, step
        for desk in desks:
            compare(desk, model)
        assert desks[0].admin.key_list() == desks[1].admin.key_list()
        desks[1].close()
        assert verify(desks[1].path).wrong is None
