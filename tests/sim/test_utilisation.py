"""How much of a budget is used, in short; and the sums of its judge, by hand."""

import json
import os
import random
import subprocess
import sys
from decimal import Decimal
from types import SimpleNamespace

import pytest

from tests.sim.fleet import LIMIT, SONNET, Conversation, tokens_of
from tests.sim.planted import ROOT
from tests.sim.utilisation import Books, Plan, Used, meets

PROMPT = {"input_tokens": 20, "cache_read_input_tokens": 10_000, "cache_creation_input_tokens": 1_000}


@pytest.mark.timeout(320)  # a matter of seconds, but on a machine that others may use
def test_99_percent_of_a_budget_is_spent_before_a_call_is_refused_for_good():
    command = [sys.executable, "-P", str(ROOT / "scripts" / "simulate"), "--utilisation", "--quick", "--jobs", "2"]
    environment = os.environ | {"PYTHONHASHSEED": "0"}

    played = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)

    assert played.returncode == 0, played.stdout + played.stderr
    assert "overshoot $0.00, false refusals 0: met by 2 seeds" in played.stdout


def test_a_call_is_billed_by_its_units_and_held_by_the_dearest():
    """20 at $2, 10,000 at $0.10, 1,000 at $2.50 and 500 at $10 a million; 10,264 and 4,096 tokens and a tenth more."""
    assert SONNET.bill(PROMPT, 500) == 40_000 + 1_000_000 + 2_500_000 + 5_000_000
    assert SONNET.quote(10_000, 4096) == (25_660_000 + 40_960_000) * 11 // 10


def test_a_conversation_grows_and_its_provider_counts_just_what_is_in_it():
    talk = Conversation(SONNET, 3, random.Random(7))
    talk.begin()
    first = talk.prompt
    talk.grow(400, was_cut=False)

    assert first + 600 <= talk.prompt <= first + 2400
    assert talk.usage()["cache_read_input_tokens"] == first
    assert sum(talk.usage().values()) == talk.prompt == tokens_of(json.loads(talk.body()))


def told(spent, held):
    return {"spent_usd": Decimal(spent) / 10**9, "in_flight_usd": Decimal(held) / 10**9}


@pytest.mark.parametrize(("left", "false"), [(0, 1), (-1, 0)])
def test_a_refusal_is_false_where_the_smallest_version_fits(left, false):
    """At four fifths of a task's $20 that has 256 tokens; once it was cut off, the whole limit."""
    plan = Plan(1, is_own=True)
    town = SimpleNamespace(plan=plan, used=Used(plan))
    books = Books(town)
    spent = 16 * 10**9
    for was_cut, lowest in ((False, 256), (True, LIMIT)):
        talk = Conversation(SONNET, 1, random.Random(1), prompt=20_000, was_cut=was_cut)
        held = plan.budget - spent - SONNET.quote(20_000, lowest) - left
        books.short["c"] = spent, held
        books.refused("c", talk, told(spent, held))

    assert town.used.false == 2 * false


@pytest.mark.parametrize(
    ("change", "met"),
    [({}, True), ({"at_final": 19_799_999_999}, False), ({"false": 1}, False), ({"overshoot": 1}, False),
     ({"fault": "x"}, False), ({"at_final": None}, False)],
)  # fmt: skip
def test_a_budget_is_used_as_it_should_be_from_99_percent_on(change, met):
    assert meets(Used(Plan(1), **({"at_final": 19_800_000_000} | change))) is met
