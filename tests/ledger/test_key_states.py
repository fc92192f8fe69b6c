import pytest

from lockpin_core.keys import KeyFacts, facts_of
from lockpin_core.ledger.key_states import COLUMNS, KeyStates, facts_columns, plain_facts, told_columns

FACTS = facts_of("ann@corp.com", team="web", groups=["ml", "platform"], tags=["env=ci"], name="é")
MADE = {"who": "ada", "key": "k1", "expires": 900, "loosens": True} | plain_facts(FACTS)
ROTATED = {"who": "ada", "key": "k1", "until": 300, "expires": 900, "loosens": False}
REVOKED = {"who": "ada", "key": "k1", "loosens": False}
MADE_ROW = ("é", "ann@corp.com", "web", '["ml","platform"]', None, None, '{"env":"ci"}')


def played(*steps):
    """Apply events, of which only the last may be wrong; give the states and what is said of that one."""
    states, said = KeyStates(), None
    for code, data, at in steps:
        assert said is None
        said = states.apply(code, data, at)
    return states, said


def test_facts_stand_in_a_table_as_an_event_tells_them():
    for facts in (FACTS, KeyFacts(user="bob")):
        told = {name: value for name, value in plain_facts(facts).items() if value}
        assert told_columns(told) == tuple(facts_columns(facts).values())
    assert tuple(facts_columns(FACTS)) == COLUMNS[1:8]


def test_events_make_the_keys_and_the_lives_of_their_secrets():
    steps = [
        ("key_created", MADE, 100),
        ("key_rotated", ROTATED, 200),
        ("key_rotated", ROTATED | {"until": 400, "expires": 1000, "loosens": True}, 250),
        ("key_revoked", REVOKED, 500),
    ]

    states, said = played(*steps)

    assert said is None
    assert states.rows() == {"k1": (*MADE_ROW, 100, 1000, 500, 250)}
    assert states.secrets() == {"k1": [(100, 300), (200, 400), (250, None)]}
    again = KeyStates.of(states.state())
    assert (again.rows(), again.secrets()) == (states.rows(), states.secrets())


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([("key_created", MADE, 100), ("key_created", MADE, 200)], "key k1 was made before"),
        ([("key_rotated", ROTATED, 200)], "key k1 was not made before"),
        ([("key_revoked", REVOKED, 200)], "key k1 was not made before"),
        ([("key_created", MADE, 100), ("key_revoked", REVOKED, 200), ("key_revoked", REVOKED, 300)],
         "key k1 was revoked before"),
        ([("key_created", MADE, 100), ("key_revoked", REVOKED, 200), ("key_rotated", ROTATED, 300)],
         "key k1 was revoked before"),
        ([("key_created", MADE, 100), ("key_rotated", ROTATED, 301)], "what it replaces would have ended before it"),
        ([("key_created", MADE, 100), ("key_rotated", ROTATED | {"until": 900}, 900)], "its key had expired"),
        ([("key_created", MADE | {"loosens": False}, 100)], "it loosens what a key may do, and says otherwise"),
        ([("key_created", MADE, 100), ("key_rotated", ROTATED | {"loosens": True}, 200)],
         "it does not loosen what a key may do, and says otherwise"),
        ([("key_created", MADE, 100), ("key_rotated", ROTATED | {"expires": 901}, 200)],
         "it loosens what a key may do, and says otherwise"),
        ([("key_created", MADE, 100), ("key_rotated", ROTATED | {"expires": None}, 200)],
         "it loosens what a key may do, and says otherwise"),
        ([("key_created", MADE, 100), ("key_revoked", REVOKED | {"loosens": True}, 200)],
         "it does not loosen what a key may do, and says otherwise"),
    ],
)  # fmt: skip
def test_event_that_cannot_be_is_said(steps, said):
    assert played(*steps)[1] == said


def test_key_that_was_to_expire_may_expire_earlier_or_be_given_time_anew():
    assert played(("key_created", MADE, 100), ("key_rotated", ROTATED | {"expires": 800}, 200))[1] is None
    anew = ROTATED | {"until": 950, "expires": 2000, "loosens": True}
    assert played(("key_created", MADE, 100), ("key_rotated", anew, 950))[1] is None
