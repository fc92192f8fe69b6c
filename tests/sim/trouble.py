"""What goes wrong in a play, or is changed under it."""

import asyncio
from dataclasses import replace

from lockpin_core.ledger.admin import SqliteAdmin
from lockpin_core.money import Money
from tests.sim import traffic
from tests.sim.agents import TASKS

HURT_S = 90  # what befalls a process may be felt for so long
REOPENED_S = 5


class Trouble:
    """Lets things go wrong."""

    def __init__(self, world):
        self.world, self.dice, self.loop = world, world.dice, world.loop
        self.hurt, self.jumped_s, self.closed_s = {}, -1e9, {}  # when something befell processes, the clock, tasks

    async def go(self):
        """Let things go wrong, one after the other; in each play one kind more than the others."""
        most, often = self.dice.choice(self.world.plan.faults or ("",)), self.dice.choice((2, 8, 20))
        while self.world.done < self.world.plan.calls:
            await asyncio.sleep(self.dice.expovariate(1 / often))
            fault = most if self.dice.random() < 0.4 else self.dice.choice(self.world.plan.faults or ("",))
            action = getattr(self, f"do_{fault}", None)
            if action is not None and self.world.proxies:
                action(self.dice.choice(sorted(self.world.proxies)))

    def is_away(self, name):
        """Say whether a process may be without its ledger: something befell it, or it has just begun."""
        return self.loop.time() - self.hurt.get(name, -1e9) < HURT_S

    def hurts(self, *names):
        self.hurt |= dict.fromkeys(names, self.loop.time())

    def time_jumped(self, since_s):
        """Say whether the clock was changed since."""
        return self.jumped_s >= since_s

    def was_closed(self, task):
        """Say whether a task is closed, or was while a call may have been decided on."""
        return self.loop.time() - self.closed_s.get(task, -1e9) < HURT_S

    def do_crash(self, name):
        if self.world.backend == "memory":
            return
        if self.dice.random() < 0.4:
            self.world.processes.crashed(name)
            return
        self.hurts(name)
        if self.dice.random() < 0.5:
            self.world.proxies[name].disk.crash_in = self.dice.randint(0, 40)
        else:
            self.world.proxies[name].disk.fails.append("crash")

    def do_disk(self, name):
        disk = self.world.proxies[name].disk
        kind = self.dice.choice(("fails", "lost", "locked", "full", "slow", "broken", "busy"))
        self.world.note("disk", kind, name)
        self.hurts(*(self.world.proxies if kind == "slow" else (name,)))
        if kind in ("full", "broken"):
            setattr(disk, f"is_{kind}", True)
            self.loop.run_as_later("", self.dice.choice((0.3, 2, 10)), setattr, disk, f"is_{kind}", False)
        elif kind == "busy":
            disk.busy = self.dice.choice((1, 1, 3, 30))
        elif kind == "slow":
            self.world.slow_s = self.dice.choice((0.1, 1, 4))
            self.loop.run_as_later("", 5, setattr, self.world, "slow_s", 0.0)
        else:
            disk.fails += [kind] * self.dice.choice((1, 1, 3))

    def do_pause(self, name):
        if self.world.backend == "memory":
            return
        self.world.note("stopped", name)
        self.loop.stop_process(name)
        self.loop.run_as_later("", self.dice.choice((0.5, 4, 40)), self.go_on, name)

    def go_on(self, name):
        self.world.note("goes on", name)
        self.loop.continue_process(name)

    def do_clock(self, _):
        step = self.dice.choice((-7200, -60, -1, 1, 60, 3600, 20_000))
        self.world.note("clock", step)
        self.jumped_s = self.loop.time()
        self.world.skew_s += step

    def do_change(self, _):
        kind = self.dice.choice(("raise", "raise", "reset", "close", "task", "limits", "late", "late"))
        if kind in ("raise", "reset"):
            self.change_account(kind)
        elif kind == "close":
            self.close(self.dice.choice(TASKS))
        elif kind == "task":
            task = self.dice.choice(TASKS)
            if self.dice.random() < 0.5:
                self.make_room(task, traffic.NANO_A_WORD * self.dice.choice((16, 100, 400, 1000, 2000, 4000)))
            else:
                self.limit_task(task, Money.parse("3"))
        elif not self.loop._stopped:
            self.configure([*(self.late() if kind == "late" else self.with_another_limit())])

    def change_account(self, kind):
        """Raise the limit of one account, or let its spend count from now on."""
        budget = self.dice.choice([b for b in self.world.config.budgets if b.enforce and b.limit is not None])
        subject = self.dice.choice(TASKS) if budget.scope == "task" else self.dice.choice(("box", "box", "den"))
        self.world.note(kind, budget.name, subject)
        if kind == "raise":
            by = Money.parse(self.dice.choice(("0.01", "0.1", "0.5")))
            self.world.judge.model.raise_by(budget.name, subject, by.nano, self.world.ledger_us())
            self.admin().raise_budget(budget, subject, by, who="p")
        else:
            self.world.judge.model.reset(budget.name, subject, self.world.ledger_us())
            self.admin().reset_budget(budget, subject, who="p")
        self.world.judge.committed()
        if kind == "raise" and self.dice.random() < 0.5 and not self.loop._stopped:
            budgets = self.world.config.budgets
            self.configure([self.with_limits(b) if b.name == budget.name else b for b in budgets])

    def close(self, task):
        """Close a task that there is; it is opened again a little later."""
        if all(hold.task != task for hold in self.world.judge.model.calls.values()):
            return
        self.world.note("close", task)
        self.closed_s[task] = self.loop.time() + REOPENED_S
        self.world.judge.model.closed[task] = True
        self.admin().task_close(task, who="p")
        self.world.judge.committed()
        self.loop.run_as_later("", REOPENED_S, self.limit_task, task, Money.parse("3"))

    def admin(self):
        """Give what commands use."""
        if self.world.backend == "memory":
            return self.world.ledger_in_memory
        return SqliteAdmin(self.world.path, clock=self.world.wall, new_id=self.world.new_id)

    def make_room(self, task, nano):
        """Give a task the limit that leaves it room for so much, to the last nanodollar."""
        account = self.world.judge.model.accounts.get(("task", task, None))
        used = 0 if account is None else account.spent[0] + account.held[0]
        self.limit_task(task, Money(used + nano))

    def limit_task(self, task, limit):
        self.world.note("task", task, limit.nano)
        self.world.judge.model.set_task(task, limit.nano)
        self.admin().task_new(task, limit=limit, window="lifetime", who="p")
        self.world.judge.committed()

    def late(self):
        """A budget that was not there from the beginning comes, or goes again."""
        budgets = self.world.config.budgets
        if any(budget.name == "late" for budget in budgets):
            return [budget for budget in budgets if budget.name != "late"]
        return [*budgets, self.with_limits(self.world.late)]

    def with_another_limit(self):
        budgets = self.world.config.budgets
        name = self.dice.choice([budget.name for budget in budgets if budget.enforce])
        return [self.with_limits(budget) if budget.name == name else budget for budget in budgets]

    def with_limits(self, budget):
        """Draw another limit where there is one: in dollars, in tokens."""
        usd = None if budget.limit is None else Money.parse(self.dice.choice(("0.2", "1", "6")))
        tokens = None if budget.limit_tokens is None else self.dice.choice((100_000, 1_000_000, 10_000_000))
        return replace(budget, limit=usd, limit_tokens=tokens)

    def configure(self, budgets):
        """Another configuration, for all processes."""
        self.world.config = replace(self.world.config, budgets=tuple(budgets))
        self.world.note("limits", *((b.name, b.limit and b.limit.nano, b.limit_tokens) for b in budgets if b.enforce))
        for proxy in self.world.proxies.values():
            proxy.configure(self.world.config)
            proxy.define()

    def do_stop(self, name):
        world = self.world
        if world.backend != "memory" and name not in world.loop._stopped and not world.proxies[name].disk.is_full:
            world.processes.stop(name)
