"""What no request bounds: free, and held at nothing; or refused with the entry that helps."""

import json
import re
from pathlib import Path

import pytest
import yaml
from desks import Desk, config
from forms import MP3, sent, silence

from lockpin_core.budgets import Budget
from lockpin_core.config import Fit
from lockpin_core.engine import Answered, Passed
from lockpin_core.money import Money
from lockpin_core.providers import Metered
from lockpin_core.settler import Admitted
from lockpin_core.windows import Window

PICTURE = {"model": "gpt-image-2", "prompt": "x" * 90, "size": "1024x1024", "quality": "low"}
FREE = {
    "free": {"free": "true"},
    "mute": {"second": "0"},
    "none": {"input": "0", "output": "0"},
    "whisper-1": {"free": "true"},
    "gpt-image-1": {"free": "true"},
}
IMAGE_URL = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a/b"}}]}]
ENDLESS = [
    ("/v1/audio/transcriptions", {"model": "free", "file": MP3}),
    ("/v1/audio/transcriptions", {"model": "mute", "file": MP3}),
    ("/v1/audio/transcriptions", {"model": "whisper-1", "file": MP3}),
    ("/v1/audio/speech", {"model": "free", "input": "x", "voice": "ash"}),
    ("/v1/images/generations", {"model": "free", "prompt": "x"}),
    ("/v1/images/generations", {"model": "gpt-image-1", "prompt": "x"}),
    ("/v1/chat/completions", {"model": "free", "max_completion_tokens": 5, "messages": IMAGE_URL}),
    ("/v1/chat/completions", {"model": "none", "max_completion_tokens": 5, "messages": IMAGE_URL}),
]


def asked(desk: Desk, path: str, told: dict) -> Passed | Admitted | Answered:
    route = desk.incoming(told).provider.route("POST", path)
    assert isinstance(route, Metered)
    raw, headers = sent(route.wire, told)
    return desk.ask(raw, path=path, headers=headers)


@pytest.mark.parametrize(("path", "told"), ENDLESS)
def test_what_is_free_is_held_at_nothing_however_much_it_is(path: str, told: dict):
    desk = Desk(config("0.01", pricing=FREE))

    decision = asked(desk, path, told)

    assert isinstance(decision, Admitted), decision
    assert (decision.held.call.quote.most, decision.held.call.quote.tokens) == (Money.parse("0"), 0)
    resolved = desk.settle(decision, 500)
    assert (resolved.charge.amount, resolved.charge.tokens, resolved.over_hold) == (Money.parse("0"), 500, False)


@pytest.mark.parametrize(("path", "told"), ENDLESS)
@pytest.mark.parametrize("by_command", [False, True])
def test_what_is_free_and_has_no_bound_is_refused_where_tokens_are_limited(path: str, told: dict, by_command: bool):
    limit = Budget("tokens", "machine", Window("day"), limit_tokens=10**9, enforce=True)
    desk = Desk(config(pricing=FREE, budgets=() if by_command else (limit,)))
    if by_command:
        desk.ledger.budget_set(limit, who="ann")

    decision = asked(desk, path, told)

    assert isinstance(decision, Answered), decision
    assert decision.code == "unpriced_tool"
    message = json.loads(decision.reply.body)["error"]["message"]
    assert "it costs nothing, but a limit in tokens is in force" in message
    assert desk.kinds() == ["refusal"]


def test_what_costs_anything_is_not_free():
    dear = {"half": {"input": "0", "output": "1"}, "unsaid": {"input": "0"}, "paid": {"second": "0.1"}}
    for path, told in ENDLESS:
        for name in dear:
            decision = asked(Desk(config("0.01", pricing=dear)), path, told | {"model": name})
            assert isinstance(decision, Answered), (path, name)
            assert decision.code == "unpriced_tool"


