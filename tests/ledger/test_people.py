"""Books of people on a file: what `verify` sees in them, what `prune` leaves, what a file keeps over a crash."""

import pytest

from lockpin_core.ledger.protocol import Held, Short
from lockpin_core.ledger.prune import plan, prune
from lockpin_core.ledger.verify import verify
from lockpin_core.windows import Window
from tests.ledger.contract import hold, settle, void
from tests.ledger.desk import LIFETIME, SqliteDesk, machine, money, rules
from tests.ledger.everything import forge
from tests.ledger.scopes_contract import ANN, BOB, SUBJECTS, scoped, stands

BUDGETS = [scoped(scope, "90", name=scope, window=LIFETIME) for scope in sorted(SUBJECTS) if scope != "task"]
RULES = rules(*BUDGETS, scoped("user", "80", name="ops-day", groups=("ops",)), scoped("task", "50", name="tasks"))


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


def fill(desk):
    """Let people call, be corrected, raised and reset, and let budgets of theirs come and go."""
    hold(desk, "c1", "5", RULES, **ANN)
    settle(desk, "c1", "4")
    hold(desk, "c2", "5", RULES, **BOB)
    settle(desk, "c2", "3")
    hold(desk, "c3", "5", RULES)
    void(desk, "c3")
    desk.admin.task_new("site", limit=money("9"), window="day", who="x", user="ann")
    hold(desk, "c4", "2", RULES, **ANN, task="site")
    settle(desk, "c4", "1")
    late = scoped("group", "60", name="squads", window=LIFETIME, groups=("ops",))
    desk.admin.budget_set(late, who="x")
    hold(desk, "c5", "2", RULES, **ANN)
    desk.admin.correct("c2", money("3.5"), reason="billed more", who="x")
    desk.admin.raise_budget(BUDGETS[-1], "ann", money("1"), who="x")
    desk.admin.reset_budget(BUDGETS[-1], "bob", who="x")
    desk.clock.pass_by(days=1)
    desk.admin.budget_set(scoped("group", "60", name="squads", window=LIFETIME, groups=("ml",)), who="x")
    hold(desk, "c6", "2", RULES, **BOB)
    settle(desk, "c6", "1.5")
    desk.admin.budget_set(scoped("group", "60", name="squads", window=LIFETIME, groups=("ops", "ml")), who="x")
    hold(desk, "c7", "1", RULES, **ANN)
    settle(desk, "c7", "0.5")
    settle(desk, "c5", "2")


def test_books_of_people_are_right(desk):
    fill(desk)
    assert verify(desk.path).wrong is None
    # Ops: Ann's 4, 1, 2 and 0.5, and Bob's 3.5 and 1.5, of which it was not listed for the last.
    assert stands(desk, RULES, BOB)["squads", "ops"] == ("12.5", "0")
    assert stands(desk, RULES, ANN)["squads", "ml"] == ("7.5", "0")


@pytest.mark.parametrize(
    ("call", "change"),
    [
        ("c1", "\"user\" = 'eve'"),
        ("c1", '"user" = NULL'),
        ("c1", "\"key\" = 'k9'"),
        ("c1", "team = 'core2'"),
        ("c1", "ring = NULL"),
        ("c1", "project = 'Site'"),
        ("c1", """"groups" = '["ml"]'"""),
        ("c1", """"groups" = '["ml","ops","web"]'"""),
        ("c2", "\"groups\" = '[]'"),
        ("c1", """tags = '{"env":"ci"}'"""),
        ("c1", """tags = '{"env":"cd","zone":"eu"}'"""),
        ("c4", "\"user\" = 'bob'"),
        ("c3", "\"user\" = 'ann'"),
    ],
)
def test_a_row_that_says_somebody_else_is_found_where_chains_and_tables_were_made_anew(desk, call, change):
    fill(desk)
    desk.ledger.stop()
    forge(desk.path, f"UPDATE rows SET {change} WHERE call = '{call}' AND kind IN ('hold', 'charge', 'void')")
    assert verify(desk.path).wrong is not None


@pytest.mark.parametrize("account", ["user␟user␟ann␟", "group␟group␟ml␟", "tag␟tag␟zone=eu␟", "org␟org␟org␟"])
def test_a_call_that_was_taken_off_one_of_its_accounts_is_found(desk, account):
    fill(desk)
    desk.ledger.stop()
    written = account.replace("␟", "\\u001f")
    forge(
        desk.path,
        f"""UPDATE rows SET accounts = replace(replace(accounts, ',"{written}"', ''), '"{written}",', '')
            WHERE call = 'c7' AND kind IN ('hold', 'charge')""",
    )
    wrong = verify(desk.path).wrong
    assert "which counts it" in wrong.words


@pytest.mark.parametrize("whose", ["", "@bob"])
def test_a_call_on_the_account_of_somebody_else_whose_the_task_was_is_found(desk, whose):
    for user in ("bob", "ann"):
        desk.admin.task_new("site", limit=money("9"), window="lifetime", who="x", user=user)
        hold(desk, f"c {user}", "2", RULES, **{"ann": ANN, "bob": BOB}[user], task="site")
        settle(desk, f"c {user}", "1")
    desk.admin.task_new("site", limit=money("9"), window="lifetime", who="x", user="bob")
    desk.ledger.stop()
    assert verify(desk.path).wrong is None
    forge(desk.path, f"UPDATE rows SET accounts = replace(accounts, '@ann', '{whose}') WHERE call = 'c ann'")
    assert "the owner is another" in verify(desk.path).wrong.words


