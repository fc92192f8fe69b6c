"""Puts Lockpin together on a mitmproxy master: options, configuration, ledger, engine, addons in their places."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib.util
import os
import random
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mitmproxy import ctx, exceptions
from mitmproxy.addonmanager import Loader
from mitmproxy.master import Master
from mitmproxy.options import Options
from mitmproxy.proxy.mode_servers import ServerInstance
from mitmproxy.proxy.mode_specs import RegularMode

from lockpin_addons import again, guard, lean, mends, options, quiet
from lockpin_addons.attempts import Attempts
from lockpin_addons.banner import Start, say, start_block
from lockpin_addons.callers import Callers
from lockpin_addons.door import Door
from lockpin_addons.drain import Drain
from lockpin_addons.fallbacks import Fallbacks
from lockpin_addons.gate import Gate
from lockpin_addons.identity import MACHINE
from lockpin_addons.issuer import NEEDS_JWT
from lockpin_addons.layers import Policy, Tunnels
from lockpin_addons.real_keys import RealKeys
from lockpin_addons.reload import LOOK_S, Reloader, Source, read_source
from lockpin_addons.serve import LEDGER_AWAY, Health
from lockpin_addons.tap import Tap
from lockpin_addons.terms import InForce, Terms, make_terms
from lockpin_addons.tokens import Tokens
from lockpin_addons.trip import Trip
from lockpin_core.budgets import Standing
from lockpin_core.clock import new_id, utc_now
from lockpin_core.config import Config, find_file, option_names, updates_dir, usual_places
from lockpin_core.config_warnings import keys_not_at_hand
from lockpin_core.errors import LockpinError
from lockpin_core.ledger.pausebook import breaker_state
from lockpin_core.ledger.pauses import BreakerState
from lockpin_core.ledger.place import mark
from lockpin_core.ledger.protocol import Ledger
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.ledger.writer import deliver_here
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.providers import Providers

NAME = "lockpin"
CONFIG_OPTION = "lockpin_config"
DEFINE_WAIT_S = 10  # for the ledger's first answer


class StartError(Exception):
    """Why Lockpin cannot start; the message is one clear line."""

    is_plain = True


class Lockpin:
    """The addon that owns the rest: options before, the start block after, the end of the ledger."""

    name = NAME

    def __init__(self) -> None:
        self.in_force: InForce | None = None
        self.reloader: Reloader | None = None
        self.drain: Drain | None = None
        self.by_command = False
        self._watching: asyncio.Task[None] | None = None

    def load(self, loader: Loader) -> None:
        """Declare our options: every scalar of the configuration by its path."""
        loader.add_option(CONFIG_OPTION, str, "", "Lockpin's configuration file")
        for name in option_names():
            loader.add_option(options.PREFIX + name, str, "", f"Lockpin: {name} (see lockpin.yaml)")

    def configure(self, updated: set[str]) -> None:
        """Apply our own options. Refuse what would open the gate or cannot be; mitmproxy then takes it back."""
        if self.in_force is None or self.reloader is None:
            return
        try:
            options.check(ctx.options, self.in_force.terms.config)
            if CONFIG_OPTION in updated:
                self.reloader.keep_file(ctx.options.lockpin_config)
            if any(name.startswith(options.PREFIX) for name in updated):
                self.reloader.set_options(_set_options(ctx.options))
        except (options.OptionError, LockpinError) as error:
            raise exceptions.OptionsError(f"lockpin: {error}") from error

    async def running(self) -> None:
        """Listen where we said, print what is in force, and from now on follow changes and end in order."""
        assert self.in_force is not None and self.reloader is not None and self.drain is not None
        with guard.or_end_process():
            server = ctx.master.addons.get("proxyserver")
            is_far = any(address[0] not in options.LOOPBACK_HOSTS for address in server.listen_addrs())
            if is_far and options.is_near(ctx.options):
                await server.servers.update([])
                await server.setup_servers()
            standings = await self.drain.or_end(self.in_force.terms.engine.in_force(MACHINE))
            if standings is None:
                return
            lean.spare_the_loop()
            breaker = await asyncio.to_thread(_breaker, self.in_force.terms.config)
            print("\n".join(start_block(self._start(self.in_force.terms, standings, breaker))), flush=True)
            self._watching = asyncio.create_task(guard.never_end(self.reloader.look, LOOK_S))

    def _start(self, terms: Terms, standings: Sequence[Standing], breaker: BreakerState | None) -> Start:
        servers = list(ctx.master.addons.get("proxyserver").servers)
        return Start(
            config=terms.config,
            addresses=[where for one in servers if isinstance(one.mode, RegularMode) for where in _places(one)],
            authority=_authority(),
            price_date=str(terms.prices.date),
            standings=standings,
            warnings=[*options.warnings(ctx.options), *keys_not_at_hand(terms.config, os.environ)],
            by_command=self.by_command,
            breaker=breaker,
            others=[
                f"{one.mode.full_spec.partition('@')[0]} on {host}:{port}"
                for one in servers
                for host, port in _places(one)
                if not isinstance(one.mode, RegularMode)
            ],
        )


class Line:
    """The line between the ledger's thread and the loop; during the start, when the loop stands still, there is none
    and answers are given in the thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._thread = loop, threading.get_ident()
        self.is_open = False

    def deliver(self, answers: list[Callable[[], None]]) -> None:
        """Give the answers of one commit in one step of the loop."""
        try:
            if self.is_open:
                self._loop.call_soon_threadsafe(deliver_here, answers)
                return
        except RuntimeError:  # the loop is closed
            pass
        deliver_here(answers)

    def soon(self, action: Callable[[], None]) -> bool:
        """Do this on the loop's next turn; False: not from here, or not now."""
        if not self.is_open or threading.get_ident() != self._thread or self._loop.is_closed():
            return False
        self._loop.call_soon(action)
        return True


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
        raise StartError(f"there is no option {unknown[0]}; allowed are {CONFIG_OPTION}, {_known_options()}")
    options.force(master.options)
    source = _source(master.options)
    config = source.config()
    options.check(master.options, config)
    options.ask_for_certificates(master.options, config)
    if config.oidc is not None and importlib.util.find_spec("jwt") is None:
        raise StartError(NEEDS_JWT)
    quiet.install()
    guard.install()
    again.install()
    providers = Providers.load(shipped_dir())
    prices = PriceTable.load(shipped_dir(), config.pricing, config.models, updates_dir())
    _build(master, addon, source, config, providers, prices)
    return addon


