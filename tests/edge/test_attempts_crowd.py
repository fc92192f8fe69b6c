"""Many calls that fail and are sent again at once, under budgets that do not have room for all of them."""

import json
import random
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
import streams
import teams
import tries
from processes import until
from tries import CUT, DROP, EMPTY, PLAIN, busy

from lockpin_core.ledger.verify import verify

CONFIG = """
fit: {output: false}
task: {budget_usd: 0.02}
fallbacks: {openai/chat-model: [openai/other-model]}
"""
PRICES = """
  other-model: {input_per_mtok: 2, output_per_mtok: 10, max_output_tokens: 100000, context_tokens: 200000}
"""
TURNS = [busy(503), busy(429), busy(529), DROP, EMPTY, CUT, busy(500, cut_after=5)]


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_no_limit_is_passed_and_what_was_sent_is_charged(kind, tmp_path):
    dice = random.Random(20261130)
    plans = [([*dice.choices(TURNS, k=dice.randrange(4)), PLAIN], dice.randrange(4), number) for number in range(160)]
    with tries.running(tmp_path, 3, CONFIG, kind, prices=PRICES) as rig:
        with ThreadPoolExecutor(16) as aside, httpx2.Client(trust_env=False, timeout=60) as opened:
            statuses = list(aside.map(lambda plan: ask(rig, opened, *plan), plans))
        until(lambda: not rig.proxy.rows("SELECT 1 FROM open_holds"))

        assert verify(rig.proxy.ledger).wrong is None  # no hold ever passed a limit, each is resolved once
        accounts = rig.proxy.rows("SELECT * FROM accounts WHERE budget = 'task'")
        assert len(accounts) == 4
        assert all(account["spent_nano"] <= 20_000_000 and account["held_nano"] == 0 for account in accounts)
        assert statuses.count(200) > 10 < statuses.count(402)
        assert "handled as a fault" not in rig.proxy.printed() and "crashed" not in rig.proxy.printed()
        requests = rig.origin.calls()
        assert all(is_held(entry) for entry in requests)
        charged = rig.proxy.rows("SELECT 1 FROM rows WHERE kind = 'charge'")
        assert len(charged) == sum(turn_of(entry, requests).get("status") != 429 for entry in requests)


def ask(rig, opened, turns, task, number):
    is_streamed = any(turn in (EMPTY, CUT) for turn in turns)
    body = streams.ask("chat", 300 + number) | {"stream": is_streamed}
    headers = tries.turns(*turns) | {"x-lockpin-task": f"crowd-{task}"}
    try:
        return opened.post(rig.proxy.url + streams.PATHS["chat"], json=body, headers=headers).status_code
    except httpx2.HTTPError:  # the last attempt's stream was cut
        return 0


def limit_of(entry):
    return json.loads(entry["body"])["max_completion_tokens"]


def is_held(entry):
    return limit_of(entry) in [hold[1] for hold in entry["open_holds"]]


def turn_of(entry, requests):
    """Give the turn that a request was answered with: it is the how manieth of its call."""
    order = json.loads(entry["headers"]["x-origin"])
    same = [one for one in requests if one["headers"]["x-origin"] == entry["headers"]["x-origin"]]
    return order["turns"][min(same.index(entry), len(order["turns"]) - 1)]


def test_a_teams_call_falls_back_under_the_real_key_of_the_other_provider_and_is_charged_to_its_user(tmp_path):
    more = "fallbacks: {openai/plain-model: [gemini/plain-model]}\n"
    with teams.team(tmp_path, more) as team:
        secret = team.key("alice").secret
        fields = [("Authorization", f"Bearer {secret}"), *tries.turns(busy(503), PLAIN).items()]
        answer, rows = team.ask(fields, path="/openai/v1/chat/completions")
        teams.settled(team.proxy)

        assert (answer.status, answer.headers["x-lockpin-fallback"]) == (200, "gemini/plain-model")
        first, second = team.origin.calls()
        assert first["headers"]["authorization"] == f"Bearer {teams.REAL['openai']}"
        assert second["headers"]["authorization"] == f"Bearer {teams.REAL['gemini']}"
        assert second["path"] == "/v1/openai/chat/completions"
        assert "lp_" not in team.reached()
        assert team.payer(rows)["user"] == "alice"
        assert not any(real in str(answer.headers) for real in teams.REAL.values())
