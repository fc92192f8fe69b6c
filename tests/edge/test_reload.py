"""Changes of the configuration while a proxy runs: applied as a whole, or not at all and said why. Real processes."""

import asyncio
import contextlib
import itertools
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

import client
import processes
import pytest
import sdks
from lockpin_addons.banner import Start, start_block, window_words
from lockpin_addons.changes import changes, fixed_changes
from lockpin_addons.reload import Reloader, Source
from lockpin_addons.terms import FREEZE_S, PAUSE_S, InForce, make_terms
from processes import until
from streams import SSE, finished

from lockpin_core.budgets import Budget
from lockpin_core.config import Config, TaskKeys, parse
from lockpin_core.config_near_cap import Breaker, NearCap, Retry
from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.ledger.protocol import Rules
from lockpin_core.money import Money
from lockpin_core.oidc import Issuer
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.windows import Window

PATH = "/anthropic/v1/messages"
CONFIG = """
upstreams: {{api.anthropic.com: "{origin}"}}
daily_usd: {daily}
pricing:
  dear: {{input_per_mtok: 0, output_per_mtok: {price}, max_output_tokens: 100000, context_tokens: 200000}}
{more}
"""
DOLLAR = 1_000_000  # a million tokens' price where one costs a dollar
LIMITS = """
import pathlib, asyncio
from mitmproxy import ctx, exceptions
PLACE = pathlib.Path({place!r})
async def watch():
    while True:
        await asyncio.sleep(0.02)
        if PLACE.exists():
            name, value = PLACE.read_text().split("=")
            PLACE.unlink()
            try:
                ctx.options.update(**{{name: value}})
                print("set", name, getattr(ctx.options, name), flush=True)
            except exceptions.OptionsError as error:
                print("refused", error, "| now", repr(getattr(ctx.options, name)), flush=True)
def running():
    global task
    task = asyncio.create_task(watch())
"""


def test_changes_are_told_by_key_and_value():
    old = Config(None, Path("ledger"), pricing={"a": {"input": "1"}, "b": {}}, allow_uncapped=("x/y",))
    budget = Budget("dev", "task", Window("day"), limit=Money.parse("1"))
    new = replace(
        old, file=Path("lockpin.yaml"), daily_usd=None, pricing={"a": {"input": "2"}, "b": {}, "c": {}},
        task=replace(old.task, budget_usd=Money.parse("0.5"), from_session=False), budgets=(budget,),
        allow_uncapped=(), drain_ms=1500, durability="normal",
    )  # fmt: skip

    assert changes(old, new) == [
        "durability full → normal", "daily_usd $25 → none", "task.budget_usd none → $0.5",
        "task.from_session true → false", "pricing: a changed, c added", "budget dev added",
        "allow_uncapped: x/y removed", "drain 60s → 1500ms",
    ]  # fmt: skip
    assert fixed_changes(old, new) == ["durability"]
    assert changes(old, replace(old, pricing={})) == ["pricing: a removed, b removed"]
    many = {name: {} for name in "abcdefg"}
    assert changes(replace(old, pricing={}), replace(old, pricing=many)) == [
        "pricing: a added, b added, c added, d added, 3 more"
    ]


def test_changes_of_a_team_are_told():
    old = Config(None, Path("ledger"), mode="team")
    new = replace(old, allow_hosts=("a.b",), oidc=Issuer("https://id", "lockpin"), provider_env={"openai": "OWN"})

    assert changes(old, new) == ["oidc none → https://id", "provider_env: openai added", "allow_hosts: a.b added"]
    assert changes(new, old) == ["oidc https://id → none", "provider_env: openai removed", "allow_hosts: a.b removed"]


def test_changes_near_the_cap_are_told_by_the_names_that_the_keys_have_in_the_file():
    old = Config(None, Path("ledger"))
    near = NearCap(
        retry=Retry(attempts=3, base_ms=1500), breaker=Breaker(usd=Money.parse("2")), approvals_wait_ms=5000,
        fallbacks={"a/b": ("a/c",)}, files=(Path("fallbacks.json"),),
    )  # fmt: skip

    assert changes(old, replace(old, near_cap=near)) == [
        "approvals_wait 120s → 5s", "breaker.usd none → $2", "retry.attempts 1 → 3", "retry.base 500ms → 1500ms",
        "fallbacks: a/b added",
    ]  # fmt: skip


