import hashlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from lockpin_core.budgets import Budget
from lockpin_core.errors import CommandError, LedgerError
from lockpin_core.ledger import prune as module
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.protocol import Held, Short
from lockpin_core.ledger.prune import KEPT_US, Plan, plan, prune, pruned
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.ledger.verify import verify
from lockpin_core.windows import Window
from tests.ledger import everything
from tests.ledger.desk import LIFETIME, OWN, WAIT_S, SqliteDesk, call, charge, machine, money, parted, rules
from tests.ledger.everything import chain_anew, forging

ROOT = Path(__file__).resolve().parent.parent.parent
KEPT = timedelta(microseconds=KEPT_US)
EVER = machine("10", name="ever", window=LIFETIME)
RULES = rules(EVER)


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


def spend(desk, call_id, dollars, wanted=RULES, **more):
    assert isinstance(desk.ledger.hold(call(call_id, dollars, **more), wanted).result(WAIT_S), Held)
    desk.ledger.settle(call_id, charge(dollars)).result(WAIT_S)


def take_out(desk, before=None, progress=None):
    wanted = plan(desk.path, before or desk.clock())
    return prune(desk.path, wanted, clock=desk.clock, new_id=desk.new_id, who="ada", progress=progress)


def count(desk):
    return desk.query("SELECT count(*), min(id), max(id) FROM rows")[0]


def table(desk, name):
    return [tuple(row) for row in desk.query(f"SELECT * FROM {name}")]


def test_all_that_follows_from_rows_stays_and_the_rest_is_verified(desk):
    everything.fill(desk)
    for call_id in ("c11", "c12"):
        everything.settle(desk, call_id, "0.2")
    desk.clock.pass_by(days=100)
    everything.hold(desk, "new", "0.25")
    kept = {name: table(desk, name) for name in ("totals", "facets", "tasks", "steps", "budgets", "upstream_ids")}
    accounts, last = desk.accounts(), count(desk)[2]

    taken = take_out(desk)

    first_new = desk.query("SELECT min(id) FROM rows WHERE at = (SELECT max(at) FROM rows WHERE kind = 'hold')")[0][0]
    assert taken == first_new - 1
    assert {name: table(desk, name) for name in kept} == kept
    # The lifetime account of a task that has a budget of days since has missed c03, and counts it now.
    away = {"task\x1ftask\x1ffix-login\x1f": (money("1.1").nano, 0, 150, 0)}
    assert desk.accounts() == accounts | away
    verdict = verify(desk.path)
    assert verdict.wrong is None
    assert verdict.pruned_to == taken
    # It began, that account, what stands for the rows, and a task that was stopped goes on.
    assert tuple(count(desk)[1:]) == (taken + 1, last + 4)


def test_what_each_model_of_a_call_came_to_outlives_its_rows(desk):
    assert isinstance(desk.ledger.hold(call("c1", "1"), RULES).result(WAIT_S), Held)
    desk.ledger.settle("c1", charge("0.3", shares=parted("0.3"))).result(WAIT_S)
    desk.clock.pass_by(days=100)
    spend(desk, "c2", "1")
    kept = table(desk, "totals")

    take_out(desk)

    assert (table(desk, "totals"), verify(desk.path).wrong) == (kept, None)
    assert [row[0] for row in desk.query("SELECT call FROM rows WHERE kind = 'charge'")] == ["c2"]
    with LedgerReader(desk.path) as read:
        assert {total.key: total.spent.exact() for total in read.totals("model")} == {"gpt-5.5": "1.1", "dear-1": "0.2"}


def test_the_event_says_who_began_and_up_to_which_row(desk):
    spend(desk, "c1", "1")
    desk.clock.pass_by(days=100)
    spend(desk, "c2", "1")

    taken = take_out(desk)

    (row,) = desk.query("SELECT data FROM rows WHERE code = 'prune_begun'")
    assert json.loads(row["data"]) == {"who": "ada", "rows_to": taken}
    assert pruned(desk.path).rows_to == taken


def test_the_books_go_on_under_the_same_limits(desk):
    spend(desk, "c1", "6")
    desk.clock.pass_by(days=100)
    spend(desk, "c2", "1")
    take_out(desk)

    assert isinstance(desk.ledger.hold(call("c3", "3.01"), RULES).result(WAIT_S), Short)
    assert isinstance(desk.ledger.hold(call("c4", "3"), RULES).result(WAIT_S), Held)
    assert verify(desk.path).wrong is None


