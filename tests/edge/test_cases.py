"""Cases of other systems' bugs at the edge, and what a user is promised around them. Real processes, real ledger."""

import json
import re
import subprocess
import sys

import client
import processes
import pytest
from processes import until

CONFIG = """
upstreams: {{api.anthropic.com: "{origin}", api.openai.com: "{origin}"}}
pricing:
  dollar: {{input_per_mtok: 0, output_per_mtok: 1000, max_output_tokens: 1000, context_tokens: 100000}}
  open-ended: {{input_per_mtok: 0, output_per_mtok: 10, max_output_tokens: 128000, context_tokens: 400000}}
  local/*: {{free: true}}
  gpt-dear: {{input_per_mtok: 10, output_per_mtok: 100, max_output_tokens: 1000, context_tokens: 100000}}
  gpt-x: {{input_per_mtok: 1, output_per_mtok: 2, max_output_tokens: 1000, context_tokens: 100000}}
models: {{openai: {{auto: gpt-dear}}}}
daily_usd: null
queue: {{wait: 0s}}
"""
ANTHROPIC, OPENAI = "/anthropic/v1/messages", "/openai/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    home = processes.make_home(folder)
    with (
        processes.origin(folder, ledger=home / ".local/share/lockpin/ledger.sqlite3") as origin,
        processes.proxy(folder, CONFIG.format(origin=origin.url), kind=request.param, home=home) as proxy,
    ):
        yield origin, proxy


