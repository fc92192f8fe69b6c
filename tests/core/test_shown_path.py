"""Paths in lines and rows: what a client put there by mistake is not kept."""

import json

import pytest
from desks import Desk, config

from lockpin_core.admission_shown import shown_path
from lockpin_core.engine import Answered
from lockpin_core.settler import Admitted

SECRET = "sk-proj-Zq81mT0nSecretSecret"
KEY = "lp_" + "a1" * 26


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/responses/resp_68a1f0c2b7d48193a1b2c3d4e5f60718", "/v1/responses/resp_68a1f0c2b7d48193a1b2c3d4e5f60718"),
        (f"/v1/chat/completions;key={SECRET}", "/v1/chat/completions"),
        (f"/v1/chat/completions%3Fkey={SECRET}", "/v1/chat/completions"),
        (f"/v1/chat/completions%3fapi_key%3D{SECRET}", "/v1/chat/completions"),
        (f"/v1/key={SECRET}/chat", "/v1/"),
        (f"/v1/{SECRET}/chat/completions", "/v1/.../chat/completions"),
        ("/v1/AIzaSyA1234567890abcdefghijklmno/x", "/v1/.../x"),
        (f"/v1/{KEY}/x", "/v1/.../x"),
        (f"/v1/lp%5F{KEY[3:]}/x", "/v1/.../x"),
        (f"/v1/lp%255f{KEY[3:]}/x", "/v1/.../x"),
        ("/v1/caf%C3%A9/%2e%2e/x", "/v1/caf%C3%A9/%2e%2e/x"),  # as it was sent
    ],
)
def test_path_is_shown_without_what_may_be_a_key(path: str, shown: str):
    assert shown_path(path) == shown


@pytest.mark.parametrize("path", [f"/v1/x;key={SECRET}", f"/v1/x%3Fkey={SECRET}", f"/v1/{SECRET}/x"])
def test_a_refused_call_keeps_no_key_of_its_path(path: str):
    desk = Desk(config("1"))
    decision = desk.ask({}, path=path)

    assert isinstance(decision, Answered)
    assert SECRET not in decision.reply.body.decode()
    assert json.loads(decision.reply.body)["lockpin"]["code"] == "uncapped_call"
    assert SECRET not in repr(desk.ledger.rows)


@pytest.mark.parametrize("secret", [KEY, f"lp%5F{KEY[3:]}"])
def test_a_refused_call_keeps_no_key_in_the_place_of_its_model(secret: str):
    desk = Desk(config("1"))
    decision = desk.ask({"model": secret, "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]})

    assert isinstance(decision, Answered)
    told = json.loads(decision.reply.body)
    assert (told["lockpin"]["code"], told["lockpin"]["receipt"]["model"]) == ("unknown_model", "...")
    assert secret[5:] not in decision.reply.body.decode() + repr(desk.ledger.rows)


@pytest.mark.parametrize("secret", [KEY, f"local/{KEY}"])
def test_a_price_for_any_name_lets_no_key_be_one(secret: str):
    desk = Desk(config("1", pricing={"*": {"free": "true"}}))
    told = {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    assert isinstance(desk.ask(told | {"model": "local/plain"}), Admitted)

    decision = desk.ask(told | {"model": secret})

    assert isinstance(decision, Answered)
    assert json.loads(decision.reply.body)["lockpin"]["code"] == "unknown_model"
    assert KEY not in decision.reply.body.decode() + repr(desk.ledger.rows)
