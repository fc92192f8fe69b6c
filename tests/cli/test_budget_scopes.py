"""`lockpin budget` for people: every scope by command, and which of a budget's accounts is meant."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lockpin_core.budgets import Budget
from lockpin_core.call import Charge, Payers
from lockpin_core.clock import new_id, utc_now
from lockpin_core.config_budgets import daily_budget, own_budget
from lockpin_core.ledger.admin import SqliteAdmin
from lockpin_core.ledger.protocol import Rules
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.money import Money
from lockpin_core.windows import Window
from tests.cli.conftest import _call

RULES = Rules((daily_budget(Money.parse("25"), "UTC"),), own_budget(None, (), "UTC"))
ANN = Payers(
    "fix", "box", "k1", "ann@corp.com", "core", ("ml", "ops"), "r1", "site", (("env", "ci"),),
)  # fmt: skip
BOB = replace(ANN, key="k2", user="bob@corp.com", groups=("ops",), ring="r2", tags=(("env", "prod"),))
# By scope: how its accounts of Ann are called, and what she and Bob have spent on them.
KEYS = {
    "task": [("task:fix", 5)], "machine": [("machine:box", 5)], "key": [("key:k1", 3)],
    "user": [("user:ann@corp.com", 3)], "team": [("team:core", 5)], "group": [("group:ml", 3), ("group:ops", 5)],
    "ring": [("ring:r1", 3)], "project": [("project:site", 5)], "tag": [("tag:env=ci", 3)], "org": [("org:org", 5)],
}  # fmt: skip


@pytest.fixture
def books(home) -> Iterator[SqliteLedger]:
    """A ledger in which Ann has spent $3 and Bob $2."""
    made = SqliteLedger(home.ledger, clock=utc_now, new_id=new_id)
    for name, who, usd in (("a", ANN, "3"), ("b", BOB, "2")):
        made.hold(replace(_call(name, "fix", usd), payers=who), RULES).result(10)
        made.settle(name, Charge(Money.parse(usd), {}, 10, None, None)).result(10)
    yield made
    made.stop()


def spend(books, name, who, usd):
    """Take a hold after commands, so that new budgets have their accounts."""
    books.hold(replace(_call(name, "fix", usd), payers=who), RULES).result(10)
    books.settle(name, Charge(Money.parse(usd), {}, 0, None, None)).result(10)


def rows(lockpin, *words):
    done = lockpin("budget", "status", *words, "--output", "json")
    assert done.returncode == 0, done.stderr
    return {row["key"]: row for row in json.loads(done.stdout)}


@pytest.mark.parametrize("scope", KEYS)
def test_each_scope_is_set_shown_raised_reset_and_removed(lockpin, books, scope):
    more = ["--groups", "ml,ops"] if scope == "group" else []
    made = lockpin("budget", "set", "cap", "--scope", scope, *more, "--window", "week", "--limit-usd", "40")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.startswith(f'budget "cap" is in force: {scope}, week, limit $40.00')
    spend(books, "a2", ANN, "0")

    for key, spent in KEYS[scope]:
        (row,) = rows(lockpin, "--budget", "cap", "--key", key).values()
        assert (row["scope"], row["spent_usd"], row["limit_usd"]) == (scope, spent, 40)
    key, spent = KEYS[scope][0]
    raised = lockpin("budget", "raise", "cap", "--key", key, "--by", "2")
    assert raised.stdout.startswith(f"{key}: cap limit $42.00 until ")
    reset = lockpin("budget", "reset", "cap", "--key", key)
    assert reset.stdout.startswith(f"{key}: cap spent was ${spent}.00 and counts from $0.00 now")
    assert lockpin("budget", "rm", "cap").returncode == 0
    assert lockpin("verify").returncode == 0


def test_a_key_is_read_in_its_one_form(lockpin, books):
    lockpin("budget", "set", "cap", "--scope", "user", "--window", "day", "--limit-usd", "40")
    spend(books, "a2", ANN, "0")
    assert list(rows(lockpin, "--key", "user: Ann@Corp.com ")) == ["user:ann@corp.com"]
    lockpin("budget", "set", "all", "--scope", "org", "--window", "day", "--limit-usd", "40")
    spend(books, "a3", ANN, "0")
    assert list(rows(lockpin, "--key", "org")) == ["org:org"]
    assert "limit $41.00" in lockpin("budget", "raise", "all", "--by", "1").stdout


@pytest.mark.parametrize("key", ["galaxy:x", "user:", "user", "org:us", ":x"])
def test_a_key_that_is_none_is_one_line(lockpin, books, key):
    done = lockpin("budget", "status", "--key", key)
    assert done.returncode == 2
    assert "SCOPE:SUBJECT is allowed, such as user:ann@corp.com" in " ".join(done.stderr.split())


def test_an_account_that_nobody_can_have_is_refused(lockpin, books):
    lockpin("budget", "set", "squads", "--scope", "group", "--groups", "ml", "--window", "day", "--limit-usd", "4")
    lockpin("budget", "set", "each", "--scope", "user", "--window", "day", "--limit-usd", "4")
    spend(books, "a2", ANN, "0")

    other = lockpin("budget", "raise", "squads", "--key", "group:ops", "--by", "1")
    stranger = lockpin("budget", "raise", "each", "--key", "user:eve@corp.com", "--by", "1")
    scope = lockpin("budget", "raise", "each", "--key", "task:fix", "--by", "1")

    assert (other.returncode, other.stderr) == (
        1, 'lockpin: budget "squads" has no account for group "ops", only for ml\n',
    )  # fmt: skip
    assert (stranger.returncode, stranger.stderr) == (
        1, 'lockpin: no user "eve@corp.com" has an account or is named by a key; there is ann@corp.com\n',
    )  # fmt: skip
    assert scope.returncode == 2
    assert "user:… is allowed" in scope.stderr


@pytest.mark.parametrize("words", [("raise", "--by", "1"), ("raise", "--undo"), ("reset",)])
@pytest.mark.parametrize(
    ("scope", "flag", "listed", "key"),
    [
        ("user", "--users", "bob@corp.com", "user:ann@corp.com"), ("ring", "--rings", "r2", "ring:r1"),
        ("tag", "--tags", "env=prod", "tag:env=ci"), ("project", "--projects", "shop", "project:site"),
    ],
)  # fmt: skip
def test_one_whom_a_budget_does_not_count_is_refused(lockpin, books, words, scope, flag, listed, key):
    lockpin("budget", "set", "few", "--scope", scope, flag, listed, "--window", "week", "--limit-usd", "5")
    verb, *more = words
    done = lockpin("budget", verb, "few", "--key", key, *more)
    subject = key.partition(":")[2]
    said = f'lockpin: budget "few" has no account for {scope} "{subject}", only for {listed}\n'
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_somebody_who_has_a_key_and_never_called_may_be_raised(lockpin, books):
    lockpin("budget", "set", "each", "--scope", "user", "--window", "day", "--limit-usd", "4")
    assert lockpin("key", "create", "--user", "Eve@Corp.com").returncode == 0
    done = lockpin("budget", "raise", "each", "--key", "user:eve@corp.com", "--by", "1")
    assert done.stdout.startswith("user:eve@corp.com: each limit $5.00 until ")


def test_filters_are_set_shown_and_taken_off(lockpin, books):
    words = ["--scope", "org", "--window", "day", "--limit-usd", "4"]
    made = lockpin(
        "budget", "set", "cap", *words, "--users", "Ann@Corp.com,bob@corp.com", "--rings", "r1", "--tags", "env=ci"
    )
    assert made.stdout == (
        'budget "cap" is in force: org, day, limit $4.00, only users ann@corp.com, bob@corp.com, only rings r1, '
        "only tags env=ci; it enforces from the next call on\n"
    )
    off = lockpin("budget", "set", "cap", "--rings", "none", "--projects", "site")
    assert "rings was [r1], is []; projects was [], is [site]" in off.stdout
    wrong = lockpin("budget", "set", "cap", "--users", "*@corp.com")
    assert wrong.returncode == 2
    assert "whole names are allowed, and no patterns" in " ".join(wrong.stderr.split())


def test_a_scope_of_groups_needs_groups(lockpin, books):
    done = lockpin("budget", "set", "squads", "--scope", "group", "--window", "day", "--limit-usd", "4")
    assert done.returncode == 2
    assert "has --scope group and no --groups" in " ".join(done.stderr.split())


def test_a_keys_own_budget_stays_its_own_when_it_is_changed(lockpin, home, books):
    admin = SqliteAdmin(home.ledger, clock=utc_now, new_id=new_id)
    own = Budget("key k1", "key", Window("day"), Money.parse("5"), enforce=True, keys=("k1",))
    admin.budget_set(own, who="x")

    done = lockpin("budget", "set", "key k1", "--limit-usd", "6")

    assert "limit_usd was $5.00, is $6.00" in done.stdout
    assert [s.budget for s in admin.budgets() if s.budget.name == "key k1"] == [replace(own, limit=Money.parse("6"))]


def test_a_limit_in_tokens_alone_is_reset_and_not_raised_in_its_own_words(lockpin, books):
    assert (
        lockpin("budget", "set", "canary", "--scope", "ring", "--window", "day", "--limit-tokens", "8000").returncode
        == 0
    )
    spend(books, "a2", ANN, "0")

    raised = lockpin("budget", "raise", "canary", "--key", "ring:r1", "--by", "10")
    reset = lockpin("budget", "reset", "canary", "--key", "ring:r1")

    assert (raised.returncode, raised.stderr) == (
        1,
        (
            'lockpin: budget "canary" of "r1" has no dollar limit to raise, only one of 8,000 tokens: `lockpin budget set '
            "canary --limit-tokens N` sets another, `lockpin budget reset canary --key ring:r1` lets it count from now on\n"
        ),
    )
    assert reset.stdout == (
        "ring:r1: canary spent was $3.00 and 10 tokens and counts from $0.00 and 0 tokens now, held $0.00 and 0 tokens, "
        "limit 8,000 tokens\n"
    )


def test_an_account_of_a_scope_that_no_budget_has_is_told_as_that(lockpin, books):
    lockpin("budget", "set", "each", "--scope", "team", "--window", "day", "--limit-usd", "40")
    spend(books, "a2", ANN, "0")
    assert lockpin("budget", "rm", "each").returncode == 0

    done = lockpin("budget", "status", "--key", "team:core")

    assert (done.returncode, done.stdout) == (
        0,
        (
            "no budget has the scope team, so team:core has no limit of its own; `lockpin report --by team` says what it has "
            "spent\n"
        ),
    )


def test_of_a_user_it_is_told_which_other_accounts_may_stop_their_calls(lockpin, books):
    assert lockpin("key", "create", "--user", "ann@corp.com", "--group", "ml", "--ring", "r1").returncode == 0
    for name, *words in (("each", "user"), ("squads", "group", "--groups", "ml,ops"), ("canary", "ring")):
        lockpin("budget", "set", name, "--scope", *words, "--window", "day", "--limit-usd", "40")

    done = lockpin("budget", "status", "--key", "user:ann@corp.com")
    group = lockpin("budget", "status", "--key", "group:ml")

    assert "calls of user:ann@corp.com are charged to ring:r1, group:ml too; --key shows each" in done.stderr
    assert "charged to" not in group.stderr


def test_a_keys_account_says_whose_it_is_and_limits_have_no_decimals_of_what_is_spent(lockpin, books):
    key = json.loads(
        [lockpin("key", "create", "--user", "Ann@Corp.com"), lockpin("key", "list", "--format", "json")][1].stdout
    )[0]["key"]
    lockpin("budget", "set", "each-key", "--scope", "key", "--window", "day", "--limit-usd", "50000")
    spend(books, "a2", replace(ANN, key=key), "0.0214")

    lines = lockpin("budget", "status", "--budget", "each-key").stdout.splitlines()

    assert [line.split()[1:8] for line in lines[1:] if key in line] == [
        [f"key:{key}", "(ann@corp.com)", "day", "enforce", "$0.0214", "$0.00", "$50,000.00"]
    ]
    (row,) = rows(lockpin, "--budget", "each-key", "--key", f"key:{key}").values()
    assert (row["key"], row["subject"]) == (f"key:{key}", key)


def test_a_keys_own_limit_can_be_set_anew_after_it_was_taken_away(lockpin, home):
    home.config("mode: team\n")
    lockpin("key", "create", "--user", "ann", "--limit-usd", "5")
    (key,) = json.loads(lockpin("key", "list", "--format", "json").stdout)
    gone = lockpin("budget", "rm", key["key"])

    back = lockpin("budget", "set", key["key"], "--limit-usd", "1")
    stored = json.loads(lockpin("key", "show", key["key"], "--format", "json").stdout)

    assert gone.stdout.endswith(f"; the key {key['key']} has no limit of its own now\n")
    assert (back.returncode, back.stderr) == (0, "")
    assert f'budget "{key["key"]}" is in force: key, lifetime, limit $1.00' in back.stdout
    (limit,) = stored["limits"]
    assert (limit["budget"], limit["key"], limit["limit_usd"]) == (key["key"], f"key:{key['key']}", 1)
    lockpin("key", "create", "--user", "bob")
    (other,) = [each["key"] for each in json.loads(lockpin("key", "list", "--format", "json").stdout) if each != key]
    assert json.loads(lockpin("key", "show", other, "--format", "json").stdout)["limits"] == []


def test_a_group_that_no_key_has_is_said(lockpin, home):
    home.config("mode: team\n")
    lockpin("key", "create", "--user", "ann", "--group", "web")

    words = ("--scope", "group", "--window", "day", "--limit-usd", "5", "--groups")
    nobodys, hers = lockpin("budget", "set", "x", *words, "nosuch"), lockpin("budget", "set", "y", *words, "web")

    assert (nobodys.returncode, hers.returncode, hers.stderr) == (0, 0, "")
    assert nobodys.stderr == 'lockpin: warning: budget "x" can never match: no key has the group nosuch\n'
