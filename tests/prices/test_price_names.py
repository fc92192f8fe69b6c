import time

import pytest

from lockpin_core.price_names import nearest
from lockpin_core.prices import PriceTable, shipped_dir

TABLE = PriceTable.load(shipped_dir())


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("claude-opus-55", "claude-opus-5-5"),
        ("cluade-sonnet-5-5", "claude-sonnet-5-5"),
        ("anthropic/claude-opus-5", "claude-opus-5"),
        ("openai/gpt-5.5", "gpt-5.5"),
        ("GPT-5.5", "gpt-5.5"),
        ("models/gemini-2.5-por", "gemini-2.5-pro"),
        ("us.anthropic.claude-opus-5-v9", "claude-opus-5"),
        ("gpt-6.1-soll", "gpt-6.1-sol"),
        ("gemini-4", "gemini-4-argon"),
        ("grok-4-7", "grok-4.7"),
        ("deepseek-v4", "deepseek-v4-pro"),
    ],
)
def test_a_name_that_is_nearly_known_finds_what_was_meant(asked, meant):
    assert meant in TABLE.nearest(asked)


@pytest.mark.parametrize("asked", ["", "/", "zzzzzzzz", "my-deployment", "prod", "x" * 10_000])
def test_a_name_that_is_like_nothing_suggests_nothing(asked):
    assert TABLE.nearest(asked) == []


def test_a_vendors_own_names_come_before_those_of_others():
    assert TABLE.nearest("gpt-5.5", 1, "openai") == ["gpt-5.5"]
    assert TABLE.nearest("claude-opus-5.5", 1, "anthropic") == ["claude-opus-5-5"]
    assert TABLE.nearest("grok-4.7", 1, "anthropic") == ["grok-4.7"]
    assert TABLE.nearest("gpt-5.5", 1, "openrouter") == ["openai/gpt-5.5"]
    assert TABLE.nearest("openai/gpt-55", 1, "openrouter") == ["openai/gpt-5.5"]


def test_the_nearest_comes_first_and_one_name_in_two_spellings_comes_once():
    assert nearest("abc-12", [["abc-1", "abc-2", "x/abc-12", "abc-12"]], 3) == ["abc-12", "abc-1", "abc-2"]


def test_no_name_takes_long_to_compare():
    before = time.process_time()

    for name in ("a-" * 5_000, "claude-opus-" * 1_000, "9" * 100_000):
        TABLE.nearest(name)

    assert time.process_time() - before < 2
