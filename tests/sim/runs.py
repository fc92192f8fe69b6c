"""Plays many seeds, in several processes, and shortens what fails."""

import contextlib
import gc
import multiprocessing
import multiprocessing.resource_tracker
import signal
import time
from dataclasses import dataclass, replace

from tests.sim.model import Fault
from tests.sim.world import Plan, World

SHOWN = 40  # lines of a trace
STOPPED = 130  # the exit status after Ctrl-C
TRIES = 40  # plays that look for a shorter one


@dataclass
class Played:
    """What became of one seed."""

    plan: Plan
    counts: dict
    started: int
    fault: str | None = None
    trace: tuple = ()


def play(plan, *, traced=True):
    """Play one seed to its end, or to the first broken promise."""
    world = World(plan)
    try:
        counts = world.play()
    except Fault as fault:
        return Played(plan, world.counts, world.started, str(fault), world.told())
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed is to be told
        return Played(plan, world.counts, world.started, f"{type(error).__name__}: {error}", world.told())
    return Played(plan, counts, world.started, None, world.told() if traced else ())


def play_only(plan):
    """The same, with a trace of what fails alone."""
    return play(plan, traced=False)


def main(seeds, calls, faults, backend, jobs, *, shows_trace=False, first_only=False):
    """Play seeds and print what came out. Gives the exit status."""
    plans = [Plan(seed, calls, faults, backend) for seed in seeds]
    began_s, totals, failed, done, played_seeds = time.monotonic(), {}, [], 0, 0
    was_stopped = False
    try:
        for played in several(plans, jobs):
            done += played.started
            played_seeds += 1
            for name, count in played.counts.items():
                totals[name] = totals.get(name, 0) + count
            if played.fault is not None:
                failed.append(played)
                print(f"seed {played.plan.seed}: {played.fault}", flush=True)
                if first_only or len(failed) >= 5:
                    break
    except KeyboardInterrupt:  # what was played so far is told
        was_stopped = True
    took_s = time.monotonic() - began_s
    print(summary(played_seeds, done, took_s, totals, failed))
    if was_stopped:
        print(f"stopped after {played_seeds:,} of {len(plans):,} seeds")
        return STOPPED
    if failed and not first_only:
        print(told(shorter(min(failed, key=lambda played: played.started))))
    elif shows_trace and len(plans) == 1:
        print("\n".join(play(plans[0]).trace[-SHOWN:]))
    return 1 if failed else 0


def several(plans, jobs):
    """Play plans side by side, in their order."""
    if jobs <= 1 or len(plans) <= 1:
        yield from map(play_only, plans)
        return
    with pool_of(min(jobs, len(plans)), _collect_seldom, each=100) as pool:
        yield from pool.imap(play_only, plans)


@contextlib.contextmanager
def pool_of(processes, initializer=None, *, each):
    """Start processes that leave Ctrl-C, which reaches the whole group, to this one; each is replaced after some plays."""
    multiprocessing.resource_tracker.ensure_running()  # which lets Ctrl-C in when it is started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which they inherit, those that come later too
    try:
        with multiprocessing.get_context("spawn").Pool(processes, initializer, maxtasksperchild=each) as pool:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield pool
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _collect_seldom():
    """Look for garbage less often: a world is let go as a whole, and what was imported stays."""
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)


def summary(seeds, calls, took_s, totals, failed):
    """Say what was played and what came out of it."""
    overshoot = sum("OVERSHOOT" in played.fault for played in failed)
    false = sum("FALSE REFUSAL" in played.fault for played in failed)
    named = (
        ("held", "held"), ("waited", "of them waited"), ("refused", "refused"), ("early", "of them early"),
        ("unavailable", "refused for a fault"), ("left", "clients left"), ("crashes", "processes ended"),
        ("lost", "settlements missing"), ("corrected", "settled late"), ("again", "sent again"),
        ("paused", "stopped by the breaker"),
    )  # fmt: skip
    lines = [f"{seeds:,} seeds, {calls:,} calls in {took_s:.0f} s: {calls / took_s:,.0f} a second"]
    lines += [", ".join(f"{totals.get(name, 0):,} {words}" for name, words in named)]
    passed = f"in {overshoot} seeds" if overshoot else "$0.00"
    lines.append(f"overshoot: {passed}; false refusals: {false}; seeds that failed: {len(failed)}")
    return "\n".join(lines)


def shorter(played):
    """Find a shorter play that fails too: fewer calls, then fewer kinds of faults."""
    best = played
    for change in (_no_longer(played), *(_without(fault) for fault in played.plan.faults)):
        tried = play(change(best.plan))
        if tried.fault is not None and len(tried.trace) <= len(best.trace):
            best = tried
    for calls in (best.started // 8, best.started // 4, best.started // 2):
        with contextlib.suppress(ValueError):
            tried = play(replace(best.plan, calls=max(1, calls)))
            if tried.fault is not None:
                return tried
    return best


def _no_longer(played):
    return lambda plan: replace(plan, calls=played.started)


def _without(fault):
    return lambda plan: replace(plan, faults=tuple(name for name in plan.faults if name != fault))


def told(played):
    """Print a play that fails: its end, and how to see it again."""
    plan = played.plan
    backend = f" --backend {plan.backend}" if plan.backend else ""
    again = f"scripts/simulate --seed {plan.seed} --calls {plan.calls} --faults '{','.join(plan.faults)}'{backend}"
    lines = [f"shortest failing play, {played.started} calls, its last lines:", *played.trace[-SHOWN:]]
    return "\n".join([*lines, f"{played.fault}", f"again: {again}"])
