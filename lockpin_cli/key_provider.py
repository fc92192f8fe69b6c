"""`lockpin key provider`: the real keys of providers in the system's keyring, so that agents never have them."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from lockpin_cli import completion
from lockpin_cli.inputs import load_to_read
from lockpin_cli.options import ConfigOption, new_app
from lockpin_cli.output import Column, Format, FormatOption, View, plain, say, show
from lockpin_core.errors import CommandError
from lockpin_core.provider_keyring import Keyring
from lockpin_core.provider_keys import ProviderKeys, is_sendable

app = new_app("Keep the real keys of providers in the system's keyring.\n\nExample: lockpin key provider set openai")

_MOST = 5000  # characters of standard input that may be a key
ProviderArgument = Annotated[
    str,
    typer.Argument(metavar="PROVIDER", help="As `lockpin prices list` names it.", autocompletion=completion.sellers),
]


@app.command("set")
def put(provider: ProviderArgument) -> None:
    """Store a provider's key. It is asked for, or read from standard input: as an argument it would be seen.

    Example: lockpin key provider set openai < key.txt
    """
    name, store = _provider(provider), Keyring()
    key = _asked(name)
    store.put(name, key)
    if store.get(name) != key:
        raise CommandError(f"{store.name} does not have the key of {name} after it was stored; choose another keyring")
    print(plain(f"{name}: its key is in {store.name}; a proxy that has another keeps that until it is restarted"))


@app.command("rm")
def remove(provider: ProviderArgument) -> None:
    """Take a provider's key out of the keyring.

    Example: lockpin key provider rm openai
    """
    name, store = _provider(provider), Keyring()
    if not store.remove(name):
        raise CommandError(f"{store.name} has no key of {name}; `lockpin key provider list` shows whose it has")
    print(plain(f"{name}: its key is out of {store.name}"))


@app.command("list")
def list_providers(context: typer.Context, form: FormatOption = Format.TABLE, config: ConfigOption = None) -> None:
    """List the providers whose key is at hand, and where it is from; never a key.

    Example: lockpin key provider list --format json
    """
    env = load_to_read(context, config).provider_env
    names = sorted({*_names(), *env})
    keys = ProviderKeys(env, os.environ, _keyring())
    keys.read(names)
    if keys.fault is not None:
        say(keys.fault)
    found = [(name, source) for name in names if (source := keys.source(name)) is not None or name in env]
    records = [{"provider": name, "source": source, "variable": env.get(name)} for name, source in found]
    cells = [[name, source or f"none: {env[name]} is not set"] for name, source in found]
    empty = "no provider's key is at hand; `lockpin key provider set PROVIDER` stores one"
    show(
        View((Column("PROVIDER"), Column("FROM")), cells, records, ("provider", "source", "variable"), empty=empty),
        form,
    )


def _keyring() -> Keyring | None:
    try:
        return Keyring()
    except CommandError as error:
        say(str(error))
        return None


def _names() -> list[str]:
    from lockpin_core.prices import shipped_dir  # slow to import
    from lockpin_core.providers import Providers

    return [provider.name for provider in Providers.load(shipped_dir()).all()]


def _provider(text: str) -> str:
    """Find a provider by its name. Wrong use where there is none."""
    from lockpin_core.readers.finder import near

    names = _names()
    if text not in names:
        raise typer.BadParameter(f'no provider "{plain(text[:40])}"; {near(text, names)}', param_hint="PROVIDER")
    return text


def _asked(provider: str) -> str:
    """Ask for a key without showing what is typed, or read it from a pipe or a file. Wrong use where it is none."""
    if sys.stdin.isatty():
        key = typer.prompt(f"key of {provider}", hide_input=True, err=True)
    else:
        key = sys.stdin.read(_MOST)
    key = key.strip()
    if not is_sendable(key):
        words = "one line of 1 to 4096 letters, figures and signs without a space is allowed"
        raise typer.BadParameter(f"that is no key; {words}", param_hint="standard input")
    return str(key)
