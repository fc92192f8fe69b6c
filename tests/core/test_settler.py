"""What is remembered of a reply that a later call may name: as much as that call may read, or that nobody knows.

A token of "scout" costs $0.000001 as prompt and five times that as output, a search of it a cent; a window has 200,000
tokens, and an image of it at most 1,000.
"""

import asyncio
import base64
import json
import struct
import zlib

import pytest
from desks import FACTS, Desk, config

from lockpin_core.call import Ending, Outcome, Reading
from lockpin_core.engine import Passed
from lockpin_core.settler import Admitted
from lockpin_core.wire import wire_named

RESPONSES = "/v1/responses"
KEY = {"authorization": "Bearer sk-one"}
DONE = Outcome(Ending.DONE, 200)
WINDOW = 200_000
SCOUT = {"input": "1", "output": "5", "image_tokens": "1000", "fees": {"web_search": "0.01"}, **FACTS}
WEB = {"type": "web_search"}
SEARCHED = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
SAID = {"type": "message", "content": [{"type": "output_text", "text": "ok"}]}
ANSWER = {"type": "function_call_output", "call_id": "c", "output": "ok"}
CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


def new_desk() -> Desk:
    return Desk(config("1000", pricing={"scout": SCOUT}))


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 2000, 2000, 8, 2, 0, 0, 0))
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64," + base64.b64encode(PNG).decode()}
FILE = {"type": "input_file", "file_id": "file_1"}


def shown(*parts: dict) -> list[dict]:
    return [{"role": "user", "content": [*parts]}]


def reply(name: str, prompt: int, output: list[dict], **more: object) -> dict:
    usage = {"input_tokens": prompt, "output_tokens": 50, "total_tokens": prompt + 50}
    told = {"id": name, "object": "response", "status": "completed", "model": "scout", "usage": usage}
    return told | {"output": output, **more}


def read(told: dict, admitted: Admitted | None = None) -> Reading:
    scanner = wire_named("openai_responses").scanner(streamed=False, asked=admitted.parsed if admitted else None)
    scanner.feed(json.dumps(told).encode())
    return scanner.result()


def ask(desk: Desk, **more: object) -> Admitted:
    told = {"model": "scout", "input": "hi", "max_output_tokens": 100, **more}
    admitted = desk.ask(told, path=RESPONSES, headers=KEY)
    assert isinstance(admitted, Admitted), admitted
    return admitted


def turn(desk: Desk, told: dict, **more: object) -> int:
    """Play a turn and give the prompt that was held for it."""
    admitted = ask(desk, **more)
    desk.engine.settle(admitted, read(told, admitted), DONE).result()
    return admitted.held.call.quote.ceiling.prompt


def after(desk: Desk, name: str, **more: object) -> int:
    """Give the prompt that is held for a turn which goes on from a reply."""
    return ask(desk, previous_response_id=name, **more).held.call.quote.ceiling.prompt


@pytest.mark.parametrize(
    ("output", "ended"), [([SEARCHED, CALLED], {}), ([SEARCHED], CUT), ([SEARCHED], {"status": "failed"})]
)
def test_what_a_search_found_and_no_sampling_read_may_fill_the_window_of_the_next_turn(output, ended):
    desk = new_desk()
    turn(desk, reply("resp_1", 5000, output, **ended), tools=[WEB], max_tool_calls=1)

    assert after(desk, "resp_1", input=[ANSWER]) == WINDOW


def test_what_a_search_found_and_the_model_has_read_is_in_what_it_read():
    desk = new_desk()
    turn(desk, reply("resp_1", 5000, [SEARCHED, SAID, CALLED]), tools=[WEB], max_tool_calls=1)

    assert 5050 <= after(desk, "resp_1", input=[ANSWER]) < 6500


def test_a_poll_says_as_well_whether_what_a_search_found_was_read():
    desk = new_desk()
    for name, output in (("resp_1", [SEARCHED, SAID]), ("resp_2", [SEARCHED, CALLED])):
        turn(desk, {"id": name, "status": "queued"}, tools=[WEB], max_tool_calls=1, background=True)
        passed = desk.ask(method="GET", path=f"{RESPONSES}/{name}", headers=KEY)
        assert isinstance(passed, Passed)
        assert passed.polled is not None
        asyncio.run(desk.engine.settle_polled(passed.polled, read(reply(name, 5000, output))))
    links = [desk.ledger.chain("openai", ask(desk).account, name).result() for name in ("resp_1", "resp_2")]

    assert links[0].tokens >= 5050
    assert links[1] is None


