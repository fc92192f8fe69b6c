from lockpin_core.price_bands import rising


def test_a_band_is_no_cheaper_than_one_below_it_that_the_other_side_has():
    found = {"input": "3", "output": "12", "input above 1000": "20", "input above 32000": "4"}

    assert rising(found, ()) == found | {"input above 32000": "20"}


def test_a_band_is_no_cheaper_than_the_base():
    assert rising({"input": "3", "input from 200": "2"}, ()) == {"input": "3", "input from 200": "3"}


def test_a_band_that_leaves_out_what_a_lower_one_says_gets_it():
    found = {"input": "1", "output": "2", "output above 10": "5", "input above 20": "3"}

    assert rising(found, ()) == found | {"output above 20": "5"}


def test_from_a_size_is_below_above_it():
    found = {"input": "1", "input above 10": "2", "input from 10": "3", "input from 11": "1"}

    assert rising(found, ()) == found | {"input above 10": "3", "input from 11": "3"}


def test_a_tier_that_had_no_bands_on_one_side_is_not_cheaper_there_than_the_standard_bands_of_that_side():
    before = {"input": "3", "input above 100": "9", "priority input": "5"}
    after = {"input": "3", "input above 100": "9", "priority input": "5", "priority input above 200": "6"}

    laid = {"priority input above 100": "9", "priority input above 200": "9"}
    assert rising(after, (before, after)) == after | laid
    assert rising(after, (after, after)) == after
