"""The shortcuts through mitmproxy's core do what the core does; where it has moved, they stay out."""

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockpin_addons import lean
from mitmproxy import exceptions, hooks, http
from mitmproxy.master import Master
from mitmproxy.options import Options
from mitmproxy.proxy.layers.http import HttpRequestHook
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
