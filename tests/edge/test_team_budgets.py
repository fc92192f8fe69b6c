"""Budgets of a team through a real proxy: whose limit is in the way, what each person is told, what commands show."""

import json
import shutil
from datetime import UTC, datetime, timedelta

import client
import processes
import pytest
import teams

MORE = """
fit: {output: false}
include: [gateway.yaml]
budgets:
- {name: dev-daily, scope: user, window: day, limit_usd: 1.2, action: enforce, alert_at: [0.5, 0.8]}
- {name: web-daily, scope: team, window: day, limit_usd: 1.7, action: enforce, alert_at: []}
"""
HALF = 100_000  # tokens, which come to $0.50001 with the ten of the prompt


@pytest.fixture
def rig(tmp_path):
    home = processes.make_home(tmp_path)
    shutil.copy(processes.DATA / "gateway.yaml", home)
    with teams.team(tmp_path, MORE, home=home) as found:
        found.key("ann@corp.com", "--team", "web", "--group", "search", "--group", "freelancers")
        found.key("bob@corp.com", "--team", "web")
        yield found


def spend(rig, user: str, **more) -> client.Answer:
    answer, _ = rig.ask([("x-api-key", rig.keys[user].secret)], body={"max_tokens": HALF} | more)
    return answer


def told(rig, *words: str):
    done = teams.command(rig.proxy.home, *words, "--config", str(rig.proxy.home / "lockpin.yaml"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "json" in words else done.stdout


def midnight() -> str:
    return f"{datetime.now(UTC).date() + timedelta(days=1)}T00:00:00Z"


def test_each_limit_is_named_with_whose_it_is_and_people_see_their_own(rig):
    first, second = (spend(rig, "ann@corp.com") for _ in range(2))
    refused = spend(rig, "ann@corp.com")
    bobs, teams_limit = (spend(rig, "bob@corp.com") for _ in range(2))

    assert (first.status, first.headers.get("x-lockpin-budget")) == (200, None)  # 41.6% of $1.20
    line = f"dev-daily; scope=user; used=83%; state=alert; reset={midnight()}"
    assert (second.status, second.headers["x-lockpin-budget"]) == (200, line)
    found = refused.json["lockpin"]
    assert refused.status == 402
    # $1.00002 of $1.20, and of the team's $1.70 beside it.
    assert [(v["limit"], v["scope"], v["subject"]) for v in [found]] == [("dev-daily", "user", "ann@corp.com")]
    assert (found["spent_usd"], found["limit_usd"], found["period"], found["resets_at"]) == (
        1.00002, 1.2, "day", midnight(),
    )  # fmt: skip
    assert (bobs.status, bobs.headers.get("x-lockpin-budget")) == (200, None)
    found = teams_limit.json["lockpin"]
    assert (teams_limit.status, found["limit"], found["scope"], found["subject"]) == (402, "web-daily", "team", "web")
    assert "ann@corp.com" not in teams_limit.body.decode()
    shown = {(row["budget"], row["key"]): row["spent_usd"] for row in told(rig, "budget", "status", "--output", "json")}
    ann, bob = 1.00002, 0.50001
    assert {key: spent for key, spent in shown.items() if key[0] not in ("daily", "task")} == {
        ("dev-daily", "user:ann@corp.com"): ann, ("dev-daily", "user:bob@corp.com"): bob,
        ("web-daily", "team:web"): 1.50003,
        ("engineer-day", "user:ann@corp.com"): ann, ("engineer-day", "user:bob@corp.com"): bob,
        ("freelancer-week", "user:ann@corp.com"): ann,
        ("squad-month", "group:checkout"): 0, ("squad-month", "group:search"): ann,
        ("preview-tokens", "ring:ring0-preview"): 0, ("company-month", "org:org"): 1.50003,
    }  # fmt: skip
    own = told(rig, "budget", "status", "--key", "user:Ann@Corp.com", "--output", "json")
    assert {row["budget"] for row in own} == {"dev-daily", "engineer-day", "freelancer-week"}


def test_commands_add_up_and_list_by_person_and_say_what_nobody_is(rig):
    statuses = [spend(rig, "ann@corp.com").status for _ in range(3)]
    statuses.append(spend(rig, "bob@corp.com", max_tokens=200).status)
    assert statuses == [200, 200, 402, 200]
    client_rows = rig.proxy.rows("SELECT 1 FROM rows WHERE kind = 'charge'")
    processes.until(lambda: rig.proxy.rows("SELECT 1 FROM rows WHERE kind = 'refusal'"))

    by_group = {row["key"]: row["calls"] for row in told(rig, "report", "--by", "group", "--format", "json")["rows"]}
    by_team = {row["key"]: row["spent_usd"] for row in told(rig, "report", "--by", "team", "--format", "json")["rows"]}
    anns = told(rig, "calls", "--key", "user:ann@corp.com", "--format", "json")
    events = told(rig, "ledger", "events")
    warnings = told(rig, "validate")

    assert len(client_rows) == 3
    assert by_group == {"search": 2, "freelancers": 2, None: 1}
    assert by_team == {"web": 1.00103}  # 1.00002 and Bob's 0.00101
    assert [(call["user"], call["decision"]) for call in anns] == [
        ("ann@corp.com", "refused"), ("ann@corp.com", "allowed"), ("ann@corp.com", "allowed"),
    ]  # fmt: skip
    for words in ("50% is spent, $1.00002 of $1.20", "80% is spent, $1.00002 of $1.20", "a call did not fit"):
        assert f"{words}" in events
    assert "dev-daily of user:ann@corp.com, window from" in events
    assert 'budget "squad-month" names the group checkout, which no key has: that part of it counts nothing' in warnings
    assert 'budget "preview-tokens" can never match: no key has the ring ring0-preview' in warnings
