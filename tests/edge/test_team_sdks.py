"""Python's SDKs with a Lockpin key, by a base URL in place of the provider's and as the proxy's password: the provider
sees a real key alone, and the call is charged to whom the Lockpin key names.
"""

import json
from typing import Any

import anthropic
import openai
import pytest
import sdks
import teams
from exchanges import EXCHANGES
from google.genai import errors, types
from teams import REAL

OPENED = {"openai": sdks.openai_client, "anthropic": sdks.anthropic_client, "gemini": sdks.gemini_client}
RAISED = (openai.AuthenticationError, anthropic.AuthenticationError, errors.ClientError)
OWN = "sk-own-key"


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    with teams.team(tmp_path_factory.mktemp("team-sdks")) as found:
        found.key("alice", "--team", "web")
        yield found


def make(client: Any, name: str) -> str:
    """Make the call as the exchange says; give what the SDK made of the reply."""
    exchange, call = EXCHANGES[name], client
    for part in exchange.call.split("."):
        call = getattr(call, part)
    asked, headers = exchange.asking("plain-model"), sdks.order(**exchange.order)
    if exchange.sdk == "gemini":
        asked |= {"config": asked.get("config", {}) | {"http_options": types.HttpOptions(headers=headers)}}
    else:
        asked |= {"extra_headers": headers}
    result = call(**asked)
    return "".join(one.model_dump_json() for one in ([result] if hasattr(result, "model_dump_json") else result))


def settings(rig, way, secret):
    return {"way": way, "key": secret} if way == "base_url" else {"way": way, "key": OWN, "login": f"fix:{secret}"}


@pytest.mark.parametrize("way", sdks.WAYS)
@pytest.mark.parametrize("name", EXCHANGES)
def test_a_call_with_a_lockpin_key_is_its_users_and_the_provider_sees_a_real_key_alone(rig, way, name):
    exchange, key = EXCHANGES[name], rig.keys["alice"]
    before = len(rig.proxy.rows("SELECT 1 FROM rows WHERE kind = 'hold'"))

    with OPENED[exchange.sdk](rig.proxy, **settings(rig, way, key.secret)) as client:
        shown = make(client, name)

    assert exchange.shown in shown.replace('": ', '":').replace(", ", ",")
    *_, row = rig.proxy.rows("SELECT * FROM rows WHERE kind = 'hold' ORDER BY id")[before:]
    assert (row["key"], row["user"], row["team"]) == (key.id, "alice", "web")
    assert row["task"] == ("fix" if way == "connect" else "default")
    seen = json.dumps(rig.origin.calls()[-1])
    assert (REAL[exchange.sdk] in seen, OWN in seen) == (way == "base_url", way == "connect")
    assert key.secret not in seen and "lp_" not in seen


@pytest.mark.parametrize("way", sdks.WAYS)
@pytest.mark.parametrize("name", ["chat", "chat stream", "messages", "messages stream", "gemini", "gemini stream"])
def test_a_key_that_is_not_known_is_raised_as_the_sdks_own_error_after_one_try(rig, way, name):
    exchange, unknown = EXCHANGES[name], "lp_" + "0" * 52
    before = len(rig.origin.calls())

    with (
        OPENED[exchange.sdk](rig.proxy, **settings(rig, way, unknown)) as client,
        pytest.raises(RAISED, match="this Lockpin key is not known here, or was revoked; ask for a new one") as raised,
    ):
        make(client, name)

    assert (raised.value.code if exchange.sdk == "gemini" else raised.value.status_code) == 401
    assert len(rig.origin.calls()) == before
