import pytest

from lockpin_cli.output import Column, Format, View, plain, show

VIEW = View(
    columns=[Column("NAME"), Column("N", right=True)],
    cells=[["日本", "1"], ["a" * 200, "1,000"]],
    records=[{"name": "日本", "n": 1}, {"name": "a", "n": None}],
    fields=["name", "n"],
    foot=["TOTAL", "1,001"],
    notes=["that is all"],
)


def test_table_is_aligned_and_never_cut(capsys):
    show(VIEW, Format.TABLE)

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "NAME" + " " * 196 + "      N"
    assert lines[1] == "日本" + " " * 196 + "      1"  # two cells for each
    assert lines[2] == "a" * 200 + "  1,000"
    assert lines[3] == "TOTAL" + " " * 195 + "  1,001"
    assert lines[4] == "that is all"


def test_empty_table_says_so(capsys):
    show(View([Column("A")], [], [], ["a"], empty="nothing yet"), Format.TABLE)

    assert capsys.readouterr().out == "nothing yet\n"


def test_json_is_the_records_or_the_document(capsys):
    show(VIEW, Format.JSON)
    show(View([], [], [], [], document={"all": 1}), Format.JSON)

    assert capsys.readouterr().out == '[{"name":"\\u65e5\\u672c","n":1},{"name":"a","n":null}]\n{"all":1}\n'


def test_csv_without_rows_has_its_head(capsys):
    show(View([], [], [], ["a", "b"]), Format.CSV)

    assert capsys.readouterr().out == "a,b\n"


def test_csv_leaves_out_nulls_and_keeps_lists_as_json(capsys):
    show(View([], [], [{"a": None, "b": ["x", "y"]}], ["a", "b"]), Format.CSV)

    assert capsys.readouterr().out == 'a,b\n,"[""x"",""y""]"\n'


def test_csv_has_one_line_a_record_and_nothing_for_a_terminal_to_obey(capsys):
    show(View([], [], [{"a": "x\x1b[31m\ny", "b": ["\x9b\x7f"]}], ["a", "b"]), Format.CSV)

    assert capsys.readouterr().out == 'a,b\nx\\x1b[31m\\ny,"[""\\u009b\\u007f""]"\n'


@pytest.mark.parametrize(("raw", "shown"), [("a\x1b[31m", "a\\x1b[31m"), ("a\nb", "a\\nb"), ("ü日", "ü日")])
def test_what_does_not_print_is_escaped(raw, shown):
    assert plain(raw) == shown
