from dataclasses import replace

import pytest
from desks import PROVIDERS, Desk

from lockpin_core.admission_thinking import thinking_beside
from lockpin_core.call import Content, Parsed

DESK = Desk()
INK = DESK.prices.find("qwen", "ink", DESK.engine._clock())  # at most 50,000 tokens of output
PARSED = Parsed("ink", False, Content(1, 1, 1, 1), 100)


@pytest.mark.parametrize(
    ("budgets", "thinking", "found"),
    [
        (("ink",), 700, (828, False)),
        (("i*",), 0, (128, False)),
        (("pen",), 700, (0, True)),
        ((), 60_000, (10_000, True)),
    ],
)
def test_a_budget_bounds_it_where_the_model_keeps_to_it_else_the_models_maximum(budgets, thinking, found):
    provider = replace(PROVIDERS.by_name("qwen"), thinking_budget=budgets)

    bound = thinking_beside(replace(PARSED, has_budget=True, thinking=thinking), provider, INK)

    assert (bound.thinking, bound.beyond_limit) == found


def test_without_a_budget_it_may_be_all_that_the_model_writes():
    bound = thinking_beside(PARSED, replace(PROVIDERS.by_name("qwen"), thinking_budget=("ink",)), INK)

    assert (bound.thinking, bound.beyond_limit) == (0, True)
