import socket
from collections.abc import Iterator

import processes
import pytest

from lockpin_cli.listener import Answer, Health, ask, other_books, warn_beside
from lockpin_core.clock import new_id
from lockpin_core.ledger.liveness import Liveness
from lockpin_core.ledger.place import mark


@pytest.fixture(scope="module")
def proxy(tmp_path_factory) -> Iterator[processes.Proxy]:
    with processes.proxy(tmp_path_factory.mktemp("other"), kind="up") as found:
        yield found


def test_proxy_says_which_ledger_it_books_in_and_not_where_that_is(proxy):
    assert ask(proxy.port) == Answer(Health.OK, mark(proxy.ledger))
    assert str(proxy.home) not in mark(proxy.ledger)


def test_ledger_that_is_reached_by_a_link_is_the_same(proxy, tmp_path):
    (tmp_path / "link").symlink_to(proxy.ledger.parent)

    assert other_books(proxy.port, ask(proxy.port), tmp_path / "link" / proxy.ledger.name) is None


def test_change_in_a_ledger_that_no_proxy_holds_by_is_warned_of(proxy, tmp_path, capsys):
    warn_beside(tmp_path / "ledger.sqlite3", proxy.port)

    told = capsys.readouterr().err
    assert told.startswith(f"lockpin: warning: no running proxy holds by this: the proxy on port {proxy.port} books in")
    assert told.count("\n") == 1


def test_change_in_the_ledger_of_a_running_proxy_is_not_warned_of(proxy, tmp_path, capsys):
    warn_beside(proxy.ledger, proxy.port)
    ledger = tmp_path / "ledger.sqlite3"
    locks = Liveness(ledger)
    locks.join(new_id())
    warn_beside(ledger, proxy.port)
    locks.leave()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free = listener.getsockname()[1]
    warn_beside(ledger, free)

    assert capsys.readouterr().err == ""
