"""An engine over a ledger in memory, with prices that make sums easy: what playbooks of calls run on."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from lockpin_core.admission import Incoming
from lockpin_core.call import Ending, Outcome, Payers, Portion, Reading
from lockpin_core.clock import Clock
from lockpin_core.config import Config, TaskKeys
from lockpin_core.engine import Answered, Engine, Passed
from lockpin_core.ledger.memory import MemoryLedger
from lockpin_core.ledger.protocol import Resolved, Rules
from lockpin_core.money import Money
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.providers import Providers
from lockpin_core.settler import Admitted
from lockpin_core.usage import Unit

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
PROVIDERS = Providers.load(shipped_dir())
FACTS = {"max_output_tokens": "50000", "context_tokens": "200000", "tokenizer": "bytes"}
PRICING = {
    "pen": {"input": "0", "output": "100", **FACTS},  # a hundredth of a cent for each output token, else nothing
    "ink": {"input": "1", "output": "5", **FACTS},
    "gift": {"free": "true", **FACTS},
    "vast": {"input": "1", "output": "5"},  # nobody knows how much it may read or write
    "scout": {"input": "1", "output": "5", "fees": {"web_search": "0.01"}, **FACTS},
    "mute": {"input": "1", "output": "5", **FACTS, "tiers": {}},
}
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
LEDGER = Path("nowhere")


def config(task_usd: str | None = None, **change: object) -> Config:
    """Make a configuration without a daily limit and without waiting; `task_usd` is each task's own."""
    own = TaskKeys(budget_usd=None if task_usd is None else Money.parse(task_usd))
    return replace(Config(None, LEDGER, daily_usd=None, pricing=PRICING, task=own, queue_wait_ms=0), **change)


def body(model: str = "pen", limit: int | None = 1000, **more: object) -> dict:
    """Make a Chat request."""
    told = {"model": model, "messages": [{"role": "user", "content": "hi"}], **more}
    return told if limit is None else told | {"max_completion_tokens": limit}


class Desk:
    """Calls in, decisions out."""

    def __init__(
        self, settings: Config | None = None, ledger: MemoryLedger | None = None, clock: Clock = lambda: NOW,
        prices: PriceTable | None = None,
    ) -> None:  # fmt: skip
        self.config = settings or config()
        self.prices = prices or PriceTable.load(shipped_dir(), self.config.pricing, self.config.models)
        self.ledger = ledger or MemoryLedger(clock=clock)
        rules = Rules(self.config.all_budgets(), self.config.task_default())
        self.engine = Engine(self.config, self.prices, self.ledger, rules=rules, clock=clock)
        self.count = 0

    def incoming(
        self, told: object = None, *, provider: str = "openai", path: str | None = None, method: str = "POST",
        headers: Mapping[str, str] | None = None, upgrade: bool = False, task: str = "t",
    ) -> Incoming:  # fmt: skip
        """Make a request; `told` may be bytes or JSON."""
        self.count += 1
        found = PROVIDERS.by_name(provider)
        assert found is not None
        raw = told if isinstance(told, bytes) else json.dumps(body() if told is None else told).encode()
        return Incoming(
            f"c{self.count}", found, found.base.removeprefix("https://"), method, path or PATHS[provider],
            headers or {}, raw, upgrade, Payers(task, "box"), "test/1",
        )  # fmt: skip

    def ask(self, told: object = None, **more: object) -> Passed | Admitted | Answered:
        """Ask the engine about a call."""
        return asyncio.run(self.engine.admit(self.incoming(told, **more)))

    def settle(self, admitted: Admitted, output: int, ending: Ending = Ending.DONE) -> Resolved:
        """End a call that reported so many output tokens."""
        reading = Reading((Portion(None, {Unit.OUTPUT: output}),), complete=True, terminal=True)
        return self.engine.settle(admitted, reading, Outcome(ending, 200)).result()

    def kinds(self) -> list[str]:
        return [row.kind for row in self.ledger.rows]

    def held(self) -> int:
        """Give all that is held now, in nanodollars."""
        return sum(account.balance.held_nano for account in self.ledger._accounts.values())
