"""What every ledger must do with keys."""

from datetime import timedelta

import pytest

from lockpin_core.budgets import Budget
from lockpin_core.errors import CommandError
from lockpin_core.keys import KeyFacts, digest_of
from lockpin_core.ledger.protocol import Held, Short
from tests.ledger.desk import DAY as DAY_WINDOW
from tests.ledger.desk import NOON, WAIT_S, call, machine, money, rules

FACTS = KeyFacts(
    user="ann@corp.com", team="web", groups=("ml", "platform"), ring="ring1", project="site",
    tags=(("cost", "7"), ("env", "ci")), name="Ann's laptop",
)  # fmt: skip
BARE = KeyFacts(user="bob@corp.com")
FIRST, SECOND, THIRD = (digest_of(f"secret {n}") for n in range(3))
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NO_GRACE = timedelta(0)


def asked(desk, digest):
    return desk.ledger.key(digest).result(WAIT_S)


def make(desk, key="k1", digest=FIRST, facts=FACTS, lifetime=None):
    return desk.admin.key_create(key, facts, digest, lifetime=lifetime, who="ada")


def rotate(desk, digest=SECOND, key="k1", grace=NO_GRACE, lifetime=None):
    return desk.admin.key_rotate(key, digest, grace=grace, lifetime=lifetime, who="ada")


