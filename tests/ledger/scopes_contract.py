"""What every ledger must do for budgets of people: every scope and filter, and several accounts of one budget.

A test module of a ledger derives from ScopesContract and gives a `desk` fixture.
"""

from datetime import timedelta

import pytest

from lockpin_core.budgets import Budget
from lockpin_core.errors import CommandError
from lockpin_core.ledger.protocol import Closed, Held, Short, Wait
from lockpin_core.windows import Window
from tests.ledger import desk as d
from tests.ledger.contract import hold, settle, void
from tests.ledger.desk import WAIT_S, call, charge, machine, money, rules

ANN = {
    "key": "k1", "user": "ann", "team": "core", "groups": ("ml", "ops"), "ring": "r1", "project": "site",
    "tags": (("env", "ci"), ("zone", "eu")),
}  # fmt: skip
BOB = {
    "key": "k2", "user": "bob", "team": "core", "groups": ("ops",), "ring": "r2", "project": "site",
    "tags": (("env", "prod"),),
}  # fmt: skip
NOBODY = {}
# By scope: Ann's accounts, Bob's, and those of a caller without identity. All call from machine m for task t.
SUBJECTS = {
    "task": (["t"], ["t"], ["t"]),
    "machine": (["m"], ["m"], ["m"]),
    "key": (["k1"], ["k2"], []),
    "user": (["ann"], ["bob"], []),
    "team": (["core"], ["core"], []),
    "group": (["ml", "ops"], ["ops"], []),
    "ring": (["r1"], ["r2"], []),
    "project": (["site"], ["site"], []),
    "tag": (["env=ci", "zone=eu"], ["env=prod"], []),
    "org": (["org"], ["org"], ["org"]),
}
WINDOWS = (
    d.DAY, d.LIFETIME, Window("rolling", period_ms=24 * 3_600_000), Window("day", at=7),
    Window("month", "Asia/Kathmandu"),
)  # fmt: skip


def scoped(scope, dollars="1", *, name="limit", window=d.DAY, enforce=True, **more):
    groups = ("ops", "web", "ml") if scope == "group" else ()
    limit = None if dollars is None else money(dollars)
    return Budget(name, scope, window, limit, enforce=enforce, **{"groups": groups, **more})


def stands(desk, in_force, who, **more):
    """Give (spent, held) in dollars by budget and subject."""
    payers = call("look", "0", **who, **more).payers
    found = desk.ledger.look(payers, "openai", "gpt-5.5", in_force).result(WAIT_S)
    return {(s.budget.name, s.subject): (s.spent.exact(), s.held.exact()) for s in found}


def subjects(answer, name="limit"):
    return [s.subject for s in answer.standings if s.budget.name == name]


