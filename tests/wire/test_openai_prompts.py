import pytest

from lockpin_core.errors import WireError
from lockpin_core.wire.openai_prompts import read_prompts
from lockpin_core.wire.tally import Tally


def read(value: object) -> tuple[int, list[str], int]:
    """Give the number of prompts, their texts and their token ids."""
    tally = Tally()
    prompts = read_prompts(value, "input", tally)
    return prompts, tally.texts, tally.extra_tokens


def test_text_is_one_prompt_and_a_list_as_many_as_it_has():
    assert read("ab") == (1, ["ab"], 0)
    assert read(["ab", "", "c"]) == (3, ["ab", "", "c"], 0)


def test_token_ids_are_one_token_each():
    assert read([7, 0, 7]) == (1, [], 3)
    assert read([[7], [], [0, 1]]) == (3, [], 3)


def test_texts_and_token_ids_may_stand_side_by_side():
    assert read(["ab", [1, 2]]) == (2, ["ab"], 2)


def test_empty_list_counts_as_a_prompt():
    assert read([]) == (1, [], 0)


@pytest.mark.parametrize("value", [None, 5, {}, True, [True], [1, True], [1, "a"], [None], [[-1]], [["a"]], [1.0]])
def test_anything_else_is_a_bad_request_that_names_the_field(value: object):
    with pytest.raises(WireError, match="input") as raised:
        read(value)

    assert raised.value.code == "bad_request"


def test_other_things_than_text_are_unpriced():
    with pytest.raises(WireError, match="input") as raised:
        read([{"type": "image_url"}])

    assert raised.value.code == "unpriced_tool"
