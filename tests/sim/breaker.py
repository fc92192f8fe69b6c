"""The breaker, told by the contract alone: who was charged what, and whose calls pause until when."""

from dataclasses import dataclass, field

from tests.sim.model import Fault


@dataclass
class Breaker:
    """What the tasks of a play may be charged within a window, in microseconds, before their calls pause."""

    usd: int | None = None  # None: any amount
    window: int = 0
    cooldown: int = 0
    charges: dict = field(default_factory=dict)  # by task, since it tripped last: (instant, usd)
    pauses: dict = field(default_factory=dict)  # by task: (since, until), the last one last

    def charged(self, task, at, usd):
        """A charge is on the books: it may be one too many. While calls pause, none is; a correction is no charge."""
        if self.usd is None or not usd:
            return
        own = self.charges.setdefault(task, [])
        own.append((at, usd))
        if not self.is_on(task, at) and sum(part for when, part in own if when > at - self.window) > self.usd:
            self.pauses.setdefault(task, []).append((at, at + self.cooldown))
            own.clear()

    def is_on(self, task, at):
        return task in self.pauses and at < self.pauses[task][-1][1]

    def check_hold(self, call, task, at):
        if self.is_on(task, at):
            raise Fault(
                f"OVERSHOOT: call {call} is held at {at}, and the calls of {task} pause until {self.pauses[task]}"
            )

    def check_pause(self, call, task, at, until):
        """An answer says that a task's calls pause."""
        if not any(since <= at < end == until for since, end in self.pauses.get(task, ())):
            raise Fault(
                f"FALSE REFUSAL: call {call} of {task} pauses at {at}, and there is no such pause until {until}"
            )