def test_rows_that_the_longest_rolling_window_may_count_stay(desk):
    spend(desk, "old", "1")
    desk.clock.pass_by(days=4)
    spend(desk, "young", "2")
    # Its whole period of 90 days is over, and it has not reached the step at which it leaves, 2027-01-24T12:00:00Z.
    desk.clock.pass_by(days=90, hours=1)
    spend(desk, "now", "0.5")

    wanted = plan(desk.path, desk.clock())
    take_out(desk)

    calls = [row[0] for row in desk.query("SELECT call FROM rows WHERE kind = 'hold' ORDER BY id")]
    assert calls == ["young", "now"]
    assert "rows of the 94 days before the newest one, from " in wanted.kept
    # A budget that is new counts them: 90 days, in steps of 45 hours.
    window = Window("rolling", period_ms=2160 * 3_600_000)
    desk.admin.budget_set(machine("100", name="quarter", window=window), who="ada")
    held = desk.ledger.hold(call("c9", "0.25"), RULES).result(WAIT_S)
    quarter = next(s for s in held.standings if s.budget.name == "quarter")
    assert quarter.spent == money("2.5")
    assert verify(desk.path).wrong is None


def test_an_open_hold_ends_the_cut(desk):
    spend(desk, "c1", "1")
    desk.ledger.hold(call("open", "2"), RULES).result(WAIT_S)
    spend(desk, "c2", "1")
    desk.clock.pass_by(days=100)
    spend(desk, "c3", "1")
    (row,) = desk.query("SELECT id FROM rows WHERE call = 'open'")

    wanted = plan(desk.path, desk.clock())
    take_out(desk)

    assert wanted.rows_to == row["id"] - 1
    assert wanted.kept == f"rows from row {row['id']} on stay: call open is open since 2026-10-21T12:00:00Z"
    assert desk.ledger.settle("open", charge("2")).result(WAIT_S).first
    assert verify(desk.path).wrong is None


def test_a_call_whose_hold_went_and_whose_charge_stays_is_verified_and_corrected(desk):
    desk.ledger.hold(call("long", "2"), RULES).result(WAIT_S)
    desk.clock.pass_by(days=3)
    spend(desk, "c1", "1")
    desk.ledger.settle("long", charge("2")).result(WAIT_S)
    desk.clock.pass_by(days=92)
    spend(desk, "c2", "1")

    take_out(desk)

    assert desk.query("SELECT kind FROM rows WHERE call = 'long'")[0][0] == "charge"
    assert verify(desk.path).wrong is None
    desk.admin.correct("long", money("1.5"), reason="the invoice", who="ada")
    assert verify(desk.path).wrong is None
    assert desk.query("SELECT spent_nano FROM accounts WHERE budget = 'ever'")[0][0] == money("3.5").nano


def test_a_lifetime_budget_that_was_away_counts_on_its_return_what_was_taken_out(desk):
    spend(desk, "c1", "1")
    desk.admin.budget_set(machine("50", name="grant", window=LIFETIME), who="ada")
    spend(desk, "c2", "2")
    desk.admin.budget_rm("grant", who="ada")
    spend(desk, "c3", "0.5")
    spend(desk, "elsewhere", "0.75", host="other")
    desk.clock.pass_by(days=100)
    spend(desk, "c4", "0.125")

    take_out(desk)
    assert verify(desk.path).wrong is None
    desk.admin.budget_set(machine("50", name="grant", window=LIFETIME), who="ada")

    (grant,) = [s for s in desk.admin.standings(RULES_WITH_GRANT, None, now=desk.clock()) if s.budget.name == "grant"]
    assert grant.spent == money("3.625")  # 1 before it was made, 2 while it was there, 0.5 and 0.125 while it was away
    assert verify(desk.path).wrong is None


RULES_WITH_GRANT = rules(EVER, machine("50", name="grant", window=LIFETIME))


def test_a_task_whose_window_was_another_for_a_time_counts_that_time_too(desk):
    desk.admin.task_new("t", limit=money("9"), window="lifetime", who="ada")
    spend(desk, "c1", "1")
    desk.admin.task_new("t", limit=money("9"), window="day", who="ada")
    spend(desk, "c2", "2")
    desk.clock.pass_by(days=100)
    spend(desk, "c3", "0.5")

    take_out(desk)
    made = desk.admin.task_new("t", limit=money("9"), window="lifetime", who="ada")

    assert made.spent == money("3.5")
    assert verify(desk.path).wrong is None