def lockpin(proxy, *arguments):
    """Run the command beside the running proxy."""
    done = subprocess.run(
        [sys.executable, "-m", "lockpin_cli.main", *arguments, "--config", str(proxy.home / "lockpin.yaml")],
        env={"HOME": str(proxy.home), "PYTHONPATH": str(processes.ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask(proxy, model, task, *, limit=None, **headers):
    body = {"model": model, "messages": HI} | ({} if limit is None else {"max_tokens": limit})
    return client.call(proxy, OPENAI, body, x_lockpin_task=task, **headers)


def test_c04_calls_without_a_limit_do_not_hold_all_that_is_left(rig):
    origin, proxy = rig
    lockpin(proxy, "task", "new", "c04", "--budget", "2000")

    answers = [ask(proxy, "open-ended", "c04") for _ in range(2)]

    assert [answer.status for answer in answers] == [200, 200]
    holds = [row["output_limit"] for row in proxy.rows("SELECT * FROM rows WHERE kind='hold' AND task='c04'")]
    assert holds == [32000, 32000]
    assert answers[0].headers["x-lockpin-output-limit"] == "32000"
    assert json.loads(origin.calls()[-1]["body"])["max_completion_tokens"] == 32000


def test_an_absent_limit_shrinks_to_what_is_left_and_not_below_the_floor(rig):
    origin, proxy = rig
    lockpin(proxy, "task", "new", "shrink", "--budget", "0.05")

    fits = ask(proxy, "open-ended", "shrink")
    lockpin(proxy, "budget", "raise", "shrink", "--by", "0.04")
    refused = ask(proxy, "open-ended", "shrink")

    # $0.05 at $10 a million is 5,000 tokens; then $0.04 is 4,000, under the floor of 4,096.
    assert (fits.status, fits.headers["x-lockpin-output-limit"], fits.headers["x-lockpin-degrade"]) == (
        200,
        "5000",
        "fit",
    )
    assert json.loads(origin.calls()[-1]["body"])["max_completion_tokens"] == 5000
    assert (refused.status, refused.json["lockpin"]["fits"]) == (402, {"max_output_tokens": 4000})


def test_c09_a_model_that_is_free_passes_a_used_up_budget(rig):
    _, proxy = rig
    lockpin(proxy, "task", "new", "c09", "--budget", "1")
    assert ask(proxy, "dollar", "c09", limit=1000).status == 200

    assert ask(proxy, "dollar", "c09", limit=1).status == 402
    assert ask(proxy, "local/llama", "c09", limit=1000).status == 200


def test_c12_free_calls_pass_a_used_up_budget(rig):
    _, proxy = rig
    lockpin(proxy, "task", "new", "c12", "--budget", "1")
    assert ask(proxy, "dollar", "c12", limit=1000).status == 200
    rows = len(proxy.rows("SELECT 1 FROM rows"))

    models = client.call(proxy, "/openai/v1/models", method="GET", x_lockpin_task="c12")
    count = client.call(
        proxy,
        "/anthropic/v1/messages/count_tokens",
        {"model": "claude-sonnet-5-5", "messages": HI},
        x_lockpin_task="c12",
    )

    assert (models.status, count.status) == (200, 200)
    assert len(proxy.rows("SELECT 1 FROM rows")) == rows


def test_d23_an_alias_is_held_as_the_dearest_and_settled_as_what_was_served(rig):
    _, proxy = rig
    lockpin(proxy, "task", "new", "d23", "--budget", "5")
    usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
    reply = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-x", "choices": [], "usage": usage}

    answer = ask(proxy, "auto", "d23", limit=100, x_origin=json.dumps({"body": json.dumps(reply)}))

    assert answer.status == 200
    (hold, charge) = proxy.rows("SELECT * FROM rows WHERE task='d23' AND kind IN ('hold', 'charge') ORDER BY id")
    assert (hold["model"], charge["model_served"]) == ("gpt-dear", "gpt-x")
    assert charge["usd"] == (100 * 1 + 50 * 2) * 1000  # nanodollars, at $1 and $2 a million


def test_d24_a_model_without_a_price_is_refused_with_the_way_out(rig):
    origin, proxy = rig
    lockpin(proxy, "task", "new", "d24", "--budget", "5")
    before = len(origin.calls())

    answer = ask(proxy, "gpt-5.9-brand-new", "d24", limit=10)

    assert (answer.status, answer.code) == (400, "unknown_model")
    assert "pricing:" in answer.json["error"]["message"]
    assert len(origin.calls()) == before


def test_h06_each_warning_comes_in_time(rig):
    _, proxy = rig
    lockpin(proxy, "task", "new", "h06", "--budget", "10")
    spends = [7400, 200, 1900]  # tokens at $1 a thousand: $7.40, $0.20, $1.90, in calls of at most 1,000
    warnings = []
    for tokens in spends:
        for piece in [1000] * (tokens // 1000) + [tokens % 1000] * bool(tokens % 1000):
            answer = ask(proxy, "dollar", "h06", limit=piece)
            assert answer.status == 200
        warnings.append(answer.headers.get("x-lockpin-task-warning"))

    refused = ask(proxy, "dollar", "h06", limit=1000, x_lockpin_degrade="off")

    assert warnings == [None, "75", "95"]
    assert (refused.status, refused.headers["x-lockpin-task-warning"]) == (402, "95")


def test_a_base_url_without_its_version_is_told_so(rig):
    _, proxy = rig
    lockpin(proxy, "task", "new", "no-version", "--budget", "5")

    answer = client.call(
        proxy, "/openai/chat/completions", {"model": "gpt-5.4", "messages": HI}, x_lockpin_task="no-version"
    )

    assert answer.code == "uncapped_call"
    assert "did the base URL lose its /v1? /v1/chat/completions is metered" in answer.json["error"]["message"]


def test_a_raise_counts_from_the_next_call_and_a_closed_task_is_closed(rig):
    _, proxy = rig
    lockpin(proxy, "task", "new", "raised", "--budget", "1")
    assert ask(proxy, "dollar", "raised", limit=1000).status == 200
    assert ask(proxy, "dollar", "raised", limit=1000).status == 402
    lockpin(proxy, "budget", "raise", "raised", "--by", "1")
    assert ask(proxy, "dollar", "raised", limit=1000).status == 200
    lockpin(proxy, "task", "close", "raised")

    closed = ask(proxy, "dollar", "raised", limit=1)

    assert (closed.status, closed.code) == (402, "task_closed")


def test_without_a_limit_what_cannot_be_metered_passes_and_is_recorded(rig):
    origin, proxy = rig
    before = len(origin.calls())

    unknown = ask(proxy, "no-such-model", "free-for-all", limit=10)
    path = client.call(proxy, "/openai/v1/videos", {"model": "e", "prompt": "x"}, x_lockpin_task="free-for-all")

    assert (unknown.status, unknown.headers["x-lockpin-uncapped"]) == (200, "unpriced")
    assert (path.status, path.headers["x-lockpin-uncapped"]) == (200, "no_limit")
    assert len(origin.calls()) == before + 2
    until(lambda: len(proxy.rows("SELECT 1 FROM rows WHERE kind='uncapped' AND task='free-for-all'")) == 2)


def test_a_priced_call_without_a_limit_takes_a_hold_and_keeps_its_body(rig):
    origin, proxy = rig

    answer = ask(proxy, "open-ended", "nobody")

    assert answer.status == 200
    assert "max_completion_tokens" not in json.loads(origin.calls()[-1]["body"])
    (hold,) = proxy.rows("SELECT * FROM rows WHERE kind='hold' AND task='nobody'")
    assert hold["usd"] == 128000 * 10 * 1000


def test_a_plan_login_passes_byte_for_byte(rig):
    origin, proxy = rig
    body = b'{"model": "claude-sonnet-5-5",  "max_tokens": 10, "stream": false, "messages": [{"role":"user","content":"hi"}]}'

    answer = client.call(proxy, ANTHROPIC, body, x_lockpin_task="plan", authorization="Bearer sk-ant-oat01-secret")

    assert answer.status == 200
    assert origin.calls()[-1]["body"].encode() == body
    (hold,) = proxy.rows("SELECT * FROM rows WHERE kind='hold' AND task='plan'")
    assert hold["billing"] == "subscription"


def test_the_task_comes_from_header_then_proxy_user_then_path_then_session(rig):
    _, proxy = rig
    session = {"x_claude_code_session_id": "5e55", "user_agent": "claude-cli/2.1.197 (external)"}
    body = {"model": "claude-sonnet-5-5", "max_tokens": 5, "messages": HI}
    basic = "Basic dXNlciUyNTpw"  # user%25:p

    client.call(
        proxy, "/t/path%20task" + ANTHROPIC, body, x_lockpin_task="head%20er", proxy_authorization=basic, **session
    )
    client.call(proxy, "/t/path%20task" + ANTHROPIC, body, proxy_authorization=basic, **session)
    client.call(proxy, "/t/path%20task" + ANTHROPIC, body, **session)
    client.call(proxy, ANTHROPIC, body, **session)
    client.call(proxy, ANTHROPIC, body)

    tasks = [row["task"] for row in proxy.rows("SELECT task FROM rows WHERE kind='hold' ORDER BY id DESC LIMIT 5")]
    assert tasks[::-1] == ["head er", "user%25", "path task", "5e55", "default"]


KEYS = {
    "x_api_key": "sk-ant-api03-CANARYKEY1",
    "authorization": "Bearer sk-CANARYKEY2",
    "x_goog_api_key": "AIzaCANARYKEY3",
}
PROMPT = "UNIQUE-CANARY-123"


def test_i01_i02_no_key_and_no_prompt_in_any_file_or_output(tmp_path):
    """Success, 401, unknown model, malformed, refused, an error that echoes the prompt, a fault: nothing is kept."""
    with (
        processes.origin(tmp_path) as origin,
        processes.proxy(tmp_path, CONFIG.format(origin=origin.url).replace("null", "1")) as proxy,
    ):
        good = {"model": "claude-sonnet-5-5", "max_tokens": 5, "messages": [{"role": "user", "content": PROMPT}]}
        echo = json.dumps({"status": 400, "body": json.dumps({"error": {"message": PROMPT, "type": "x"}})})
        for base, more in [
            (ANTHROPIC, {}), (ANTHROPIC, {"x_origin": '{"status": 401, "body": "{}"}'}), (ANTHROPIC, {"x_origin": echo}),
            (ANTHROPIC + "?key=CANARYKEY4", {}), ("/openai/v1/nonsense?key=CANARYKEY4", {}),
            (ANTHROPIC, {"x_lockpin_tag": PROMPT}), (ANTHROPIC, {"x_origin": '{"close": "before"}'}),
        ]:  # fmt: skip
            client.call(proxy, base, good, **KEYS, **more)
        client.call(proxy, ANTHROPIC, good | {"model": "unknown-model"}, **KEYS)
        client.call(proxy, ANTHROPIC, good | {"max_tokens": 10**6}, **KEYS)
        client.call(proxy, ANTHROPIC, json.dumps(good)[:-9].encode(), **KEYS)
        client.call(proxy, ANTHROPIC, good | {PROMPT: {"nested": PROMPT}}, **KEYS)
        client.call(proxy, ANTHROPIC, good | {"max_tokens": PROMPT}, **KEYS)
        until(lambda: not proxy.rows("SELECT 1 FROM open_holds"))
        lockpin(proxy, "calls", "--format", "json")
        proxy.stop()

        found = [path for path in proxy.home.rglob("*") if path.is_file() and "CANARYKEY" in path.read_text("latin-1")]
        assert found == []
        found = [path for path in proxy.home.rglob("*") if path.is_file() and PROMPT in path.read_text("latin-1")]
        assert found == []


def test_a_ledger_that_is_gone_is_a_503_until_it_is_back(tmp_path):
    with (
        processes.origin(tmp_path) as origin,
        processes.proxy(tmp_path, CONFIG.format(origin=origin.url).replace("null", "25")) as proxy,
    ):
        assert ask(proxy, "dollar", "t", limit=1).status == 200
        moved = proxy.ledger.with_name("moved")
        proxy.ledger.rename(moved)
        before = len(origin.calls())

        answer = ask(proxy, "dollar", "t", limit=1)
        health = client.call(proxy, "/lockpin/healthz", method="GET")
        moved.rename(proxy.ledger)
        until(lambda: client.call(proxy, "/lockpin/healthz", method="GET").status == 200)
        again = ask(proxy, "dollar", "t", limit=1)

        assert (answer.status, answer.code) == (503, "ledger_unavailable")
        assert re.fullmatch(r"\d+", answer.headers["retry-after"])
        assert (health.status, health.json["status"]) == (503, "refusing")
        assert again.status == 200
        assert len(origin.calls()) == before + 1
