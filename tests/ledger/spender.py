"""A process with a ledger of its own on a shared file: `spend`, `linger` or `wait` until killed, take a `turn` or `queue`
up for money that others hold, or `fill` the disk.
"""

import concurrent.futures
import contextlib
import json
import resource
import sqlite3
import sys
import time
from datetime import timedelta
from pathlib import Path

from lockpin_core.clock import new_id, utc_now
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.protocol import Held, Wait
from lockpin_core.ledger.sqlite import SqliteLedger
from tests.ledger.desk import WAIT_S, call, charge, look_after, machine, rules

IN_FORCE = rules(machine("0.25"))
ONE_DOLLAR = rules(machine("1"))


def held(ledger, name):
    return isinstance(ledger.hold(call(name, "0.01"), IN_FORCE).result(WAIT_S), Held)


def spend(ledger, name, count):
    through = [f"{name}-{n}" for n in range(count) if held(ledger, f"{name}-{n}")]
    for call_id in through:
        ledger.settle(call_id, charge("0.01")).result(WAIT_S)
    ledger.stop()
    print(len(through))


def linger(ledger, name, count):
    assert all(held(ledger, f"{name}-{n}") for n in range(count))
    print("held", flush=True)
    sys.stdin.read()


def wait(ledger, name, count):
    """Let calls wait that do not fit, for a long time."""
    patience = Wait(timedelta(seconds=300))
    asked = [ledger.hold(call(f"{name}-{n}", "0.25"), IN_FORCE, None, patience) for n in range(count)]
    look_after(ledger)
    assert not any(one.done() for one in asked)
    print("waiting", flush=True)
    sys.stdin.read()


def turn(ledger, name, count):
    """Let one call wait, and say what it was answered."""
    asked = ledger.hold(call(f"{name}-0", "0.2"), IN_FORCE, None, Wait(timedelta(seconds=300)))
    look_after(ledger)
    assert not asked.done()
    print("waiting", flush=True)
    print(type(asked.result(60)).__name__)
    ledger.settle(f"{name}-0", charge("0.02")).result(WAIT_S)
    ledger.stop()


def queue(ledger, name, count):
    """Run calls at once that may cost $0.10 and do cost $0.01, each for 50 ms."""

    def run(n):
        held = ledger.hold(call(f"{name}-{n}", "0.10"), ONE_DOLLAR, None, Wait(timedelta(seconds=30))).result(60)
        if not isinstance(held, Held):
            return False
        time.sleep(0.05)
        return ledger.settle(f"{name}-{n}", charge("0.01")).result(WAIT_S).first

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        through = sum(pool.map(run, range(count)))
    ledger.stop()
    print(through)


def fill(ledger, path, faults):
    assert held(ledger, "first")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path(f"{path}-wal").stat().st_size, hard))
    failed = []
    for name in ("second", "third"):
        with contextlib.suppress(LedgerUnavailable):
            held(ledger, name)
            failed.append("Held")
            continue
        failed.append("LedgerUnavailable")
    settled = ledger.settle("first", charge("0.01"))
    with contextlib.suppress(TimeoutError):
        settled.result(0.6)
    early = settled.done()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    first = settled.result(WAIT_S).first
    after = type(ledger.hold(call("later", "0.01"), IN_FORCE).result(WAIT_S)).__name__
    with contextlib.closing(sqlite3.connect(path)) as books:
        calls = [row[0] for row in books.execute("SELECT call FROM rows WHERE kind = 'hold' ORDER BY id")]
        numbers = books.execute("SELECT spent_nano, held_nano FROM accounts WHERE budget = 'daily'").fetchall()
    told = {"while_full": failed, "settled_while_full": early, "settled_after": first, "hold_after": after}
    told |= {"faults": faults, "calls": calls, "spent_held": [[str(number) for number in row] for row in numbers]}
    print(json.dumps(told))


def main(what, path, name, count):
    faults = []
    ledger = SqliteLedger(Path(path), clock=utc_now, new_id=new_id, fault=lambda code, reason: faults.append(code))
    if what == "fill":
        fill(ledger, path, faults)
    else:
        {"spend": spend, "linger": linger, "wait": wait, "turn": turn, "queue": queue}[what](ledger, name, int(count))


main(*sys.argv[1:])
