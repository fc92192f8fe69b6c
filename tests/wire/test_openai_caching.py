import pytest

from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.openai_caching import breakpoint_rule, options_rule, written_units
from lockpin_core.wire.tally import Tally

SHORT = {Unit.INPUT, Unit.CACHE_WRITE_30M}
LONG = SHORT | {Unit.CACHE_WRITE_12H}


def units(options: dict | None = None, mark: dict | None = None, **more: object) -> set[Unit]:
    tally = Tally()
    if options is not None:
        options_rule(options, tally)
        more["prompt_cache_options"] = options
    if mark is not None:
        breakpoint_rule(mark, tally)
    return set(written_units(more, tally))


def test_prompt_may_be_written_without_being_asked():
    assert units() == SHORT


def test_lifetime_counts_wherever_it_is_asked_for():
    assert units({"ttl": "12h"}) == LONG
    assert units({}, {"mode": "explicit", "ttl": "12h"}) == LONG
    assert units(prompt_cache_retention="24h") == LONG
    assert units({"ttl": "30m"}, prompt_cache_retention="in_memory") == SHORT


def test_nothing_is_written_where_only_marked_places_are_and_none_is_marked():
    assert units({"mode": "explicit", "ttl": "12h"}) == {Unit.INPUT}
    assert units({"mode": "explicit"}, {"mode": "explicit"}) == SHORT
    assert units({"mode": "implicit"}) == SHORT


@pytest.mark.parametrize("more", [{"options": {"ttl": "7d"}}, {"mark": {"ttl": 5}}, {"prompt_cache_retention": "7d"}])
def test_unknown_lifetime_is_refused(more: dict):
    with pytest.raises(WireError) as refused:
        units(**more)

    assert refused.value.code == "unpriced_tool"


def test_unknown_option_is_refused():
    with pytest.raises(WireError, match="brand_new"):
        units({"brand_new": True})