class ScopesContract:
    @pytest.mark.parametrize("scope", SUBJECTS)
    def test_each_scope_has_the_accounts_of_the_caller(self, desk, scope):
        in_force = rules(scoped(scope, "10"))

        found = [hold(desk, f"c{n}", "1", in_force, **who) for n, who in enumerate((ANN, BOB, NOBODY))]

        assert [subjects(held) for held in found] == list(SUBJECTS[scope])
        for subject in SUBJECTS[scope][0]:
            sharing = sum(subject in of for of in SUBJECTS[scope])
            assert stands(desk, in_force, ANN)["limit", subject] == ("0", str(sharing))

    @pytest.mark.parametrize("scope", SUBJECTS)
    def test_a_limit_is_for_each_subject_and_no_other(self, desk, scope):
        in_force = rules(scoped(scope))
        hers, his, nobodys = SUBJECTS[scope]
        assert isinstance(hold(desk, "c1", "0.6", in_force, **ANN), Held)

        his_answer = hold(desk, "c2", "0.6", in_force, **BOB)

        shared = [subject for subject in his if subject in hers]
        assert isinstance(his_answer, Short if shared else Held)
        if shared:
            assert [(s.budget.name, s.subject) for s in his_answer.violations] == [("limit", s) for s in shared]
        assert isinstance(hold(desk, "c3", "0.6", in_force, **NOBODY), Short if nobodys else Held)
        assert isinstance(hold(desk, "c4", "0.6", in_force, **ANN), Short)

    @pytest.mark.parametrize("window", WINDOWS, ids=lambda window: f"{window.kind}-{window.at}-{window.zone}")
    @pytest.mark.parametrize("scope", SUBJECTS)
    def test_a_budget_added_later_counts_its_window_for_each_subject(self, desk, scope, window):
        few = rules(machine("100"))
        desk.clock.pass_by(days=-40)
        hold(desk, "old", "5", few, **ANN)  # of an earlier window of all but a lifetime
        settle(desk, "old", "5")
        desk.clock.pass_by(days=40)
        for name, held, spent, who in (("a1", "3", "2", ANN), ("b1", "1", "0.5", BOB), ("n1", "1", "0.25", NOBODY)):
            hold(desk, name, held, few, **who)
            settle(desk, name, spent)
        hold(desk, "a2", "0.7", few, **ANN)
        hold(desk, "b2", "0.1", few, **BOB)
        later = rules(machine("100"), scoped(scope, "50", window=window))

        found = stands(desk, later, ANN)
        answer = hold(desk, "a3", "0", later, **ANN)

        spent = {"ann": 2 + (5 if window.kind == "lifetime" else 0), "bob": 0.5, "nobody": 0.25}
        held = {"ann": 0.7, "bob": 0.1, "nobody": 0}
        callers = dict(zip(("ann", "bob", "nobody"), SUBJECTS[scope], strict=True))
        for subject in SUBJECTS[scope][0]:
            who = [name for name, of in callers.items() if subject in of]
            wanted = tuple(f"{sum(sums[name] for name in who):g}" for sums in (spent, held))
            assert found["limit", subject] == wanted
        assert subjects(answer) == SUBJECTS[scope][0]
        settle(desk, "a2", "0.4")
        settle(desk, "b2", "0")
        after = stands(desk, later, ANN)
        for subject in SUBJECTS[scope][0]:
            who = [name for name, of in callers.items() if subject in of]
            assert after["limit", subject] == (f"{sum(spent[name] for name in who) + 0.4:g}", "0")

    def test_a_budget_that_comes_back_misses_nothing_that_one_with_a_like_name_has_counted(self, desk):
        few, names = rules(machine("100")), ("dev", 'x"dev', "x[dev", "x,dev", "[dev")
        for name in names:
            desk.admin.budget_set(scoped("user", "10", name=name), who="x")
        hold(desk, "c1", "1", few, **ANN)
        settle(desk, "c1", "1")
        desk.admin.budget_rm("dev", who="x")
        hold(desk, "c2", "2", few, **ANN)
        settle(desk, "c2", "2")
        hold(desk, "c3", "4", few, **ANN)

        desk.admin.budget_set(scoped("user", "10", name="dev"), who="x")

        found = stands(desk, few, ANN)
        assert {name: found[name, "ann"] for name in names} == dict.fromkeys(names, ("3", "4"))

    @pytest.mark.parametrize("scope", ["group", "tag"])
    def test_names_of_any_letters_are_found_again_in_rows(self, desk, scope):
        odd = {
            "user": "ann",
            "groups": ("größe", 'a"b', "\\", "😀"),
            "tags": (("ü", "=x=y"), ("q", '":"'), ("😀", "\\"), (":", "v"), ('":', "w"), ('":"', "z")),
        }
        near = {"user": "bob", "groups": ("größ", "a", "b", '"'), "tags": (("ü", "=x=y2"), ("q", '"')), "key": "k2"}
        few = rules(machine("100"))
        for name, who in (("c1", odd), ("c2", near)):
            hold(desk, name, "2", few, **who)
            settle(desk, name, "1")
            hold(desk, f"{name}-open", "2", few, **who)

        later = rules(machine("100"), scoped(scope, "50", groups=odd["groups"] if scope == "group" else ()))

        found = {key: sums for key, sums in stands(desk, later, odd).items() if key[0] == "limit"}
        names = odd["groups"] if scope == "group" else ("ü==x=y", 'q=":"', "😀=\\", ":=v", '":=w', '":"=z')
        assert found == {("limit", name): ("1", "2") for name in names}

    def test_a_task_under_a_user_under_a_team_must_fit_them_all(self, desk):
        budgets = (
            scoped("task", "4", name="a-task"),
            scoped("user", "3", name="b-user"),
            scoped("team", "2", name="c"),
        )
        in_force = rules(*budgets)
        hold(desk, "c1", "1.5", in_force, **BOB, task="his")

        answer = hold(desk, "c2", "1", in_force, **ANN, task="hers")

        assert isinstance(answer, Short)
        assert [(s.budget.name, s.subject) for s in answer.violations] == [("c", "core")]
        found = stands(desk, in_force, ANN, task="hers")
        assert found == {("a-task", "hers"): ("0", "0"), ("b-user", "ann"): ("0", "0"), ("c", "core"): ("0", "1.5")}
        assert isinstance(hold(desk, "c3", "0.5", in_force, **ANN, task="hers"), Held)
        assert stands(desk, in_force, ANN, task="hers") == {
            ("a-task", "hers"): ("0", "0.5"), ("b-user", "ann"): ("0", "0.5"), ("c", "core"): ("0", "2"),
        }  # fmt: skip

    def test_all_that_is_short_is_named(self, desk):
        in_force = rules(scoped("group", "1"), scoped("user", "0.5", name="mine"))
        hold(desk, "c1", "0.45", in_force, **{**ANN, "user": "eve"})

        answer = hold(desk, "c2", "0.6", in_force, **ANN)

        names = [(s.budget.name, s.subject) for s in answer.violations]
        assert names == [("mine", "ann"), ("limit", "ml"), ("limit", "ops")]

    def test_filters_of_people_choose_the_calls_of_a_budget(self, desk):
        in_force = rules(
            scoped("user", name="freelancers", groups=("ops",)), scoped("org", name="her-ring", rings=("r1",)),
            scoped("org", name="ci", tags=("env=ci",)), scoped("team", name="opus", models=("claude-*",)),
            scoped("machine", name="both", users=("ann", "eve"), projects=("site",)),
        )  # fmt: skip

        answers = [hold(desk, f"c{n}", "0.1", in_force, **who) for n, who in enumerate((ANN, BOB, NOBODY))]

        found = [[s.budget.name for s in answer.standings if not s.budget.own] for answer in answers]
        assert found == [["both", "ci", "freelancers", "her-ring"], ["freelancers"], []]

    def test_a_call_may_be_on_no_account_at_all(self, desk):
        in_force = rules(scoped("group", groups=("web",)))
        held = hold(desk, "c1", "5", in_force, **ANN)
        assert (type(held), held.standings) == (Held, ())
        assert settle(desk, "c1", "4").first
        assert stands(desk, in_force, NOBODY) == {("task", "t"): ("0", "0")}

    def test_tokens_of_each_subject_are_held_like_dollars(self, desk):
        in_force = rules(Budget("limit", "user", d.DAY, limit_tokens=150, enforce=True))
        assert isinstance(hold(desk, "c1", "0.1", in_force, tokens=100, **ANN), Held)
        assert isinstance(hold(desk, "c2", "0.1", in_force, tokens=100, **BOB), Held)
        assert isinstance(hold(desk, "c3", "0.1", in_force, tokens=51, **ANN), Short)

    def test_a_shrink_and_a_void_are_for_every_account(self, desk):
        in_force = rules(scoped("group"), scoped("tag", name="tags"))
        hold(desk, "c1", "0.9", in_force, **ANN)
        desk.ledger.shrink("c1", money("0.4"), 50).result(WAIT_S)
        accounts = (("limit", "ml"), ("limit", "ops"), ("tags", "env=ci"), ("tags", "zone=eu"))
        assert stands(desk, in_force, ANN) == dict.fromkeys(accounts, ("0", "0.4"))
        void(desk, "c1")
        assert stands(desk, in_force, ANN) == dict.fromkeys(accounts, ("0", "0"))

    def test_each_account_of_a_budget_tells_its_alert_steps_once(self, desk):
        in_force = rules(scoped("group", enforce=False, alert_at=("0.5", "0.9")))
        told = []
        for n, (amount, who) in enumerate((("0.6", BOB), ("0.4", ANN), ("0.1", ANN), ("0.5", ANN))):
            hold(desk, f"c{n}", amount, in_force, **who)
            told.append([(c.subject, c.step) for c in settle(desk, f"c{n}", amount).crossed])
        assert told == [[("ops", "0.5")], [("ops", "0.9")], [("ml", "0.5")], [("ml", "0.9")]]

    def test_a_raise_and_a_reset_are_for_one_subject(self, desk):
        budget = scoped("user")
        in_force = rules(budget)
        for name, who in (("c1", ANN), ("c2", BOB)):
            hold(desk, name, "1", in_force, **who)
            settle(desk, name, "1")

        assert desk.admin.raise_budget(budget, "ann", money("1"), who="x").limit == money("2")
        before, after = desk.admin.reset_budget(budget, "bob", who="x")

        assert (before.spent, after.spent) == (money("1"), money("0"))
        assert isinstance(hold(desk, "c3", "1", in_force, **ANN), Held)
        assert isinstance(hold(desk, "c4", "0.1", in_force, **ANN), Short)
        assert isinstance(hold(desk, "c5", "1", in_force, **BOB), Held)

    @pytest.mark.parametrize("scope", SUBJECTS)
    def test_a_correction_reaches_every_account_that_counts_the_call(self, desk, scope):
        few = rules(machine("100"))
        hold(desk, "c1", "1", few, **ANN)
        settle(desk, "c1", "1")
        hold(desk, "c2", "1", few, **BOB)
        settle(desk, "c2", "1")
        later = rules(machine("100"), scoped(scope, "50"), scoped(scope, "50", name="other", models=("claude-*",)))
        hold(desk, "c3", "0", later, **ANN)
        hold(desk, "c4", "0", later, model="claude-opus-5", provider="anthropic", **ANN)

        desk.admin.correct("c1", money("3"), reason="billed more", who="x")

        hers, his, _ = SUBJECTS[scope]
        found = stands(desk, later, ANN)
        for subject in hers:
            assert found["limit", subject] == ("4" if subject in his else "3", "0")
        look = desk.ledger.look(call("x", "0", **ANN).payers, "anthropic", "claude-opus-5", later).result(WAIT_S)
        assert {s.spent for s in look if s.budget.name == "other"} == {money("0")}

    def test_late_usage_books_the_difference_on_every_account(self, desk):
        in_force = rules(scoped("group", "5"), scoped("user", "5", name="mine"))
        hold(desk, "c1", "1", in_force, tokens=100, **ANN)
        desk.ledger.defer("c1", timedelta(hours=1)).result(WAIT_S)
        desk.clock.pass_by(hours=1)
        desk.look_after()
        desk.ledger.settle("c1", charge("0.2", tokens=20)).result(WAIT_S)
        accounts = (("limit", "ml"), ("limit", "ops"), ("mine", "ann"))
        assert stands(desk, in_force, ANN) == dict.fromkeys(accounts, ("0.2", "0"))
        assert d.nonzero(desk.accounts()) == desk.explained()

    @pytest.mark.parametrize(("scope", "key", "few", "all_"), [
        ("group", "groups", ("ops",), ("ml", "ops")), ("tag", "tags", ("zone=eu",), ("env=ci", "zone=eu")),
        ("tag", "tags", ("zone=eu",), ()),
    ])  # fmt: skip
    def test_a_subject_left_out_for_a_time_has_missed_nothing(self, desk, scope, key, few, all_):
        def listing(names):
            return rules(scoped(scope, "50", **{key: names}), machine("100"))

        out = SUBJECTS[scope][0][0]
        for name, names in (("c1", all_), ("c2", few), ("c3", few)):
            hold(desk, name, "1", listing(names), **ANN)
        settle(desk, "c1", "0.5")
        settle(desk, "c2", "0.25")
        assert ("limit", out) not in stands(desk, listing(few), ANN)

        hold(desk, "c4", "0", listing(all_), **ANN)

        assert stands(desk, listing(all_), ANN)["limit", out] == ("0.75", "1")
        settle(desk, "c3", "0.25")
        assert stands(desk, listing(all_), ANN)["limit", out] == ("1", "0")

    def test_a_subject_that_a_budget_comes_back_without_has_missed_nothing_when_it_is_listed_again(self, desk):
        def squads(*groups):
            return scoped("group", "50", name="squads", window=d.LIFETIME, groups=groups)

        few = rules(machine("100"))
        desk.admin.budget_set(squads("ml", "ops"), who="x")
        hold(desk, "c1", "1", few, **ANN)
        settle(desk, "c1", "1")
        desk.admin.budget_rm("squads", who="x")
        hold(desk, "c2", "2", few, **ANN)
        settle(desk, "c2", "2")
        desk.admin.budget_set(squads("ml"), who="x")
        hold(desk, "c3", "4", few, **ANN)

        desk.admin.budget_set(squads("ml", "ops"), who="x")

        found = stands(desk, few, ANN)
        assert (found["squads", "ml"], found["squads", "ops"]) == (("3", "4"), ("3", "4"))

    def test_a_call_waits_on_the_account_that_is_short_and_on_no_other(self, desk):
        in_force = rules(scoped("group"))
        hold(desk, "c1", "0.8", in_force, **BOB)  # on ops alone
        waits = desk.ledger.hold(call("c2", "0.9", **ANN), in_force, None, Wait(timedelta(seconds=60)))
        stands(desk, in_force, ANN)  # what was queued before it is done
        assert not waits.done()
        assert desk.tickets() == [("c2", "limit")]
        desk.clock.pass_by(seconds=21)  # it is protected now, on ops and not on ml
        ml = {**ANN, "groups": ("ml",)}
        assert isinstance(hold(desk, "c3", "0.1", in_force, **ml), Held)
        assert isinstance(hold(desk, "c4", "0.1", in_force, **BOB), Short)

        settle(desk, "c1", "0.1")

        assert isinstance(waits.result(WAIT_S), Held)
        assert stands(desk, in_force, ANN) == {("limit", "ml"): ("0", "1"), ("limit", "ops"): ("0.1", "0.9")}

    def test_a_key_of_a_command_has_a_budget_of_its_own(self, desk):
        own = Budget("key k1", "key", Window("week"), money("0.5"), enforce=True, keys=("k1",))
        desk.admin.budget_set(own, who="x")
        in_force = rules(machine("100"))
        assert [subjects(hold(desk, f"c{n}", "0.5", in_force, **who), "key k1") for n, who in enumerate((ANN, BOB))] == [
            ["k1"], [],
        ]  # fmt: skip
        assert isinstance(hold(desk, "c9", "0.1", in_force, **ANN), Short)
        assert isinstance(hold(desk, "c10", "0.1", in_force, **BOB), Held)
        assert [b.budget.keys for b in desk.admin.budgets() if b.budget.name == "key k1"] == [("k1",)]

    def test_payers_show_their_accounts_also_at_zero(self, desk):
        in_force = rules(scoped("group"), scoped("user", name="mine"), scoped("org", name="all"))
        found = desk.admin.standings(in_force, call("x", "0", **ANN).payers, now=d.NOON)
        assert [(s.budget.name, s.subject) for s in found] == [
            ("limit", "ml"), ("limit", "ops"), ("mine", "ann"), ("all", "org"),
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("scope", "filters", "subject"),
        [
            ("group", {"groups": ("ops",)}, "ml"), ("tag", {"tags": ("zone=eu",)}, "env=ci"),
            ("user", {"users": ("bob",)}, "ann"), ("ring", {"rings": ("r2",)}, "r1"),
            ("project", {"projects": ("shop",)}, "site"), ("key", {"keys": ("k2",)}, "k1"),
        ],
    )  # fmt: skip
    def test_a_subject_that_a_budget_does_not_count_has_no_account_to_change(self, desk, scope, filters, subject):
        budget = scoped(scope, name="few", window=d.LIFETIME, **filters)
        desk.admin.budget_set(budget, who="x")
        hold(desk, "c1", "1", rules(machine("100")), **ANN)
        settle(desk, "c1", "1")
        change = desk.admin
        for asked in (
            lambda: change.raise_budget(budget, subject, money("1"), who="x"),
            lambda: change.undo_raises(budget, subject, who="x"),
            lambda: change.reset_budget(budget, subject, who="x"),
        ):
            with pytest.raises(CommandError, match=f'no account for {scope} "{subject}", only for '):
                asked()
        found = desk.admin.correct("c1", money("2"), reason="billed more", who="x")
        assert [s.subject for s in found.standings if s.subject == subject] == []
        assert ("few", subject) not in stands(desk, rules(machine("100")), ANN)

    def test_a_task_that_nobody_made_has_no_budget_of_its_own_for_a_user(self, desk):
        own = Budget("task", "task", d.LIFETIME, money("0.5"), enforce=True, own=True)
        assert isinstance(hold(desk, "c1", "0.6", rules(own=own), **ANN), Held)
        assert isinstance(hold(desk, "c2", "0.6", rules(own=own)), Short)
        assert stands(desk, rules(own=own), NOBODY) == {("task", "t"): ("0", "0")}

    def test_a_task_is_its_users_alone(self, desk):
        desk.admin.task_new("t", limit=money("0.5"), window="day", who="x", user=" Ann ")
        in_force = rules(scoped("org", "100"))
        assert isinstance(hold(desk, "c1", "0.4", in_force, **ANN), Held)
        assert isinstance(hold(desk, "c2", "9", in_force, **BOB), Held)
        assert isinstance(hold(desk, "c3", "9", in_force), Held)
        assert isinstance(hold(desk, "c4", "0.2", in_force, **ANN), Short)
        (task,) = desk.admin.tasks()
        assert (task.user, task.limit, task.held) == ("ann", money("0.5"), money("0.4"))
        desk.admin.task_close("t", who="x")
        assert isinstance(hold(desk, "c5", "0", in_force, **ANN), Closed)
        assert isinstance(hold(desk, "c6", "9", in_force, **BOB), Held)

    def test_a_task_that_is_given_to_a_user_counts_what_that_user_has_spent_on_it(self, desk):
        few = rules(machine("100"))
        for name, who in (("c1", ANN), ("c2", BOB), ("c3", NOBODY)):
            hold(desk, name, "1", few, **who, task="site")
        settle(desk, "c1", "0.75")
        settle(desk, "c2", "0.75")
        desk.admin.task_new("other", limit=money("5"), window="day", who="x", user="ann")

        made = desk.admin.task_new("site", limit=money("5"), window="day", who="x", user="ann")
        hold(desk, "c4", "0.5", few, **ANN, task="site")

        assert (made.user, made.spent, made.held) == ("ann", money("0.75"), money("0"))
        assert stands(desk, few, ANN, task="site")["task", "site"] == ("0.75", "0.5")
        desk.admin.correct("c1", money("1"), reason="billed more", who="x")
        desk.admin.correct("c2", money("1"), reason="billed more", who="x")
        assert stands(desk, few, ANN, task="site")["task", "site"] == ("1", "0.5")
        assert ("task", "site") not in stands(desk, few, BOB, task="site")
        assert desk.admin.task_new("site", limit=None, window="day", who="x").user == "ann"

    @pytest.mark.parametrize("times", [1, 2])
    def test_a_task_that_goes_over_counts_its_new_users_calls_alone_and_all_of_them(self, desk, times):
        in_force = rules(machine("100"))
        for n in range(times):  # a repeated command leaves nobody's calls out
            desk.admin.task_new("t", limit=money("5"), window="lifetime", who="x", user="ann")
            for who, by, usd in ((ANN, "ann", "1"), (BOB, "bob", "0.5"), (NOBODY, "-", "0.25")):
                hold(desk, f"{by}{n}", "1", in_force, **who)
                settle(desk, f"{by}{n}", usd)
        hold(desk, "open", "2", in_force, **ANN)

        made = desk.admin.task_new("t", limit=None, window="lifetime", who="x", user="bob")

        assert (made.user, made.spent, made.held) == ("bob", money(("0.5", "1")[times - 1]), money("0"))
        assert stands(desk, in_force, BOB)["task", "t"] == (made.spent.exact(), "0")
        assert ("task", "t") not in stands(desk, in_force, ANN)
        assert isinstance(hold(desk, "much", ("4.51", "4.01")[times - 1], in_force, **BOB), Short)
        assert isinstance(hold(desk, "fits", ("4.5", "4")[times - 1], in_force, **BOB), Held)
        settle(desk, "open", "1.75")
        desk.admin.correct("ann0", money("2"), reason="billed more", who="x")
        made = desk.admin.task_new("t", limit=None, window="lifetime", who="x", user="ann")
        assert (made.spent, made.held) == (money(("3.75", "4.75")[times - 1]), money("0"))

    def test_a_task_of_callers_without_a_user_goes_over_to_one_with_that_users_calls_alone(self, desk):
        in_force = rules(machine("100"))
        hold(desk, "c1", "2", in_force)
        hold(desk, "c2", "1", in_force, **ANN)
        desk.admin.task_new("t", limit=money("5"), window="lifetime", who="x")
        hold(desk, "c3", "1", in_force, **ANN)
        settle(desk, "c3", "0.75")

        made = desk.admin.task_new("t", limit=None, window="lifetime", who="x", user="ann")

        assert (made.spent, made.held) == (money("0.75"), money("1"))
        assert isinstance(hold(desk, "c4", "3.26", in_force, **ANN), Short)
        assert isinstance(hold(desk, "c5", "3.25", in_force, **ANN), Held)

    @pytest.mark.parametrize("user", ["", " ", "a\x00", "x" * 257])
    def test_a_task_of_nobody_is_refused(self, desk, user):
        with pytest.raises(CommandError, match="256 printable characters are"):
            desk.admin.task_new("t", limit=money("5"), window="day", who="x", user=user)

    def test_the_task_of_a_caller_without_a_user_is_not_anothers(self, desk):
        desk.admin.task_new("t", limit=money("0.5"), window="lifetime", who="x")
        desk.admin.task_close("t", who="x")
        in_force = rules(machine("100"))
        assert isinstance(hold(desk, "c1", "5", in_force, **ANN), Held)
        assert isinstance(hold(desk, "c2", "0.1", in_force), Closed)
