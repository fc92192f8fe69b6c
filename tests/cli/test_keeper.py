import os
import socket
from contextlib import ExitStack

import processes
import pytest
from processes import RIG, ROOT

from lockpin_cli import up
from lockpin_cli.keeper import proxy
from lockpin_cli.listener import Health, health
from lockpin_core.errors import CommandError


class Thieves:
    """Makes the process of a proxy, and takes its port away at that very moment, so often."""

    def __init__(self, home, times, stack):
        self.home, self.times, self.stack, self.taken = home, times, stack, []

    def __call__(self, port):
        if len(self.taken) < self.times:
            other = self.stack.enter_context(socket.socket())
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", port))
            other.listen()
            self.taken.append(port)
        paths = os.pathsep.join(map(str, (ROOT, ROOT / "addons", RIG / "resolver")))
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONPATH": paths}
        return up.proxy(port, None, {}, ROOT, environment)


@pytest.fixture
def home(tmp_path):
    return processes.make_home(tmp_path)


def test_another_port_is_taken_where_somebody_else_was_quicker(home):
    ledger = home / ".local/share/lockpin/ledger.sqlite3"
    with ExitStack() as stack:
        thieves = Thieves(home, 2, stack)
        with proxy(ledger, None, thieves, 5) as port:
            assert len(thieves.taken) == 2
            assert port not in thieves.taken
            assert health(port) is Health.OK


def test_a_port_that_was_asked_for_is_not_left_for_another(home):
    ledger, asked = home / ".local/share/lockpin/ledger.sqlite3", processes.free_port()
    with ExitStack() as stack:
        thieves = Thieves(home, 9, stack)
        with (
            pytest.raises(CommandError, match=f"the proxy did not start on port {asked}, so"),
            proxy(ledger, asked, thieves, 5),
        ):
            pass

    assert thieves.taken == [asked]