def test_what_was_reset_while_away_is_not_counted_again(desk):
    desk.admin.task_new("t", limit=money("9"), window="lifetime", who="ada")
    spend(desk, "c1", "1")
    desk.admin.reset_budget(OWN, "t", who="ada")
    desk.admin.task_new("t", limit=money("9"), window="day", who="ada")
    desk.clock.pass_by(days=100)
    spend(desk, "c3", "0.5")

    take_out(desk)

    assert desk.admin.task_new("t", limit=money("9"), window="lifetime", who="ada").spent == money("0.5")
    assert verify(desk.path).wrong is None


def test_an_open_hold_of_a_budget_that_is_away_is_no_matter_of_the_rows_that_go(desk):
    grant = machine("50", name="grant", window=LIFETIME)
    desk.admin.budget_set(grant, who="ada")
    spend(desk, "c1", "1")
    desk.admin.budget_rm("grant", who="ada")
    spend(desk, "c2", "2")
    desk.clock.pass_by(days=120)
    desk.ledger.hold(call("open", "3"), RULES).result(WAIT_S)

    take_out(desk)

    assert verify(desk.path).wrong is None
    desk.admin.budget_set(grant, who="ada")
    (held,) = desk.query("SELECT spent_nano, held_nano FROM accounts WHERE budget = 'grant'")
    assert tuple(held) == (money("3").nano, money("3").nano)
    assert verify(desk.path).wrong is None
    desk.clock.pass_by(days=120)
    spend(desk, "c3", "0.5")
    assert plan(desk.path, desk.clock()).count == 0  # the open hold's row ends it
    desk.ledger.settle("open", charge("3")).result(WAIT_S)
    desk.clock.pass_by(days=120)
    spend(desk, "c4", "0.5")
    assert take_out(desk) > 3
    assert verify(desk.path).wrong is None


def test_a_correction_of_a_call_that_goes_is_counted_once_by_a_budget_that_is_away(desk):
    """With the row of the call, wherever its own is: before the cut or behind it."""
    grant = machine("50", name="grant", window=LIFETIME)
    desk.admin.budget_set(grant, who="ada")
    spend(desk, "first", "1")
    desk.admin.budget_rm("grant", who="ada")
    for name in ("early", "late", "as it was"):
        spend(desk, name, "1")
    desk.admin.correct("early", money("1.5"), reason="r", who="ada")
    desk.clock.pass_by(days=120)
    desk.admin.correct("late", money("0.75"), reason="r", who="ada")
    desk.clock.pass_by(minutes=1)
    spend(desk, "now", "2")

    assert take_out(desk)

    assert desk.query("SELECT spent_nano FROM accounts WHERE budget = 'grant'")[0][0] == money("4.25").nano
    assert verify(desk.path).wrong is None
    desk.admin.budget_set(grant, who="ada")
    assert desk.query("SELECT spent_nano FROM accounts WHERE budget = 'grant'")[0][0] == money("6.25").nano
    assert verify(desk.path).wrong is None


def pruned_desk(desk):
    """Take rows out of a ledger that has spent 3 of 10 in them, and 0.5 since."""
    spend(desk, "c1", "3")
    desk.admin.correct("c1", money("2.75"), reason="r", who="ada")
    desk.clock.pass_by(days=120)
    spend(desk, "c2", "0.5")
    take_out(desk)
    desk.ledger.stop()


def test_a_row_stands_for_what_was_taken_out(desk):
    pruned_desk(desk)
    (told,) = desk.query("SELECT data FROM rows WHERE code = 'rows_taken_out'")
    ((rows_to, state),) = desk.query("SELECT rows_to, state FROM checkpoint")

    assert json.loads(told[0]).keys() == {"rows_to", "state_sha256", "totals_sha256"}
    assert json.loads(told[0])["rows_to"] == rows_to
    assert json.loads(told[0])["state_sha256"] == hashlib.sha256(state.encode()).hexdigest()
    verdict = verify(desk.path)
    assert (verdict.wrong, verdict.warnings) == (None, ())


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE totals SET spent_nano = 0 WHERE slot = (SELECT min(slot) FROM totals)",
        "UPDATE totals SET calls = calls + 1 WHERE slot = (SELECT min(slot) FROM totals)",
        "UPDATE totals SET slot = slot - 1 WHERE slot = (SELECT min(slot) FROM totals)",
        "UPDATE totals SET spent_nano = 0 WHERE slot = (SELECT max(slot) FROM totals)",
        "DELETE FROM totals WHERE slot = (SELECT min(slot) FROM totals)",
        "UPDATE facets SET task = 'x'",
        "INSERT INTO totals SELECT facet, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM totals LIMIT 1",
    ],
)
def test_totals_of_rows_that_were_taken_out_are_guarded(desk, statement):
    pruned_desk(desk)
    with forging(desk.path) as books:
        assert books.execute(statement).rowcount > 0

    wrong = verify(desk.path).wrong

    assert wrong.words.startswith(
        "the totals are not the sums of the rows that are there and those that were taken out"
    )


