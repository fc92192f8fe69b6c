"""The identity provider's keys: asked for when they are needed, by a fake clock and a provider that the test answers."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from lockpin_addons.issuer import IssuerUnavailable, TokenCheck

from lockpin_core.oidc import Issuer, TokenError

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
ISSUER = Issuer("https://id.acme.example/realm", "lockpin")
ABOUT = "https://id.acme.example/realm/.well-known/openid-configuration"
KEYS = "https://id.acme.example/keys"


class Provider:
    """An identity provider: what it publishes, and whether it answers."""

    def __init__(self) -> None:
        self.keys, self.asked, self.is_there = {"a": ec.generate_private_key(ec.SECP256R1())}, [], True
        self.about: object = {"issuer": ISSUER.url, "jwks_uri": KEYS}

    async def fetch(self, address: str) -> bytes | None:
        self.asked.append(address)
        await asyncio.sleep(0)
        if not self.is_there:
            raise ConnectionRefusedError
        if address == ABOUT:
            return json.dumps(self.about).encode()
        assert address == KEYS
        public = jwt.get_algorithm_by_name("ES256")
        made = [{**public.to_jwk(key.public_key(), as_dict=True), "kid": name} for name, key in self.keys.items()]
        return json.dumps({"keys": made}).encode()

    def token(self, name: str = "a", *, user: str = "ann@acme.example", at: datetime = NOON) -> str:
        told = {"iss": ISSUER.url, "aud": "lockpin", "email": user, "exp": at.timestamp() + 86_400 * 3}
        return jwt.encode(told, self.keys[name], algorithm="ES256", headers={"kid": name})


class Desk:
    """A check, its provider, and the time."""

    def __init__(self) -> None:
        self.provider, self.now = Provider(), NOON
        self.check = TokenCheck(ISSUER, self.provider.fetch, lambda: self.now)

    async def user(self, token: str) -> str:
        return (await self.check.caller(token)).user


def played(scene: Callable) -> None:
    asyncio.run(scene(Desk()))


def test_keys_are_asked_for_once_by_all_who_need_them():
    async def scene(desk: Desk) -> None:
        tokens = [desk.provider.token(user=f"u{number}@acme.example") for number in range(20)]

        users = await asyncio.gather(*(desk.user(token) for token in tokens))

        assert users == [f"u{number}@acme.example" for number in range(20)]
        assert desk.provider.asked == [ABOUT, KEYS]

    played(scene)


def test_a_key_that_is_published_later_is_found_and_a_name_that_nobody_has_asks_no_more_than_every_half_minute():
    async def scene(desk: Desk) -> None:
        await desk.user(desk.provider.token())
        desk.provider.keys["b"] = ec.generate_private_key(ec.SECP256R1())
        desk.now += timedelta(seconds=31)

        assert await desk.user(desk.provider.token("b")) == "ann@acme.example"
        assert len(desk.provider.asked) == 4

        stranger = jwt.encode({}, desk.provider.keys["a"], algorithm="ES256", headers={"kid": "z"})
        for _ in range(5):
            with pytest.raises(TokenError, match="does not publish"):
                await desk.user(stranger)
        assert len(desk.provider.asked) == 4
        desk.now += timedelta(seconds=30)
        with pytest.raises(TokenError, match="does not publish"):
            await desk.user(stranger)
        assert len(desk.provider.asked) == 6

    played(scene)


def test_a_key_that_was_withdrawn_is_good_for_an_hour_at_most():
    async def scene(desk: Desk) -> None:
        token = desk.provider.token()
        await desk.user(token)
        desk.provider.keys = {"b": ec.generate_private_key(ec.SECP256R1())}

        desk.now += timedelta(minutes=59)
        assert await desk.user(token) == "ann@acme.example"
        desk.now += timedelta(minutes=1)
        assert await desk.user(token) == "ann@acme.example"  # it was checked a minute ago
        desk.now += timedelta(minutes=4)
        with pytest.raises(TokenError, match="does not publish"):
            await desk.user(token)

    played(scene)


def test_keys_go_on_for_a_day_when_nobody_answers():
    async def scene(desk: Desk) -> None:
        token = desk.provider.token()
        await desk.user(token)
        desk.provider.is_there = False

        desk.now += timedelta(hours=23, minutes=59)
        assert await desk.user(token) == "ann@acme.example"
        desk.now += timedelta(minutes=10)
        with pytest.raises(IssuerUnavailable, match="does not answer as it should"):
            await desk.user(token)
        desk.provider.is_there = True
        desk.now += timedelta(seconds=30)
        assert await desk.user(token) == "ann@acme.example"

    played(scene)


@pytest.mark.parametrize(
    "about",
    [
        {"issuer": "https://evil.example", "jwks_uri": KEYS},
        {"issuer": ISSUER.url, "jwks_uri": "http://id.acme.example/keys"},
        {"issuer": ISSUER.url, "jwks_uri": "file:///etc/passwd"},
        {"issuer": ISSUER.url, "jwks_uri": ["x"]},
        {"issuer": ISSUER.url},
        [1],
        None,
    ],
)
def test_a_provider_that_says_otherwise_of_itself_is_not_believed(about: object):
    async def scene(desk: Desk) -> None:
        desk.provider.about = about

        with pytest.raises(IssuerUnavailable, match="cannot be had"):
            await desk.user(desk.provider.token())
        assert KEYS not in desk.provider.asked

    played(scene)


def test_a_checked_token_ends_with_its_own_time():
    async def scene(desk: Desk) -> None:
        token = desk.provider.token(at=NOON - timedelta(days=3) + timedelta(minutes=1))
        await desk.user(token)

        desk.now += timedelta(seconds=91)
        with pytest.raises(TokenError, match="expired") as raised:
            await desk.user(token)
        assert raised.value.is_over

    played(scene)


def test_one_who_leaves_while_keys_are_asked_for_leaves_them_to_the_others():
    async def scene(desk: Desk) -> None:
        first = asyncio.create_task(desk.user(desk.provider.token()))
        second = asyncio.create_task(desk.user(desk.provider.token(user="bob@acme.example")))
        await asyncio.sleep(0)

        first.cancel()

        assert await second == "bob@acme.example"
        assert desk.provider.asked == [ABOUT, KEYS]

    played(scene)
