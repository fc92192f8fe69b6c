"""Every statement that a hook runs through is made to raise, in a real proxy: nothing reaches the origin uncapped.

Then the same with one lock taken out, and with the other: what each guards alone. The origin's log, with the holds
that its read of the ledger finds, is the only witness.
"""

import itertools
import re

import client
import mutants
import processes
import pytest
from processes import until

TRIALS = (("error", "metered"), ("error", "refused"), ("cancel", "metered"))
LIMITS = itertools.count(1000)
CONFIG = """
upstreams: {{api.anthropic.com: "{origin}", api.openai.com: "{origin}"}}
daily_usd: 1000
"""


def escapes(tmp_path, kind, mutate, *, sample=1):
    """Run every point in turn; give (points that were hit, those at which a call got past without a hold).

    Points whose hold was never resolved are among the escapes, as "leak".
    """
    tmp_path.mkdir(exist_ok=True)
    entry = mutants.copy(tmp_path / "copy")
    mutate(entry)
    points = mutants.with_trips(entry)
    trip, home = tmp_path / "trip", processes.make_home(tmp_path)
    trip.write_text("none")
    hits, escaped, leaks = set(), set(), 0
    with (
        processes.origin(tmp_path, ledger=home / ".local/share/lockpin/ledger.sqlite3") as origin,
        processes.proxy(
            tmp_path, CONFIG.format(origin=origin.url), kind=kind, addons=entry, home=home,
            environment={"RIG_TRIP": str(trip)},
        ) as proxy,
    ):  # fmt: skip
        assert ask(proxy, "metered").status == 200
        for point, (raised, call) in itertools.product(points[::sample], TRIALS):
            before = len(origin.calls())
            trip.write_text(f"{point} {raised}")
            ask(proxy, call)
            trip.write_text("none")
            hit = trip.with_name("trip.hit")
            if hit.exists():
                hits.add(hit.read_text())
                hit.unlink()
            if any(not is_held(entry) for entry in origin.calls()[before:]):
                escaped.add(f"{point} {raised} {call}")
            leaked = leaks_after(proxy, leaks)
            if leaked > leaks:
                escaped.add(f"leak {point} {raised} {call}")
            leaks = leaked
        assert ask(proxy, "metered").status == 200  # and it still serves
    return hits, escaped


def leaks_after(proxy, before):
    """Count the holds that stay open although the exchange is over."""
    try:
        until(lambda: len(proxy.rows("SELECT 1 FROM open_holds")) <= before, patience_s=2)
    except AssertionError:
        return len(proxy.rows("SELECT 1 FROM open_holds"))
    return before


def ask(proxy, kind):
    """Send a call that fits, or one that no limit would let through; a closed connection is an answer too."""
    limit = next(LIMITS)
    body = {"model": "claude-sonnet-5-5", "messages": [{"role": "user", "content": "hi"}], "max_tokens": limit}
    path = "/anthropic/v1/messages" if kind == "metered" else "/anthropic/v1/complete"
    try:
        return client.call(proxy, path, body, patience_s=1)
    except (OSError, client.http.client.HTTPException):
        return client.Answer(0, {}, b"")


def is_held(entry):
    found = re.search(r'"max_tokens": (\d+)', entry.get("body", ""))
    held = [hold[1] for hold in entry["open_holds"]]
    return found is not None and int(found[1]) in held and entry["path"] == "/v1/messages"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_with_both_locks_nothing_escapes(kind, tmp_path):
    hits, escaped = escapes(tmp_path, kind, lambda entry: None)

    assert escaped == set()
    assert {hit.split(":")[1] for hit in hits} >= {"requestheaders", "request", "response", "responseheaders"}


@pytest.mark.timeout(600)
def test_deny_first_alone_holds(tmp_path, record_property):
    """Without the permit in the core: what is left is the refusal that only the gate's last line takes away."""
    _, escaped = escapes(tmp_path, "mitmdump", mutants.without_permit)

    record_property("escapes_without_permit", sorted(escaped))
    assert escaped == set()


@pytest.mark.timeout(600)
def test_the_permit_alone_holds(tmp_path, record_property):
    """Without deny-first: what is left is the core, which opens no upstream without a permit."""
    _, escaped = escapes(tmp_path, "mitmdump", mutants.without_deny_first)

    record_property("escapes_without_deny_first", sorted(escaped))
    assert escaped == set()


def test_a_script_that_is_broken_and_then_deleted_leaves_the_gate_shut(tmp_path):
    entry = mutants.copy(tmp_path / "copy")
    home = processes.make_home(tmp_path)
    with (
        processes.origin(tmp_path, ledger=home / ".local/share/lockpin/ledger.sqlite3") as origin,
        processes.proxy(tmp_path, CONFIG.format(origin=origin.url), addons=entry, home=home) as proxy,
    ):
        entry.write_text("def load(: nonsense")
        until(lambda: "error in script" in proxy.printed() or "SyntaxError" in proxy.printed())
        assert ask(proxy, "metered").status == 200
        assert ask(proxy, "refused").status == 403
        entry.unlink()
        until(lambda: "Removing script" in proxy.printed())
        assert ask(proxy, "metered").status == 200
        assert ask(proxy, "refused").status == 403

        assert all(map(is_held, origin.calls()))
        assert len(origin.calls()) == 2


def test_a_reload_of_the_script_keeps_one_gate(tmp_path):
    entry = mutants.copy(tmp_path / "copy")
    home = processes.make_home(tmp_path)
    with (
        processes.origin(tmp_path, ledger=home / ".local/share/lockpin/ledger.sqlite3") as origin,
        processes.proxy(tmp_path, CONFIG.format(origin=origin.url), addons=entry, home=home) as proxy,
    ):
        entry.write_text(entry.read_text() + "\n# touched\n")
        until(lambda: proxy.printed().count("Loading script") == 2)
        assert ask(proxy, "metered").status == 200

        assert len(proxy.rows("SELECT * FROM rows WHERE kind = 'hold'")) == 1
        assert all(map(is_held, origin.calls()))


def test_the_trip_itself_works(tmp_path):
    """The mutation is real: with both locks gone, a raise in the gate lets a call through."""

    def without_both(entry):
        mutants.without_permit(entry)
        mutants.without_deny_first(entry)
        mutants.edit(
            entry,
            "guard.py",
            lambda text: text.replace("        fallback(addon, argument)\n", "        pass\n").replace(
                "    fallback(addon, argument)\n", "    pass\n"
            ),
        )

    _, escaped = escapes(tmp_path, "mitmdump", without_both, sample=2)

    assert escaped
