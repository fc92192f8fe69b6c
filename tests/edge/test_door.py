"""Who may come in and where connections may lead: this machine alone, or a team with keys and the public network."""

import asyncio
from concurrent.futures import Future
from datetime import UTC, datetime

import client
import desks
import pytest
import teams
from lockpin_addons.callers import Callers
from lockpin_addons.door import Barred, Door
from lockpin_addons.identity import Credentials
from lockpin_addons.real_keys import RealKeys
from lockpin_addons.terms import InForce, Terms
from lockpin_addons.tokens import Tokens
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from mitmproxy.test import taddons, tflow
from teams import basic, raw, send

from lockpin_core.config import Upstream
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.keys import KeyRecord, digest_of
from lockpin_core.ledger.protocol import Rules

SECRET = "lp_" + "a1" * 26
RECORD = KeyRecord(id="k-1", user="alice", created=datetime(2026, 11, 30, tzinfo=UTC))


def door(mode="team", fault=None, find=None, **more):
    desk = desks.Desk(desks.config(mode=mode, **more))
    rules = Rules(desk.config.all_budgets(), desk.config.task_default())

    def book(digest):
        found = Future()
        if fault is not None:
            found.set_exception(fault)
        else:
            found.set_result(RECORD if digest == digest_of(SECRET) else None)
        return found

    in_force = InForce(Terms(desk.config, desk.prices, rules, desk.engine))
    callers = Callers(book, Tokens(in_force, lambda: desks.NOW), RealKeys(in_force, {}).of)
    return Door(in_force, desks.PROVIDERS, callers, find=find)


def peer(address):
    made = tflow.tclient_conn()
    made.peername = (address, 40_000)
    return made


NEAR, FAR = "127.0.0.1", "10.1.2.3"
NOBODY, ALICE = None, Credentials("fix", SECRET)


def barred(where, address, said, host="93.184.216.34"):
    found = asyncio.run(where.barred(peer(address), host, 443, said))
    return None if found is None else (found.status, found.words)


@pytest.mark.parametrize("said", [NOBODY, Credentials("fix", "task"), Credentials("fix", "lp_" + "0" * 52)])
def test_from_another_machine_nobody_gets_to_other_hosts_without_a_key(said):
    status, words = barred(door(), FAR, said)

    assert status == 407
    assert "Lockpin key" in words
    assert barred(door(), FAR, ALICE) is None
    assert barred(door(), NEAR, said) is None


def test_missing_credentials_are_asked_for_so_that_clients_send_them():
    assert Barred(407, "x").reply().headers["proxy-authenticate"] == 'Basic realm="lockpin"'
    assert "proxy-authenticate" not in Barred(403, "x").reply().headers


def test_keys_that_cannot_be_read_let_nobody_out():
    status, words = barred(door(fault=LedgerUnavailable("the disk is full")), FAR, ALICE)

    assert (status, words.startswith("the keys cannot be read: the disk is full")) == (503, True)


OWN = ("127.0.0.1", "localhost", "10.0.0.1", "169.254.169.254", "[::1]", "::1", "0.0.0.0", "::ffff:127.0.0.1", "2130706433",
       "0x7f.1", "127.1")  # fmt: skip


@pytest.mark.parametrize("host", OWN)
@pytest.mark.parametrize("address", [NEAR, FAR])
def test_nobody_gets_into_the_proxys_own_network(host, address):
    status, words = barred(door(), address, ALICE, host)

    assert status in (403, 502), words  # 502: this resolver does not know such a spelling
    assert host in words
    assert barred(door("solo"), NEAR, NOBODY, host) is None  # in solo mode it is one's own


def test_a_list_of_hosts_is_kept_to():
    where = door(allow_hosts=("93.184.216.34", "10.0.0.1", "*.corp.test"))

    assert barred(where, NEAR, NOBODY) is None
    assert barred(where, NEAR, NOBODY, "10.0.0.1") is None  # listed by its whole name: somebody means it
    assert barred(where, NEAR, NOBODY, "8.8.8.8") == (
        403, "8.8.8.8 is not in allow_hosts of lockpin.yaml, so it cannot be reached here"
    )  # fmt: skip
    assert barred(where, NEAR, NOBODY, "10.0.0.2")[0] == 403


