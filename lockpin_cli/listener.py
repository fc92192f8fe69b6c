"""What answers on a port of this machine: a proxy of ours and on which ledger, something else, or nothing."""

from __future__ import annotations

import contextlib
import enum
import json
import socket
from dataclasses import dataclass
from pathlib import Path

from lockpin_cli.output import say
from lockpin_core.errors import CommandError

PORT = 8080
_ANSWER_S = 0.5  # a proxy on this machine answers at once
_HEALTH_BYTES = 10_000  # more than the page has


class Health(enum.Enum):
    """What kind of thing answers."""

    OK = "ok"
    REFUSING = "refusing"  # a proxy of ours that refuses calls for a fault
    OTHER = "other"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Answer:
    """What answers, and the mark of its ledger where it is a proxy of ours."""

    health: Health
    ledger: str | None = None

    @property
    def is_ours(self) -> bool:
        """Say whether it is a proxy of ours, whatever its ledger."""
        return self.health in (Health.OK, Health.REFUSING)


def ask(port: int) -> Answer:
    """Ask directly, through no proxy, what answers on a port."""
    try:
        socket.create_connection(("127.0.0.1", port), _ANSWER_S).close()
    except OSError:
        return Answer(Health.NONE)
    return _asked(port)


def _asked(port: int) -> Answer:
    from http.client import HTTPConnection, HTTPException  # slow to import

    connection = HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S)
    try:
        connection.request("GET", "/lockpin/healthz")
        reply = connection.getresponse()
        words = reply.read(_HEALTH_BYTES)
    except (OSError, HTTPException):
        return Answer(Health.NONE)
    finally:
        connection.close()
    kind = {200: Health.OK, 503: Health.REFUSING}.get(reply.status, Health.OTHER)
    if kind is Health.OTHER or not words.startswith(b'{"status":'):
        return Answer(Health.OTHER)
    return Answer(kind, _ledger_in(words))


def _ledger_in(words: bytes) -> str | None:
    with contextlib.suppress(ValueError, AttributeError):
        found = json.loads(words).get("ledger")
        return found if isinstance(found, str) else None
    return None


def health(port: int) -> Health:
    """Say what kind of thing answers on a port."""
    return ask(port).health


def other_books(port: int, answer: Answer, ledger: Path) -> str | None:
    """Say that the proxy that answers books in another ledger than this one, and which is which; None: in this one."""
    from lockpin_core.ledger.place import mark  # slow to import

    ours = mark(ledger)
    if not answer.is_ours or answer.ledger == ours:
        return None
    its = "one that it does not name" if answer.ledger is None else f"another (id {answer.ledger})"
    return (
        f"the proxy on port {port} books in {its} than this command's ledger, {ledger} (id {ours}); the first lines "
        "that it printed name its ledger and configuration: give them here as --ledger or --config, or another --port"
    )


def refuse_other(port: int, ledger: Path) -> Answer:
    """Give what answers. Raises CommandError where it would take calls past the limits of this ledger."""
    answer = refuse_other_books(port, ledger)
    if answer.health is Health.OTHER:
        raise CommandError(f"what answers at http://127.0.0.1:{port} is no Lockpin; name the port of one with --port")
    return answer


def refuse_other_books(port: int, ledger: Path) -> Answer:
    """Give what answers. Raises CommandError where it is a proxy of ours on another ledger."""
    answer = ask(port)
    if (words := other_books(port, answer, ledger)) is not None:
        raise CommandError(words)
    return answer


def warn_beside(ledger: Path, port: int = PORT) -> None:
    """Say that the proxy on a port, the usual one, does not hold by this ledger, where none that runs does.

    What a command has set counts for no call then.
    """
    from lockpin_core.ledger.liveness import Liveness  # slow to import

    words = other_books(port, ask(port), ledger)
    locks = Liveness(ledger)
    if words is not None and not any(map(locks.is_alive, locks.others())):
        say(f"warning: no running proxy holds by this: {words}")
