"""Puts Lockpin together on a mitmproxy master: options, configuration, ledger, engine, addons in their places."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from mitmproxy import ctx, exceptions
from mitmproxy.addonmanager import Loader
from mitmproxy.master import Master

from lockpin_addons import guard, lean, mends, options, quiet
from lockpin_addons.banner import Start, start_block
from lockpin_addons.gate import Gate
from lockpin_addons.identity import MACHINE
from lockpin_addons.layers import Policy, Tunnels
from lockpin_addons.serve import Health
from lockpin_addons.tap import Tap
from lockpin_addons.trip import Trip
from lockpin_core.clock import new_id, utc_now
from lockpin_core.config import Config, load, option_names
from lockpin_core.engine import Engine
from lockpin_core.ledger.protocol import Rules
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.ledger.writer import deliver_here
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.providers import Providers

NAME = "lockpin"


class StartError(Exception):
    """Why Lockpin cannot start; the message is one clear line."""

    is_plain = True


class Lockpin:
    """The addon that owns the rest: options before, the start block after, the end of the ledger."""

    name = NAME

    def __init__(self) -> None:
        self.config: Config | None = None
        self.prices: PriceTable | None = None
        self.engine: Engine | None = None
        self.by_command = False

    def load(self, loader: Loader) -> None:
        """Declare our options: every scalar of the configuration by its path."""
        loader.add_option("lockpin_config", str, "", "Lockpin's configuration file")
        for name in option_names():
            loader.add_option(options.PREFIX + name, str, "", f"Lockpin: {name} (see lockpin.yaml)")

    def configure(self, updated: set[str]) -> None:
        """Refuse changes that would open the gate; mitmproxy then takes them back."""
        if self.config is not None:
            try:
                options.check(ctx.options, has_upstreams=bool(self.config.upstreams))
            except options.OptionError as error:
                raise exceptions.OptionsError(f"lockpin: {error}") from error

    async def running(self) -> None:
        """Listen where we said, and print what is in force."""
        assert self.config is not None and self.prices is not None and self.engine is not None
        with guard.or_end_process():
            server = ctx.master.addons.get("proxyserver")
            if any(address[0] not in options.LOOPBACK_HOSTS for address in server.listen_addrs()):
                await server.servers.update([])
                await server.setup_servers()
            start = Start(
                config=self.config,
                addresses=[(str(address[0]), address[1]) for address in server.listen_addrs()],
                authority=_authority(),
                price_date=str(self.prices.date),
                standings=await self.engine.in_force(MACHINE),
                warnings=options.warnings(ctx.options),
                by_command=self.by_command,
            )
            lean.spare_the_collector()
            print("\n".join(start_block(start)), flush=True)


def install_in_mitmdump() -> None:
    """Install on the running master once; called by the entry script's `load`, also on its reload."""
    if ctx.master.addons.get(NAME) is None:
        install(ctx.master, {})


def install(master: Master, settings: Mapping[str, object]) -> Lockpin:
    """Build everything and put it on the master's chain; `settings` are mitmproxy options to set on the way.

    Raises StartError, GuardError or a LockpinError: then the process must end.
    """
    addon = Lockpin()
    master.addons.add(addon)
    master.options.update(**settings)
    unknown = options.misspelled(master.options)
    if unknown:
        raise StartError(f"there is no option {unknown[0]}; allowed are lockpin_config, {_known_options()}")
    options.force(master.options)
    config = load(_config_path(master), options=_set_options(master), env=os.environ)
    options.check(master.options, has_upstreams=bool(config.upstreams))
    quiet.install()
    guard.install()
    providers = Providers.load(shipped_dir())
    addon.prices = PriceTable.load(shipped_dir(), config.pricing, config.models)
    addon.config = config
    addon.engine = _build(master, config, providers, addon.prices)
    return addon


def _build(master: Master, config: Config, providers: Providers, prices: PriceTable) -> Engine:
    trips: dict[str, Trip] = {}
    health = Health(utc_now, utc_now(), lambda: sum(trip.admitted is not None for trip in trips.values()))
    loop, thread = master.event_loop, threading.get_ident()

    def fault(code: str) -> None:
        message = "the ledger cannot be written" if code else ""
        health.fault("ledger_unavailable", message)

    def deliver(answers: list[Callable[[], None]]) -> None:
        try:
            loop.call_soon_threadsafe(deliver_here, answers)
        except RuntimeError:  # the loop is closed
            deliver_here(answers)

    def soon(action: Callable[[], None]) -> bool:
        if threading.get_ident() != thread or loop.is_closed():
            return False
        loop.call_soon(action)
        return True

    rules = Rules(config.all_budgets(), config.task_default())
    ledger = SqliteLedger(
        config.ledger, clock=utc_now, new_id=new_id, durability=config.durability, fault=fault, deliver=deliver,
        soon=soon,
    )  # fmt: skip
    ledger.define(rules)
    # After the loop's end: late hooks still settle, then open holds are charged.
    atexit.register(ledger.stop)
    engine = Engine(config, prices, ledger, rules=rules, clock=utc_now)
    tunnels = Tunnels(providers)
    mends.install(tunnels.is_nobodys)
    master.addons.add(tunnels, Policy(providers), Gate(engine, config, providers, health, new_id, trips))
    master.addons.add(Tap(engine, trips))
    # Before mitmproxy's own choice of layers, which leaves alone what is chosen already.
    master.addons.chain.remove(tunnels)
    master.addons.chain.insert(0, tunnels)
    dumper = master.addons.get("dumper")
    if dumper is not None and master.options.flow_detail <= 1:
        master.addons.remove(dumper)  # it prints addresses, and some carry keys
    lean.quicken(master.addons)
    return engine


def _authority() -> Path:
    return Path(ctx.options.confdir).expanduser() / "mitmproxy-ca-cert.pem"


def _config_path(master: Master) -> Path | None:
    return Path(master.options.lockpin_config).expanduser() if master.options.lockpin_config else None


def _set_options(master: Master) -> dict[str, str]:
    """Give our options that were set, by name without the prefix."""
    values = {name: getattr(master.options, options.PREFIX + name) for name in option_names()}
    return {name: value for name, value in values.items() if value != ""}


def _known_options() -> str:
    return ", ".join(options.PREFIX + name for name in option_names())
