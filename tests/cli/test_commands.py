"""How typed values are read: those of the quick way are those that typer itself would give."""

import enum
import re
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from lockpin_cli import main
from lockpin_cli.options import new_app


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


def read(app: typer.Typer, *words: str) -> dict[str, object]:
    got: list[dict[str, object]] = []

    @app.command()
    def take(
        number: Annotated[int, typer.Option(min=1, max=50)] = 7,
        names: Annotated[list[str] | None, typer.Option("--name")] = None,
        colour: Colour = Colour.RED,
        file: Annotated[Path | None, typer.Option()] = None,
        text: str = "",
        loud: Annotated[bool, typer.Option("--loud")] = False,
        last: Annotated[str, typer.Argument()] = "last",
    ) -> None:
        got.append(dict(locals()))
        del got[0]["got"]

    app(list(words), standalone_mode=False)
    (found,) = got
    return found


def quickly(*words: str) -> dict[str, object]:
    return read(new_app(), *words)


def slowly(*words: str) -> dict[str, object]:
    return read(typer.Typer(rich_markup_mode=None, add_completion=False), *words)


@pytest.mark.parametrize(
    "words",
    [
        (), ("--number", "1"), ("--number", "50"), ("--number", "007"), ("--number", " 8 "),
        ("--name", "a"), ("--name", "a", "--name", "b"), ("--colour", "blue"), ("--file", "no/such"), ("--file", "/"),
        ("--text", "x"), ("--loud",), ("first",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_value_is_the_one_that_typer_gives(words):
    assert quickly(*words) == slowly(*words)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("--number", "12"), {"number": 12}),
        (("--name", "a", "--name", "b"), {"names": ["a", "b"]}),
        ((), {"number": 7, "names": None, "colour": Colour.RED, "file": None, "loud": False, "last": "last"}),
        (("--file", "x.yaml"), {"file": Path("x.yaml")}),
        (("--colour", "blue"), {"colour": Colour.BLUE}),
    ],
    ids=str,
)
def test_value_is_of_its_type(words, values):
    found = quickly(*words)

    assert {name: found[name] for name in values} == values
    assert {name: type(found[name]) for name in values} == {name: type(value) for name, value in values.items()}


@pytest.mark.parametrize(
    "words",
    [("--number", "0"), ("--number", "51"), ("--number", "1.5"), ("--number", "-3"), ("--number", "9" * 20),
     ("--number", ""), ("--colour", "green")],
    ids=" ".join,
)  # fmt: skip
def test_wrong_value_is_refused_as_by_typer(words):
    with pytest.raises(Exception) as ours:  # typer's class has no public name
        quickly(*words)
    with pytest.raises(Exception) as theirs:
        slowly(*words)

    assert type(ours.value) is type(theirs.value)
    assert ours.value.format_message() == theirs.value.format_message()


def test_file_that_may_not_be_read_is_refused_as_by_typer(tmp_path):
    file = tmp_path / "closed.yaml"
    file.write_text("")
    file.chmod(0)
    try:
        file.read_text()
    except PermissionError:
        with pytest.raises(Exception, match="not readable"):
            quickly("--file", str(file))
    else:
        assert quickly("--file", str(file))["file"] == file  # root may read all


def every_command() -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = [("lockpin", typer.main.get_command(main.app))]
    for name, command in found:
        if hasattr(command, "list_commands"):
            context = typer.Context(command, info_name=name)
            found += [(f"{name} {each}", command.get_command(context, each)) for each in command.list_commands(context)]
    return found


@pytest.mark.parametrize(("name", "command"), every_command(), ids=lambda each: each if isinstance(each, str) else "")
def test_help_says_what_a_value_is_and_cuts_nothing(name, command):
    context = typer.Context(command, info_name=name)

    words = command.get_help(context)

    assert not re.search(r"<(str|int|float|path|file|list|int range)\b", words), words
    assert "..." not in words.replace("[ARGS]...", "").replace("{COMMAND}...", ""), words
