"""Runs the real agents, each as a person would: a fresh home, a bare environment, and what `lockpin env` prints."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import processes

CLIENTS = "LOCKPIN_CLIENTS"  # names the folder into which `scripts/test --clients` has installed them
RUN_S = 60


@dataclass(frozen=True)
class Run:
    status: int
    output: str  # what it printed on both streams
    took_s: float


@dataclass(frozen=True)
class Agent:
    """`arguments`: for a prompt without anybody to ask; the first `words` of them name a subcommand.

    `at`: what sends it to a base URL, as variables and arguments.
    """

    program: str
    key: Mapping[str, str]
    arguments: tuple[str, ...]
    settings: Mapping[str, object]  # files of its home
    at: Callable[[str], tuple[Mapping[str, str], tuple[str, ...]]]
    words: int = 0


CLAUDE = Agent(
    "claude",
    {"ANTHROPIC_API_KEY": "sk-ant-test-0000"},
    ("--model", "claude-sonnet-5-5", "--allowedTools", "Bash(echo:*),WebSearch", "--output-format", "json", "-p"),
    {},
    lambda url: ({"ANTHROPIC_BASE_URL": f"{url}/anthropic"}, ()),
)
CODEX = Agent(
    "codex",
    {"CODEX_API_KEY": "sk-test-0000"},
    ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--model", "gpt-5.4"),
    {},
    lambda url: ({}, ("-c", f'openai_base_url="{url}/openai/v1"')),
    words=1,
)
GEMINI = Agent(
    "gemini",
    {"GEMINI_API_KEY": "AIza-test-0000"},
    ("--skip-trust", "--yolo", "-p"),
    {".gemini/settings.json": {"security": {"auth": {"selectedType": "gemini-api-key"}}}},
    lambda url: ({"GOOGLE_GEMINI_BASE_URL": f"{url}/gemini"}, ()),
)


def installed(folder: str, program: str) -> Path | None:
    """Find what `scripts/test --clients` has installed."""
    root = os.environ.get(CLIENTS)
    return None if root is None else Path(root) / folder / "node_modules" / program


def environment(proxy: processes.Proxy, *arguments: str) -> dict[str, str]:
    """Read what `lockpin env` prints, as a shell would."""
    command = [sys.executable, "-m", "lockpin_cli.main", "env", "--port", str(proxy.port), *arguments]
    done = subprocess.run(
        [*command, "--config", str(proxy.home / "lockpin.yaml")],
        env=bare(proxy.home) | {"PYTHONPATH": str(processes.ROOT)},
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    words = shlex.split(done.stdout)
    return dict(word.split("=", 1) for word in words if "=" in word)


def run(agent: Agent, folder: Path, variables: Mapping[str, str], prompt: str, *more: str) -> Run:
    """Let an agent answer a prompt in a fresh home; it gets a minute."""
    home = folder / f"{agent.program}-home"
    work = home / "work"
    work.mkdir(parents=True)
    for name, content in agent.settings.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(json.dumps(content))
    return finish([*command_of(agent, *more), prompt], work, bare(home) | dict(agent.key) | dict(variables))


def finish(command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Run:
    """Let a command end by itself within a minute; else end it with all that it has started."""
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=RUN_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"{command[0]} did not end in {RUN_S} s; it printed:\n{output}") from None
    return Run(process.returncode, output, time.monotonic() - began)


def command_of(agent: Agent, *more: str) -> list[str]:
    """Give the command that lacks only the prompt; `more` goes after the subcommand, where there is one."""
    program = installed("agents", f".bin/{agent.program}")
    assert program is not None and program.exists(), "`scripts/test --clients` installs it"
    return [str(program), *agent.arguments[: agent.words], *more, *agent.arguments[agent.words :]]


def bare(home: Path) -> dict[str, str]:
    """Give the environment of somebody who has set nothing."""
    node = shutil.which("node")
    folders = ([str(Path(node).parent)] if node else []) + ["/usr/bin", "/bin"]
    return {"HOME": str(home), "TMPDIR": str(home), "PATH": os.pathsep.join(folders), "LANG": "C.UTF-8"}