def test_the_state_of_the_rows_that_were_taken_out_is_guarded(desk):
    """With chains made anew, and the row that tells balances without them, only the digest of the state can tell."""
    pruned_desk(desk)
    ((text,),) = desk.query("SELECT state FROM checkpoint")
    state = json.loads(text)
    state["over_hold"] = 7
    with forging(desk.path) as books:
        books.execute("UPDATE checkpoint SET state = ?", (encode(state),))

    wrong = verify(desk.path).wrong

    assert wrong.words == "the checkpoint of row 7 is not the one that was written when rows were taken out"


def test_a_checkpoint_without_a_row_is_of_an_earlier_version_and_a_warning_says_so(desk):
    pruned_desk(desk)
    with forging(desk.path) as books:
        books.execute("UPDATE rows SET code = 'prune_begun', data = '{}' WHERE code = 'rows_taken_out'")
        chain_anew(books)
        books.execute("UPDATE totals SET spent_nano = 0")

    verdict = verify(desk.path)

    assert verdict.wrong is None
    assert verdict.warnings[0].startswith("no row guards the sums of the rows that were taken out")


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_before_and_after_the_books_are_right(desk, seed):
    chance, names = random.Random(seed), []
    gpt = ("gpt-*",)
    by_command = [
        machine("900", name="k0", window=LIFETIME),
        machine("900", name="k1", window=LIFETIME, models=gpt),
        machine("900", name="k2", window=Window("rolling", period_ms=86_400_000)),
        Budget("k3", "task", LIFETIME, money("900")),
    ]
    everyone = rules(machine("900", name="ever", window=LIFETIME))
    for n in range(120):
        which, task = chance.random(), chance.choice(("a", "b"))
        try:
            if which < 0.35:
                names.append(f"c{n}")
                model = chance.choice(("gpt-5.5", "claude-opus-5"))
                everything.hold(desk, names[-1], f"0.{chance.randrange(100):02}", everyone, task=task, model=model)
            elif which < 0.55 and names:
                everything.settle(desk, chance.choice(names[-4:]), f"0.{chance.randrange(100):02}")
            elif which < 0.67 and names:
                desk.admin.correct(chance.choice(names), money(f"{chance.randrange(3)}.5"), reason="r", who="ada")
            elif which < 0.77:
                budget = chance.choice(by_command)
                desk.admin.budget_set(replace(budget, models=chance.choice((gpt, ()))), who="ada")
            elif which < 0.85:
                desk.admin.budget_rm(chance.choice(by_command).name, who="ada")
            elif which < 0.88:
                budget = chance.choice((*by_command, everyone.budgets[0]))
                desk.admin.reset_budget(budget, task if budget.scope == "task" else "m", who="ada")
            elif which < 0.91:
                window = chance.choice(("lifetime", "day"))
                desk.admin.task_new(task, limit=money("900"), window=window, who="ada")
            elif which < 0.95:
                take_out(desk)
            else:
                desk.clock.pass_by(days=chance.choice((1, 60)))
        except (CommandError, LedgerError):
            pass  # what cannot be done is not done
        assert verify(desk.path).wrong is None, n

    for name in names:
        desk.ledger.settle(name, charge("0.1"))
    desk.ledger.stop()
    desk.clock.pass_by(days=120)
    desk.ledger = desk.open()
    spend(desk, "last", "0.5", everyone)
    assert take_out(desk)
    assert verify(desk.path).wrong is None


def test_a_second_prune_goes_on_from_the_first(desk):
    for day in range(6):
        spend(desk, f"c{day}", "0.1")
        desk.clock.pass_by(days=30)
    spend(desk, "last", "0.1")

    first = take_out(desk, desk.clock() - timedelta(days=150))
    second = take_out(desk, desk.clock())

    assert first > 0 < second
    assert pruned(desk.path).rows_to == first + second
    assert plan(desk.path, desk.clock()).count == 0
    assert verify(desk.path).wrong is None


def test_of_a_ledger_without_rows_nothing_goes(desk):
    assert plan(desk.path, desk.clock()) == Plan(0, 0, None, "")
    assert pruned(desk.path) is None