def connected(where, host, port=443, *, error=None):
    """Say what becomes of a connection: its address, or why there is none."""

    async def run():
        with taddons.context(Proxyserver()):
            data = ServerConnectionHookData(tflow.tserver_conn(), peer(NEAR))
            data.server.timestamp_start = data.server.timestamp_end = None
            data.server.state = data.server.state.CLOSED
            data.server.address = (host, port)
            await where.server_connect(data)
            return data.server.error or data.server.address

    return asyncio.run(run())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.0.0.1", "169.254.169.254", "::1"])
def test_a_connection_into_the_proxys_own_network_is_not_opened(host):
    assert connected(door(), host) == "lockpin: this destination is not public"
    assert connected(door("solo"), host) == (host, 443)


def test_a_connection_goes_to_the_address_that_was_looked_at():
    assert connected(door(), "93.184.216.34") == ("93.184.216.34", 443)
    assert connected(door(), "no-such-host.invalid") == "lockpin: this destination is not public"


def test_a_name_that_leads_elsewhere_by_now_leads_nowhere():
    answers = iter(
        (["93.184.216.34", "93.184.216.35"], ["93.184.216.34"], ["127.0.0.1"], ["93.184.216.34", "10.0.0.1"])
    )

    async def find(_host, _port):
        return next(answers)

    where = door(find=find)

    assert barred(where, NEAR, NOBODY, "site.test") is None
    assert connected(where, "site.test") == ("93.184.216.34", 443)  # the one that was looked at, and not the name
    assert connected(where, "site.test") == "lockpin: this destination is not public"
    assert connected(where, "site.test") == "lockpin: this destination is not public"


def test_providers_upstreams_and_listed_hosts_may_be_anywhere():
    where = door(
        upstreams={"api.openai.com": Upstream("http", "127.0.0.1", 9999)}, allow_hosts=("localhost", "*.corp.test")
    )  # fmt: skip

    assert connected(where, "127.0.0.1", 9999) == ("127.0.0.1", 9999)
    assert connected(where, "127.0.0.1", 9998) == "lockpin: this destination is not public"
    assert connected(where, "api.openai.com") == ("api.openai.com", 443)
    assert connected(where, "localhost") == ("localhost", 443)


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    more = 'allow_hosts: [front.alias.test, "*.corp.alias.test"]\n'
    with teams.team(tmp_path_factory.mktemp("door"), more, environment={"RIG_RESOLVER": "1"}) as found:
        found.key("alice")
        yield found


def test_a_tunnel_leads_to_a_listed_host_alone(rig):
    port = rig.origin.port
    with client.tunnel(rig.proxy, "front.alias.test", port) as inside:
        assert send(inside, raw("GET", "/v1/models", "front.alias.test", [])).status == 200

    said = []
    for host in (
        "other.alias.test",
        "127.0.0.1",
        "a.corp.alias.test",
        "front.alias.test.evil.test",
        "api.openai.com.evil.test",
    ):
        with rig.opened("base_url") as connection:
            answer = send(connection, raw("CONNECT", f"{host}:{port}", f"{host}:{port}", [basic("t", "task")]))
        said.append((answer.status, answer.body.decode()))
    assert [status for status, _ in said] == [403] * 5
    assert all(words.startswith("lockpin: ") for _, words in said)
    assert "leads to an address that is not public" in said[2][1]  # a glob is no word for one's own network


def test_a_plain_request_leads_to_a_listed_host_alone(rig):
    port, before = rig.origin.port, len(rig.origin.calls())

    def get(host):
        with rig.opened("base_url") as connection:
            return send(connection, raw("GET", f"http://{host}:{port}/v1/models", f"{host}:{port}", [])).status

    assert (get("front.alias.test"), get("other.alias.test"), get("127.0.0.1")) == (200, 403, 403)
    assert len(rig.origin.calls()) == before + 1


def test_a_base_url_by_any_name_of_the_proxy_is_the_proxys(rig):
    key = rig.keys["alice"].secret
    fields = [("x-api-key", key), ("content-type", "application/json")]
    told = b'{"model": "plain-model", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}'
    with rig.opened("base_url") as connection:
        by_name = send(connection, raw("POST", "/anthropic/v1/messages", "lockpin.corp.test:80", fields, told))
        health = send(connection, raw("GET", "/lockpin/healthz", "lockpin.corp.test", []))
        nowhere = send(connection, raw("GET", "/secret", "lockpin.corp.test", []))

    assert (by_name.status, health.status, nowhere.status) == (200, 200, 404)
