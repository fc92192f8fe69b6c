"""A person is asked over real sockets: real proxies, the real command as the watcher, answers from another shell.

A token of output costs a hundredth of a cent. The task has a dollar, 90 cents of it are spent, and the call that is
asked about may cost 50: it is short by 40.
"""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import client
import processes
import pytest
import sdks
from processes import until

from lockpin_core.clock import new_id, utc_now
from lockpin_core.ledger.admin import SqliteAdmin
from lockpin_core.ledger.verify import verify
from lockpin_core.ledger.watchers import watching
from lockpin_core.money import Money

PATH = "/openai/v1/chat/completions"
CONFIG = """
upstreams: {{api.openai.com: "{origin}"}}
ledger: sqlite://{ledger}
pricing:
  ask-model: {{input_per_mtok: 0, output_per_mtok: 100, max_output_tokens: 9000, context_tokens: 100000}}
daily_usd: null
task: {{budget_usd: 1}}
degrade: off
queue: {{wait: 0s}}
approvals: {{wait: {wait}}}
drain: 1s
"""
CENT = 10**7
WAITED = "x-lockpin-waited-ms"


@dataclass
class Rig:
    origin: processes.Origin
    folder: Path
    ledger: Path
    config: str
    stack: contextlib.ExitStack
    proxies: list[processes.Proxy] = field(default_factory=list)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(16))

    @property
    def proxy(self) -> processes.Proxy:
        return self.proxies[-1]

    def start(self, kind: str = "up") -> processes.Proxy:
        self.proxies.append(self.stack.enter_context(processes.proxy(self.folder, self.config, kind=kind)))
        self.proxy.ledger = self.ledger
        return self.proxy

    def rows(self, query: str, *values: object) -> list:
        return self.proxy.rows(query, *values)

    def events(self, code: str) -> list[dict]:
        return [json.loads(row["data"]) for row in self.rows("SELECT data FROM rows WHERE code = ? ORDER BY id", code)]

    def questions(self) -> list:
        return self.rows("SELECT * FROM questions ORDER BY asked")

    def asked(self, count: int = 1) -> str:
        """Wait until so many questions were put; give the id of the last."""
        return until(lambda: len(found := self.questions()) == count and found[-1])["id"]

    def ask(self, *, limit: int = 5000, proxy: processes.Proxy | None = None, text: str = "hi") -> Future:
        return self.pool.submit(ask, proxy or self.proxy, limit, text=text)

    def answer(self, *words: str) -> str:
        """Answer by the real command, in a process of its own."""
        settings = self.proxies[0].home / "lockpin.yaml"
        command = [sys.executable, "-m", "lockpin_cli.main", "approvals", "answer", *words, "--config", str(settings)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=processes.ROOT, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def watch(self) -> subprocess.Popen:
        """Let somebody watch until the end, in a pipe."""
        settings = self.proxies[0].home / "lockpin.yaml"
        command = [sys.executable, "-m", "lockpin_cli.main", "approvals", "watch", "--config", str(settings)]
        shown = self.folder / "watched.jsonl"
        with shown.open("wb") as out:
            watcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, cwd=processes.ROOT)
        self.stack.callback(processes.end, watcher)
        until(lambda: watching(self.ledger))
        return watcher

    def watched(self) -> list[dict]:
        return [json.loads(line) for line in (self.folder / "watched.jsonl").read_text().splitlines()]

    def limit(self) -> int:
        """Give the limit of the task now, in cents."""
        (row,) = self.rows("SELECT raised_nano FROM accounts WHERE scope = 'task' AND subject = 't'")
        return 100 + row["raised_nano"] // CENT

    def assert_true_books(self) -> None:
        until(lambda: not self.rows("SELECT 1 FROM open_holds"))
        assert not self.rows("SELECT 1 FROM allowances")
        assert verify(self.ledger).wrong is None


@contextlib.contextmanager
def running(folder: Path, *kinds: str, wait: str = "40s") -> Iterator[Rig]:
    """Start an origin and proxies on one ledger, and spend 90 of the task's hundred cents."""
    ledger = folder / "shared" / "ledger.sqlite3"
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(processes.origin(folder))
        rig = Rig(origin, folder, ledger, CONFIG.format(origin=origin.url, wait=wait, ledger=ledger), stack)
        for kind in kinds or ("up",):
            rig.start(kind)
        stack.callback(rig.pool.shutdown)
        assert ask(rig.proxy, 9000, cost=9000).status == 200
        yield rig


