"""`lockpin run` with real proxies, real commands and an origin on this machine."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import processes
import pytest
from processes import RIG, ROOT, free_port, until

from lockpin_cli.listener import Health, health
from lockpin_core.ledger.liveness import Liveness
from lockpin_core.ledger.place import mark

# One call, as an SDK makes it: through HTTPS_PROXY, trusting what SSL_CERT_FILE says.
AGENT = """
import json, sys, urllib.error, urllib.request
body = {"model": "claude-sonnet-5-5", "max_tokens": int(sys.argv[1]), "messages": [{"role": "user", "content": "hi"}]}
headers = {"content-type": "application/json", "x-api-key": "k"}
request = urllib.request.Request("https://api.anthropic.com/v1/messages", json.dumps(body).encode(), headers)
try:
    print(urllib.request.urlopen(request, timeout=20).status)
except urllib.error.HTTPError as error:
    print(error.code, json.load(error)["error"]["message"])
"""
# A command that says it is there, then waits for a file to appear.
PATIENT = """
import pathlib, sys, time
print("there", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
"""
# A command that says which signal came. It waits for one that may have come already.
LISTENER = """
import os, signal, sys
awaited = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
os.write(1, b"there\\n")
print(signal.Signals(signal.sigwait(awaited)).name)
sys.exit(7)
"""
# A command that says each signal that comes; at SIGUSR1 it ends with the number of those before.
COUNTER = """
import os, signal, sys
awaited = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
os.write(1, b"there\\n")
heard = []
while signal.SIGUSR1 not in heard:
    heard.append(signal.sigwait(awaited))
    os.write(1, f"{heard[-1].name}\\n".encode())
sys.exit(len(heard) - 1)
"""


@dataclass
class Desk:
    """A user's home, with the command and what it started."""

    home: Path
    port: int
    begun: list[subprocess.Popen] = field(default_factory=list)

    @property
    def ledger(self) -> Path:
        return self.home / ".local/share/lockpin/ledger.sqlite3"

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-W", "error", "-m", "lockpin_cli.main", *words]

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        path = os.pathsep.join(map(str, (ROOT, ROOT / "addons", RIG / "resolver")))
        return kept | {"HOME": str(self.home), "PYTHONPATH": path, "LOGNAME": "tester"}

    def lockpin(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), cwd=self.home, env=self.environment() | more, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.lockpin("run", "--port", str(self.port), *words, **more)

    def begin(self, *words: str) -> subprocess.Popen:
        """Start a run in a session of its own, and wait until its command is there.

        Tests that run in a shell's background ignore SIGINT, and what they start would too.
        """
        signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            self.command("run", "--port", str(self.port), *words), cwd=self.home, env=self.environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self.begun.append(process)
        assert process.stdout.readline() == "there\n", process.stderr.read()
        return process


def alive(ledger: Path) -> list[str]:
    locks = Liveness(ledger)
    return [writer for writer in locks.others() if locks.is_alive(writer)]


@contextmanager
def at_desk(folder: Path, config: str) -> Iterator[Desk]:
    desk = Desk(processes.make_home(folder), free_port())
    (desk.home / "lockpin.yaml").write_text(config)
    try:
        yield desk
    finally:
        for process in desk.begun:
            processes.end(process, 20)
            process.stdout.close()
            process.stderr.close()


@pytest.fixture
def origin(tmp_path) -> Iterator[processes.Origin]:
    with processes.origin(tmp_path) as found:
        yield found


@pytest.fixture
def desk(tmp_path, origin) -> Iterator[Desk]:
    with at_desk(tmp_path, f'upstreams: {{api.anthropic.com: "{origin.url}"}}\n') as found:
        yield found


def test_command_runs_behind_a_proxy_of_its_own_within_its_budget(desk, origin):
    # Ten tokens in at $2, a hundred out at $10 a million: $0.00102. The second call could cost far more than is left.
    both = f"{sys.executable} -c '{AGENT}' 100; {sys.executable} -c '{AGENT}' 60000"
    done = desk.run("--task", "fix", "--budget", "0.02", "--", "sh", "-c", both)

    assert done.stdout.splitlines()[0] == "200"
    assert done.stdout.splitlines()[1].startswith('402 lockpin: task "fix" would exceed its $0.02')
    assert done.stderr == (
        'lockpin: task "fix": 1 call, spent $0.00102, estimated $0.00000, refused 1 (`lockpin calls --task fix` says why), '
        "left $0.01898 of its budget\n"
    )
    assert done.returncode == 0
    assert [call["path"] for call in origin.calls() if "count" not in call["path"]] == ["/v1/messages"]
    assert health(desk.port) is Health.NONE


def test_refusal_can_be_looked_into_afterwards(desk):
    # At most 27 tokens of input at $2, and 60,000 of output at $10 a million.
    show = AGENT.replace('json.load(error)["error"]["message"]', "error.read().decode()")
    done = desk.run("--task", "fix", "--budget", "0.02", "--", sys.executable, "-c", show, "60000")
    answered = json.loads(done.stdout.removeprefix("402 "))["lockpin"]

    stored = desk.lockpin("receipt", answered["call"])
    line = desk.lockpin("calls").stdout.splitlines()[1]
    explained = desk.lockpin("prices", "explain", answered["call"])

    told = json.loads(stored.stdout)
    assert {**answered["receipt"], "hash": told["hash"]} == {key: told[key] for key in answered["receipt"]}
    assert [budget["name"] for budget in told["budgets"]] == ["task", "daily"]
    needed = f"${answered['needed_usd']}"
    why = f"needed {needed}, task has $0.02 left"
    assert stored.stderr.endswith(f": refused (budget_exceeded): {why}\n")
    assert told["refusal"]["limits"][0]["needed_usd"] == str(answered["needed_usd"])
    assert line.endswith(why)
    lines = [" ".join(line.split()) for line in explained.stdout.splitlines()]
    assert f"needed: {needed}" in lines
    assert any(line.startswith("output 60,000 $10/M $0.600") for line in lines)
    assert f"= {needed}" in lines
    assert lines[-2:] == [f"refused: {why}", "task: spent $0.00, in flight $0.00 of $0.02"]
    assert (explained.returncode, explained.stderr) == (0, "")


def test_exit_status_is_the_commands(desk):
    assert desk.run("--", "sh", "-c", "exit 7").returncode == 7
    assert desk.run("--", "sh", "-c", "kill -KILL $$").returncode == 128 + signal.SIGKILL


def test_flags_after_the_command_are_its_own(desk):
    done = desk.run("sh", "-c", 'echo "$0 $1"', "--task", "x")

    assert (done.stdout, done.returncode) == ("--task x\n", 0)


def test_command_has_every_variable_of_env_and_no_way_round_the_cap(desk):
    done = desk.run("--task", "a b", "--", "env", NO_PROXY="api.openai.com,intra.net", SSL_CERT_DIR="/nowhere")

    found = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    address = f"http://a%20b:task@127.0.0.1:{desk.port}"
    bundle = str(desk.home / ".mitmproxy" / "lockpin-ca-bundle.pem")
    assert {found[name] for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy")} == {address}
    assert found["NO_PROXY"] == found["no_proxy"].join(("intra.net,", "")) == "intra.net,127.0.0.1,localhost"
    assert {
        found[name] for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE", "CODEX_CA_CERTIFICATE")
    } == {bundle}
    assert found["NODE_EXTRA_CA_CERTS"].endswith("mitmproxy-ca-cert.pem")
    assert found["NODE_USE_ENV_PROXY"] == "1"
    assert "SSL_CERT_DIR" not in found
    assert "taken out of NO_PROXY, as it would go round the cap: api.openai.com" in done.stderr


def test_budget_without_a_task_makes_one_that_is_named_after_the_command(desk):
    done = desk.run("--budget", "1", "--", "true")

    assert re.fullmatch(r'lockpin: task "true-\d{8}-\d{6}": 0 calls, .* left \$1\.00 of its budget\n', done.stderr)
    (task,) = json.loads(desk.lockpin("task", "list", "--format", "json").stdout)
    assert (task["limit_usd"], task["window"]) == (1, "lifetime")


def test_run_without_a_name_tells_what_is_left_of_the_tightest_limit(desk):
    assert desk.run("--", "true").stderr == (
        'lockpin: 0 calls, spent $0.00, estimated $0.00, refused 0, left $25.00 of "daily"\n'
    )


def test_budget_of_a_task_in_use_keeps_its_window(desk):
    desk.lockpin("task", "new", "fix", "--budget", "1", "--window", "day")
    desk.run("--task", "fix", "--budget", "2", "--", "true")

    (task,) = json.loads(desk.lockpin("task", "list", "--format", "json").stdout)
    assert (task["limit_usd"], task["window"]) == (2, "day")


def test_healthy_proxy_is_used_and_left_alone(tmp_path, origin):
    config = f'upstreams: {{api.anthropic.com: "{origin.url}"}}\n'
    with at_desk(tmp_path, config) as desk, processes.proxy(tmp_path, config, kind="up", home=desk.home) as running:
        desk.port = running.port
        done = desk.run("--task", "fix", "--", sys.executable, "-c", AGENT, "100")

        assert (done.stdout, done.returncode) == ("200\n", 0)
        assert health(running.port) is Health.OK
        assert len(list((desk.ledger.parent / "ledger.sqlite3.writers").iterdir())) == 1


def test_proxy_of_another_ledger_is_not_used(tmp_path, desk):
    with processes.proxy(tmp_path, kind="up") as other:
        desk.port = other.port
        done = desk.run("--", "true")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"lockpin: the proxy on port {other.port} books in another (id {mark(other.ledger)})")
    assert f"this command's ledger, {desk.ledger} (id {mark(desk.ledger)})" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not desk.ledger.exists()


def test_proxy_of_another_ledger_is_not_used_where_this_one_has_a_proxy_elsewhere(tmp_path, desk):
    with processes.proxy(tmp_path, kind="up") as other, processes.proxy(tmp_path, kind="up", home=desk.home):
        desk.port = other.port
        done = desk.run("--task", "fix", "--budget", "1", "--", "true")

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"the proxy on port {other.port} books in another" in done.stderr


def test_ledger_that_is_named_is_that_of_the_proxy_and_of_the_sums(tmp_path, desk):
    other = tmp_path / "other.sqlite3"
    done = desk.run(
        "--ledger", f"sqlite://{other}", "--task", "fix", "--budget", "1", "--", sys.executable, "-c", AGENT, "100"
    )

    assert done.stdout == "200\n"
    assert (
        done.stderr
        == 'lockpin: task "fix": 1 call, spent $0.00102, estimated $0.00000, refused 0, left $0.99898 of its budget\n'
    )
    assert not desk.ledger.exists()


def test_command_does_not_run_where_the_proxy_does_not_start(desk, tmp_path):
    desk.ledger.parent.mkdir(parents=True)
    desk.ledger.write_text("no ledger")
    done = desk.run("--", "touch", str(tmp_path / "ran"))

    assert done.returncode == 1
    assert done.stderr.startswith(f"lockpin: the proxy did not start on port {desk.port}, so the command was not run: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "ran").exists()


def test_port_in_other_hands_is_one_line(desk, tmp_path):
    with processes.origin(tmp_path) as other:
        desk.port = other.port
        done = desk.run("--", "true")

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert re.fullmatch(rf"lockpin: port {other.port} is in use; start with: lockpin run --port \d+\n", done.stderr)


@pytest.mark.parametrize(
    ("words", "status", "named"),
    [
        (["--", "no-such-command"], 127, 'there is no command "no-such-command"'),
        (["--", "./none"], 127, 'there is no file "./none"'),
        (["--", ""], 127, 'there is no command ""'),
        (["--", "/tmp"], 126, '"/tmp" is a folder'),
        (["--", "./lockpin.yaml"], 126, '"./lockpin.yaml" is not executable; `chmod +x ./lockpin.yaml`'),
        ([], 2, "COMMAND"),
        (["--budget", "0", "--", "true"], 2, "--budget"),
        (["--task", "a/b", "--", "true"], 2, "a/b"),
    ],
)
def test_mistake_is_one_line_and_nothing_is_started(desk, words, status, named):
    done = desk.run(*words)

    assert (done.returncode, done.stderr.count("\n")) == (status, 1)
    assert named in done.stderr
    assert not desk.ledger.exists()


@pytest.mark.parametrize(
    ("content", "named"),
    [("echo ran\n", "as in `sh "), ("#!/no/such/interpreter\n", 'what its first line "#!…" names')],
)
def test_file_that_is_no_program_is_one_line(desk, tmp_path, content, named):
    script = tmp_path / "script"
    script.write_text(content)
    script.chmod(0o755)
    done = desk.run("--", str(script))

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (126, "", 1)
    assert named in done.stderr
    assert health(desk.port) is Health.NONE


def test_closed_task_runs_nothing(desk, tmp_path):
    desk.lockpin("task", "new", "fix", "--budget", "1")
    desk.lockpin("task", "close", "fix")
    done = desk.run("--task", "fix", "--", "touch", str(tmp_path / "ran"))

    assert done.returncode == 1
    assert 'task "fix" is closed' in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_reaches_the_command(desk, number):
    process = desk.begin("--", sys.executable, "-c", LISTENER)
    process.send_signal(number)

    assert process.stdout.readline() == f"{number.name}\n"
    assert process.wait(30) == 7
    assert health(desk.port) is Health.NONE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("is_twice", [False, True], ids=["to the group", "to the run and to the group"])
def test_signal_to_the_group_reaches_the_command_once(desk, number, is_twice):
    process = desk.begin("--", sys.executable, "-c", COUNTER)
    if is_twice:
        process.send_signal(number)  # as `timeout` does
    os.killpg(process.pid, number)

    assert process.stdout.readline() == f"{number.name}\n"
    process.send_signal(signal.SIGUSR1)  # comes after all that was to be passed on before
    assert process.stdout.readline() == "SIGUSR1\n"
    assert process.wait(30) == 1


def test_signal_to_the_group_does_not_reach_a_command_that_has_left_it(desk):
    process = desk.begin("--", sys.executable, "-c", f"import os; os.setsid()\n{LISTENER}")
    os.killpg(process.pid, signal.SIGTERM)

    assert process.stdout.readline() == "SIGTERM\n"
    assert process.wait(30) == 7


def test_two_runs_share_one_proxy_and_the_last_ends_it(desk, tmp_path):
    first = desk.begin("--", sys.executable, "-c", PATIENT, str(tmp_path / "one"))
    second = desk.begin("--", sys.executable, "-c", PATIENT, str(tmp_path / "two"))
    (tmp_path / "one").touch()

    assert first.wait(30) == 0
    assert "the proxy goes on for another `lockpin run`" in first.stderr.read()
    assert health(desk.port) is Health.OK
    (tmp_path / "two").touch()
    assert second.wait(30) == 0
    until(lambda: health(desk.port) is Health.NONE)


def test_proxy_ends_by_itself_when_its_last_run_was_killed(desk, tmp_path):
    first = desk.begin("--", sys.executable, "-c", PATIENT, str(tmp_path / "one"))
    second = desk.begin("--", sys.executable, "-c", PATIENT, str(tmp_path / "two"))
    for process in (first, second):
        assert health(desk.port) is Health.OK
        process.kill()
        process.wait(30)
        (tmp_path / ("one" if process is first else "two")).touch()  # its command lives on, and is to end
        if process is first:
            third = desk.run("--", "true")  # whose end is no reason for the proxy's

    assert third.returncode == 0
    until(lambda: health(desk.port) is Health.NONE)
    assert desk.run("--", "true").returncode == 0
    assert health(desk.port) is Health.NONE


def test_proxy_whose_run_is_killed_while_it_starts_ends_too(desk):
    process = subprocess.Popen(
        desk.command("run", "--port", str(desk.port), "--", "true"), cwd=desk.home, env=desk.environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    desk.begun.append(process)
    writers = desk.ledger.parent / "ledger.sqlite3.writers"
    until(lambda: writers.is_dir() and any(writers.iterdir()))
    process.kill()

    until(lambda: not alive(desk.ledger))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are listed by Linux only")
def test_ctrl_c_while_the_proxy_starts_ends_it_too(desk):
    process = subprocess.Popen(
        desk.command("run", "--port", str(desk.port), "--", "true"), cwd=desk.home, env=desk.environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    desk.begun.append(process)
    until(lambda: (desk.ledger.parent / "ledger.sqlite3.run").exists())
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    (proxy,) = until(lambda: children.read_text().split())
    process.send_signal(signal.SIGINT)

    assert process.wait(30) == 130
    until(lambda: not Path(f"/proc/{proxy}").exists())


def test_in_team_mode_a_budget_is_the_key_users_own(lockpin, home):
    home.config("mode: team\n")
    ann = lockpin("key", "create", "--user", "ann@corp.com").stdout.strip()
    bob = lockpin("key", "create", "--user", "bob@corp.com").stdout.strip()

    words = ["run", "--port", str(free_port()), "--task", "site", "--budget", "5", "--", "true"]
    done = lockpin(*words, LOCKPIN_KEY=ann)
    his = lockpin(*words, LOCKPIN_KEY=bob)
    nobodys = lockpin(*words, LOCKPIN_KEY="lp_nobody")

    assert done.returncode == 0, done.stderr
    (task,) = json.loads(lockpin("task", "list", "--format", "json").stdout)
    assert (task["task"], task["user"], task["limit_usd"]) == ("site", "ann@corp.com", 5)
    assert (his.returncode, his.stderr) == (
        1, 'lockpin: task "site" is a task of ann@corp.com; one of another name can have a budget of yours\n',
    )  # fmt: skip
    assert nobodys.returncode == 1
    assert "the key in LOCKPIN_KEY is not known in" in nobodys.stderr
    assert "lp_nobody" not in nobodys.stderr


TEAM = 'mode: team\nupstreams: {{api.anthropic.com: "{}"}}\n'


def test_in_team_mode_a_run_calls_with_its_users_key_and_says_what_its_user_has_left(tmp_path, origin):
    with at_desk(tmp_path, TEAM.format(origin.url)) as desk:
        key = desk.lockpin("key", "create", "--user", "ann", "--limit-usd", "9", "--window", "day").stdout.strip()

        done = desk.run("--task", "fix", "--budget", "2", "--", sys.executable, "-c", AGENT, "100", LOCKPIN_KEY=key)
        again = desk.run("--task", "fix", "--", sys.executable, "-c", AGENT, "100", LOCKPIN_KEY=key)

        assert (done.stdout, again.stdout) == ("200\n", "200\n"), done.stderr
        assert re.search(r"left \$1\.99\d* of its budget", again.stderr), again.stderr
        assert key not in done.stderr
        (task,) = json.loads(desk.lockpin("task", "list", "--format", "json").stdout)
        assert (task["user"], task["limit_usd"]) == ("ann", 2)
        (row,) = json.loads(desk.lockpin("report", "--by", "user", "--format", "json").stdout)["rows"]
        assert (row["key"], row["calls"]) == ("ann", 2)


def test_in_team_mode_a_run_without_a_key_does_not_start(tmp_path, origin):
    with at_desk(tmp_path, TEAM.format(origin.url)) as desk:
        done = desk.run("--budget", "2", "--", sys.executable, "-c", "print('ran')")

        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("lockpin: mode: team needs a key; set LOCKPIN_KEY to yours")
        assert not desk.ledger.exists()


def test_a_teams_proxy_is_used_from_another_folder_and_not_replaced_by_one_in_solo_mode(tmp_path, origin):
    with at_desk(tmp_path, "") as desk:
        key = desk.lockpin("key", "create", "--user", "ann").stdout.strip()
        (here := desk.home / "here.yaml").write_text("")
        agent = ("--config", str(here), "--task", "fix", "--budget", "2", "--", sys.executable, "-c", AGENT, "100")
        with processes.proxy(tmp_path, TEAM.format(origin.url), kind="up", home=desk.home) as team:
            desk.port = team.port
            keyless = desk.run(*agent)
            known = desk.run(*agent, LOCKPIN_KEY=key)
        afterwards = desk.run(*agent, LOCKPIN_KEY=key)

    assert (keyless.returncode, keyless.stdout) == (1, "")
    assert "mode: team needs a key" in keyless.stderr
    assert known.stdout == "200\n", known.stderr
    assert re.search(r"left \$1\.99\d* of its budget", known.stderr), known.stderr
    assert (afterwards.returncode, afterwards.stdout) == (1, "")
    assert f"ran in team mode, and {here} would start one in solo mode" in afterwards.stderr


LIMITS = """
budgets:
  - {name: org-month, scope: org, window: month, limit_usd: 50, action: enforce}
  - {name: dev-daily, scope: user, window: day, limit_usd: 3, action: enforce, users: [ann]}
  - {name: his-daily, scope: user, window: day, limit_usd: 1, action: enforce, users: [bob]}
  - {name: few, scope: ring, window: day, limit_tokens: 9000, action: enforce}
"""


def test_in_team_mode_the_end_says_the_tightest_limits_of_whoever_called(lockpin, home):
    home.config(f"mode: team\n{LIMITS}")
    ann = lockpin("key", "create", "--user", "ann", "--ring", "ci").stdout.strip()
    cho = lockpin("key", "create", "--user", "cho").stdout.strip()

    words = ["run", "--port", str(free_port())]
    anns = lockpin(*words, "--", "true", LOCKPIN_KEY=ann)
    tasks = lockpin(*words, "--task", "r7", "--budget", "0.005", "--", "true", LOCKPIN_KEY=ann)
    chos = lockpin(*words, "--", "true", LOCKPIN_KEY=cho)
    nobodys = lockpin(*words, "--", "true", LOCKPIN_KEY="eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.AAAA")

    assert anns.stderr.endswith('refused 0, left $3.00 of "dev-daily", left 9,000 tokens of "few"\n')
    assert tasks.stderr.endswith('refused 0, left $0.005 of its budget, left 9,000 tokens of "few"\n')
    assert chos.stderr.endswith('refused 0, left $50.00 of "org-month"\n')
    assert nobodys.stderr.endswith("refused 0, which limits its user has is not known here\n"), nobodys.stderr


def token_of(user, **claims):
    """Make a token that nobody has signed: the proxy alone checks one."""
    told = {"iss": "https://id.acme.example", "aud": "lockpin", "email": user, "exp": 4_000_000_000, **claims}
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "ES256"}, told)
    ]
    return ".".join([*parts, "AAAA"])


def test_a_token_in_the_place_of_a_key_gives_its_user_the_task_and_names_the_limits_that_bind(lockpin, home):
    home.config(f"mode: team\noidc: {{issuer: 'https://id.acme.example', audience: lockpin}}\n{LIMITS}")
    words = ["run", "--port", str(free_port()), "--task", "r8"]
    ann, bob = token_of("Ann", ring="ci"), token_of("bob")

    anns = lockpin(*words, "--budget", "0.005", "--", "true", LOCKPIN_KEY=ann)
    bobs = lockpin(*words, "--budget", "9", "--", "true", LOCKPIN_KEY=bob)
    plain = lockpin(*words, "--", "true", LOCKPIN_KEY=bob)
    nobodys = lockpin(*words, "--", "true", LOCKPIN_KEY=token_of(7))
    assert lockpin("task", "close", "r8").returncode == 0
    closed = lockpin(*words, "--", "true", LOCKPIN_KEY=ann)

    assert anns.stderr.endswith('refused 0, left $0.005 of its budget, left 9,000 tokens of "few"\n'), anns.stderr
    assert (bobs.returncode, bobs.stderr) == (1, BOBS)
    assert plain.stderr.endswith('refused 0, left $1.00 of "his-daily"\n'), plain.stderr
    assert "the token in LOCKPIN_KEY is not taken: its claim email names no user" in nobodys.stderr
    assert 'task "r8" is closed' in closed.stderr


BOBS = 'lockpin: task "r8" is a task of ann; one of another name can have a budget of yours\n'
