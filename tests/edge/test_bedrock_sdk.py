"""AWS's own client and Anthropic's for Bedrock through a real proxy: what they read of replies, and how often they try.

Both sign as they do by themselves, or send a key; both verify the proxy's certificate.
"""

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import anthropic
import botocore.session
import httpx2
import processes
import pytest
import sdks
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.tokens import FrozenAuthToken
from processes import until

MODEL = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"  # $3.30 in, $16.50 out, $0.33 and $4.125 and $6.60 cached
CONFIG = """
upstreams: {{bedrock-runtime.us-east-1.amazonaws.com: "{origin}"}}
daily_usd: 100
queue: {{wait: 0s}}
refusal: {refusal}
pricing:
  dear: {{input: 1000000, output: 0, max_output_tokens: 32000, context_tokens: 200000}}
"""
HI = [{"role": "user", "content": [{"text": "hi"}]}]
LIMIT = {"maxTokens": 8000}
FRAMED = {"type": "application/vnd.amazon.eventstream", "chunk": 7}
WHOLE = {"file": "bedrock_converse/bedrock_converse.json"}
CONVERSE_NANO = 120 * 3300 + 3000 * 330 + 500 * 4125 + 1000 * 6600 + 77 * 16500
INVOKED = {
    "anthropic_version": "bedrock-2023-05-31",
    "max_tokens": 8000,
    "messages": [{"role": "user", "content": "hi"}],
}
WAYS = ("signed", "key")


class Tokens:
    """Gives the client a Bedrock API key, as a variable of the environment would."""

    def load_token(self, **_: object) -> FrozenAuthToken:
        return FrozenAuthToken("bedrock-api-key-x")


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy

    def client(self, way: str, **order: object) -> Any:
        """Make AWS's client; the origin answers its calls as `order` says."""
        session = botocore.session.Session()
        session.set_config_variable("config_file", "/nowhere")
        session.set_credentials("AK", "SK")
        signature = {}
        if way == "key":
            session.register_component("token_provider", Tokens())
            signature = {"signature_version": "bearer"}
        made = session.create_client(
            "bedrock-runtime",
            region_name="us-east-1",
            verify=str(self.proxy.ca),
            config=Config(proxies={"https": self.proxy.url}, **signature),
        )
        told = json.dumps(order)
        made.meta.events.register("before-sign.*", lambda request, **_: request.headers.add_header("x-origin", told))
        return closing(made)

    def rows(self, since: int) -> list:
        """List what was written since a row."""
        query = "SELECT * FROM rows WHERE id > ? AND kind NOT IN ('event', 'shrink') ORDER BY id"
        return self.proxy.rows(query, since)

    def last(self) -> int:
        return self.proxy.rows("SELECT coalesce(max(id), 0) AS id FROM rows")[0]["id"]

    def charged(self, since: int) -> int:
        """Give what the one call since a row was charged."""
        _, charge = until(lambda: len(found := self.rows(since)) == 2 and found)
        assert (charge["kind"], charge["reason"]) == ("charge", None)
        return charge["usd"]


@pytest.fixture(scope="module", params=["lockpin", "provider"])
def refusing(request, tmp_path_factory) -> Iterator[tuple[str, Rig]]:
    folder = tmp_path_factory.mktemp("bedrock_sdk")
    with processes.origin(folder) as origin:
        config = CONFIG.format(origin=origin.url, refusal=request.param)
        with processes.proxy(folder, config, kind="up") as proxy:
            yield request.param, Rig(origin, proxy)
            until(lambda: not proxy.rows("SELECT 1 FROM open_holds"))
            assert "Traceback" not in proxy.printed()


@pytest.fixture
def rig(refusing: tuple[str, Rig]) -> Rig:
    return refusing[1]