def test_a_user_gets_a_task_back_with_what_was_spent_on_it_though_its_rows_were_taken_out(desk):
    for user in ("ann", "bob"):
        desk.admin.task_new("site", limit=money("9"), window="lifetime", who="x", user=user)
        hold(desk, f"c {user}", "2", RULES, **ANN, task="site")
        settle(desk, f"c {user}", "1.5")
    desk.clock.pass_by(days=100)
    hold(desk, "c9", "0", RULES, **BOB)

    taken = prune(desk.path, plan(desk.path, desk.clock()), clock=desk.clock, new_id=desk.new_id, who="ada")
    back = desk.admin.task_new("site", limit=None, window="lifetime", who="x", user="ann")

    assert taken > 0
    assert (back.spent, back.held) == (money("3"), money("0"))
    assert verify(desk.path).wrong is None


@pytest.mark.parametrize("spent", ["0", "4000000001", "9000000000"])
def test_what_a_later_account_begins_with_is_compared(desk, spent):
    fill(desk)
    desk.ledger.stop()
    forge(
        desk.path,
        f"""UPDATE rows SET data = json_set(data, '$.spent_nano', {spent})
            WHERE code = 'account_opened' AND data LIKE '%squads%ops%'""",
    )
    assert "and the rows before say $8 and 60 tokens" in verify(desk.path).wrong.words


def test_a_pruned_ledger_of_people_goes_on(desk):
    fill(desk)
    desk.admin.budget_set(scoped("group", "60", name="squads", window=LIFETIME, groups=("ml",)), who="x")
    hold(desk, "c8", "2", RULES, **BOB)
    settle(desk, "c8", "1.25")  # ops is not listed: it is counted when its row is taken out
    before = stands(desk, RULES, ANN)
    desk.clock.pass_by(days=100)
    hold(desk, "c9", "0", RULES, **BOB)

    wanted = plan(desk.path, desk.clock())
    taken = prune(desk.path, wanted, clock=desk.clock, new_id=desk.new_id, who="ada")

    assert taken > 0
    assert verify(desk.path).wrong is None
    lifetimes = {key: value for key, value in before.items() if key[0] not in ("ops-day", "tasks")}
    now = stands(desk, RULES, ANN)
    assert {key: now[key] for key in lifetimes} == lifetimes
    desk.admin.budget_set(scoped("group", "60", name="squads", window=LIFETIME, groups=("ops",)), who="x")
    assert isinstance(hold(desk, "c10", "46.25", RULES, **BOB), Held)  # of 60, with 12.5 and 1.25 spent
    assert isinstance(hold(desk, "c11", "0.01", RULES, **BOB), Short)
    settle(desk, "c10", "1")
    for scope in SUBJECTS:
        desk.admin.budget_set(scoped(scope, "500", name=f"new {scope}", window=LIFETIME), who="x")
    held = hold(desk, "c12", "0", RULES, **ANN)
    # All that Ann has spent, and of those that she shares Bob's too: the sums outlive the rows.
    spent = {s.budget.name: s.spent.exact() for s in held.standings if s.budget.name.startswith("new ")}
    assert (spent["new user"], spent["new team"], spent["new org"]) == ("7.5", "14.75", "14.75")
    assert verify(desk.path).wrong is None


@pytest.mark.parametrize("scope", SUBJECTS)
def test_e07_what_was_spent_today_outlives_a_crash(desk, scope):
    in_force = rules(scoped(scope, "30"), machine("99", name="other"))
    hold(desk, "c1", "25", in_force, **ANN)
    settle(desk, "c1", "25")

    desk.crash()

    assert stands(desk, in_force, ANN)["limit", SUBJECTS[scope][0][0]] == ("25", "0")
    assert isinstance(hold(desk, "c2", "5.01", in_force, **ANN), Short)
    assert isinstance(hold(desk, "c3", "5", in_force, **ANN), Held)


def test_a_rolling_budget_of_a_user_reads_the_rows_of_that_users_tasks(desk):
    few = rules(machine("500"))
    for n, task in enumerate(("a", "b", "a")):
        hold(desk, f"ann{n}", "1", few, **ANN, task=task)
        settle(desk, f"ann{n}", "1")
        hold(desk, f"bob{n}", "2", few, **BOB, task=task)
        settle(desk, f"bob{n}", "2")
        desk.clock.pass_by(minutes=40)
    later = rules(machine("500"), scoped("user", "9", window=Window("rolling", period_ms=3_600_000)))
    # Now it is 14:00. An hour ago is 13:00: the call of 12:00 has left, those of 12:40 and 13:20 have not: a step is
    # 75 seconds, and 12:40 + 1 h is 13:40.
    assert stands(desk, later, ANN)["limit", "ann"] == ("1", "0")
    assert stands(desk, later, BOB)["limit", "bob"] == ("2", "0")
