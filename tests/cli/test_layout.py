"""How a view is laid out: widths by hand, two cells between columns."""

import pytest

from lockpin_cli.layout import fit, folded
from lockpin_cli.output import Column, View

VIEW = View(
    [Column("NAME"), Column("WORDS", spare=1), Column("NOT NEEDED", right=True, spare=2), Column("SPENT", right=True)],
    [["fix", "some words here", "1", "$1,000.00"], ["a-long-name", "-", "22", "$0.50"]], (), (), foot=["T", "", "23", "$2"],
)  # fmt: skip


@pytest.mark.parametrize(
    ("room", "widths"),
    [
        (200, [11, 15, 10, 9]),  # all whole: 45 and three gaps are 51
        (51, [11, 15, 10, 9]),
        (50, [11, 14, 10, 9]),
        (47, [11, 11, 10, 9]),
        (46, [10 + 1, 10, 10, 9]),  # the name has no space to fold at
        (43, [11, 8, 9, 9]),
        (37, [11, 5, 6, 9]),  # the longest of each one's words: "a-long-name", "words", "NEEDED", the amount
    ],
)
def test_texts_and_titles_give_way_from_the_widest_on_and_amounts_never(room, widths):
    layout = fit(VIEW, room)

    assert (layout.widths, layout.left_out) == (widths, [])
    assert sum(widths) + 6 <= room


@pytest.mark.parametrize(
    ("room", "titles", "left_out"),
    [
        (36, ["NAME", "WORDS", "SPENT"], ["NOT NEEDED"]),
        (28, ["NAME", "SPENT"], ["WORDS", "NOT NEEDED"]),
        (10, ["NAME", "SPENT"], ["WORDS", "NOT NEEDED"]),  # these two are always there
    ],
)
def test_what_is_most_to_spare_is_left_out_first(room, titles, left_out):
    layout = fit(VIEW, room)

    assert [column.title for column in layout.view.columns] == titles
    assert layout.left_out == left_out
    assert [len(row) for row in (*layout.view.cells, layout.view.foot)] == [len(titles)] * 3


def test_names_fold_inside_where_that_is_enough_and_ids_never():
    view = View(
        [Column("ID", whole=True), Column("NAME"), Column("SPENT", right=True)],
        [["01kb2m4q8x9z", "claude-opus-4-5-20251101", "$1.00"]], (), (),
    )  # fmt: skip

    assert fit(view, 45).widths == [12, 24, 5]
    assert fit(view, 44).widths == [12, 23, 5]
    assert fit(view, 27).widths == [12, 6, 5]
    assert fit(view, 26).widths == [12, 24, 5]  # it would not be enough


def test_wide_characters_take_two_cells():
    view = View([Column("A")], [["日本 語"]], (), ())

    assert fit(view, 80).widths == [7]
    assert fit(view, 1).widths == [4]


def test_a_view_that_folds_keeps_its_columns_as_long_as_names_can_fold_inside():
    view = View(
        [Column("NAME"), Column("KEY", spare=1), Column("SPENT", right=True)],
        [["a-long-name", "user:alice@acme.com", "$1.00"]], (), (), folds=True,
    )  # fmt: skip

    assert fit(view, 39).widths == [11, 19, 5]
    assert (fit(view, 30).widths, fit(view, 30).left_out) == ([10, 11, 5], [])
    assert (fit(view, 21).widths, fit(view, 21).left_out) == ([6, 6, 5], [])
    assert (fit(view, 20).widths, fit(view, 20).left_out) == ([11, 5], ["KEY"])


def test_tight_words_of_such_a_view_stand_below_each_other_before_names_give_way():
    view = View(
        [Column("NAME"), Column("RESETS", tight=True), Column("SPENT", right=True)],
        [["a-long-name", "10-22 00:00", "$1.00"]], (), (), folds=True,
    )  # fmt: skip

    assert fit(view, 31).widths == [11, 11, 5]
    assert (fit(view, 30).widths, fit(view, 30).is_folded) == ([11, 6, 5], True)
    assert fit(view, 25).widths == [10, 6, 5]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("team-monthly", 12, ["team-monthly"]),
        ("team-monthly", 8, ["team-", "monthly"]),
        ("user:alice@acme.com", 8, ["user:", "alice@", "acme.com"]),
        ("group:checkout", 8, ["group:", "checkout"]),
        ("user:alice@acme.com", 11, ["user:alice@", "acme.com"]),
        ("user:alice@acme.com", 10, ["user:alice@acme.com"]),  # two lines where it is cut anywhere, three by parts
        ("engineer-day", 8, ["engineer-day"]),  # "engineer-" has no room
        ("a longish-name here", 8, ["a longish-", "name here"]),
    ],
)
def test_a_name_without_room_is_parted_where_its_parts_end(text, width, lines):
    assert folded(text, width).split("\n") == lines