def ask(proxy: processes.Proxy, limit: int, *, cost: int = 1000, text: str = "hi") -> client.Answer:
    body = {"model": "ask-model", "max_tokens": limit, "messages": [{"role": "user", "content": text}]}
    return client.call(
        proxy, PATH, body, patience_s=90, x_lockpin_task="t", x_origin=sdks.order(body=reply(cost))["x-origin"]
    )


def reply(tokens: int) -> str:
    usage = {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": 10 + tokens}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}
    return json.dumps(
        {"id": "c", "object": "chat.completion", "model": "ask-model", "choices": [choice], "usage": usage}
    )


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_a_call_that_is_allowed_once_goes_and_the_limit_is_what_it_was(kind, tmp_path):
    with running(tmp_path, kind) as rig:
        rig.watch()
        call = rig.ask()
        question = rig.asked()

        assert not rig.rows("SELECT 1 FROM open_holds")  # nothing is held while it is open
        assert len(rig.origin.calls()) == 1
        shown = until(rig.watched)[0]
        assert (shown["id"], shown["task"], shown["needed_usd"], shown["short_by_usd"]) == (question, "t", 0.5, 0.4)
        assert [choice["answer"] for choice in shown["choices"]] == ["once", "raise", "refuse"]
        rig.answer(question, "once")
        answered = call.result(60)

        assert answered.status == 200
        assert int(answered.headers[WAITED]) > 0
        assert [each["by_nano"] for each in rig.events("allowed_once")] == [40 * CENT]
        until(lambda: rig.events("allowance_ended"))
        assert [each["by_nano"] for each in rig.events("allowance_ended")] == [40 * CENT]  # it cost ten cents of fifty
        assert rig.limit() == 100
        again = rig.ask()  # the same call: the answer is used, and nobody answers this one
        assert rig.asked(2) != question
        rig.answer(rig.asked(2), "refuse")
        assert again.result(60).status == 402
        rig.assert_true_books()


def test_a_limit_that_is_raised_lets_the_call_and_the_next_go(tmp_path):
    with running(tmp_path) as rig:
        rig.watch()
        call = rig.ask()

        rig.answer(rig.asked(), "raise", "--by", "2")

        assert call.result(60).status == 200
        assert ask(rig.proxy, 5000, text="another").status == 200
        assert len(rig.questions()) == 1
        assert rig.limit() == 300
        rig.assert_true_books()


def test_a_call_that_is_refused_is_refused_once(tmp_path):
    with running(tmp_path) as rig:
        rig.watch()
        call = rig.ask()

        rig.answer(rig.asked(), "refuse")
        refused = call.result(60)

        assert (refused.status, refused.code) == (402, "budget_exceeded")
        assert refused.headers["x-should-retry"] == "false"
        assert int(refused.headers[WAITED]) > 0
        again = ask(rig.proxy, 5000)
        assert (again.status, again.headers.get(WAITED)) == (402, None)  # sent again, it does not ask again
        assert len(rig.questions()) == 1
        assert len(rig.origin.calls()) == 1
        rig.assert_true_books()


def test_without_an_answer_in_time_it_is_refused(tmp_path):
    with running(tmp_path, wait="1s") as rig:
        rig.watch()
        refused = ask(rig.proxy, 5000)

        assert (refused.status, refused.code) == (402, "budget_exceeded")
        assert int(refused.headers[WAITED]) >= 1000
        until(lambda: [each["state"] for each in rig.watched()][-1:] == ["over"])
        assert len(rig.origin.calls()) == 1


def test_where_nobody_watches_it_is_refused_at_once(tmp_path):
    with running(tmp_path) as rig:
        refused = ask(rig.proxy, 5000)

        assert (refused.status, refused.code, refused.headers.get(WAITED)) == (402, "budget_exceeded", None)
        assert rig.questions() == []


def test_a_watcher_that_was_killed_is_gone(tmp_path):
    with running(tmp_path) as rig:
        watcher = rig.watch()
        watcher.send_signal(signal.SIGKILL)
        until(lambda: not watching(rig.ledger))  # ten seconds

        assert ask(rig.proxy, 5000).status == 402
        assert rig.questions() == []


def test_a_call_that_waits_sees_room_a_watcher_who_left_and_a_task_that_was_closed(tmp_path):
    """Each time long before the forty seconds that it would wait for a person are over."""
    with running(tmp_path) as rig:
        watcher = rig.watch()
        admin = SqliteAdmin(rig.ledger, clock=utc_now, new_id=new_id)
        first = rig.ask()
        rig.asked()
        admin.task_new("t", limit=Money(140 * CENT), window="lifetime", who="ann")
        assert first.result(25).status == 200  # it costs ten cents: a dollar is spent
        second = rig.pool.submit(ask, rig.proxy, 5000, text="second")
        rig.asked(2)
        processes.end(watcher)
        assert second.result(25).code == "budget_exceeded"
        rig.watch()
        third = rig.pool.submit(ask, rig.proxy, 5000, text="third")
        rig.asked(3)
        admin.task_close("t", who="ann")

        assert third.result(25).code == "task_closed"
        assert len(rig.origin.calls()) == 2
        rig.assert_true_books()


def test_a_client_that_leaves_and_sends_again_joins_its_question(tmp_path):
    with running(tmp_path) as rig:
        rig.watch()
        body = json.dumps({"model": "ask-model", "max_tokens": 5000, "messages": [{"role": "user", "content": "hi"}]})
        host = f"127.0.0.1:{rig.proxy.port}"
        head = f"POST {PATH} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nx-lockpin-task: t\r\n"
        with socket.create_connection(("127.0.0.1", rig.proxy.port), 10) as leaving:
            leaving.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
            question = rig.asked()
        until(lambda: client.call(rig.proxy, "/lockpin/healthz", method="GET").json["open_calls"] == 0)
        call = rig.ask()

        rig.answer(question, "once")

        assert call.result(60).status == 200
        assert len(rig.questions()) == 1
        until(lambda: rig.events("allowance_ended"))
        assert rig.limit() == 100
        rig.assert_true_books()


@pytest.mark.parametrize("kinds", [("up",), ("mitmdump", "up")], ids=["one", "two"])
def test_ten_of_the_same_ask_one_question_and_one_of_them_goes(kinds, tmp_path):
    with running(tmp_path, *kinds) as rig:
        rig.watch()
        start = threading.Barrier(10)

        def one(index: int) -> client.Answer:
            start.wait(30)
            return ask(rig.proxies[index % len(rig.proxies)], 5000)

        calls = [rig.pool.submit(one, index) for index in range(10)]
        question = rig.asked()
        rig.answer(question, "once")
        answers = [call.result(90) for call in calls]

        assert sorted(answer.status for answer in answers) == [200] + [402] * 9
        assert len(rig.events("allowed_once")) == 1
        assert len(rig.origin.calls()) == 2
        until(lambda: rig.events("allowance_ended"))
        assert rig.limit() == 100
        rig.assert_true_books()


def test_an_answer_is_good_after_the_proxy_was_started_anew(tmp_path):
    with running(tmp_path) as rig:
        rig.watch()
        call = rig.ask()
        question = rig.asked()
        rig.proxy.stop(signal.SIGKILL)
        with contextlib.suppress(OSError, client.http.client.HTTPException):
            call.result(60)

        rig.answer(question, "once")
        rig.start()
        answered = ask(rig.proxy, 5000)

        assert answered.status == 200
        assert len(rig.questions()) == 1
        until(lambda: rig.events("allowance_ended"))
        assert rig.limit() == 100
        rig.assert_true_books()


def test_a_proxy_that_is_told_to_end_does_not_wait_for_an_answer(tmp_path):
    with running(tmp_path) as rig:
        rig.watch()
        call = rig.ask()
        rig.asked()

        assert rig.proxy.stop() == 0

        with contextlib.suppress(OSError, client.http.client.HTTPException):
            assert call.result(60).status == 503
        rig.assert_true_books()


def test_what_was_allowed_is_taken_back_when_the_proxy_is_killed_under_the_call(tmp_path):
    """Whoever settles what a dead proxy held ends what was allowed with it: all of it is charged, and used."""
    gate = tmp_path / "gate"
    with running(tmp_path) as rig:
        watcher = rig.watch()
        body = {"model": "ask-model", "max_tokens": 5000, "messages": [{"role": "user", "content": "hi"}]}
        order = sdks.order(body=reply(1000), head_gate=str(gate))["x-origin"]
        call = rig.pool.submit(client.call, rig.proxy, PATH, body, patience_s=90, x_lockpin_task="t", x_origin=order)
        rig.answer(rig.asked(), "once")
        until(lambda: rig.rows("SELECT 1 FROM allowances"))
        assert rig.limit() == 140
        until(lambda: len(rig.origin.calls()) == 2)
        rig.proxy.stop(signal.SIGKILL)
        gate.touch()
        with contextlib.suppress(OSError, client.http.client.HTTPException):
            call.result(60)

        rig.start()
        until(lambda: rig.events("allowance_ended"))

        assert [each["by_nano"] for each in rig.events("allowance_ended")] == [0]
        (row,) = rig.rows("SELECT spent_nano FROM accounts WHERE scope = 'task' AND subject = 't'")
        assert (row["spent_nano"], rig.limit()) == (140 * CENT, 140)
        processes.end(watcher)
        assert ask(rig.proxy, 1, text="more").status == 402
        rig.assert_true_books()
