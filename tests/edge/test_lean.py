"""The shortcuts through mitmproxy's core do what the core does; where it has moved, they stay out."""

import asyncio
import contextlib
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockpin_addons import lean, turns
from mitmproxy import exceptions, hooks, http
from mitmproxy.connection import Client, ConnectionState
from mitmproxy.master import Master
from mitmproxy.options import Options
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import HttpRequestHook
from mitmproxy.proxy.server import ConnectionIO
from mitmproxy.test import tflow


class Addon:
    def __init__(self, name, seen, raises=None):
        self.name, self.seen, self.raises = name, seen, raises

    def request(self, flow):
        self.seen.append(self.name)
        if self.raises is not None:
            raise self.raises


class Slow(Addon):
    async def request(self, flow):
        await asyncio.sleep(0)
        self.seen.append(self.name)


class Parent(Addon):
    def __init__(self, name, seen):
        super().__init__(name, seen)
        self.addons = []


class Updated(Addon):
    def update(self, flows):
        self.seen.append((self.name, len(flows)))


def trigger(*addons, later=lambda master: None):
    """Send a request through a chain of addons, twice, with a change between."""

    async def run():
        master = Master(Options())
        lean.quicken(master.addons)
        master.addons.add(*addons)
        for change in (lambda _: None, later):
            change(master)
            await master.addons.handle_lifecycle(HttpRequestHook(tflow.tflow()))
        master._legacy_log_events.uninstall()

    asyncio.run(run())


def test_installed_mitmproxy_is_as_every_shortcut_expects():
    async def run():
        master = Master(Options())
        master._legacy_log_events.uninstall()
        return lean.quicken(master.addons)

    assert asyncio.run(run()) == []


def test_function_that_has_moved_is_not_replaced():
    assert lean._is_known(lean.quicken, "0" * 16) is False
    assert lean._is_known(None, "0" * 16) is False


def test_addons_are_called_in_the_order_of_the_chain():
    seen = []
    trigger(Addon("a", seen), Slow("b", seen), Addon("c", seen))

    assert seen == ["a", "b", "c"] * 2


def test_addon_that_comes_later_is_called():
    seen = []
    trigger(Addon("a", seen), later=lambda master: master.addons.add(Addon("b", seen)))

    assert seen == ["a", "a", "b"]


def test_addons_of_an_addon_are_asked_for_anew_each_time():
    seen = []
    parent = Parent("p", seen)
    trigger(parent, Addon("z", seen), later=lambda _: parent.addons.append(Addon("child", seen)))

    assert seen == ["p", "z", "p", "child", "z"]


def test_error_is_logged_and_left_behind(caplog):
    seen = []
    with caplog.at_level(logging.ERROR):
        trigger(Addon("a", seen, ValueError("oh")), Addon("b", seen))

    assert seen == ["a", "b"] * 2
    assert [record.getMessage() for record in caplog.records] == ["Addon error: oh"] * 2


def test_halt_ends_the_event_and_an_option_error_goes_on_up():
    seen = []
    trigger(Addon("a", seen, exceptions.AddonHalt()), Addon("b", seen))
    assert seen == ["a", "a"]

    with pytest.raises(exceptions.OptionsError):
        trigger(Addon("a", seen, exceptions.OptionsError("no")))


def test_update_follows_an_event_about_a_flow():
    seen = []
    trigger(Updated("u", seen))

    assert seen == ["u", ("u", 1)] * 2


NAMES = st.sampled_from([b"Host", b"host", b"X-A", b"x-b", b"x-\xc3\xa9"])


@given(st.lists(st.tuples(NAMES, st.binary(max_size=4)), max_size=6), NAMES)
def test_headers_are_read_as_before(fields, name):
    trigger()
    headers = http.Headers(fields)
    text = name.decode("utf-8", "surrogateescape")
    wanted = [value.decode("utf-8", "surrogateescape") for key, value in fields if key.lower() == name.lower()]

    for asked in (name, text, name.upper()):
        assert headers.get_all(asked) == wanted
        assert (asked in headers) is bool(wanted)
        assert headers.get(asked) == (", ".join(wanted) if wanted else None)
        assert headers.get(asked, "none") == (", ".join(wanted) if wanted else "none")


def test_hook_arguments_and_options_are_as_before():
    trigger()
    options = Options()
    options.mode.append("changed by its reader")

    assert hooks.ConfigureHook({"a"}).args() == [{"a"}]
    assert options.mode == ["regular"]
    assert options.listen_host == ""


