import pytest

from lockpin_core.errors import WireError
from lockpin_core.wire.routing import is_routed, routing_rule
from lockpin_core.wire.tally import Tally

EVERY_WORD = {
    "order": ["a", "b"],
    "only": ["a"],
    "ignore": [],
    "quantizations": ["fp8"],
    "sort": {"by": "price"},
    "data_collection": "deny",
    "allow_fallbacks": False,
    "require_parameters": True,
    "zdr": True,
}


def test_words_that_only_choose_among_hosts_pass_and_are_no_text():
    tally = Tally()

    routing_rule(EVERY_WORD, tally)

    assert tally.texts == []


@pytest.mark.parametrize(
    "more", [{"max_price": {"prompt": 1}}, {"max_price": {}}, {"preferred": ["a"]}, {"only": [{}]}]
)
def test_what_else_stands_there_may_cost(more: dict):
    with pytest.raises(WireError) as refused:
        routing_rule({**EVERY_WORD, **more}, Tally())

    assert refused.value.code == "unpriced_tool"


def test_a_call_is_routed_where_anything_is_said():
    said = ({}, {"provider": None}, {"provider": {}}, {"provider": {"zdr": False}})

    assert [is_routed(members) for members in said] == [False, False, False, True]