def test_the_newest_row_stays_even_where_all_are_old(desk):
    spend(desk, "c1", "1")
    desk.ledger.stop()
    desk.clock.pass_by(days=400)

    assert plan(desk.path, desk.clock()).count == 0
    desk.ledger = desk.open()


def test_a_wrong_ledger_is_left_as_it_is(desk):
    spend(desk, "c1", "1")
    desk.clock.pass_by(days=100)
    spend(desk, "c2", "1")
    before = tuple(count(desk))
    with forging(desk.path) as books:
        books.execute("UPDATE rows SET usd = usd + 1 WHERE kind = 'charge' AND call = 'c1'")

    with pytest.raises(CommandError, match="is wrong, so nothing is taken out: row "):
        take_out(desk)

    assert tuple(count(desk)) == before


def test_a_plan_that_another_prune_has_overtaken_is_refused(desk):
    spend(desk, "c1", "1")
    desk.clock.pass_by(days=100)
    spend(desk, "c2", "1")
    stale = plan(desk.path, desk.clock())
    take_out(desk)

    with pytest.raises(CommandError, match="taken out meanwhile by another"):
        prune(desk.path, stale, clock=desk.clock, new_id=desk.new_id, who="ada")


def test_progress_comes_by_slices(desk):
    for n in range(module.SLICE // 2 + 50):
        spend_at_once(desk, f"c{n}")
    spend(desk, "c-end", "0")
    desk.clock.pass_by(days=100)
    spend(desk, "now", "0.1")
    told = []

    taken = take_out(desk, progress=lambda done, total: told.append((done, total)))

    assert told == [(module.SLICE, taken), (taken, taken)]


def spend_at_once(desk, call_id):
    desk.ledger.hold(call(call_id, "0.001"), RULES)
    desk.ledger.settle(call_id, charge("0.001"))


def test_a_running_ledger_beside_a_prune_is_held_up_for_no_longer_than_half_a_second(desk):
    for n in range(3 * module.SLICE):
        spend_at_once(desk, f"c{n}")
    spend(desk, "c-end", "0")
    desk.clock.pass_by(days=100)
    spend(desk, "now", "0.1")
    done, waits = threading.Event(), []

    def work():
        n = 0
        while not done.is_set():
            began = time.perf_counter()
            spend(desk, f"w{n}", "0.0001")
            waits.append(time.perf_counter() - began)
            n += 1

    worker = threading.Thread(target=work)
    worker.start()
    taken = take_out(desk)
    done.set()
    worker.join(WAIT_S)

    assert taken > 6 * module.SLICE
    assert len(waits) > 3
    assert max(waits) < 1.0  # a hold and a settle, each behind one slice at most
    assert verify(desk.path).wrong is None


KILLED = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from lockpin_core.clock import new_id
from lockpin_core.ledger import prune as module
from lockpin_core.ledger.chain import encode
module.SLICE = 40
now = datetime.fromisoformat(sys.argv[2])
path = Path(sys.argv[1])
print("ready", flush=True)
module.prune(path, module.plan(path, now), clock=lambda: now, new_id=new_id, who="ada",
             progress=lambda done, total: print(done, total, flush=True))
"""


def test_a_prune_that_is_killed_at_any_moment_leaves_a_ledger_that_is_right(desk):
    desk.admin.budget_set(machine("50", name="grant", window=LIFETIME), who="ada")
    spend(desk, "first", "0.1")
    desk.admin.budget_rm("grant", who="ada")
    for n in range(600):
        spend_at_once(desk, f"c{n}")
    spend(desk, "c-end", "0")
    desk.clock.pass_by(days=100)
    spend(desk, "now", "0.1")
    chance, seen = random.Random(7), set()

    for _ in range(12):
        command = [sys.executable, "-c", KILLED, str(desk.path), desk.clock().isoformat()]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            for _ in range(chance.randrange(1, 4)):
                process.stdout.readline()
            time.sleep(chance.random() * 0.02)  # anywhere in the next slice
            process.send_signal(signal.SIGKILL)
        seen.add(verify(desk.path).pruned_to)
        assert verify(desk.path).wrong is None

    assert len(seen) > 3
    take_out(desk)
    assert verify(desk.path).wrong is None
    # 0.1 that was counted; 600 thousandths and 0.1 that are counted as their rows go, or on its return.
    desk.admin.budget_set(machine("50", name="grant", window=LIFETIME), who="ada")
    (grant,) = [s for s in desk.admin.standings(RULES_WITH_GRANT, None, now=desk.clock()) if s.budget.name == "grant"]
    assert grant.spent == money("0.8")
