import pytest

from lockpin_core.config_pricing import read_pricing
from lockpin_core.config_yaml import read
from lockpin_core.errors import ConfigError


def pricing(text: str) -> object:
    return read_pricing(read(text, "lockpin.yaml").entries["pricing"])


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        pricing(text)
    return str(caught.value)


def test_entries_keep_their_text():
    tree = pricing("pricing:\n  my-model: {input_per_mtok: 1.10, output: 4}\n  local/*: {free: true}\n  none:\n")

    assert tree == {"my-model": {"input_per_mtok": "1.10", "output": "4"}, "local/*": {"free": "true"}, "none": None}


def test_an_entry_may_be_the_same_as_another_model():
    tree = pricing("pricing:\n  mine: {same_as: azure/gpt-5.5, max_output_tokens: 100}\n")

    assert tree == {"mine": {"same_as": "azure/gpt-5.5", "max_output_tokens": "100"}}


def test_null_is_no_pricing():
    assert pricing("pricing:\n") == {}


@pytest.mark.parametrize("price", [".nan", "NaN", ".inf", "1e400", "-1", "abc", "1e-400", "", "[]", "true"])
def test_price_that_is_none_is_an_error_at_its_line(price: str):
    message = refusal(f"pricing:\n  my-model:\n    output_per_mtok: 4\n    input_per_mtok: {price}\n")

    assert message.startswith("lockpin.yaml:4: pricing.my-model.input")
    assert "is allowed" in message


def test_error_deep_inside_has_its_own_line():
    message = refusal(
        """\
pricing:
  a: {input: 1}
  my.model-1[x]:
    prices:
      - from: 2026-01-01
        input: 1
        output: 2
      - from: 2026-02-01
        input: 1
        above:
          - tokens: 200000
            output: -3
"""
    )

    assert message.startswith("lockpin.yaml:12: pricing.my.model-1[x].prices[1].above[0].output is ")


@pytest.mark.parametrize(
    ("entry", "line", "fact"),
    [
        ("{}\n  b:\n    inptu: 1\n    output: 2", 4, "inptu is no key here"),
        ("\n    output: 2\n    outputPerMTok: 1", 4, "one spelling is allowed"),
        ("\n    cacheReadPerMTok: 2\n    input: 1\n    cache_read: 1", 5, "one spelling is allowed"),
        ("\n    input: 1\n    maxOutputTokens: many", 4, "max_output_tokens is 'many'"),
        ("\n    cache_write:\n      5m: 1\n      7m: 1", 5, "7m"),
        ("five", 2, "a mapping is allowed"),
        ("\n    free: true\n    input: 1", 2, "either is allowed"),
        ("\n    same_as: gpt-5\n    input: 1", 2, "has same_as and a price; either is allowed"),
        ("\n    context_tokens: 1\n    sameAs: []", 4, "a model, or provider/model is allowed"),
        (
            "\n    input: 1\n    image_rule: {kind: openai_tiles, base: 85}",
            4,
            "openai_tiles with base, tile is allowed",
        ),
        ("\n    input: 1\n    tokenizer: bpe", 4, "bytes or claude or o200k_base or cl100k_base is allowed"),
        ("\n    input: 1\n    fees:\n      coffee: 1", 5, "one of code_session, file_search, maps"),
    ],
)
def test_wrong_entry_is_an_error_at_its_line(entry: str, line: int, fact: str):
    message = refusal(f"pricing:\n  a: {entry}\n")

    assert message.startswith(f"lockpin.yaml:{line}: pricing.")
    assert fact in message


def test_list_is_no_pricing():
    assert refusal("pricing: [a]\n") == "lockpin.yaml:1: pricing is a list; a mapping of models is allowed"