def _source(told: Options) -> Source:
    named = Path(told.lockpin_config).expanduser() if told.lockpin_config else None
    file = find_file(named, env=os.environ, places=usual_places())
    return read_source(file, _set_options(told))


def _build(
    master: Master, addon: Lockpin, source: Source, config: Config, providers: Providers, prices: PriceTable
) -> None:
    trips: dict[str, Trip] = {}
    line = Line(master.event_loop)
    health = Health(
        utc_now, utc_now(), lambda: sum(trip.admitted is not None for trip in trips.values()),
        is_capped=lambda: in_force.is_capped,
        say=lambda words: line.deliver([partial(say, words)]),
        ledger=mark(config.ledger), mode=config.mode,
    )  # fmt: skip
    ledger = SqliteLedger(
        config.ledger, clock=utc_now, new_id=new_id, durability=config.durability, fault=health.ledger_fault,
        deliver=line.deliver, soon=line.soon,
    )  # fmt: skip
    # After the loop's end: late hooks still settle, then open holds are charged.
    atexit.register(_close, ledger)
    terms = make_terms(config, prices, ledger)
    in_force = addon.in_force = InForce(terms)
    _define(ledger, terms, source.origin, health)
    addon.reloader = Reloader(
        in_force, ledger, source, check=_checker(master), take_back=_taker_back(master),
        named=master.options.lockpin_config,
    )  # fmt: skip
    real_keys = RealKeys(in_force, os.environ).of
    callers = Callers(ledger.key, Tokens(in_force, utc_now), real_keys)
    door = Door(in_force, providers, callers)
    gate = Gate(in_force, providers, health, new_id, trips, door, callers)
    fallbacks = Fallbacks(providers, real_keys, new_id)
    attempts = Attempts(trips, fallbacks, gate.stopping, new_id=new_id, clock=utc_now, dice=random.random)
    tap = Tap(trips)
    _add(master, providers, door, gate, attempts, tap)
    addon.drain = Drain.install(master, gate, tap)
    line.is_open = True


def _close(ledger: Ledger) -> None:
    """Close the books; where something could not be written, say so and let the process fail."""
    lost = ledger.stop()
    if lost:
        records = "1 record of calls is" if lost == 1 else f"{lost} records of calls are"
        line = f"lockpin: the ledger could not be written to the end: {records} lost from the books"
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(1)  # a status cannot be set any more at this point


def _breaker(config: Config) -> BreakerState | None:
    """Read whose calls pause, for the start block alone."""
    with contextlib.suppress(LockpinError):
        return breaker_state(config.ledger, utc_now())
    return None


def _define(ledger: Ledger, terms: Terms, origin: str, health: Health) -> None:
    """Agree with the ledger about the budgets before the start goes on. Raises StartError or LedgerError."""
    try:
        ledger.define(terms.rules, origin, terms.config.mode).result(DEFINE_WAIT_S)
    except TimeoutError:
        why = health.faults[LEDGER_AWAY][1] if health.is_ledger_away else "it does not answer"
        raise StartError(f"the ledger {terms.config.ledger} cannot be used: {why}") from None


def _add(master: Master, providers: Providers, door: Door, gate: Gate, attempts: Attempts, tap: Tap) -> None:
    tunnels = Tunnels(providers)
    mends.install(tunnels.is_nobodys, gate.leave)
    master.addons.add(tunnels, Policy(providers), door, gate)
    master.addons.add(attempts, tap)
    # Before mitmproxy's own choice of layers, which leaves alone what is chosen already.
    master.addons.chain.remove(tunnels)
    master.addons.chain.insert(0, tunnels)
    dumper = master.addons.get("dumper")
    if dumper is not None and master.options.flow_detail <= 1:
        master.addons.remove(dumper)  # it prints addresses, and some carry keys
    lean.quicken(master.addons)


def _checker(master: Master) -> Callable[[Config], None]:
    return lambda config: options.check(master.options, config)


def _taker_back(master: Master) -> Callable[[Mapping[str, str]], None]:
    def take_back(told: Mapping[str, str]) -> None:
        master.options.update(**{options.PREFIX + name: told.get(name, "") for name in option_names()})

    return take_back


def _places(server: ServerInstance[Any]) -> list[tuple[str, int]]:
    """List where a server listens, each address once: it may do so for more than one protocol."""
    return list(dict.fromkeys((str(address[0]), address[1]) for address in server.listen_addrs))


def _authority() -> Path:
    return Path(ctx.options.confdir).expanduser() / "mitmproxy-ca-cert.pem"


def _set_options(told: Options) -> dict[str, str]:
    """Give our options that were set, by name without the prefix."""
    values = {name: getattr(told, options.PREFIX + name) for name in option_names()}
    return {name: value for name, value in values.items() if value != ""}


def _known_options() -> str:
    return ", ".join(options.PREFIX + name for name in option_names())