def compressed(policy: str | None) -> dict:
    return {} if policy is None else {"image": {"context_compression": policy}}


@pytest.mark.parametrize("policy", [None, "enabled"])
def test_images_that_may_have_been_shrunk_count_at_their_full_size_for_every_later_turn(policy):
    desk = new_desk()
    turn(desk, reply("resp_1", 300, [SAID], **compressed(policy)), input=shown(*[IMAGE] * 20))

    assert 20_350 <= after(desk, "resp_1") < 22_000

    turn(desk, reply("resp_2", 400, [SAID], **compressed(policy)), previous_response_id="resp_1")
    assert 20_450 <= after(desk, "resp_2") < 22_000


def test_images_that_were_read_at_full_size_are_in_what_was_read_until_a_later_turn_may_shrink_them():
    desk = new_desk()
    turn(desk, reply("resp_1", 20_300, [SAID], **compressed("disabled")), input=shown(*[IMAGE] * 20))

    assert 20_350 <= after(desk, "resp_1") < 22_000

    turn(desk, reply("resp_2", 400, [SAID], **compressed("enabled")), previous_response_id="resp_1")
    assert 20_450 <= after(desk, "resp_2") < 22_000


@pytest.mark.parametrize(
    ("policy", "most"), [(None, WINDOW), ("enabled", WINDOW), ("disabled", 6500)], ids=["unsaid", "shrunk", "whole"]
)
def test_images_in_a_file_have_no_full_size_that_is_known(policy, most):
    desk = new_desk()
    turn(desk, reply("resp_1", 5000, [SAID], **compressed(policy)), input=shown(FILE))

    assert 5050 <= after(desk, "resp_1") <= most


@pytest.mark.parametrize(("policy", "most"), [(None, 6500), ("enabled", WINDOW)])
def test_images_that_a_tool_may_have_found_count_only_where_they_were_not_shrunk(policy, most):
    desk = new_desk()
    turn(desk, reply("resp_1", 5000, [SEARCHED, SAID], **compressed(policy)), tools=[WEB], max_tool_calls=1)

    found = after(desk, "resp_1")

    assert (found == WINDOW) == (most == WINDOW)
    assert 5050 <= found <= most


def test_a_chain_of_text_alone_stays_as_it_was_whatever_the_reply_says_of_images():
    desk = new_desk()
    turn(desk, reply("resp_1", 5000, [SAID], **compressed("enabled")))

    assert 5050 <= after(desk, "resp_1") < 6500


def signed(number: int) -> dict:
    scope = "AKIAONE/20261130/us-east-1/bedrock/aws4_request"
    return {"authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature={number:064x}"}


def token(number: int) -> dict:
    payload = base64.urlsafe_b64encode(json.dumps({"iss": "i", "oid": "me", "exp": number}).encode()).decode()
    return {"authorization": f"Bearer h.{payload.rstrip('=')}.s{number}"}


@pytest.mark.parametrize(
    ("provider", "model", "headers"),
    [("bedrock", "openai.gpt-5.4", signed), ("azure", "gpt-5.4", token)],
    ids=["signature", "token"],
)
def test_a_chain_and_a_background_reply_are_found_again_under_the_next_signature_or_token(provider, model, headers):
    desk = Desk(config("1000"))
    path = "/openai/v1/responses"
    told = {"model": model, "service_tier": "default", "input": "hi", "max_output_tokens": 100}
    first = desk.ask(told, provider=provider, path=path, headers=headers(1))
    desk.engine.settle(first, read(reply("resp_1", 300, [SAID], model=model), first), DONE).result()

    named = desk.ask({**told, "previous_response_id": "resp_1"}, provider=provider, path=path, headers=headers(2))
    assert 350 <= named.held.call.quote.ceiling.prompt < 2000
    desk.engine.cancel(named.held.call.id)

    later = desk.ask({**told, "background": True}, provider=provider, path=path, headers=headers(3))
    queued = {"id": "resp_2", "status": "queued", "background": True}
    assert desk.engine.settle(later, read(queued, later), DONE).result() is None
    polled = desk.ask(provider=provider, method="GET", path=f"{path}/resp_2", headers=headers(4))
    asyncio.run(desk.engine.settle_polled(polled.polled, read(reply("resp_2", 300, [SAID], model=model))))
    assert desk.held() == 0
