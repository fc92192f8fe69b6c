"""A key that ends while its call waits for room, in a real proxy: the call does not leave, and its hold costs nothing."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import teams
from processes import until

# A call of 400 tokens is held at some $0.002, so beside one that runs there is room for no other.
MORE = """
queue: {wait: 60s}
fit: {output: false}
budgets: [{name: all, scope: org, window: day, limit_usd: 0.003, action: enforce}]
"""
LIVES_S = 8


def ask(rig, secret, **order):
    """Send a call; the provider answers it 500, so that it spends nothing and all have room one after the other."""
    told = [("x-api-key", secret), ("x-origin", json.dumps({"status": 500, **order}))]
    return rig.ask(told, body={"max_tokens": 400})[0]


def waiting(rig):
    return len(rig.proxy.rows("SELECT DISTINCT call FROM waiting"))


def end(rig, *words):
    done = teams.command(rig.proxy.home, "key", *words)
    assert done.returncode == 0, done.stderr


def test_a_key_that_ends_while_its_call_waits_for_room_sends_nothing(tmp_path):
    gate = tmp_path / "gate"
    with teams.team(tmp_path, MORE) as rig, ThreadPoolExecutor(8) as pool:
        holder = rig.key("holder").secret
        names = ("revoked", "rotated", "good", "expired")
        keys = {name: rig.key(name, *(("--expires", f"{LIVES_S}s") if name == "expired" else ())) for name in names}
        made_s = time.monotonic()
        running = pool.submit(ask, rig, holder, head_gate=str(gate))
        until(lambda: rig.proxy.rows("SELECT 1 FROM open_holds"))
        asked = {name: pool.submit(ask, rig, key.secret) for name, key in keys.items()}
        until(lambda: waiting(rig) == len(names))

        end(rig, "revoke", keys["revoked"].id)
        end(rig, "rotate", keys["rotated"].id)
        until(lambda: time.monotonic() > made_s + LIVES_S, LIVES_S + 2)
        gate.touch()
        answers = {name: answer.result() for name, answer in asked.items()}

        assert running.result().status == 500
        assert {name: (answer.status, answer.code) for name, answer in answers.items() if name != "good"} == {
            "revoked": (401, "key_unknown"), "rotated": (401, "key_expired"), "expired": (401, "key_expired")
        }  # fmt: skip
        assert (answers["good"].status, "x-lockpin-waited-ms" in answers["good"].headers) == (500, True)
        assert [entry["path"] for entry in rig.origin.calls()].count("/v1/messages") == 2  # and not those of counts
        teams.settled(rig.proxy)
        calls = [answers[name].headers["x-lockpin-call"] for name in ("revoked", "rotated", "expired")]
        rows = [rig.proxy.rows("SELECT * FROM rows WHERE call = ? ORDER BY id", call) for call in calls]
        assert [[row["kind"] for row in each if row["kind"] != "refusal"] for each in rows] == [["hold", "void"]] * 3
        refusals = [(row["user"], row["key"]) for each in rows for row in each if row["kind"] == "refusal"]
        assert set(refusals) == {(None, None)}  # of each code one a second
        assert teams.command(rig.proxy.home, "verify").returncode == 0