def test_changes_of_a_budget_are_told_old_and_new():
    opus = Budget("opus", "task", Window("day"), limit=Money.parse("10"), models=("opus*",))
    dup = Budget("dup", "machine", Window("lifetime"), limit_tokens=2_000_000)
    old = Config(None, Path("ledger"), budgets=(opus, dup))

    def told(*budgets: Budget) -> list[str]:
        return changes(old, replace(old, budgets=budgets))

    assert told(replace(opus, limit=Money.parse("20"))) == ["budget opus: limit_usd $10 → $20", "budget dup removed"]
    assert told(replace(opus, enforce=True, models=()), dup) == [
        "budget opus: action warn → enforce, models opus* → none"
    ]
    rolling = replace(dup, window=Window("rolling", period_ms=86_400_000), limit_tokens=20_000_000)
    assert told(opus, rolling) == ["budget dup: window lifetime → in any 24h, limit_tokens 2,000,000 → 20,000,000"]
    assert told(replace(opus, window=Window("day", zone="Europe/Berlin", at=450)), dup) == [
        "budget opus: window a day → a day from 07:30 Europe/Berlin"
    ]
    many = [replace(opus, name=name) for name in "abcdef"]
    assert told(opus, dup, *many)[-2:] == ["budget d added", "2 more budgets"]


def test_a_limit_is_shown_with_its_separators_its_period_and_where_its_day_begins():
    def window(kind: str, **more: object) -> str:
        return window_words(Window(kind, **more))

    assert window("lifetime") == ""
    assert window("day") == " a day"
    assert window("day", zone="Asia/Tokyo") == " a day from 00:00 Asia/Tokyo"
    assert window("week", at=450) == " a week from 07:30 UTC"
    assert window("month", anchor=15) == " a month from day 15, 00:00 UTC"
    assert window("rolling", period_ms=5_400_000) == " in any 90m"
    recent = Budget("recent", "machine", Window("rolling", period_ms=86_400_000), limit_tokens=20_000_000)
    config = Config(None, Path("ledger"), daily_usd=None, budgets=(recent,))
    start = Start(config, [("127.0.0.1", 8080)], Path("ca"), "2026-11-29", (), (), by_command=True)
    assert "  limit    recent (machine): 20,000,000 tokens in any 24h, warns only, never blocks" in start_block(start)
    narrow = replace(recent, name="few", scope="user", groups=("ml", "web"), models=("claude-*",))
    assert (
        "  limit    few (user, models claude-*, groups ml, web): 20,000,000 tokens in any 24h, warns only, never blocks"
    ) in start_block(replace(start, config=replace(config, budgets=(narrow,))))
    for_tasks = replace(start, config=replace(config, task=TaskKeys(budget_usd=Money.parse(5))))
    assert (
        "  limit    each task without a budget of its own: $5, enforces "
        "(change it: task.budget_usd in lockpin.yaml, or lockpin up --task-budget-usd USD)"
    ) in start_block(for_tasks)


def test_while_the_ledger_is_told_of_other_terms_no_call_is_decided():
    async def run() -> list[str]:
        in_force, said, told = InForce("old"), [], asyncio.Event()

        async def agree() -> None:
            said.append("agree")
            await told.wait()

        async def decide() -> None:
            await in_force.steady()
            with in_force.deciding() as terms:
                said.append(f"decided by {terms}")

        with in_force.deciding() as terms:
            change = asyncio.create_task(in_force.replace("new", agree))
            await asyncio.sleep(PAUSE_S * 3)
            assert said == []  # it waits for the decision that is under way
            said.append(f"decided by {terms}")
        await asyncio.sleep(PAUSE_S * 3)
        call = asyncio.create_task(decide())
        await asyncio.sleep(0)
        told.set()
        await asyncio.gather(change, call)
        return said

    assert asyncio.run(run()) == ["decided by old", "agree", "decided by new"]


def test_terms_that_the_ledger_refuses_do_not_come_into_force_and_calls_go_on():
    async def run() -> None:
        in_force = InForce("old")

        async def refuse() -> None:
            raise LedgerError("another proxy says otherwise")

        with pytest.raises(LedgerError):
            await in_force.replace("new", refuse)
        await in_force.steady()
        with in_force.deciding() as terms:
            assert terms == "old"
        with in_force.deciding():  # one that takes long does not stop a change
            await in_force.replace("new", lambda: asyncio.sleep(0))
        assert in_force.terms == "new"

    asyncio.run(run())