@pytest.mark.parametrize(
    ("path", "told", "keys"),
    [
        ("/v1/images/generations", {"model": "gpt-image-1", "prompt": "x"}, {"max_output_tokens"}),
        ("/v1/images/edits", PICTURE | {"images": [{"file_id": "f"}]}, {"image_tokens"}),
        ("/v1/images/edits", PICTURE | {"model": "gpt-image-1", "images": [{"file_id": "f"}]},
         {"image_tokens", "max_output_tokens"}),
        ("/v1/audio/speech", {"model": "gpt-4o-mini-tts", "input": "x", "voice": "ash"}, {"max_output_tokens"}),
        ("/v1/audio/transcriptions", {"model": "whisper-1", "file": MP3}, {"free"}),
        ("/v1/chat/completions", {"model": "vast", "messages": IMAGE_URL}, {"image_tokens", "max_output_tokens"}),
    ],
)  # fmt: skip
def test_a_refusal_names_the_entry_that_helps_and_it_does(path: str, told: dict, keys: set[str]):
    pricing = {"vast": {"input": "1", "output": "5"}}
    decision = asked(Desk(config("100", pricing=pricing, fit=Fit(output=False))), path, told)

    assert isinstance(decision, Answered), decision
    assert decision.code == "unpriced_tool"
    message = json.loads(decision.reply.body)["error"]["message"]
    entry = yaml.safe_load(message.rpartition("add to lockpin.yaml: ")[2])["pricing"]
    assert {*entry[told["model"]]} == keys
    filled = {key: "2000" if value == "TOKENS" else str(value).lower() for key, value in entry[told["model"]].items()}
    merged = {**pricing, told["model"]: {**pricing.get(told["model"], {}), **filled}}
    assert isinstance(asked(Desk(config("100", pricing=merged, fit=Fit(output=False))), path, told), Admitted)


def test_what_the_readme_lets_go_unmetered_is_metered_nowhere():
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    (said,) = re.findall(r"^ +allow_uncapped: (\[.*?\])", readme, re.MULTILINE)
    host, _, path = yaml.safe_load(said)[0].partition("/")
    desk = Desk(config("1", allow_uncapped=tuple(yaml.safe_load(said))))

    assert host == "api.openai.com"
    decision = desk.ask({"prompt": "x"}, path="/" + path.replace("*", "/edits"))
    assert isinstance(decision, Passed)
    assert decision.uncapped == "allow_uncapped"


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/audio/transcriptions", {"file": silence(5)}),
        ("/v1/audio/transcriptions", {"file": MP3}),
        ("/v1/audio/speech", {"input": "x", "voice": "ash"}),
        ("/v1/images/generations", {"prompt": "x"}),
        ("/v1/images/edits", {"prompt": "x", "images": [{"file_id": "f"}]}),
        ("/v1/chat/completions", {"messages": IMAGE_URL}),
        ("/v1/chat/completions", {"messages": [], "audio": {}, "modalities": ["audio"]}),
        ("/v1/responses", {"input": "x", "tools": [{"type": "web_search"}], "max_tool_calls": 2}),
    ],
)
def test_who_does_what_each_refusal_says_gets_through(path: str, told: dict):
    """Each says all that it can know; after three of them the call is held."""
    entry: dict[str, object] = {}
    for _ in range(4):
        decision = asked(Desk(config("1000", pricing={"own": entry} if entry else {})), path, told | {"model": "own"})
        if isinstance(decision, Admitted):
            break
        message = json.loads(decision.reply.body)["error"]["message"]
        named = yaml.safe_load(message.rpartition("add to lockpin.yaml: ")[2])["pricing"]["own"]
        assert not named.keys() <= entry.keys(), message
        for key, value in named.items():
            entry[key] = dict.fromkeys(value, "1") if isinstance(value, dict) else "1000"
    assert isinstance(decision, Admitted), message
    assert len(entry) >= 3


def test_an_entry_that_would_take_the_shipped_prices_away_is_not_proposed():
    decision = asked(Desk(config("100", pricing={})), "/v1/audio/transcriptions", {"model": "tts-1-hd", "file": MP3})
    assert isinstance(decision, Answered)
    assert b"pricing:" not in decision.reply.body

    told = {"model": "gpt-3.5-turbo", "messages": [], "audio": {}, "modalities": ["audio"]}
    decision = asked(Desk(config("100", pricing={})), "/v1/chat/completions", told)
    assert isinstance(decision, Answered)
    assert json.loads(decision.reply.body)["error"]["message"] == "lockpin: gpt-3.5-turbo has no price for audio_out"
