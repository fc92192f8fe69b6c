"""A provider's own key: from the environment at once, from a keyring beside the loop, and named where there is none."""

import asyncio
import threading
from dataclasses import replace

import desks
import pytest
from lockpin_addons.identity import IdentityError
from lockpin_addons.real_keys import RealKeys
from lockpin_addons.terms import InForce, Terms

from lockpin_core.errors import CommandError
from lockpin_core.ledger.protocol import Rules


class Ring:
    """A keyring that counts how often it is asked, in which thread."""

    def __init__(self, **keys):
        self.keys, self.asked, self.threads = keys, [], set()

    def get(self, provider):
        self.asked.append(provider)
        self.threads.add(threading.get_ident())
        return self.keys.get(provider)

    def put(self, provider, key): ...
    def remove(self, provider): ...


def terms(**env):
    desk = desks.Desk(desks.config(mode="team", provider_env=env))
    rules = Rules(desk.config.all_budgets(), desk.config.task_default())
    return Terms(desk.config, desk.prices, rules, desk.engine)


def keys(ring, environ=None, **env):
    in_force = InForce(terms(**env))

    def open_ring():
        if isinstance(ring, Exception):
            raise ring
        return ring

    return RealKeys(in_force, environ or {}, open_store=open_ring).of, in_force


def test_the_environment_is_enough_and_no_keyring_is_opened():
    ring = Ring(openai="sk-ring")
    found, _ = keys(ring, {"OWN": "sk-env"}, openai="OWN")

    assert asyncio.run(found("openai")) == "sk-env"
    assert ring.asked == []


def test_a_keyring_is_asked_beside_the_loop_and_once():
    ring = Ring(openai="sk-ring")
    found, _ = keys(ring)

    async def ask():
        return [await found("openai"), await found("openai")]

    assert asyncio.run(ask()) == ["sk-ring", "sk-ring"]
    assert ring.asked == ["openai"]
    assert threading.get_ident() not in ring.threads


def test_calls_at_once_ask_it_once():
    ring = Ring(openai="sk-ring")
    found, _ = keys(ring)

    async def ask():
        return await asyncio.gather(*(found("openai") for _ in range(20)))

    assert asyncio.run(ask()) == ["sk-ring"] * 20
    assert ring.asked == ["openai"]


@pytest.mark.parametrize(
    ("ring", "env", "words"),
    [
        (Ring(), {}, "name the variable that has it in lockpin.yaml: keys: {provider_env: {openai: VARIABLE}}"),
        (Ring(), {"openai": "OWN"}, "set OWN where it runs"),
        (CommandError("no keyring"), {"openai": "OWN"}, "set OWN where it runs"),
    ],
)
def test_a_key_that_nobody_has_is_named_by_its_variable(ring, env, words):
    found, _ = keys(ring, **env)

    with pytest.raises(IdentityError) as raised:
        asyncio.run(found("openai"))

    assert raised.value.code == "bad_request"
    assert str(raised.value) == (
        f"the proxy has no key of openai's own to put in the place of the Lockpin key; {words}"
    )  # fmt: skip


def test_a_keyring_that_has_nothing_is_not_asked_with_each_call():
    ring = Ring()
    found, _ = keys(ring)

    async def ask():
        for _ in range(5):
            with pytest.raises(IdentityError):
                await found("openai")

    asyncio.run(ask())
    assert ring.asked == ["openai"]


def test_another_configuration_names_another_variable():
    found, in_force = keys(Ring(), {"OLD": "sk-old", "NEW": "sk-new"}, openai="OLD")

    async def ask():
        before = await found("openai")
        in_force.terms = replace(in_force.terms, config=terms(openai="NEW").config)
        return before, await found("openai")

    assert asyncio.run(ask()) == ("sk-old", "sk-new")


class Locked(Ring):
    """A keyring that waits for its password, until `opened`."""

    def __init__(self, **keys):
        super().__init__(**keys)
        self.opened = threading.Event()

    def get(self, provider):
        assert self.opened.wait(10)
        return super().get(provider)


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_key_is_asked_for_also_while_another_one_is(is_reloaded):
    """The first call to one provider must not be refused for the keyring's being busy with another's, or with what it
    was asked before a reload.
    """
    ring = Locked(openai="sk-openai", anthropic="sk-anthropic")
    found, in_force = keys(ring)

    async def ask():
        first = asyncio.create_task(found("openai"))
        await asyncio.sleep(0)
        if is_reloaded:
            in_force.terms = terms(azure="AZURE_KEY")
        second = asyncio.create_task(found("openai" if is_reloaded else "anthropic"))
        await asyncio.sleep(0)
        ring.opened.set()
        return await asyncio.gather(first, second)

    assert asyncio.run(ask()) == ["sk-openai", "sk-openai" if is_reloaded else "sk-anthropic"]