class SlowLedger:
    """A ledger whose answers to `define` the test gives; `told` are the daily limits that it was told of."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Future[None]]] = []

    def define(self, rules: Rules, _origin: str = "", _mode: str = "solo") -> Future[None]:
        answer: Future[None] = Future()
        self.asked.append((rules.budgets[0].limit.exact(), answer))
        return answer

    def told(self) -> list[str]:
        return [limit for limit, answer in self.asked if not answer.cancelled()]


def reloader(folder: Path, *, wait_s: float = 0.05) -> tuple[Reloader, SlowLedger, InForce]:
    ledger, file = SlowLedger(), folder / "lockpin.yaml"
    file.write_text("daily_usd: 2\n")
    source = Source(file, file.read_text(), {})
    config = parse(source.words, file)
    in_force = InForce(make_terms(config, PriceTable.load(shipped_dir(), {}, {}), ledger))
    made = Reloader(
        in_force, ledger, source, check=lambda _: None, take_back=lambda _: None, named="", define_wait_s=wait_s
    )
    return made, ledger, in_force


def daily(in_force: InForce) -> str:
    return in_force.terms.config.daily_usd.exact()


async def asked(ledger: SlowLedger, count: int) -> Future[None]:
    end_s = time.monotonic() + processes.PATIENCE_S
    while len(ledger.asked) < count:
        assert time.monotonic() < end_s
        await asyncio.sleep(0.01)
    return ledger.asked[count - 1][1]


def test_a_change_that_the_ledger_never_began_with_is_taken_back_and_not_done_later(tmp_path, capsys):
    async def run() -> None:
        made, ledger, in_force = reloader(tmp_path)
        (tmp_path / "lockpin.yaml").write_text("daily_usd: 1000\n")

        await made.look()

        assert ledger.asked[0][1].cancelled()
        assert (ledger.told(), daily(in_force)) == ([], "2")
        look = asyncio.create_task(made.look())  # it is tried again
        (await asked(ledger, 2)).set_result(None)
        await look
        assert (ledger.told(), daily(in_force)) == (["1000"], "1000")

    asyncio.run(run())
    assert "the configuration was not reloaded: the ledger does not answer" in capsys.readouterr().out


def test_a_change_that_the_ledger_is_busy_with_is_waited_for_however_long_it_takes(tmp_path):
    async def run() -> None:
        made, ledger, in_force = reloader(tmp_path)
        (tmp_path / "lockpin.yaml").write_text("daily_usd: 1000\n")
        look = asyncio.create_task(made.look())
        answer = await asked(ledger, 1)
        answer.set_running_or_notify_cancel()
        await asyncio.sleep(0.2)
        assert not look.done()
        await asyncio.wait_for(in_force.steady(), 2 * FREEZE_S)  # and calls are decided meanwhile
        assert daily(in_force) == "2"

        answer.set_result(None)
        await look

        assert daily(in_force) == "1000"

    asyncio.run(run())


def test_after_a_change_that_failed_halfway_the_terms_in_force_are_told_until_the_ledger_has_them(tmp_path):
    async def run() -> None:
        made, ledger, in_force = reloader(tmp_path, wait_s=9)
        (tmp_path / "lockpin.yaml").write_text("daily_usd: 1000\n")
        look = asyncio.create_task(made.look())
        (await asked(ledger, 1)).set_exception(LedgerUnavailable("the disk is full"))  # perhaps it has it all the same
        (await asked(ledger, 2)).set_exception(LedgerUnavailable("the disk is full"))
        await look
        (tmp_path / "lockpin.yaml").write_text("daily_usd: 0\n")  # and now a change that cannot be
        look = asyncio.create_task(made.look())
        (await asked(ledger, 3)).set_result(None)
        await look
        await made.look()

        assert (ledger.told(), daily(in_force)) == (["1000", "2", "2"], "2")

    asyncio.run(run())


def test_options_that_were_not_applied_are_taken_back_in_the_ledger_too(tmp_path):
    async def run() -> None:
        made, ledger, in_force = reloader(tmp_path, wait_s=9)
        made.set_options({"daily_usd": "1000"})
        (await asked(ledger, 1)).set_exception(LedgerUnavailable("the disk is full"))
        (await asked(ledger, 2)).set_result(None)
        await asyncio.sleep(0.05)

        assert (ledger.told(), daily(in_force)) == (["1000", "2"], "2")

    asyncio.run(run())


def test_a_file_that_says_the_same_is_told_to_the_ledger_all_the_same(tmp_path):
    async def run() -> None:
        made, ledger, _ = reloader(tmp_path, wait_s=9)
        (tmp_path / "lockpin.yaml").write_text("# the same\ndaily_usd: 2\n")
        look = asyncio.create_task(made.look())
        (await asked(ledger, 1)).set_result(None)
        await look

        assert ledger.told() == ["2"]

    asyncio.run(run())


GATEWAY = "budgets: [{{name: {name}, scope: machine, window: day, limitUSD: {limit}}}]\n"


async def looked(made: Reloader, ledger: SlowLedger, told: int) -> None:
    """Let it look until the ledger was told so often, and agree to the last."""
    look = asyncio.create_task(made.look())
    (await asked(ledger, told)).set_result(None)
    await look


def limits(in_force: InForce) -> dict[str, str]:
    return {budget.name: budget.limit.exact() for budget in in_force.terms.config.budgets}


def test_a_change_of_an_included_file_is_applied_and_so_is_one_of_which_files_there_are(tmp_path):
    async def run() -> None:
        made, ledger, in_force = reloader(tmp_path, wait_s=9)
        main, one, two = (tmp_path / name for name in ("lockpin.yaml", "one.yaml", "two.yaml"))
        one.write_text(GATEWAY.format(name="a", limit=1))
        main.write_text("daily_usd: 2\ninclude: [one.yaml]\n")
        await looked(made, ledger, 1)
        assert limits(in_force) == {"a": "1"}

        one.write_text(GATEWAY.format(name="a", limit=300))
        await looked(made, ledger, 2)
        assert limits(in_force) == {"a": "300"}

        two.write_text(GATEWAY.format(name="b", limit=7))
        main.write_text("daily_usd: 2\ninclude: [two.yaml]\n")
        await looked(made, ledger, 3)
        assert limits(in_force) == {"b": "7"}

        one.write_text(GATEWAY.format(name="a", limit=5))  # nobody includes it any more
        await made.look()
        assert len(ledger.asked) == 3

    asyncio.run(run())


def test_an_included_file_that_is_bad_or_gone_is_said_and_taken_when_it_is_good_again(tmp_path, capsys):
    async def run() -> None:
        made, ledger, in_force = reloader(tmp_path, wait_s=9)
        main, one = tmp_path / "lockpin.yaml", tmp_path / "one.yaml"
        main.write_text("daily_usd: 2\ninclude: [one.yaml]\n")
        await made.look()
        one.write_text(GATEWAY.format(name="a", limit=-1))
        await made.look()
        assert ledger.asked == []

        one.write_text(GATEWAY.format(name="a", limit=1))
        await looked(made, ledger, 1)
        assert limits(in_force) == {"a": "1"}
        one.unlink()
        await made.look()
        one.write_text("")
        await made.look()
        assert limits(in_force) == {"a": "1"}

    asyncio.run(run())
    missing, bad, good, gone, emptied = capsys.readouterr().out.splitlines()
    begins, ends = "lockpin: the configuration was not reloaded: ", "; the old configuration stays in force"
    assert f"{begins}{tmp_path}/lockpin.yaml:2: include[0] names a file that cannot be taken: " in missing
    assert f'{begins}{tmp_path}/one.yaml:1: budgets[0].limitUSD is "-1"; a positive amount is allowed{ends}' == bad
    assert good.startswith("lockpin: configuration reloaded: budget a added")
    assert "include[0] names a file that cannot be taken: " in gone
    assert f"{begins}{tmp_path}/one.yaml:1: the file has neither pricing nor budgets; " in emptied


def test_options_that_are_set_go_with_the_included_files_that_are_in_force(tmp_path):
    async def run() -> None:
        made, ledger, in_force = reloader(tmp_path, wait_s=9)
        (tmp_path / "one.yaml").write_text(GATEWAY.format(name="a", limit=1))
        (tmp_path / "lockpin.yaml").write_text("daily_usd: 2\ninclude: [one.yaml]\n")
        await looked(made, ledger, 1)
        (tmp_path / "one.yaml").write_text(GATEWAY.format(name="a", limit=-1))

        made.set_options({"daily_usd": "1000"})
        (await asked(ledger, 2)).set_result(None)
        await asyncio.sleep(0.05)

        assert (daily(in_force), limits(in_force)) == ("1000", {"a": "1"})

    asyncio.run(run())


def test_calls_wait_for_a_change_for_a_moment_only():
    async def run() -> None:
        in_force, never = InForce("old"), asyncio.Event()
        change = asyncio.create_task(in_force.replace("new", never.wait))
        await asyncio.sleep(0)
        assert in_force.is_changing

        await asyncio.wait_for(in_force.steady(), 2 * FREEZE_S)

        assert in_force.terms == "old"
        never.set()
        await change
        assert in_force.terms == "new"

    asyncio.run(run())


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy
    place: Path

    @property
    def file(self) -> Path:
        return self.proxy.home / "lockpin.yaml"

    def config(self, daily: object, price: int = DOLLAR, more: str = "") -> str:
        return CONFIG.format(origin=self.origin.url, daily=daily, price=price, more=more)

    def write(self, text: str) -> None:
        """Write as most editors do: beside it, then into its place."""
        draft = self.file.with_suffix(".new")
        draft.write_text(text)
        draft.rename(self.file)

    def reloads(self) -> list[str]:
        return [line for line in self.proxy.printed().splitlines() if line.startswith("lockpin: configuration reload")]

    def ask(self, tokens: int = 3, **more) -> client.Answer:
        told = {"model": "dear", "max_tokens": tokens, "messages": [sdks.MESSAGE]} | more
        return client.call(self.proxy, PATH, told)

    def line(self, begins: str) -> str:
        """Wait for a line of ours."""
        return until(lambda: next((x for x in self.proxy.printed().splitlines() if x.startswith(begins)), None))

    def reloaded(self, key: str, value: str) -> str:
        """Wait for a reload that gave a key this value."""
        told = re.compile(rf"lockpin: configuration reloaded: (.*; )?{re.escape(key)} \S+ → {re.escape(value)}(;|$)")
        return until(lambda: next(filter(told.match, self.proxy.printed().splitlines()), None))

    def set(self, name: str, value: object) -> None:
        draft = self.place.with_suffix(".new")
        draft.write_text(f"{name}={value}")
        draft.rename(self.place)


@pytest.fixture
def kind(request) -> str:
    return getattr(request, "param", "mitmdump")


@pytest.fixture
def rig(kind, tmp_path) -> Iterator[Rig]:
    place = tmp_path / "option"
    script = tmp_path / "limits.py"
    script.write_text(LIMITS.format(place=str(place)))
    with processes.origin(tmp_path) as origin:
        config = CONFIG.format(origin=origin.url, daily=1000, price=DOLLAR, more="")
        arguments = ("-s", str(script)) if kind == "mitmdump" else ()
        with processes.proxy(tmp_path, config, kind=kind, arguments=arguments) as proxy:
            yield Rig(origin, proxy, place)
            assert client.call(proxy, "/lockpin/healthz", method="GET").status == 200
            assert "Traceback" not in proxy.printed()


def needed(answer: client.Answer) -> tuple[float, float]:
    assert answer.status == 402
    return answer.json["lockpin"]["budget_usd"], answer.json["lockpin"]["needed_usd"]


@pytest.mark.parametrize("kind", ["mitmdump", "up"], indirect=True)
def test_a_lowered_limit_counts_from_the_next_call_and_an_open_one_goes_on(rig):
    gate = rig.place.with_suffix(".gate")
    order = sdks.order(**SSE, body=finished("messages", 3), gate=str(gate))
    answers = []
    told = {"stream": True}
    open_call = threading.Thread(
        target=lambda: answers.append(client.call(rig.proxy, PATH, {"model": "dear", "max_tokens": 50,
                                                                    "messages": [sdks.MESSAGE]} | told, **order))
    )  # fmt: skip
    open_call.start()
    until(lambda: rig.proxy.rows("SELECT 1 FROM open_holds"))

    rig.write(rig.config(2))
    rig.reloaded("daily_usd", "$2")
    refused = rig.ask()
    gate.touch()
    open_call.join()

    assert needed(refused) == (2, 3)
    assert answers[0].status == 200
    (charge,) = rig.proxy.settled(1)
    assert (charge["usd"], charge["estimated"]) == (3 * 10**9, 0)


def test_a_raised_limit_lets_the_next_call_through(rig):
    rig.write(rig.config(1))
    rig.reloaded("daily_usd", "$1")
    assert rig.ask().status == 402

    rig.write(rig.config(10))
    rig.reloaded("daily_usd", "$10")

    assert rig.ask().status == 200


def test_a_price_that_is_added_is_known(rig):
    assert rig.ask(model="brand-new").code == "unknown_model"

    fresh = "  brand-new: {input_per_mtok: 1, output_per_mtok: 1, max_output_tokens: 9, context_tokens: 2000}\n"
    rig.write(rig.config(1000, more=fresh))

    assert rig.line("lockpin: configuration reloaded: ").endswith("pricing: brand-new added")
    assert rig.ask(model="brand-new").status == 200


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("task: {budget_usd: -5}", "lockpin.yaml:6: task.budget_usd is \"-5\"; a positive amount is allowed"),
        ("dayly_usd: 5", "lockpin.yaml:6: dayly_usd"),
        ("budgets: [", "lockpin.yaml:"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line_and_the_old_one_stays_until_it_is_good_again(rig, more, words):
    rig.write(rig.config(1, more=more))

    line = rig.line("lockpin: the configuration was not reloaded: ")
    assert words in line
    assert line.endswith("; the old configuration stays in force")
    assert rig.ask().status == 200
    assert client.call(rig.proxy, "/lockpin/healthz", method="GET").json["faults"] == []
    rig.write(rig.config(1))
    rig.reloaded("daily_usd", "$1")
    assert rig.ask().status == 402
    assert rig.proxy.printed().count("was not reloaded") == 1


def test_an_included_file_is_in_force_from_the_start_and_followed(tmp_path):
    home = processes.make_home(tmp_path)
    gateway = home / "gateway.yaml"
    with processes.origin(tmp_path) as origin:
        config = CONFIG.format(origin=origin.url, daily=1000, price=DOLLAR, more="include: [gateway.yaml]")
        gateway.write_text(GATEWAY.format(name="theirs", limit=2).replace("}]", ", action: enforce}]"))
        with processes.proxy(tmp_path, config, home=home) as proxy:
            told = {"model": "dear", "max_tokens": 3, "messages": [sdks.MESSAGE]}
            refused = client.call(proxy, PATH, told)
            assert (needed(refused), refused.json["lockpin"]["limit"]) == ((2, 3), "theirs")
            gateway.write_text(gateway.read_text().replace("limitUSD: 2", "limitUSD: 20"))
            until(lambda: "budget theirs: limit_usd $2 → $20" in proxy.printed())

            assert client.call(proxy, PATH, told).status == 200


def test_a_file_that_is_deleted_is_said_once_and_changes_nothing(rig):
    rig.write(rig.config(1))
    rig.reloaded("daily_usd", "$1")
    rig.file.unlink()

    assert "lockpin.yaml is gone" in rig.line("lockpin: the configuration was not reloaded: ")
    assert needed(rig.ask()) == (1, 3)
    rig.file.write_text(rig.config(2))
    rig.reloaded("daily_usd", "$2")
    assert needed(rig.ask()) == (2, 3)
    assert rig.proxy.printed().count("is gone") == 1


@pytest.mark.parametrize("key", ["durability: normal", "ledger: sqlite:///tmp/another-place/ledger.sqlite3"])
def test_what_needs_a_restart_applies_nothing_of_the_file(rig, key):
    rig.write(rig.config(1, more=key))

    line = rig.line("lockpin: the configuration was not reloaded: ")
    assert f"{key.partition(':')[0]} cannot change while Lockpin runs; restart it" in line
    assert rig.ask().status == 200
    assert not Path("/tmp/another-place").exists()


def test_a_file_that_is_empty_for_a_moment_is_not_taken_for_the_defaults(rig):
    rig.write(rig.config(1))
    rig.reloaded("daily_usd", "$1")

    with rig.file.open("w") as file:  # truncated, and then written piece by piece
        for line in range(4):
            end = time.monotonic() + 0.8
            while time.monotonic() < end:
                assert needed(rig.ask()) == (1, 3)
            file.write(f"# comment {line}\n")
            file.flush()
        file.write(rig.config(2))
    rig.reloaded("daily_usd", "$2")

    assert len(rig.reloads()) == 2


def test_a_change_waits_for_a_ledger_that_is_away(rig):
    assert rig.ask().status == 200
    away = rig.proxy.ledger.with_name("away")
    rig.proxy.ledger.rename(away)
    rig.write(rig.config(1))

    line = rig.line("lockpin: the configuration was not reloaded: the ledger ")
    assert line.endswith("; it is tried again, and the old configuration stays in force")
    away.rename(rig.proxy.ledger)

    rig.reloaded("daily_usd", "$1")
    until(lambda: rig.ask().status == 402)
    assert rig.proxy.printed().count("was not reloaded") == 1


def test_a_pipe_in_the_files_place_is_one_line_and_stops_nothing(rig):
    rig.file.unlink()
    os.mkfifo(rig.file)

    assert "is a pipe or a device" in rig.line("lockpin: the configuration was not reloaded: ")
    rig.file.unlink()
    rig.file.write_text(rig.config(1))
    rig.reloaded("daily_usd", "$1")
    assert needed(rig.ask()) == (1, 3)
    rig.file.unlink()
    os.mkfifo(rig.file)
    until(lambda: rig.proxy.printed().count("is a pipe or a device") == 2)


def test_while_a_change_waits_for_a_locked_ledger_free_calls_go_on(rig):
    with contextlib.closing(sqlite3.connect(rig.proxy.ledger, isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        rig.write(rig.config(1))
        slowest_s = 0.0
        while "was not reloaded" not in rig.proxy.printed():
            began_s = time.monotonic()
            assert client.call(rig.proxy, "/anthropic/v1/models", method="GET").status == 200
            slowest_s = max(slowest_s, time.monotonic() - began_s)
        lock.execute("COMMIT")
    assert slowest_s < 1
    rig.reloaded("daily_usd", "$1")
    assert needed(rig.ask()) == (1, 3)


def test_a_change_that_was_said_not_to_be_applied_is_not_in_force(rig):
    """While the ledger is locked a limit is raised, and lowered again before the ledger answers."""
    rig.write(rig.config(2))
    rig.reloaded("daily_usd", "$2")
    with contextlib.closing(sqlite3.connect(rig.proxy.ledger, isolation_level=None)) as lock:
        lock.execute("BEGIN IMMEDIATE")
        waiting = threading.Thread(target=rig.ask)  # stands before the change in the ledger's queue
        waiting.start()
        rig.write(rig.config(1000))
        rig.line("lockpin: the configuration was not reloaded: ")
        rig.write(rig.config(2))
        lock.execute("COMMIT")
    waiting.join()
    rig.line("lockpin: configuration reloaded: it is as it was")

    assert needed(rig.ask()) == (2, 3)


def test_a_file_that_stays_empty_means_the_defaults(rig):
    rig.file.write_text("# nothing\n")

    line = rig.line("lockpin: configuration reloaded: ")

    assert "daily_usd $1000 → $25" in line
    assert "pricing: dear removed" in line
    assert "upstreams: api.anthropic.com removed" in line


def test_a_file_that_is_touched_is_nothing_to_tell(rig):
    os.utime(rig.file)
    rig.write(rig.config(1000))
    rig.write(rig.config(3))
    rig.reloaded("daily_usd", "$3")

    assert len(rig.reloads()) == 1


def test_a_call_sees_the_old_or_the_new_and_never_a_mixture(rig):
    """One file has $1 a day and a dollar a token, the other $2 and two: a call of 3 tokens is short by both."""
    rig.write(rig.config(1))
    rig.reloaded("daily_usd", "$1")
    files = itertools.cycle([rig.config(2, 2 * DOLLAR), rig.config(1)])
    seen, turns = [], 0
    while turns < 5:
        count = len(rig.reloads())
        rig.write(next(files))
        while len(rig.reloads()) == count:
            seen.append(needed(rig.ask()))
        turns += 1

    assert set(seen) == {(1, 3), (2, 6)}
    assert len(seen) > 50
    assert {call["path"] for call in rig.origin.calls()} <= {
        "/v1/messages/count_tokens"
    }  # free questions before a refusal


def test_an_option_that_a_script_sets_is_applied(rig):
    rig.set("lockpin_daily_usd", "2")
    rig.reloaded("daily_usd", "$2")
    assert needed(rig.ask()) == (2, 3)

    rig.write(rig.config(50, more="drain: 5s"))  # the option still wins
    assert rig.reloaded("drain", "5s").endswith(": drain 60s → 5s")
    assert needed(rig.ask()) == (2, 3)

    rig.set("lockpin_daily_usd", "")
    rig.reloaded("daily_usd", "$50")
    assert rig.ask().status == 200


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("lockpin_daily_usd", "-1", "daily_usd is \"-1\"; a positive amount is allowed"),
        ("lockpin_durability", "normal", "durability cannot change while Lockpin runs"),
        ("lockpin_config", "/elsewhere.yaml", "lockpin_config cannot change while Lockpin runs"),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_is_refused_and_taken_back(rig, name, value, words):
    before = str(rig.file) if name == "lockpin_config" else ""

    rig.set(name, value)

    line = rig.line("refused lockpin: ")
    assert words in line
    assert line.endswith(f"| now {before!r}")
    assert rig.ask().status == 200
    assert rig.reloads() == []


def test_a_file_that_appears_where_there_was_none_is_read(tmp_path):
    home, port, log = processes.make_home(tmp_path), processes.free_port(), tmp_path / "printed"
    variables = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONUNBUFFERED": "1",
                 "PYTHONPATH": os.pathsep.join([str(processes.ROOT), str(processes.ROOT / "addons")])}  # fmt: skip
    command = [sys.executable, "-m", "lockpin_addons.up", "--port", str(port)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=variables, cwd=home)
    try:
        until(lambda: "  config   none (defaults)" in log.read_text())
        folder = home / ".config" / "lockpin"
        folder.mkdir(parents=True)
        (folder / "lockpin.yaml").write_text("daily_usd: 7\n")

        until(lambda: "lockpin: configuration reloaded: daily_usd $25 → $7" in log.read_text())
    finally:
        processes.end(process)


def test_two_proxies_of_one_file_follow_it_both(tmp_path):
    home = processes.make_home(tmp_path)
    with (
        processes.proxy(tmp_path, "daily_usd: 5\n", kind="up", home=home) as one,
        processes.proxy(tmp_path, "daily_usd: 5\n", kind="mitmdump", home=home) as two,
    ):
        (home / "lockpin.yaml").write_text("daily_usd: 6\n")
        for proxy in (one, two):
            until(lambda proxy=proxy: "configuration reloaded: daily_usd $5 → $6" in proxy.printed())


def test_a_change_that_another_proxy_contradicts_is_refused_until_that_has_ended(tmp_path):
    config = f"ledger: sqlite://{tmp_path}/shared/ledger.sqlite3\n"
    with processes.proxy(tmp_path, config + "daily_usd: 5\n", kind="up") as two:
        with processes.proxy(tmp_path, config + "daily_usd: 5\n", kind="up") as one:
            (two.home / "lockpin.yaml").write_text(config + "daily_usd: 6\n")
            until(lambda: "was not reloaded" in two.printed())
            line = next(line for line in two.printed().splitlines() if "was not reloaded" in line)
            assert str(one.home / "lockpin.yaml") in line
            assert str(two.home / "lockpin.yaml") in line
            assert "configuration reloaded" not in two.printed()

        until(lambda: "configuration reloaded: daily_usd $5 → $6" in two.printed())
        assert two.printed().count("was not reloaded") == 1


def test_a_proxy_that_another_contradicts_does_not_start(tmp_path):
    config = f"ledger: sqlite://{tmp_path}/shared/ledger.sqlite3\n"
    with processes.proxy(tmp_path, config + "daily_usd: 5\n", kind="up") as one:
        two = processes.launch(tmp_path, config + "daily_usd: 6\n")
        assert two.process.wait(processes.PATIENCE_S) == 1
        line = next(line for line in two.printed().splitlines() if "cannot start" in line)
        assert str(one.home / "lockpin.yaml") in line
        assert str(two.home / "lockpin.yaml") in line
        assert "Traceback" not in two.printed()
