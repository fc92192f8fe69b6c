"""What typer says of wrong use, in our words: what is wrong, what is allowed, what may be meant. For faults only."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable, Mapping

import typer

_ALIKE = 0.6

type _Match = re.Match[str]


def reworded(message: str, commands: Mapping[str, str]) -> str:
    """Write a message of typer's as one of ours; what is none of those stays as it is."""
    message = message.replace("Value error, ", "").rstrip(".")
    for pattern, words in _WORDS:
        message = pattern.sub(words, message)
    unknown = re.fullmatch(r"No such command '(.*?)'(?:\. Did you mean (.*)\?)?", message)
    if unknown is None:
        return message
    near = unknown[2].replace("'", "") if unknown[2] else _meant(unknown[1], commands)
    return f'there is no command "{unknown[1]}"' + (f"; did you mean {near}?" if near else "")


def _meant(name: str, commands: Mapping[str, str]) -> str | None:
    """Find the command that is meant; one of a group is found without the group's name."""
    ways = {command: command for command in commands}
    for group in commands:
        command = typer.main.get_command(importlib.import_module(f"lockpin_cli.{group}").app)
        for inner in getattr(command, "commands", ()):
            ways.setdefault(inner, f"{group} {inner}")
    near = difflib.get_close_matches(name, ways, 1, _ALIKE)
    return ways[near[0]] if near else None


# Of `budget set`; the configuration's words are not read for it, as that takes long.
_NO_TEAMS = (
    "there is no filter by team; --scope team gives each team an account of one size, and for sizes of their own give "
    "a team's keys a group or a tag (`lockpin key create --group web`) and name that by --groups or --tags"
)


def _bound(found: _Match) -> str:
    return f"{'at least' if found[1] == 'greater' else 'at most'} {int(found[2]):,} is allowed"


def _choice(found: _Match) -> str:
    return f'"{found[1]}" is not allowed; {found[2].replace("'", "")} are'


_WORDS: tuple[tuple[re.Pattern[str], str | Callable[[_Match], str]], ...] = (
    (re.compile(r"Input should be a valid integer.*"), "a whole number is allowed"),
    (re.compile(r"Input should be (greater|less) than or equal to (\d+).*"), _bound),
    (re.compile(r"'([^']*)' is not one of (.*)"), _choice),
    (re.compile(r"^Invalid value for '([^']*)'(?: / '[^']*')?: "), r"\1: "),
    (re.compile(r"^Invalid value for ([^:']*): "), r"\1: "),
    (re.compile(r"^Invalid value: "), ""),
    (re.compile(r"^Missing (?:argument|option) '([^']*)'(?: / '[^']*')*"), r"\1 is missing"),
    (re.compile(r"^Got unexpected extra arguments?(?:\(s\))? \((.*)\)"), r'"\1" is more than is allowed'),
    (re.compile(r"^No such option: (\S+)"), r"there is no flag \1"),
    (re.compile(r" \(Possible options: (.*)\)"), r"; did you mean \1?"),
    (re.compile(r"^(there is no flag \S+) Did you mean (.*)\?"), r"\1; did you mean \2?"),
    (
        re.compile(r"^there is no flag --(user|team|group|ring|project|tag|machine)(; did you mean --since\?)?$"),
        r"there is no flag --\1; --key \1:NAME is for one alone where there is --key, --by \1 adds up in `report`",
    ),
    (
        re.compile(r"^there is no flag --action; did you mean .*"),
        "there is no flag --action; a budget by command always enforces, one that warns is under budgets: in the file",
    ),
    (re.compile(r"^there is no flag --teams; did you mean --tags\?"), f"--teams: {_NO_TEAMS}"),
)
