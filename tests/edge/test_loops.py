"""Agents that go round in a circle, over real sockets: with nobody who watches, with somebody, and after a restart."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import client
import processes
import pytest
import sdks
from processes import until
from transcripts import Use, chat, near

from lockpin_core.ledger.verify import verify

PATH = "/openai/v1/chat/completions"
CONFIG = """
upstreams: {{api.openai.com: "{origin}"}}
pricing:
  race-model: {{input_per_mtok: 0, output_per_mtok: 100, max_output_tokens: 9000, context_tokens: 100000}}
ledger: sqlite://{ledger}
loop: {{repeats: {repeats}, action: {action}}}
"""
SAME = [[Use("ls", {"path": "src"}, "a.py")]]
TOLD = "x-lockpin-loop"
USAGE = {"prompt_tokens": 10, "completion_tokens": 100, "total_tokens": 110}


def reply() -> str:
    message = {"role": "assistant", "content": "ok"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return json.dumps(
        {"id": "c", "object": "chat.completion", "model": "race-model", "choices": [choice]} | {"usage": USAGE}
    )


def ask(proxy: processes.Proxy, turns, task: str = "t") -> client.Answer:
    body = chat(turns) | {"model": "race-model", "max_tokens": 1000}
    told = {"x_lockpin_task": task, "x_origin": sdks.order(body=reply())["x-origin"]}
    return client.call(proxy, PATH, body, patience_s=90, **told)


def command(proxy: processes.Proxy, *told: str) -> list[str]:
    return [sys.executable, "-m", "lockpin_cli.main", *told, "--config", str(proxy.home / "lockpin.yaml")]


def run(proxy: processes.Proxy, *told: str) -> str:
    """Run a command in a process of its own."""
    done = subprocess.run(
        command(proxy, *told), capture_output=True, text=True, cwd=processes.ROOT, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def watching(proxy: processes.Proxy) -> Iterator[None]:
    """Let somebody watch."""
    watcher = subprocess.Popen(
        command(proxy, "approvals", "watch"), cwd=processes.ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    folder = proxy.ledger.with_name(f"{proxy.ledger.name}.watchers")
    try:
        until(lambda: folder.is_dir() and any(folder.iterdir()))
        yield
    finally:
        watcher.terminate()
        watcher.wait(30)


@contextlib.contextmanager
def running(
    folder: Path, action: str = "ask", repeats: int = 20, kind: str = "up"
) -> Iterator[tuple[processes.Origin, processes.Proxy]]:
    with processes.origin(folder) as origin:
        ledger = folder / "shared" / "ledger.sqlite3"
        config = CONFIG.format(origin=origin.url, action=action, repeats=repeats, ledger=ledger)
        with processes.proxy(folder, config, kind=kind) as proxy:
            proxy.ledger = ledger
            yield origin, proxy


def question(proxy: processes.Proxy) -> str:
    """Wait until somebody is asked."""
    (row,) = until(lambda: proxy.rows("SELECT id FROM questions WHERE answer IS NULL"))
    return row["id"]


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_where_nobody_watches_calls_pass_and_say_so(kind, tmp_path):
    with running(tmp_path, kind=kind) as (origin, proxy):
        answers = [ask(proxy, [near(n) for n in range(turns)]) for turns in (17, 18, 19, 20)]

        assert [answer.status for answer in answers] == [200] * 4
        told = [answer.headers.get(TOLD) for answer in answers]
        assert told == [None, None, "near_repeats; repeats=20", "near_repeats; repeats=21"]
        assert len(origin.calls()) == 4
        until(lambda: proxy.rows("SELECT 1 FROM rows WHERE kind = 'event' AND code = 'loop_found'"))
        events = json.loads(run(proxy, "ledger", "events", "--format", "json"))
        found = [event for event in events if event["code"] == "loop_found"]
        assert [event["data"]["call"] for event in found] == [answers[2].headers["x-lockpin-call"]]
        assert (found[0]["task"], found[0]["data"]["tools"]) == ("t", ["search"])


def test_a_loop_that_was_told_of_is_not_told_of_again_after_a_restart(tmp_path):
    for turns in (19, 20):
        with running(tmp_path, "warn") as (_, proxy):
            assert ask(proxy, SAME * turns).headers[TOLD] == f"same_tool_call; repeats={turns + 1}"
            until(lambda: not proxy.rows("SELECT 1 FROM open_holds"))

    found = proxy.rows("SELECT 1 FROM rows WHERE kind = 'event' AND code = 'loop_found'")
    assert len(found) == 1


def test_a_question_of_a_loop_holds_its_task_up_and_stop_stops_it_until_it_is_resumed(tmp_path):
    with running(tmp_path) as (origin, proxy), ThreadPoolExecutor(4) as pool, watching(proxy):
        assert ask(proxy, SAME * 18).headers.get(TOLD) is None
        looping: Future[client.Answer] = pool.submit(ask, proxy, SAME * 19)
        asked = question(proxy)
        beside = pool.submit(ask, proxy, [])
        assert ask(proxy, [], task="other").status == 200
        assert not looping.done()
        assert not beside.done()
        assert not proxy.rows("SELECT 1 FROM open_holds")

        run(proxy, "approvals", "answer", asked, "stop")
        answers = [looping.result(90), beside.result(90)]

        assert [(answer.status, answer.code) for answer in answers] == [(429, "loop_stopped")] * 2
        assert int(answers[0].headers["x-lockpin-waited-ms"]) > 0
        assert ask(proxy, []).code == "loop_stopped"
        assert ask(proxy, [], task="other").status == 200
        assert len(origin.calls()) == 3

        run(proxy, "task", "resume", "t")
        answer = ask(proxy, SAME * 19)
        assert (answer.status, answer.headers[TOLD]) == (200, "same_tool_call; repeats=20")
        until(lambda: not proxy.rows("SELECT 1 FROM open_holds"))
        assert verify(proxy.ledger).wrong is None


def test_a_question_holds_its_task_up_at_every_proxy_on_the_ledger(tmp_path):
    with running(tmp_path, repeats=3) as (origin, proxy), ThreadPoolExecutor(4) as pool, watching(proxy):
        config = CONFIG.format(origin=origin.url, action="ask", repeats=3, ledger=proxy.ledger)
        with processes.proxy(tmp_path, config, kind="up") as other:
            assert ask(other, [], task="other").status == 200
            looping: Future[client.Answer] = pool.submit(ask, proxy, SAME * 2)
            asked = question(proxy)
            beside = pool.submit(ask, other, [])
            with pytest.raises(TimeoutError):
                beside.result(2)

            run(proxy, "approvals", "answer", asked, "stop")

            assert [answer.result(90).code for answer in (looping, beside)] == ["loop_stopped"] * 2
            assert len(origin.calls()) == 1


def test_continue_lets_a_loop_go_on_and_nobody_is_asked_about_it_again_at_once(tmp_path):
    with running(tmp_path, repeats=3) as (origin, proxy), ThreadPoolExecutor(4) as pool, watching(proxy):
        looping: Future[client.Answer] = pool.submit(ask, proxy, SAME * 2)
        run(proxy, "approvals", "answer", question(proxy), "continue")
        answer = looping.result(90)
        assert (answer.status, answer.headers[TOLD]) == (200, "same_tool_call; repeats=3")

        assert [ask(proxy, SAME * turns).headers[TOLD] for turns in (3, 4)] == [
            f"same_tool_call; repeats={count}" for count in (4, 5)
        ]
        again = pool.submit(ask, proxy, SAME * 5)
        run(proxy, "approvals", "answer", question(proxy), "continue")
        assert again.result(90).status == 200
        assert len(origin.calls()) == 4


def test_the_task_of_a_loop_is_stopped_at_once_where_the_configuration_says_so(tmp_path):
    with running(tmp_path, action="stop", repeats=3) as (origin, proxy):
        answers = [ask(proxy, SAME * turns) for turns in range(4)]

        assert [answer.status for answer in answers] == [200, 200, 429, 429]
        assert answers[2].json["lockpin"]["code"] == "loop_stopped"
        assert "task resume" in answers[2].json["error"]["message"]
        assert len(origin.calls()) == 2
