"""A process that keeps calls for later usage on a shared ledger: `defer` until it is killed, or `poll` when told to."""

import json
import sys
from datetime import timedelta
from pathlib import Path

from lockpin_core.clock import new_id
from lockpin_core.ledger.protocol import Held, Link
from lockpin_core.ledger.sqlite import SqliteLedger
from tests.ledger.desk import WAIT_S, SetClock, call, charge, machine, rules

IN_FORCE = rules(machine("1"))
ACCOUNT = bytes(range(16))


def link(upstream_id, tokens=None):
    return Link("openai", ACCOUNT, upstream_id, tokens)


def defer(ledger, name):
    """Defer a call under the id "resp_NAME", and leave another one open beside it."""
    for call_id in (name, f"{name}-open"):
        assert isinstance(ledger.hold(call(call_id, "0.1"), IN_FORCE).result(WAIT_S), Held)
    ledger.defer(name, timedelta(hours=1), link(f"resp_{name}")).result(WAIT_S)
    print("deferred", flush=True)
    sys.stdin.read()


def poll(ledger, name):
    """Settle what waits under "resp_NAME" as soon as a line comes; say whether it was found, and settled first."""
    print("ready", flush=True)
    sys.stdin.readline()
    found = ledger.deferred("openai", ACCOUNT, f"resp_{name}").result(WAIT_S)
    first = None
    if found is not None:
        first = ledger.settle(found.call.id, charge("0.03"), link(f"resp_{name}", 900)).result(WAIT_S).first
    print(json.dumps({"found": found is not None, "first": first}), flush=True)
    ledger.stop()


def main(what, path, name):
    ledger = SqliteLedger(Path(path), clock=SetClock(), new_id=new_id)
    {"defer": defer, "poll": poll}[what](ledger, name)


if __name__ == "__main__":
    main(*sys.argv[1:])