@pytest.mark.parametrize("way", WAYS)
def test_a_conversation_is_read_and_charged(rig, way):
    since = rig.last()

    with rig.client(way, **WHOLE) as client:
        reply = client.converse(
            modelId=MODEL,
            messages=[*HI, {"role": "assistant", "content": [{"text": "ho"}]}, *HI],
            system=[{"text": "be brief"}, {"cachePoint": {"type": "default", "ttl": "1h"}}],
            toolConfig={"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]},
            inferenceConfig=LIMIT,
            additionalModelRequestFields={"thinking": {"type": "enabled", "budget_tokens": 2000}},
            requestMetadata={"a": "b"},
        )

    assert reply["output"]["message"]["content"][1]["text"] == "Hello"
    assert rig.charged(since) == CONVERSE_NANO
    sent = rig.origin.calls()[-1]["headers"]["authorization"]
    assert sent.startswith("AWS4-HMAC-SHA256 " if way == "signed" else "Bearer bedrock-api-key-x")


@pytest.mark.parametrize("way", WAYS)
def test_a_streamed_conversation_is_read_and_charged(rig, way):
    since = rig.last()
    name = "bedrock_converse/bedrock_converse_stream.eventstream.bin"

    with rig.client(way, file=name, **FRAMED) as client:
        stream = client.converse_stream(modelId=MODEL, messages=HI, inferenceConfig=LIMIT)["stream"]
        events = [next(iter(event)) for event in stream]

    assert (events[0], events[-1], len(events)) == ("messageStart", "metadata", 11)
    assert rig.charged(since) == CONVERSE_NANO


@pytest.mark.parametrize("way", WAYS)
def test_an_invoked_stream_is_read_and_charged(rig, way):
    since = rig.last()
    name = "bedrock_invoke/bedrock_invoke_stream_anthropic.eventstream.bin"

    with rig.client(way, file=name, **FRAMED) as client:
        reply = client.invoke_model_with_response_stream(modelId=MODEL, body=json.dumps(INVOKED))
        events = [json.loads(event["chunk"]["bytes"]) for event in reply["body"]]

    assert [event["type"] for event in events[:1] + events[-1:]] == ["message_start", "message_stop"]
    assert rig.charged(since) == 2095 * 3300 + 40960 * 330 + 512 * 6600 + 389 * 16500


def test_without_a_limit_a_signed_body_leaves_as_it_was_signed(rig):
    with rig.client("signed", **WHOLE) as client:
        client.converse(modelId=MODEL, messages=HI)
    with rig.client("key", **WHOLE) as client:
        client.converse(modelId=MODEL, messages=HI)

    signed, keyed = (json.loads(one["body"]) for one in rig.origin.calls()[-2:])
    assert signed == {"messages": HI}
    assert keyed == {"messages": HI, "inferenceConfig": {"maxTokens": 32000}}


CALLS: dict[str, Callable[[Any], object]] = {
    "converse": lambda client: client.converse(modelId="dear", messages=HI, inferenceConfig=LIMIT),
    "converse_stream": lambda client: client.converse_stream(modelId="dear", messages=HI, inferenceConfig=LIMIT),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_refusal_is_raised_by_its_name_and_tried_again_only_in_the_providers_form(refusing, call):
    setting, rig = refusing
    before, since = len(rig.origin.calls()), rig.last()

    with rig.client("signed") as client, pytest.raises(ClientError) as refused:
        CALLS[call](client)

    name = "ServiceQuotaExceededException" if setting == "lockpin" else "ThrottlingException"
    assert type(refused.value).__name__ == refused.value.response["Error"]["Code"] == name
    assert refused.value.response["Error"]["Message"].startswith('lockpin: budget "daily" (machine, day) would pass')
    tries = 1 if setting == "lockpin" else 3
    rows = until(lambda: len(found := rig.rows(since)) == tries and found)
    assert {(row["kind"], row["code"]) for row in rows} == {("refusal", "budget_exceeded")}
    assert len(rig.origin.calls()) == before


@pytest.mark.parametrize(
    ("asks", "name", "words"),
    [
        (lambda c: c.converse(modelId="a.b", messages=HI), "ValidationException", "has no price"),
        (lambda c: c.invoke_model(modelId="amazon.titan-x", body="{}"), "ValidationException", "Converse has one"),
        (
            lambda c: c.invoke_model(modelId=MODEL, body=json.dumps(INVOKED), serviceTier="priority"),
            "ValidationException",
            "no price for service tier priority",
        ),
        (
            lambda c: c.apply_guardrail(guardrailIdentifier="g", guardrailVersion="1", source="INPUT", content=[]),
            "AccessDeniedException",
            "cannot be metered",
        ),
    ],
    ids=["no price", "another maker's", "a tier", "a guardrail"],
)
def test_other_refusals_are_raised_by_their_names_and_not_tried_again(rig, asks, name, words):
    since = rig.last()

    with rig.client("signed") as client, pytest.raises(ClientError, match=words) as refused:
        asks(client)

    assert refused.value.response["Error"]["Code"] == name
    assert refused.value.response["ResponseMetadata"]["RetryAttempts"] == 0
    assert len(until(lambda: rig.rows(since))) == 1


def test_counting_is_free(rig):
    with rig.client("signed", file="bedrock_converse/bedrock_count_tokens.json") as client:
        found = client.count_tokens(modelId=MODEL.removeprefix("us."), input={"converse": {"messages": HI}})

    assert found["inputTokens"] == 42


def test_anthropics_client_for_bedrock_reads_a_stream(rig):
    since = rig.last()
    name = "bedrock_invoke/bedrock_invoke_stream_anthropic.eventstream.bin"
    trusted = ssl.create_default_context(cafile=str(rig.proxy.ca))
    with (
        httpx2.Client(proxy=rig.proxy.url, verify=trusted, trust_env=False) as http,
        anthropic.AnthropicBedrock(aws_region="us-east-1", api_key="k", http_client=http) as client,
    ):
        ask = {"model": MODEL, "max_tokens": 8000, "messages": [sdks.MESSAGE]}
        events = list(client.messages.create(stream=True, extra_headers=sdks.order(file=name, **FRAMED), **ask))

    assert [event.type for event in events[:1] + events[-1:]] == ["message_start", "message_stop"]
    assert rig.charged(since) == 2095 * 3300 + 40960 * 330 + 512 * 6600 + 389 * 16500
