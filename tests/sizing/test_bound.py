from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.call import Ceiling, Content, Image, Parsed, Quote
from lockpin_core.money import Money
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.sizing.bound import (
    UNSEEN_CHAIN,
    bound_beside_chain,
    ceiling,
    images_bound,
    missing_bound,
    output_bound,
    prompt_bound,
    together,
    with_images_bounded,
)
from lockpin_core.usage import Unit


@dataclass(frozen=True, slots=True)
class Rule:
    kind: str
    numbers: Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class Facts:
    context_tokens: int | None = 1_000_000
    max_output_tokens: int | None = 100
    tokenizer: str = "bytes"
    image_tokens: int | None = 1_445
    image_rule: Rule | None = None
    images_beyond_window: bool = False


def content(**kw) -> Content:
    return Content(**{"text_bytes": 1_000, "nfc_bytes": 1_000, "strings": 10, "messages": 3, **kw})


def test_a_byte_level_tokenizer_makes_at_most_a_token_of_a_byte():
    assert prompt_bound(content(), Facts()) == 1_000 + 500 + 30


def test_claude_makes_at_most_four_thirds_of_the_normalised_bytes_and_four_a_string():
    assert prompt_bound(content(nfc_bytes=1_001), Facts(tokenizer="claude")) == 1_335 + 40 + 500 + 30


def test_tool_schemas_cost_four_thirds_of_their_bytes_and_on_claude_as_much_again():
    assert prompt_bound(content(schema_bytes=900), Facts()) == 1_530 + 1_200
    claude = Facts(tokenizer="claude")
    assert prompt_bound(content(schema_bytes=900, explains_tools=True), claude) == 1_334 + 40 + 530 + 1_600


def test_what_claude_is_told_about_tools_is_allowed_for_in_every_format():
    claude = Facts(tokenizer="claude")
    assert prompt_bound(content(schema_bytes=900, extra_tokens=70), claude) == 1_334 + 40 + 530 + 1_600 + 70 + 1_000
    assert prompt_bound(content(extra_tokens=70), claude) == 1_334 + 40 + 530 + 70


def test_images_and_allowances_are_added():
    assert prompt_bound(content(images=(Image(), Image()), extra_tokens=346), Facts()) == 1_530 + 2 * 1_445 + 346


def test_the_context_window_is_the_most():
    assert prompt_bound(content(text_bytes=10**7), Facts()) == 1_000_000
    assert prompt_bound(content(text_bytes=10**7), Facts(context_tokens=None)) == 10_000_530


def test_an_image_of_a_known_size_takes_what_its_models_rule_says():
    facts = Facts(image_rule=Rule("openai_tiles", {"base": Decimal(85), "tile": Decimal(170)}))
    images = (Image(1024, 1024), Image(1024, 1024, "low"), Image())

    assert prompt_bound(content(images=images), facts) == 1_530 + (85 + 4 * 170) + 85 + 1_445


def test_hidden_input_fills_the_window():
    assert prompt_bound(content(hidden="file_id"), Facts()) == 1_000_000
    assert prompt_bound(content(hidden="file_id"), Facts(context_tokens=None)) is None


def test_images_that_are_read_several_times_count_as_often():
    assert prompt_bound(content(images=(Image(), Image()), images_times=3), Facts()) == 1_530 + 3 * 2 * 1_445


class Untouchable(tuple):
    def __iter__(self):
        raise AssertionError("walked over again")


def test_the_bound_of_very_many_images_is_worked_out_once():
    facts = Facts(image_rule=Rule("openai_tiles", {"base": Decimal(85), "tile": Decimal(170)}))
    seen = with_images_bounded(content(images=(Image(1024, 1024), Image()), images_times=2), facts)

    again = replace(seen, images=Untouchable(seen.images))
    assert images_bound(again, facts) == 2 * (85 + 4 * 170 + 1_445)
    assert prompt_bound(again, facts) == 1_530 + 2 * (85 + 4 * 170 + 1_445)


def test_of_very_many_images_the_one_without_a_bound_is_the_first_to_be_seen():
    facts = Facts(image_tokens=None, image_rule=Rule("openai_tiles", {"base": Decimal(85), "tile": Decimal(170)}))
    seen = with_images_bounded(content(images=(*(Image(9, 9),) * 50, Image())), facts)

    assert seen.images[0] == Image()
    assert images_bound(seen, facts) is None
    assert with_images_bounded(content(images=(Image(),)), facts).images == (Image(),)


def test_images_without_a_known_ceiling_fill_the_window():
    assert prompt_bound(content(images=(Image(),)), Facts(image_tokens=None)) == 1_000_000
    assert prompt_bound(content(images=()), Facts(image_tokens=None)) == 1_530


def test_images_billed_beyond_the_window_come_on_top_of_it():
    facts = Facts(image_tokens=48_169, images_beyond_window=True, context_tokens=128_000)

    assert prompt_bound(content(text_bytes=10**6, images=(Image(),) * 10), facts) == 128_000 + 481_690
    assert prompt_bound(content(hidden="file_id"), facts) is None


