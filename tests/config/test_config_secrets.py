from pathlib import Path

import pytest

from lockpin_core.clock import utc_now
from lockpin_core.config import Config, Places, load
from lockpin_core.config_secrets import masked
from lockpin_core.config_warnings import warnings
from lockpin_core.errors import ConfigError
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.providers import Providers

# Made up, in the forms that keys have.
SECRETS = [
    "sk-ant-api03-Qm4xT9vLr2",
    "sk-proj-abcdefgh",
    "lp_live_abcd",
    "AIzaSyD4mZ0n8Qw7",
    "a8Kq2LmZ93xYtB7vNc41",
    "0f4c2e8a9b7d4c1e8f3a5b6c7d8e9f01",
    "550e8400-e29b-41d4-a716-446655440000",
    "Zx81-kq0Lm_29vBnT5yPw",
]
PLACES = [
    "{}",
    "{}: 5",
    "mode: {}",
    "fit: {{output_max: {}}}",
    "{}: {{a: 1}}",
    "task: {{{}: 1}}",
    "budgets: [{{name: {}, scope: task}}]",
    "budgets: [{{name: a, {}: b}}]",
    "budgets: [{{name: {0}, scope: task, window: day, limit_usd: 1}}, {{name: {0}, scope: task, window: day}}]",
    "upstreams: {{a.b: {}}}",
    "upstreams: {{'{} /': 'http://b'}}",
    "upstreams: {{a.b: 'http://{}@b'}}",
    "upstreams: {{a.b: 'http://me:{}/x@b'}}",
    "upstreams: {{a.b: 'http://b/?key={}'}}",
    "upstreams: {{a.b: 'http://b/#{}'}}",
    "allow_uncapped: ['{} x']",
    "ledger: postgresql://me:{}@db/lockpin",
    "ledger: me:{}@db",
    "alerts: ['https://hooks.example/{}']",
    "keys: {{{}: a}}",
    "mode: *{}",
    "mode: !{} x",
    "pricing: {{{}: {{input_per_mtok: x}}}}",
    "pricing: {{m: {{{}: 1}}}}",
    "pricing: {{m: {{input_per_mtok: {}}}}}",
    "timezone: {}",
    "daily_usd: {}",
]


def refuse(text: str, folder: Path, **options: str) -> str:
    file = folder / "lockpin.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load(file, options=options, env={}, places=Places(folder, folder, folder))
    return str(raised.value)


def parts(secret: str) -> list[str]:
    """Give the pieces of a secret that no message may have: all but how it begins."""
    return [secret, secret[-8:], secret[6:14]]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("place", PLACES)
def test_mistyped_secret_is_in_no_message(place: str, secret: str, tmp_path: Path):
    message = refuse(place.format(secret), tmp_path)

    assert [part for part in parts(secret) if part in message] == []
    assert str(tmp_path) in message


@pytest.mark.parametrize("secret", SECRETS)
def test_mistyped_secret_is_in_no_message_about_an_option(secret: str, tmp_path: Path):
    for options in ({"mode": secret}, {secret: "x"}, {"daily_usd": secret}):
        assert secret not in refuse("", tmp_path, **options)


def test_key_as_the_file_to_read_is_hidden(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"^sk-…: cannot be read"):
        load(Path("sk-ant-api03-Qm4xT9vLr2"), env={}, places=Places(tmp_path, tmp_path, tmp_path))


@pytest.mark.parametrize("secret", SECRETS)
def test_mistyped_secret_is_in_no_warning(secret: str):
    config = Config(
        file=None,
        ledger=Path("/l"),
        models={"openai": {secret: "no-such"}, secret: {"a": secret}},
        allow_uncapped=(f"a.example/v1?key={secret}", f"a.example/{secret}*"),
        upstreams={f"{secret.lower()}.example": object()},  # type: ignore[dict-item]
    )

    found = warnings(config, PriceTable.load(shipped_dir()), Providers.load(shipped_dir()), at=utc_now())

    assert len(found) >= 5
    for line in found:
        assert [part for part in (*parts(secret), *parts(secret.lower())) if part in line] == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("mode is sk-ant-abcdefgh;", "mode is sk-…;"),
        ('"lp_abcdefgh"', '"lp_…"'),
        ("https://me:pass@h/x", "https://…@h/x"),
        ("https://h/x?key=abc&b=c and", "https://h/x?… and"),
        ("h.example/v1?key=abc", "h.example/v1?…"),
    ],
)
def test_what_is_hidden_leaves_an_ellipsis(text: str, wanted: str):
    assert masked(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "claude-3-5-sonnet-20241022",
        "anthropic.claude-opus-4-1-20250805-v1:0",
        "gpt-4o-mini-search-preview-2025-03-11",
        "meta-llama/Llama-3-1-405B-Instruct-FP8",
        "deepseek-r1-distill-llama-70b",
        "budgets[0].limit_usd",
        "task-1 and disk-space1",
        "max_estimated_output_tokens",
        "api.openai.com/v1/videos*",
        "api.openai.com/v1/video?/*",
        "lockpin.yaml:12: budgets[0].name",
        "upstreams.http://a is no host",
        "Europe/Berlin, 08:00 to 17:00",
    ],
)
def test_name_is_no_secret(text: str):
    assert masked(text) == text


def test_every_shipped_model_may_be_named():
    assert [model.id for model in PriceTable.load(shipped_dir()).models() if masked(model.id) != model.id] == []
