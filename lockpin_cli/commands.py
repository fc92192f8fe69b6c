"""The classes of commands: how what was typed becomes values, quickly. Knows typer only: the help must come fast."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


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


class App(typer.Typer):
    """An app whose commands are of the class above unless they name another."""

    def command[F: Callable[..., Any]](self, name: str | None = None, **settings: Any) -> Callable[[F], F]:
        """Register a command."""
        return super().command(name, **({"cls": Command} | settings))


def _hastened(parameters: list[Any]) -> list[Any]:
    # Newer typer has every value, also one that was not given, checked by pydantic, which takes longer to import than
    # all else that a report needs. It makes parameters of its own classes, so they are changed one by one.
    for parameter in parameters:
        if "process_value" not in vars(parameter) and parameter.nargs == 1 and not parameter.multiple:
            parameter.process_value = functools.partial(_value, parameter, parameter.process_value)
    return parameters


def _value(parameter: Any, slowly: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """Take a plain text, a choice or a default as it is; all else, and what is wrong, goes typer's own way."""
    if value is None and not parameter.required:
        return None if parameter.callback is None else parameter.callback(context, parameter, None)
    if parameter.callback is not None:
        return slowly(context, value)
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if isinstance(value, enum.Enum) or (isinstance(value, str) and kind is str):
        return value
    if isinstance(value, str) and isinstance(kind, enum.EnumType) and value in kind._value2member_map_:
        return kind(value)
    return slowly(context, value)