class Writer:
    def __init__(self, *, closing=False):
        self.wrote, self.closing = [], closing

    def is_closing(self):
        return self.closing

    def write(self, data):
        self.wrote.append(data)


class Handler:
    """A connection's handler whose layer answers each event with the commands that it was given."""

    def __init__(self, script, *, hook_waits=False, **transports):
        self.script, self.hook_waits, self.log_lines, self.hooks = script, hook_waits, [], []
        self.client = tflow.tclient_conn()
        self.transports = transports
        self._server_event_lock = asyncio.Lock()
        self.timeout_watchdog = self.layer = self

    def register_activity(self):
        pass

    def handle_event(self, event):
        yield from self.script(event)

    async def handle_hook(self, hook):
        self.hooks.append(hook)
        if self.hook_waits:
            await asyncio.sleep(0)

    async def server_event(self, event):
        await turns.server_event(self, event)

    def log(self, message, level=logging.INFO, exc_info=None):
        self.log_lines.append(message)


@contextlib.contextmanager
def eager():
    loop = asyncio.get_running_loop()
    loop.set_task_factory(asyncio.eager_task_factory)
    yield
    loop.set_task_factory(None)


def connection(**more):
    return Client(peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), state=ConnectionState.OPEN, **more)


def play(handler, *given):
    async def run():
        with eager():
            for event in given:
                await handler.server_event(event)
            for _ in range(5):
                await asyncio.sleep(0)

    asyncio.run(run())


@pytest.mark.parametrize("hook_waits", [False, True])
def test_hook_is_followed_up_whether_it_ends_at_once_or_later(hook_waits):
    hook = HttpRequestHook(tflow.tflow())
    seen = []

    def script(event):
        seen.append(type(event).__name__)
        if isinstance(event, events.Start):
            yield hook

    handler = Handler(script, hook_waits=hook_waits)
    play(handler, events.Start())

    assert handler.hooks == [hook]
    assert seen == ["Start", "HookCompleted"]


def test_what_a_turn_has_for_one_connection_is_one_write_and_keeps_its_order():
    one, other = connection(), connection()

    def script(event):
        for target, data in ((one, b"a"), (one, b"b"), (other, b"c"), (one, b"d")):
            yield commands.SendData(target, data)

    first, second = Writer(), Writer()
    handler = Handler(script)
    handler.transports = {one: ConnectionIO(writer=first), other: ConnectionIO(writer=second)}
    play(handler, events.Start())

    assert (first.wrote, second.wrote) == ([b"ab", b"d"], [b"c"])


def test_data_leaves_before_a_hook_begins_and_before_a_crash():
    one, writer = connection(), Writer()

    def script(event):
        if isinstance(event, events.Start):
            yield commands.SendData(one, b"head")
            yield HttpRequestHook(tflow.tflow())
            yield commands.SendData(one, b"more")
            raise ValueError("crash")

    handler = Handler(script)
    handler.transports = {one: ConnectionIO(writer=writer)}
    wrote_at_hook = []

    async def handle_hook(hook):
        wrote_at_hook.append(list(writer.wrote))

    handler.handle_hook = handle_hook
    play(handler, events.Start())

    assert wrote_at_hook == [[b"head"]]
    assert writer.wrote == [b"head", b"more"]
    assert handler.log_lines == ["mitmproxy has crashed!"]


def test_nothing_is_written_to_a_connection_that_is_closed_or_closing():
    gone, closing = connection(), connection()
    writer = Writer(closing=True)

    def script(event):
        yield commands.SendData(gone, b"x")
        yield commands.SendData(closing, b"y")

    handler = Handler(script)
    handler.transports = {closing: ConnectionIO(writer=writer)}
    play(handler, events.Start())

    assert (writer.wrote, handler.log_lines) == ([], [])


def test_large_data_and_datagrams_are_not_joined():
    large, datagrams = connection(), connection(transport_protocol="udp")
    block = b"x" * (turns.JOINED_BYTES + 1)

    def script(event):
        for target, data in ((large, block), (large, b"end"), (datagrams, b"1"), (datagrams, b"2")):
            yield commands.SendData(target, data)

    first, second = Writer(), Writer()
    handler = Handler(script)
    handler.transports = {large: ConnectionIO(writer=first), datagrams: ConnectionIO(writer=second)}
    play(handler, events.Start())

    assert (first.wrote, second.wrote) == ([block, b"end"], [b"1", b"2"])