@pytest.mark.parametrize(
    ("limit", "most", "bound"),
    [(50, 100, 50), (500, 100, 100), (None, 100, 100), (50, None, 50), (None, None, None), (0, 100, 0)],
)
def test_output_is_bounded_by_the_limit_and_the_models_maximum(limit, most, bound):
    assert output_bound(Facts(max_output_tokens=most), limit) == bound


def parsed(**kw) -> Parsed:
    return Parsed(**{"model": "m", "streamed": False, "content": content(), "output_limit": 50, **kw})


def test_a_ceiling_has_the_window_again_for_each_further_round_and_says_so():
    once, thrice = ceiling(parsed(), Facts(), 50), ceiling(parsed(rounds=3), Facts(context_tokens=2_000), 50)

    assert (once.prompt, once.refills, once.window) == (1_530, 0, 0)
    assert (thrice.prompt, thrice.refills, thrice.window) == (1_530 + 2 * 2_000, 2, 2_000)


def test_a_ceiling_multiplies_choices_and_adds_what_is_billed_beside_the_limit():
    units = frozenset({Unit.INPUT, Unit.CACHE_WRITE_30M})
    call = parsed(choices=3, extra_output=7, prompt_units=units, fees={Unit.WEB_SEARCH: 2})

    limits = ceiling(call, Facts(), 50)

    assert (limits.prompt, limits.output) == (1_530, 157)
    assert (limits.prompt_units, limits.output_units) == (units, {Unit.OUTPUT})
    assert limits.fees == {Unit.WEB_SEARCH: 2}


def test_what_has_no_bound_has_no_ceiling():
    assert ceiling(parsed(), Facts(max_output_tokens=None), None) is None
    assert ceiling(parsed(content=content(hidden="url")), Facts(context_tokens=None), 50) is None


def test_a_shipped_model_gives_the_facts():
    model = PriceTable.load(shipped_dir()).find("openai", "gpt-4o-mini")

    limits = ceiling(parsed(content=content(images=(Image(),))), model, None)

    assert (limits.prompt, limits.output) == (1_530 + 48_169, 16_384)


@given(st.integers(0, 10**7), st.integers(0, 10**5), st.sampled_from(["bytes", "claude"]))
def test_a_larger_body_never_has_a_smaller_bound(size, more, tokenizer):
    facts = Facts(tokenizer=tokenizer)

    small = prompt_bound(content(text_bytes=size, nfc_bytes=size), facts)
    large = prompt_bound(content(text_bytes=size + more, nfc_bytes=size + more), facts)

    assert small <= large


def test_requests_of_one_call_are_bounded_by_their_sum_in_all_their_units():
    first = Ceiling(10, 3, frozenset({Unit.INPUT}), frozenset({Unit.OUTPUT}), {Unit.WEB_SEARCH: 2}, name_sum=4)
    second = Ceiling(
        5, 4, frozenset({Unit.CACHE_WRITE_1H}), frozenset({Unit.OUTPUT}), {Unit.WEB_SEARCH: 1, Unit.REQUEST: 7},
        name_sum=5,
    )  # fmt: skip

    whole = together(Quote(Money(30), 13, first), Quote(Money(12), 9, second))

    assert (whole.most, whole.tokens) == (Money(42), 22)
    assert whole.ceiling == Ceiling(
        15,
        7,
        frozenset({Unit.INPUT, Unit.CACHE_WRITE_1H}),
        frozenset({Unit.OUTPUT}),
        {Unit.WEB_SEARCH: 3, Unit.REQUEST: 7},
        requests=2,
        name_sum=9,
    )


def test_what_a_body_brings_in_beside_a_chain_is_bounded_where_it_shows_all_of_it():
    endless = Facts(context_tokens=None)

    for hidden in (None, UNSEEN_CHAIN):
        assert bound_beside_chain(content(extra_tokens=9_000, hidden=hidden), endless) == 1_530
    assert bound_beside_chain(content(hidden="file"), endless) is None
    assert bound_beside_chain(content(images=(Image(),)), Facts(context_tokens=None, image_tokens=None)) is None


@pytest.mark.parametrize("limit", [None, 50])
def test_what_is_billed_beside_a_limit_is_not_said_to_have_none(limit):
    """A limit in the request would not help, nor is it true that there is none."""
    words = missing_bound(parsed(beyond_limit=True, output_limit=limit), Facts(max_output_tokens=None), "m", limit)

    assert words == (
        "more than an output limit of the request may be billed, such as reasoning beside it, and the price table does "
        'not state how much; to state the most, add to lockpin.yaml: pricing: {"m": {max_output_tokens: TOKENS}}'
    )


def test_a_call_without_any_limit_is_told_to_set_one():
    words = missing_bound(parsed(output_limit=None), Facts(max_output_tokens=None), "m", None)
    assert words.startswith("neither the request nor the price table limits its output; set a limit in the request; ")
