"""The budgets in force for a command, where each is changed, and which account a person means."""

from __future__ import annotations

import shlex
import socket
import unicodedata
from dataclasses import dataclass

import typer

from lockpin_cli.changes import stranger, task_name
from lockpin_cli.presence import is_there
from lockpin_core.budgets import ORG, SCOPES, Budget
from lockpin_core.config import FILE_NAME, Config, usual_places
from lockpin_core.config_budgets import DAILY, OWN, budget_places
from lockpin_core.config_files import content
from lockpin_core.config_include import read_policy
from lockpin_core.config_yaml import Where, read
from lockpin_core.errors import CommandError
from lockpin_core.ledger.accounts import TaskTerms
from lockpin_core.ledger.admin import refuse_uncounted
from lockpin_core.ledger.definitions import COMMAND, CONFIG
from lockpin_core.ledger.protocol import Rules
from lockpin_core.names import canonical_user
from lockpin_core.readers.rulebook import Rulebook, RuleReader


@dataclass(frozen=True, slots=True)
class Known:
    """What a name may mean: a budget in force, or a task."""

    book: Rulebook
    tasks: dict[str, TaskTerms]

    def limited(self) -> set[str]:
        """Name the tasks that have a budget of their own."""
        has_default = self.book.rules.task_default.limit is not None
        return {name for name, terms in self.tasks.items() if has_default or terms.limit_nano is not None}


def known(config: Config) -> Known:
    """Read what is in force and which tasks there are."""
    configured = Rules(config.all_budgets(), config.task_default())
    if not is_there(config.ledger):
        sources = {budget.name: CONFIG for budget in (*configured.budgets, configured.task_default)}
        return Known(Rulebook(configured, sources, {}), {})
    with RuleReader(config.ledger) as reader:
        return Known(reader.rulebook(configured), reader.task_terms())


def refuse_configured(config: Config, book: Rulebook, name: str) -> None:
    """Raise CommandError, saying where it is changed, where a budget is none that commands make."""
    configured = {budget.name for budget in config.all_budgets()}
    if name in (DAILY, OWN) or name in configured or book.sources.get(name) == CONFIG:
        raise CommandError(_place(config, name))


def _place(config: Config, name: str) -> str:
    """Say which key of which file makes a budget, or would."""
    place = places(config).get(name)
    file = config.file or usual_places().config / FILE_NAME
    made = None if place is None else f"{place.path} in {place.source}:{place.line}"
    if name == DAILY:
        where = f"made by {made}; change it there" if made else f"the usual one; set daily_usd in {file}"
        return f'budget "{name}" is {where}, or start with `lockpin up --daily-usd USD`'
    if name == OWN:
        where = made or f"task.budget_usd in {file}"
        return f'budget "{name}" is each task\'s own: `lockpin task new NAME --budget USD` sets one, {where} the others'
    if made is None:
        here = config.file or "a file that is found here"
        return f'budget "{name}" is from the configuration of a proxy, and not from {here}; change it there'
    return f'budget "{name}" is made by {made}; change it there, a running proxy applies it at once'


def places(config: Config) -> dict[str, Where]:
    """Give where each budget is made, also those of included files."""
    if config.file is None:
        return {}
    trees = [read(content(config.file), str(config.file)), *map(read_policy, config.include)]
    return {name: place for tree in trees for name, place in budget_places(tree).items()}


def refuse_doubled(config: Config) -> None:
    """Raise CommandError where a command has made a budget of a configured one's name: no proxy starts with both."""
    sources = known(config).book.sources
    for budget in config.all_budgets():
        if sources.get(budget.name) == COMMAND:
            place = places(config).get(budget.name)
            where = f"{config.file or 'daily_usd'}" if place is None else f"{place.source}:{place.line}: {place.path}"
            raise CommandError(
                f'{where}: budget "{budget.name}" was made by command too, so no proxy starts; give it another name, '
                f"or take the command's away: lockpin budget rm {shlex.quote(budget.name)}"
            )


def one_form(name: str) -> str:
    """Bring a name to the form in which the ledger has it."""
    return unicodedata.normalize("NFC", name.strip())


def account_key(text: str) -> tuple[str, str]:
    """Read `--key` into scope and subject, the latter in its one form. Wrong use otherwise."""
    scope, _, subject = text.partition(":")
    subject = ORG if scope == "org" and not subject else subject.strip()
    if scope not in SCOPES or not subject or (scope == "org" and subject != ORG):
        allowed = f"SCOPE:SUBJECT is allowed, such as user:ann@corp.com, or org; scopes are {', '.join(SCOPES)}"
        raise typer.BadParameter(f'"{text}": {allowed}', param_hint="--key")
    match scope:
        case "task":
            return scope, task_name(subject, "--key")
        case "user":
            return scope, canonical_user(subject) or subject
        case "tag":
            return scope, "=".join(part.strip() for part in subject.split("=", 1))
    return scope, subject


def account(config: Config, name: str, key: str | None, verb: str) -> tuple[Budget, str, str | None]:
    """Find the one account that a budget or task and `--key` mean. Wrong use where the words may mean two.

    `verb` is the command's, for the ways out. With it comes what of the budget's configuration is not in force, to be
    said when all is done. Raises CommandError where there is no such account.
    """
    there, name = known(config), one_form(name)
    note = there.book.notes.get(name)
    if note is not None and there.book.find(name) is None:
        raise CommandError(note)
    budget, subject = _meant(there, name, None if key is None else account_key(key), verb)
    if unknown := stranger(config, budget.scope, subject):
        raise CommandError(unknown)
    return budget, subject, note


def _meant(known: Known, name: str, key: tuple[str, str] | None, verb: str) -> tuple[Budget, str]:
    own, budget, limited = known.book.rules.task_default, known.book.find(name), known.limited()
    if budget is not None and key is None and name in limited:
        quoted = shlex.quote(name)
        ways = f"--key {budget.scope}:…", f"`lockpin budget {verb} {own.name} --key task:{quoted}`"
        words = f"it is a budget and a task; {ways[0]} means the budget, {ways[1]} the task"
        raise typer.BadParameter(words, param_hint=name)
    if budget is not None:
        return budget, _subject(budget, key)
    if name in limited and key in (None, ("task", name)):
        return own, name
    others = ", ".join(known.book.names())
    raise CommandError(f'no budget "{name}", and no task of that name with a budget; there are {others}')


def _subject(budget: Budget, key: tuple[str, str] | None) -> str:
    if key is None and budget.scope == "machine":
        return socket.gethostname()
    if key is None and budget.scope == "org":
        return ORG
    if key is None and budget.scope == "key" and len(budget.keys) == 1:
        return budget.keys[0]
    if key is None or key[0] != budget.scope:
        words = f'budget "{budget.name}" has an account for each {budget.scope}; {budget.scope}:… is allowed'
        raise typer.BadParameter(words, param_hint="--key")
    refuse_uncounted(budget, key[1])
    return key[1]
