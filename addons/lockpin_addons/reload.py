"""Applies changes of the configuration to a running proxy: of its file, and of options that a script sets.

A change is applied as a whole or not at all: read and checked beside the loop, its budgets agreed with the ledger,
then put in force by one assignment. Whatever is wrong with it is one line, and the old terms stay. Nothing here can
open the gate: it only ever puts other terms in the place of terms.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from lockpin_addons.banner import say
from lockpin_addons.changes import changes, fixed_changes
from lockpin_addons.guard import GuardError
from lockpin_addons.terms import InForce, Terms, make_terms
from lockpin_core.config import Config, find_file, parse, updates_dir, usual_places
from lockpin_core.config_files import content
from lockpin_core.config_include import included_files
from lockpin_core.config_secrets import masked
from lockpin_core.errors import ConfigError, LedgerError, LedgerUnavailable, LockpinError
from lockpin_core.ledger.answers import answer_of, answer_within
from lockpin_core.ledger.protocol import Ledger
from lockpin_core.prices import PriceTable, shipped_dir

LOOK_S = 1.0
STABLE_S = 0.25  # a file that changed must be the same for so long: editors write in steps
DEFINE_WAIT_S = 5
DEFINE_BUDGETS = ("daily_usd", "task_budget_usd", "timezone")  # options on which budgets depend
KEPT = "the old configuration stays in force"

type Print = tuple[int, ...]  # what tells one state of a file from another
type Prints = tuple[Print, ...]  # of the configuration's file, then of those that it includes
type Check = Callable[[Config], None]


@dataclass(frozen=True, slots=True)
class Source:
    """What a configuration is read from."""

    file: Path | None
    words: str | None  # the file's; None: there is no file
    options: Mapping[str, str]
    included: Mapping[Path, str] = field(default_factory=dict)  # the words of the files that it includes

    def config(self, options: Mapping[str, str] | None = None) -> Config:
        """Read it, with other options where some are given. Raises ConfigError."""
        told = self.options if options is None else options
        return parse(self.words, self.file, options=told, included=self.included)

    @property
    def origin(self) -> str:
        """Name it for other processes: those of one origin may differ for the moment of a reload."""
        told = [f"{name}={masked(value)}" for name, value in sorted(self.options.items()) if name in DEFINE_BUDGETS]
        file = "the defaults" if self.file is None else str(self.file.absolute())
        return f"{file} with {', '.join(told)}" if told else file

    def blanks(self) -> set[Path | None]:
        """List the files in which nothing stands but comments."""
        blank: set[Path | None] = {file for file, words in self.included.items() if _is_blank(words)}
        return blank | {self.file} if _is_blank(self.words or "") else blank


def read_source(file: Path | None, options: Mapping[str, str]) -> Source:
    """Read the file and those that it includes, in so far as they are there. Raises ConfigError."""
    words = None if file is None else content(file)
    included = {} if file is None or words is None else _contents(included_files(words, file))
    return Source(file, words, options, included)


def _contents(files: tuple[Path, ...]) -> dict[Path, str]:
    """Read files; one that cannot be read is left to `parse`, which says where it is named."""
    found: dict[Path, str] = {}
    for file in files:
        with contextlib.suppress(ConfigError, ValueError):
            found[file] = content(file)
    return found


def _is_blank(words: str) -> bool:
    return all(line.strip() in ("", "---", "...") or line.lstrip().startswith("#") for line in words.splitlines())


class Reloader:
    """Watches and applies. `check` raises GuardError where the host's options do not go with a configuration;
    `take_back` sets our options to what they were.
    """

    def __init__(
        self, in_force: InForce, ledger: Ledger, source: Source, *, check: Check,
        take_back: Callable[[Mapping[str, str]], None], named: str, define_wait_s: float = DEFINE_WAIT_S,
    ) -> None:  # fmt: skip
        self._named = named  # the option with the file's name
        self._define_wait_s = define_wait_s
        self._in_force, self._ledger = in_force, ledger
        self._source = source  # of the terms in force
        self._options = source.options  # those that are wanted; the same, but while they are being applied
        self._check, self._take_back = check, take_back
        self._include = tuple(source.included)  # as the file named them when it was looked at last
        self._handled = prints_of(source.file, self._include)
        self._said = ""
        self._is_agreed = True  # the ledger is known to have the terms in force, and no others of ours
        self._one_at_a_time = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def look(self) -> None:
        """Apply the file as it stands now, where that is not how it was dealt with last."""
        await self._look_at_file()
        await self._agree_again()

    async def _look_at_file(self) -> None:
        file = self._source.file or find_file(None, env=os.environ, places=usual_places())
        if prints_of(file, self._include) == self._handled:
            return
        seen = await _stable(file, self._include, STABLE_S)
        if seen == self._handled:
            return
        before, self._handled = self._handled, seen
        try:
            await self._apply_file(file, seen)
        except (LedgerUnavailable, LedgerError) as error:  # another proxy's budgets may go as well as come
            self._handled = before
            self._report(f"the configuration was not reloaded: {error}; it is tried again, and {KEPT}")
        except (LockpinError, GuardError) as error:
            self._report(f"the configuration was not reloaded: {error}; {KEPT}")

    async def _apply_file(self, file: Path | None, seen: Prints) -> None:
        if file is None:
            return  # one that came and went, and never was in force
        if not seen[0]:
            raise ConfigError(f"{file} is gone")
        words = await asyncio.to_thread(content, file)
        self._include = await asyncio.to_thread(included_files, words, file)
        self._handled = seen = (seen[0], *prints_of(None, self._include)[1:])
        source = Source(file, words, {}, await asyncio.to_thread(_contents, self._include))
        is_emptied = bool(source.blanks() - self._source.blanks())
        now = await _stable(file, self._include, LOOK_S) if is_emptied else prints_of(file, self._include)
        if now != seen:
            return  # somebody is writing it; the next look sees what
        async with self._one_at_a_time:
            await self._apply(replace(source, options=self._options))

    def keep_file(self, name: str) -> None:
        """Refuse another file than the one that was started with. Raises ConfigError."""
        if name != self._named:
            raise ConfigError("lockpin_config cannot change while Lockpin runs; restart it to take another file")

    def set_options(self, options: Mapping[str, str]) -> None:
        """Take options that were set at run time: check now, apply soon. Raises ConfigError or GuardError."""
        if options == self._options:
            return
        self._checked(self._source.config(options))
        self._options = options
        task = asyncio.get_running_loop().create_task(self._apply_options(options))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _apply_options(self, options: Mapping[str, str]) -> None:
        try:
            async with self._one_at_a_time:
                await self._apply(replace(self._source, options=options))
        except (LockpinError, GuardError) as error:
            self._report(f"options were not applied: {error}; {KEPT}")
            if self._options == options:
                self._options = self._source.options
                self._take_back(self._options)
            await self._agree_again()

    def _checked(self, config: Config) -> Config:
        fixed = fixed_changes(self._in_force.terms.config, config)
        if fixed:
            raise ConfigError(f"{' and '.join(fixed)} cannot change while Lockpin runs; restart it to apply all of it")
        self._check(config)
        return config

    async def _apply(self, source: Source) -> None:
        old = self._in_force.terms
        new = await asyncio.to_thread(self._terms, source, old)
        await self._in_force.replace(new, partial(self._define, new, source.origin))
        self._source = source
        found = changes(old.config, new.config)
        if found:
            self._report(f"configuration reloaded: {'; '.join(found)}")
        elif self._said:
            self._report("configuration reloaded: it is as it was")
        self._said = ""

    def _terms(self, source: Source, old: Terms) -> Terms:
        config = self._checked(source.config())
        prices = old.prices
        if (config.pricing, config.models) != (old.config.pricing, old.config.models):
            prices = PriceTable.load(shipped_dir(), config.pricing, config.models, updates_dir())
        return make_terms(config, prices, self._ledger)

    async def _define(self, terms: Terms, origin: str) -> None:
        """Tell the ledger of budgets. Where that fails it is over: nothing of it is left to be done later."""
        was_agreed, self._is_agreed = self._is_agreed, False
        defining = self._ledger.define(terms.rules, origin, terms.config.mode)
        try:
            await answer_within(defining, self._define_wait_s)
            if defining.cancel():  # nobody had begun with it
                self._is_agreed = was_agreed
                raise LedgerUnavailable("the ledger does not answer")
            await answer_of(defining)
        except LedgerError:  # it says that it has changed nothing
            self._is_agreed = was_agreed
            raise
        self._is_agreed = True

    async def _agree_again(self) -> None:
        """Tell the ledger of the terms in force where it may have others: those of a change that failed halfway."""
        async with self._one_at_a_time:
            if not self._is_agreed:
                with contextlib.suppress(LedgerUnavailable, LedgerError):  # the next look tries again
                    await self._define(self._in_force.terms, self._source.origin)

    def _report(self, line: str) -> None:
        if line != self._said:
            self._said = line
            say(line)


def print_of(file: Path | None) -> Print:
    """Take what tells one state of a file from another; empty: there is none."""
    if file is None:
        return ()
    try:
        found = file.stat()
    except (OSError, ValueError):  # ValueError: no path has a NUL in it
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def prints_of(file: Path | None, include: Sequence[Path]) -> Prints:
    """Take those of a configuration's file and of the files that it includes."""
    return print_of(file), *map(print_of, include)


async def _stable(file: Path | None, include: Sequence[Path], for_s: float) -> Prints:
    """Wait until the files have been the same for a time."""
    seen = prints_of(file, include)
    while True:
        await asyncio.sleep(for_s)
        again = prints_of(file, include)
        if again == seen:
            return seen
        seen = again