class KeyContract:
    def test_key_is_found_by_the_digest_of_its_secret_with_all_that_it_stands_for(self, desk):
        made = make(desk)

        found = asked(desk, FIRST)

        assert found == made
        assert (found.id, found.created, found.over, found.ends()) == ("k1", NOON, None, None)
        assert {name: getattr(found, name) for name in KeyFacts.__slots__} == {
            name: getattr(FACTS, name) for name in KeyFacts.__slots__
        }

    def test_key_of_a_user_alone_has_nothing_else(self, desk):
        make(desk, facts=BARE)

        found = asked(desk, FIRST)

        assert (found.user, found.team, found.groups, found.ring) == ("bob@corp.com", None, (), None)
        assert (found.project, found.tags, found.name) == (None, (), None)

    def test_secret_that_no_key_ever_had_is_nobodys(self, desk):
        make(desk)

        assert asked(desk, SECOND) is None
        assert asked(desk, b"") is None

    def test_key_is_over_from_the_instant_at_which_it_expires(self, desk):
        assert make(desk, lifetime=DAY).expires == NOON + DAY

        desk.clock.pass_by(days=1, microseconds=-1)
        assert asked(desk, FIRST).over is None
        desk.clock.pass_by(microseconds=1)
        assert asked(desk, FIRST).over == "expired"

    def test_revoked_key_is_over_and_stays_it(self, desk):
        make(desk, lifetime=DAY)
        make(desk, "k2", SECOND)
        desk.clock.pass_by(minutes=1)

        revoked = desk.admin.key_revoke("k1", who="ada")

        assert (revoked.over, revoked.revoked) == ("revoked", NOON + timedelta(minutes=1))
        desk.clock.pass_by(days=2)
        assert asked(desk, FIRST).over == "revoked"
        assert asked(desk, SECOND).over is None
        assert desk.admin.key_revoke("k1", who="bob").revoked == NOON + timedelta(minutes=1)

    def test_other_secret_ends_the_one_before_at_once(self, desk):
        make(desk)
        desk.clock.pass_by(minutes=1)

        rotated = rotate(desk)

        assert (rotated.rotated, rotated.created) == (NOON + timedelta(minutes=1), NOON)
        assert asked(desk, FIRST).over == "rotated"
        assert asked(desk, SECOND).over is None
        assert asked(desk, SECOND).user == FACTS.user

    def test_secret_before_is_good_for_the_grace_and_no_longer(self, desk):
        make(desk)

        rotate(desk, grace=HOUR)

        assert (asked(desk, FIRST).over, asked(desk, FIRST).ends()) == (None, NOON + HOUR)
        assert asked(desk, SECOND).ends() is None
        desk.clock.pass_by(hours=1)
        assert (asked(desk, FIRST).over, asked(desk, SECOND).over) == ("rotated", None)

    @pytest.mark.parametrize(("second", "ends"), [(NO_GRACE, timedelta(minutes=10)), (3 * HOUR, HOUR)])
    def test_grace_is_never_made_longer_by_a_later_one(self, desk, second, ends):
        make(desk)
        rotate(desk, grace=HOUR)
        desk.clock.pass_by(minutes=10)

        rotate(desk, THIRD, grace=second)

        assert asked(desk, FIRST).ends() == NOON + ends
        assert asked(desk, SECOND).ends() == NOON + timedelta(minutes=10) + second
        assert asked(desk, THIRD).ends() is None

    def test_rotation_keeps_the_expiry_or_sets_a_new_one(self, desk):
        make(desk, lifetime=DAY)
        desk.clock.pass_by(hours=12)
        assert rotate(desk).expires == NOON + DAY

        assert rotate(desk, THIRD, lifetime=DAY).expires == NOON + timedelta(hours=36)

    def test_expired_key_needs_more_time_to_be_rotated(self, desk):
        make(desk, lifetime=HOUR)
        desk.clock.pass_by(hours=1)

        with pytest.raises(CommandError, match=r"key k1 expired at 2026-10-21T13:00:00Z; --expires 30d gives it more"):
            rotate(desk)
        assert rotate(desk, lifetime=HOUR).over is None
        assert asked(desk, SECOND).over is None

    def test_revoked_key_gets_no_other_secret(self, desk):
        make(desk)
        desk.admin.key_revoke("k1", who="ada")

        with pytest.raises(
            CommandError, match=r"key k1 was revoked at 2026-10-21T12:00:00Z; `lockpin key create` makes"
        ):
            rotate(desk, lifetime=DAY)
        assert asked(desk, SECOND) is None

    def test_id_and_secret_are_each_had_once(self, desk):
        make(desk)
        rotate(desk)

        with pytest.raises(CommandError, match="there is a key k1 already"):
            make(desk, digest=THIRD)
        for used in (FIRST, SECOND):
            with pytest.raises(CommandError, match="this secret was a key's before"):
                make(desk, "k2", used)
            with pytest.raises(CommandError, match="this secret was a key's before"):
                rotate(desk, used)
        assert asked(desk, THIRD) is None
        assert [key.id for key in desk.admin.key_list()] == ["k1"]
        assert (asked(desk, FIRST).over, asked(desk, SECOND).over) == ("rotated", None)

    @pytest.mark.parametrize("do", ["rotate", "revoke"])
    def test_unknown_key_is_named_and_a_secret_in_its_place_is_not(self, desk, do):
        for wrong, said in (("k9", 'no key "k9"; `lockpin key list`'), ("lp_" + "7" * 52, 'no key "lp_…"; ')):
            with pytest.raises(CommandError, match=said) as error:
                rotate(desk, key=wrong) if do == "rotate" else desk.admin.key_revoke(wrong, who="ada")
            assert "7777" not in str(error.value)

    def test_limit_of_a_key_is_made_with_it_and_holds_for_its_calls_alone(self, desk):
        limit = Budget("any", "task", DAY_WINDOW, money("0.5"), enforce=True)
        desk.admin.key_create("k1", FACTS, FIRST, lifetime=None, who="ada", limit=limit)
        make(desk, "k2", SECOND)

        def hold(call_id, key):
            asked = call(call_id, "0.3", key=key, user=FACTS.user)
            return desk.ledger.hold(asked, rules(machine("9"))).result(WAIT_S)

        assert isinstance(hold("c1", "k1"), Held)
        short = hold("c2", "k1")
        assert [(s.budget.name, s.subject, s.limit) for s in short.violations] == [("k1", "k1", money("0.5"))]
        assert isinstance(hold("c3", "k2"), Held)
        assert isinstance(hold("c5", "k2"), Held)  # $0.60 by now, which no limit of its own stops
        rotate(desk, THIRD)
        assert isinstance(hold("c4", "k1"), Short)
        assert [b.budget.name for b in desk.admin.budgets() if b.source == "command"] == ["k1"]

    def test_key_whose_limit_cannot_be_is_not_made(self, desk):
        limit = Budget("any", "task", DAY_WINDOW, money("2000000000"), enforce=True)
        with pytest.raises(CommandError, match="is too much"):
            desk.admin.key_create("k1", FACTS, FIRST, lifetime=None, who="ada", limit=limit)
        assert desk.admin.key_list() == []
        assert asked(desk, FIRST) is None

    def test_keys_are_listed_oldest_first_as_they_are_now(self, desk):
        make(desk, "kb", FIRST, lifetime=HOUR)
        make(desk, "ka", SECOND)
        desk.clock.pass_by(hours=2)
        make(desk, "k0", THIRD)
        desk.admin.key_revoke("ka", who="ada")

        assert [(key.id, key.over) for key in desk.admin.key_list()] == [
            ("ka", "revoked"),
            ("kb", "expired"),
            ("k0", None),
        ]
