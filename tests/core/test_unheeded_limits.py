"""An output limit that the host does not obey bounds nothing: what is held then, and what leaves.

An "ink" token costs a millionth of a dollar, and five of output; the model writes 50,000 at most. The first limit of a
body that Lockpin adds is 32,000.
"""

import asyncio
import json
from dataclasses import replace

import pytest
from desks import FACTS, Desk, body, config

from lockpin_core.config import Fit
from lockpin_core.engine import Answered
from lockpin_core.money import Money
from lockpin_core.settler import Admitted

HOSTS = {
    "deepseek": "/chat/completions", "zai": "/api/paas/v4/chat/completions", "mistral": "/v1/chat/completions",
    "together": "/v1/chat/completions", "huggingface": "/v1/chat/completions", "vercel": "/v1/chat/completions",
    "kimi": "/coding/v1/chat/completions", "meta": "/v1/chat/completions", "cloudflare": "/client/v4/accounts/a/ai/v1/chat/completions",
    "azure": "/models/chat/completions", "cloudflare_gateway": "/v1/a/g/compat/chat/completions",
    "vertex": "/v1/projects/p/locations/l/endpoints/openapi/chat/completions",
}  # fmt: skip
BOTH = {
    "openai": "/v1/chat/completions", "groq": "/openai/v1/chat/completions", "moonshot": "/v1/chat/completions",
    "fireworks": "/inference/v1/chat/completions", "openrouter": "/api/v1/chat/completions",
    "gemini": "/v1beta/openai/chat/completions", "bedrock": "/openai/v1/chat/completions",
    "copilot": "/chat/completions",
}  # fmt: skip
PRICING = {name: {"input": "1", "output": "5", **FACTS} for name in ("ink", "gpt-5.5", "openai/gpt-5.5")}


def desk(limit: str | None = "1", **change: object) -> Desk:
    return Desk(config(limit, **{"pricing": PRICING, **change}))


def ask(place: Desk, told: dict, host: str = "deepseek", **more: object) -> Admitted | Answered:
    return place.ask(told, provider=host, path=(HOSTS | BOTH)[host], **more)


def output(admitted: Admitted | Answered) -> int:
    assert isinstance(admitted, Admitted)
    return admitted.held.call.quote.ceiling.output


@pytest.mark.parametrize("host", HOSTS)
def test_a_limit_that_the_host_ignores_leaves_under_the_name_that_it_obeys(host: str):
    told = body("ink", 5)
    admitted = ask(desk(), told, host)

    assert output(admitted) == 5
    assert admitted.body == json.dumps(told).encode().replace(b"max_completion_tokens", b"max_tokens")
    assert admitted.held.call.limit_set


@pytest.mark.parametrize("field", ["max_completion_tokens", "max_tokens"])
@pytest.mark.parametrize("host", BOTH)
def test_a_limit_that_the_host_obeys_leaves_as_it_is(host: str, field: str):
    told = body("ink", None, **{field: 5})
    admitted = ask(desk(), told, host)

    assert output(admitted) == 5
    sent = told if admitted.body is None else json.loads(admitted.body)
    assert {key: sent.get(key) for key in told} == told
    assert not {"max_completion_tokens", "max_tokens"} - {field} & sent.keys()
    assert not admitted.held.call.limit_set


def test_where_limits_are_not_set_the_models_maximum_is_held():
    admitted = ask(desk(fit=Fit(output=False)), body("ink", 5))

    assert output(admitted) == 50_000
    assert admitted.body is None
    assert ask(desk("0.1", fit=Fit(output=False)), body("ink", 5)).code == "budget_exceeded"  # $0.25 and the prompt


def test_where_a_body_must_not_get_a_limit_it_stays_and_the_models_maximum_is_held():
    place = desk()
    came = place.incoming(body("ink", 5), provider="deepseek", path=HOSTS["deepseek"])
    strict = replace(came, provider=replace(came.provider, output_settable=False))

    admitted = asyncio.run(place.engine.admit(strict))

    assert output(admitted) == 50_000
    assert admitted.body is None


def test_without_a_limit_in_force_nothing_changes():
    admitted = ask(desk(None), body("ink", 5))

    assert admitted.body is None
    assert output(admitted) == 50_000


def test_what_the_client_asked_for_is_its_limit_up_to_the_models_maximum():
    assert output(ask(desk(), body("ink", 40_000))) == 40_000
    admitted = ask(desk(), body("ink", 60_000))

    assert output(admitted) == 50_000
    assert json.loads(admitted.body)["max_tokens"] == 50_000


def test_near_the_cap_it_falls_to_what_fits():
    """$0.06 are 12,000 tokens of output, less the prompt's bytes: each is a fifth of one."""
    told = body("ink", 20_000)
    admitted = ask(desk("0.06"), told)

    limit = output(admitted)
    assert (
        admitted.held.call.quote.most <= Money.parse("0.06") < admitted.held.call.quote.most + Money.parse("0.000005")
    )
    assert 11_000 < limit < 12_000
    sent = json.loads(admitted.body)
    assert sent == {**body("ink", None), "max_tokens": limit}


def test_two_limits_are_held_at_the_larger_one():
    told = body("ink", 9, max_tokens=5)
    admitted = ask(desk(), told)

    assert output(admitted) == 9
    assert admitted.body is None


def test_the_model_says_which_limit_is_obeyed_where_several_makers_are_served():
    place = desk()
    newer = ask(place, body("openai/gpt-5.5", 5), "cloudflare_gateway")
    added = ask(place, body("gpt-5.5", None), "copilot")
    older = ask(place, body("ink", None), "copilot")

    assert (output(newer), newer.body) == (5, None)
    assert json.loads(added.body)["max_completion_tokens"] == 32_000
    assert json.loads(older.body)["max_tokens"] == 32_000
