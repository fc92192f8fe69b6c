"""Python's SDKs through real proxies, as they are by themselves: what a call is charged, and what a refusal raises."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import anthropic
import client
import openai
import processes
import pytest
import sdks
from exchanges import CONFIG, EXCHANGES, PROMPT, REFUSED, Exchange
from google.genai import errors, types
from processes import until

OPENED = {"openai": sdks.openai_client, "anthropic": sdks.anthropic_client, "gemini": sdks.gemini_client}
RAISED = (openai.APIStatusError, anthropic.APIStatusError, errors.ClientError)


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy
    clients: dict[tuple[str, str], Any]


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("sdks")
    with processes.origin(folder) as origin, ExitStack() as opened:
        proxy = opened.enter_context(processes.proxy(folder, CONFIG.format(origin=origin.url), kind=request.param))
        clients = {
            (sdk, way): opened.enter_context(open_client(proxy, way)) for sdk, open_client in OPENED.items()
            for way in sdks.WAYS
        }  # fmt: skip
        yield Rig(origin, proxy, {key: retrying(one) for key, one in clients.items()})


def retrying(one: Any) -> Any:
    """Give the client as it is by default: it tries twice more where it thinks that this helps."""
    return one.with_options(max_retries=2) if hasattr(one, "with_options") else one


def make(rig: Rig, way: str, exchange: Exchange, *, task: str, model: str = "plain-model") -> str:
    """Make the call; give what the SDK made of the reply, as JSON."""
    call = rig.clients[exchange.sdk, way]
    for name in exchange.call.split("."):
        call = getattr(call, name)
    headers = sdks.order(**exchange.order) | {"x-lockpin-task": task}
    result = call(**with_headers(exchange, model, headers))
    is_whole = hasattr(result, "model_dump_json")
    return "".join(one.model_dump_json(by_alias=False) for one in ([result] if is_whole else result))


def with_headers(exchange: Exchange, model: str, headers: dict[str, str]) -> dict:
    asked = exchange.asking(model)
    if exchange.sdk != "gemini":
        return asked | {"extra_headers": headers}
    config = asked.get("config", {}) | {"http_options": types.HttpOptions(headers=headers)}
    return asked | {"config": config}


def is_count(path: str) -> bool:
    """Say whether the origin was only asked how many tokens a prompt has."""
    return path.split("?")[0].endswith(("/count_tokens", "/input_tokens", ":countTokens"))


def tried(rig: Rig, task: str) -> list[tuple]:
    """List what became of a task's calls."""
    client.all_written(rig.proxy)
    rows = rig.proxy.rows("SELECT kind, code, count FROM rows WHERE task = ? AND kind != 'event' ORDER BY id", task)
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("way", sdks.WAYS)
@pytest.mark.parametrize("name", EXCHANGES)
def test_a_call_is_charged_what_the_origins_usage_says(rig, way, name):
    exchange, task = EXCHANGES[name], f"{name} by {way}"
    before = len(rig.origin.calls())

    shown = make(rig, way, exchange, task=task)

    assert exchange.shown in shown.replace('": ', '":').replace(", ", ",")
    query = "SELECT * FROM rows WHERE task = ? AND kind != 'shrink' AND kind != 'event' ORDER BY id"
    hold, charge = until(lambda: (rows := rig.proxy.rows(query, task)) and len(rows) > 1 and rows)
    assert (hold["kind"], charge["kind"], charge["estimated"], charge["over_hold"]) == ("hold", "charge", 0, 0)
    assert json.loads(charge["usage"]) == exchange.usage
    assert (charge["usd"], charge["tokens"]) == (exchange.nano, sum(exchange.usage.values()))
    assert len(rig.origin.calls()) == before + 1


@pytest.mark.parametrize("way", sdks.WAYS)
@pytest.mark.parametrize("name", EXCHANGES)
def test_a_refusal_shows_our_words_after_one_try(rig, way, name):
    exchange, task = EXCHANGES[name], f"{name} refused by {way}"
    before = len(rig.origin.calls())

    with pytest.raises(RAISED) as raised:
        make(rig, way, exchange, task=task, model="dear-model")

    assert REFUSED in str(raised.value)
    status = raised.value.code if exchange.sdk == "gemini" else raised.value.status_code
    assert status == 402
    assert tried(rig, task) == [("refusal", "budget_exceeded", 1)]
    # What was asked of the origin cost nothing: how many tokens the prompt has.
    assert all(
        "count" in entry["path"].lower() or "input_tokens" in entry["path"] for entry in rig.origin.calls()[before:]
    )


def test_anthropics_own_error_for_it_is_raised_with_the_details(rig):
    with pytest.raises(anthropic.PaymentRequiredError) as raised:
        make(rig, "connect", EXCHANGES["messages"], task="details", model="dear-model")

    assert raised.value.type == "budget_exceeded"
    assert raised.value.body["lockpin"]["code"] == "budget_exceeded"


@pytest.mark.parametrize("way", sdks.WAYS)
def test_counting_gemini_tokens_is_free(rig, way):
    headers = sdks.order(body=json.dumps({"totalTokens": 1300})) | {"x-lockpin-task": f"counting by {way}"}
    config = {"http_options": types.HttpOptions(headers=headers)}

    counted = rig.clients["gemini", way].models.count_tokens(model="dear-model", contents=PROMPT, config=config)

    assert counted.total_tokens == 1300
    assert tried(rig, f"counting by {way}") == []


@pytest.mark.parametrize("way", sdks.WAYS)
def test_anthropics_stream_helper_gets_the_message(rig, way):
    exchange, task = EXCHANGES["messages stream"], f"helper by {way}"
    arguments = {key: value for key, value in exchange.asking("plain-model").items() if key != "stream"}
    headers = sdks.order(**exchange.order) | {"x-lockpin-task": task}

    with rig.clients["anthropic", way].messages.stream(**arguments, extra_headers=headers) as stream:
        message = stream.get_final_message()

    assert (message.content[0].text, message.usage.output_tokens) == ("hello there", 57)
    (charge,) = until(lambda: rig.proxy.rows("SELECT usd FROM rows WHERE kind = 'charge' AND task = ?", task))
    assert charge["usd"] == exchange.nano
