"""Every statement on which it depends who calls is made to raise, in a real proxy of a team: no call gets past without a
hold and a key, no key of ours leaves, and the proxy goes on to serve.
"""

import itertools
import re

import mutants
import pytest
import teams
from canary import where
from processes import until
from teams import basic, raw, send

TRIALS = (("error", ("slot", "tunnel", "unknown", "misplaced", "elsewhere")), ("cancel", ("slot", "tunnel")))
UNKNOWN = "lp_" + "0" * 52


def tries(team, secret, limit):
    """Give what is sent at each point, as (way, data): with a key by either way, with none that is known, to others."""
    content = b'{"model": "plain-model", "max_tokens": %d, "messages": [{"role": "user", "content": "hi"}]}' % limit
    path = "/anthropic/v1/messages"
    return {
        "slot": ("base_url", raw("POST", path, "h", [("x-api-key", secret)], content)),
        "tunnel": ("connect", raw("POST", "/v1/messages", teams.ANTHROPIC, [("x-api-key", "sk-own")], content)),
        "unknown": ("base_url", raw("POST", path, "h", [("x-api-key", UNKNOWN)], content)),
        "misplaced": ("base_url", raw("POST", path, "h", [("x-api-key", secret), ("cookie", secret)], content)),
        "elsewhere": ("base_url", raw("GET", f"http://127.0.0.1:{team.origin.port}/v1/x", "h", [])),
    }


def sent_at(team, secret, name, limit):
    """Send it; a closed connection is an answer too."""
    way, data = tries(team, secret, limit)[name]
    try:
        with team.opened(way, [basic("fix", secret)]) as connection:
            connection.settimeout(2)
            return send(connection, data).status
    except (OSError, AssertionError, IndexError):
        return 0


def is_sound(entry):
    """Say whether what reached the origin had an open hold of its own, and a key that is none of ours."""
    found = re.search(r'"max_tokens": (\d+)', entry.get("body", ""))
    held = [hold[1] for hold in entry["open_holds"] or []]
    return found is not None and int(found[1]) in held and "lp_" not in str(entry)


@pytest.mark.timeout(300)
def test_no_fault_lets_a_call_past_without_a_key_or_a_key_of_ours_out(tmp_path):
    entry = mutants.copy(tmp_path / "copy")
    points = mutants.with_trips(entry, mutants.TEAM_HOOKS)
    trip, limits = tmp_path / "trip", itertools.count(1000)
    trip.write_text("none")
    hits, faults = set(), set()
    with teams.team(tmp_path, kind="up", addons=entry, environment={"RIG_TRIP": str(trip)}) as team:
        secret = team.key("alice").secret
        assert (sent_at(team, secret, "slot", 1), sent_at(team, secret, "tunnel", 2)) == (200, 200)
        for point, (raised, names) in itertools.product(points, TRIALS):
            for name in names:
                before = len(team.origin.calls())
                trip.write_text(f"{point} {raised}")
                status = sent_at(team, secret, name, next(limits))
                trip.write_text("none")
                hit = trip.with_name("trip.hit")
                if not hit.exists():
                    continue  # what does not run through a point is tried once, and another one may
                hits.add((hit.read_text(), name))
                hit.unlink()
                calls = team.origin.calls()[before:]
                if not all(map(is_sound, calls)) or (name in ("unknown", "misplaced", "elsewhere") and calls):
                    faults.add(f"{name} at {point} {raised}: {status}")
        assert (sent_at(team, secret, "slot", 1), sent_at(team, secret, "tunnel", 2)) == (200, 200)
        until(lambda: not team.proxy.rows("SELECT 1 FROM open_holds"))
        assert secret not in team.proxy.printed()
        team.proxy.stop()
        assert where(secret, team.proxy.home) == []

    assert faults == set()
    modules = {point.split(":")[0] for point, _ in hits}
    assert modules == set(mutants.TEAM_HOOKS)
    assert {name for _, name in hits} == {"slot", "tunnel", "unknown", "misplaced", "elsewhere"}
