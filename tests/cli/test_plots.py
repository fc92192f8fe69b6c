import io
import sys

import pytest

from lockpin_cli import plots
from lockpin_core.money import Money


def spent(**amounts: str) -> list[tuple[str, Money]]:
    return [(key.replace("_", "-"), Money.parse(amount)) for key, amount in amounts.items()]


def blocks(line: str) -> int:
    return line.count("█")


def test_bars_are_as_long_as_amounts_are_large_with_exact_words_beside_them():
    lines = plots.bars(spent(fix="1", doc="0.5", other="0.0004", none="0")).splitlines()

    assert [line.split("┤")[0].split() for line in lines[1:5]] == [
        ["fix", "$1.0000"], ["doc", "$0.5000"], ["other", "$0.0004"], ["none", "$0.0000"],
    ]  # fmt: skip
    longest = blocks(lines[1])
    assert abs(blocks(lines[2]) - longest / 2) <= 1
    assert blocks(lines[3]) <= 1


def test_bars_keep_within_the_width_of_the_terminal():
    assert max(map(len, plots.bars(spent(fix="1", doc="0.5")).splitlines())) <= 80


def test_each_of_many_keys_has_its_line():
    lines = plots.bars([(f"task-{number:02}", Money.parse("1")) for number in range(60)]).splitlines()

    assert [line.split()[0] for line in lines[1:61]] == [f"task-{number:02}" for number in range(60)]


def test_long_name_is_shortened():
    assert "x" * 39 + "…" in plots.bars([("x" * 100, Money.parse("1"))])


def test_days_without_calls_have_their_place_on_the_time_axis():
    lines = plots.days([("2026-11-27", Money.parse("1")), ("2026-11-24", Money.parse("2"))]).splitlines()

    assert "2026-11-24" in lines[-1]
    assert "2026-11-27" in lines[-1]
    top, bottom = lines[1], lines[-3]
    assert blocks(bottom) == 2 * blocks(top)  # two days of four have a bar, one of them reaches the top
    assert "$2.00" in lines[1]


def test_many_days_are_a_line():
    days = [(f"2026-{month:02}-{day:02}", Money.parse(str(day))) for month in range(1, 11) for day in range(1, 28)]

    lines = plots.days(days).splitlines()

    assert max(map(len, lines)) <= 80
    assert "2026-01-01" in lines[-1]


def test_correction_below_nothing_is_drawn_as_nothing():
    assert blocks(plots.bars([("a", Money(-5)), ("b", Money.parse("1"))]).splitlines()[1]) == 0


@pytest.mark.parametrize(
    ("most", "found"),
    [
        ("1", ["0", "0.5", "1"]),
        ("0.44", ["0", "0.2", "0.4"]),
        ("12", ["0", "5", "10"]),
        ("0.000000003", ["0", "0.000000001", "0.000000002", "0.000000003"]),
        ("0", ["0"]),
    ],
)
def test_axis_has_round_amounts(most, found):
    assert plots.steps(Money.parse(most).nano) == [Money.parse(amount).nano for amount in found]


def test_stream_without_block_signs_gets_plain_ones():
    before, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO(), "ascii")
    try:
        assert plots.bars(spent(fix="1", doc="0.5")).isascii()
    finally:
        sys.stdout = before


def test_report_draws_bars_and_says_the_sum(lockpin, ledger):
    done = lockpin("report", "--plot")

    assert done.returncode == 0
    assert "fix  $0.03 ┤█" in done.stdout
    assert done.stdout.splitlines()[-3:] == [
        "spent: $0.03 in 4 calls",
        "held by 1 call in flight: $1.25",
        "estimated: 28.7% of what was spent",
    ]
    assert "\x1b" not in done.stdout


def test_report_of_days_is_a_time_axis(lockpin, ledger):
    lines = lockpin("report", "--plot", "--by", "day").stdout.splitlines()

    assert lines[-4].split()[0].count("-") == 2
    assert "$0.03" in "".join(lines)


def test_picture_on_a_terminal_is_coloured_and_as_wide_as_it(terminal, ledger):
    shown = terminal("report", "--plot", columns=120)

    assert "\x1b[36m█" in shown
    assert 110 < max(map(len, shown.replace("\x1b[36m", "").replace("\x1b[0m", "").splitlines())) <= 120


def test_nothing_spent_is_a_table(lockpin):
    assert lockpin("report", "--plot").stdout.startswith("no calls yet in ")


def test_picture_has_no_other_format(lockpin):
    done = lockpin("report", "--plot", "--format", "json")

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--plot" in done.stderr
