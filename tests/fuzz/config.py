"""Target: any text of a configuration is read, or refused in one line that names the place and hides what is secret."""

import re
from pathlib import Path

from inputs import Choices, split

from lockpin_core.config import Config, Places, option_names, parse
from lockpin_core.errors import ConfigError

FILE = Path("nowhere", "lockpin.yaml")  # so that nothing which an input includes is there
PLACES = Places(Path("here"), Path("config"), Path("data"))
SECRET = "sk-ant-api03-Qm4xT9vLr2"  # made up; stands in an input as the word SECRET
WORD = re.compile(r"(?<![\w.-])SECRET(?![\w.-])")
NAMES = tuple(sorted(option_names()))
MOST_CHARS, LONGEST_NAME = 2000, 200


def run(data: bytes) -> None:
    head, body = split(data)
    choices = Choices(head)
    text = WORD.sub(SECRET, body.decode("utf-8", "replace"))
    options = {}
    if choices.flag():
        line = text.split("\n", 1)[0]
        name = choices.pick(NAMES) if choices.flag() or len(line) > LONGEST_NAME else line
        options[name], text = text[:200], "" if choices.flag() else text
    try:
        config = parse(text, FILE, options=options, places=PLACES)
    except ConfigError as error:
        _check_message(str(error), text, is_option=bool(options))
        return
    assert isinstance(config, Config)
    assert config.all_budgets() is not None and config.task_default() is not None
    for budget in config.all_budgets():
        assert budget.name and (budget.limit is None or budget.limit.nano > 0)


def _check_message(message: str, text: str, *, is_option: bool) -> None:
    assert message and message.isprintable(), message
    assert len(message) <= MOST_CHARS, len(message)
    assert SECRET not in message and SECRET[6:14] not in message, message
    place = re.match(r"nowhere/lockpin\.yaml:(\d+): |option ", message)
    assert place is not None, message
    if place[1] is None:
        assert is_option, message
    else:
        assert 1 <= int(place[1]) <= text.count("\n") + 1 + sum(map(text.count, "\r\x85\u2028\u2029")), message
