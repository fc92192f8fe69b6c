"""The classes of commands: how what was typed becomes values, quickly. Knows typer only: the help must come fast."""

from __future__ import annotations

import enum
import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_WHOLE = 1000  # characters: no first sentence is cut
_DIGITS = re.compile(r"[0-9]{1,15}")


class Command(TyperCommand):
    """A command whose flags are read quickly."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Give the flags, that of the help among them."""
        return _hastened(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands, the same."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Give the flags, that of the help among them."""
        return _hastened(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands, of each the whole first sentence."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, each.get_short_help_str(_WHOLE)) for name, each in commands if each is not None]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class App(typer.Typer):
    """An app whose commands are of the class above unless they name another."""

    def command[F: Callable[..., Any]](self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        """Register a command."""
        return super().command(name, **({"cls": Command} | settings))


def _hastened(parameters: list[Any]) -> list[Any]:
    # Newer typer has every value, also one that was not given, checked by pydantic, which takes longer to import than
    # all else that a report needs. It makes parameters of its own classes, so they are changed one by one.
    for parameter in parameters:
        if "process_value" not in vars(parameter) and hasattr(parameter, "type_descriptor"):
            parameter.process_value = functools.partial(_value, parameter, parameter.process_value)
            if parameter.param_type_name == "argument":
                parameter.display_type = _no_type  # its name says what it is
    return parameters


def _no_type(ctx: Any) -> str:
    return ""


def _value(parameter: Any, slowly: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """Take what is sound at first sight as it is; all else, and what is wrong, goes typer's own way."""
    if value is None and not parameter.required:
        value = () if parameter.multiple or parameter.nargs == -1 else None
        return value if parameter.callback is None else parameter.callback(context, parameter, value)
    if parameter.callback is not None or isinstance(value, enum.Enum):
        return value if parameter.callback is None else slowly(context, value)
    found = _read(parameter.type_descriptor.annotation, parameter.type_descriptor.parameter_info, value)
    return slowly(context, value) if found is None else found


def _read(kind: Any, info: Any, value: Any) -> Any:
    """Read a text, a choice, a number or a path that nothing more is asked of; None: typer has to look."""
    if kind == list[str] and isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return list(value)
    if type(value) is int and kind is int:
        return value if _is_within(value, info) else None
    if not isinstance(value, str):
        return None
    if kind is str:
        return value
    if isinstance(kind, enum.EnumType) and value in kind._value2member_map_:
        return kind(value)
    if kind is int and _DIGITS.fullmatch(value) and _is_within(int(value), info):
        return int(value)
    return Path(value) if kind is Path and _is_free(value, info) else None


def _is_within(number: int, info: Any) -> bool:
    return (info.min is None or number >= info.min) and (info.max is None or number <= info.max)


def _is_free(path: str, info: Any) -> bool:
    """Say whether nothing is asked of a path but that it can be read where it is there."""
    is_asked = info.exists or info.resolve_path or info.path_type or info.writable or info.allow_dash
    is_any = info.file_okay and info.dir_okay and not is_asked
    return bool(is_any) and (os.access(path, os.R_OK) or not os.access(path, os.F_OK))
