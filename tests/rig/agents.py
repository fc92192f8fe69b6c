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
from dataclasses import dataclass, field
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
class Address:
    """What sends an agent to a base URL: variables, arguments, files of its home."""

    variables: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    files: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Agent:
    """`arguments`: for a prompt without anybody to ask; the first `words` of them name a subcommand.

    `program`: its path in the folder of all clients. `at`: what sends it to a base URL.
    """

    program: str
    variables: Mapping[str, str]  # its key, and what keeps it from asking for more than answers
    arguments: tuple[str, ...]
    settings: Mapping[str, object]  # files of its home
    at: Callable[[str], Address]
    words: int = 0


CLAUDE = Agent(
    "agents/node_modules/.bin/claude",
    {"ANTHROPIC_API_KEY": "sk-ant-test-0000"},
    ("--model", "claude-sonnet-5-5", "--allowedTools", "Bash(echo:*),WebSearch", "--output-format", "json", "-p"),
    {},
    lambda url: Address({"ANTHROPIC_BASE_URL": f"{url}/anthropic"}),
)
CODEX = Agent(
    "agents/node_modules/.bin/codex",
    {"CODEX_API_KEY": "sk-test-0000"},
    ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--model", "gpt-5.4"),
    {},
    lambda url: Address(arguments=("-c", f'openai_base_url="{url}/openai/v1"')),
    words=1,
)
GEMINI = Agent(
    "agents/node_modules/.bin/gemini",
    {"GEMINI_API_KEY": "AIza-test-0000"},
    ("--skip-trust", "--yolo", "-p"),
    {".gemini/settings.json": {"security": {"auth": {"selectedType": "gemini-api-key"}}}},
    lambda url: Address({"GOOGLE_GEMINI_BASE_URL": f"{url}/gemini"}),
)


def _opencode(provider: str, model: str, key: Mapping[str, str]) -> Agent:
    """Its binary is of the package for this system: the one of that name only looks for it."""
    quiet = ("AUTOUPDATE", "MODELS_FETCH", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "SHARE")

    def at(url: str) -> Address:
        options = {"options": {"baseURL": f"{url}/{provider}/v1"}}
        return Address({"OPENCODE_CONFIG_CONTENT": json.dumps({"provider": {provider: options}})})

    variables = {f"OPENCODE_DISABLE_{name}": "1" for name in quiet}
    variables["npm_config_offline"] = "true"  # else it fetches the types of its plugins
    arguments = ("run", "--model", f"{provider}/{model}")
    return Agent("agents/node_modules/opencode-linux-x64/bin/opencode", variables | key, arguments, {}, at, words=1)


def _pi(provider: str, model: str, key: Mapping[str, str]) -> Agent:
    def at(url: str) -> Address:
        base = f"{url}/{provider}" + ("/v1" if provider == "openai" else "")
        return Address(files={".pi/agent/models.json": {"providers": {provider: {"baseUrl": base}}}})

    arguments = ("--provider", provider, "--model", model, "-p")
    return Agent("agents/node_modules/.bin/pi", {"PI_OFFLINE": "1", **key}, arguments, {}, at)


# Python's collector may end a stream that litellm has left half read while httpcore holds the lock that this needs: then
# aider hangs, whoever answers it.
_START_AIDER = "import gc, sys; gc.disable(); from aider.main import main; sys.exit(main())"


def _aider(model: str, key: Mapping[str, str], base: str, path: str) -> Agent:
    """It has no tools; what plays the model lets its edits fail, which it then asks about again."""
    local = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "AIDER_ANALYTICS_DISABLE": "true", "COLUMNS": "2000"}
    arguments = ("-P", "-c", _START_AIDER, "--model", model, "--edit-format", "diff", "--no-git", "--yes-always")
    arguments += ("--no-check-update", "--no-show-model-warnings", "--no-show-release-notes", "--no-pretty")
    # Its list of prices, as if it had been fetched just now.
    prices = {".aider/caches/model_prices_and_context_window.json": {"none": {}}}
    return Agent(
        "aider/bin/python", local | key, (*arguments, "--message"), prices, lambda url: Address({base: f"{url}{path}"})
    )


_ANTHROPIC, _OPENAI = {"ANTHROPIC_API_KEY": "sk-ant-test-0000"}, {"OPENAI_API_KEY": "sk-test-0000"}
OPENCODE_ANTHROPIC = _opencode("anthropic", "claude-sonnet-4-5", _ANTHROPIC)
OPENCODE_OPENAI = _opencode("openai", "gpt-5.4", _OPENAI)
PI_ANTHROPIC = _pi("anthropic", "claude-sonnet-4-5", _ANTHROPIC)
PI_OPENAI = _pi("openai", "gpt-5.4", _OPENAI)
AIDER_ANTHROPIC = _aider("claude-sonnet-4-5", _ANTHROPIC, "ANTHROPIC_API_BASE", "/anthropic")
AIDER_OPENAI = _aider("gpt-4o", _OPENAI, "OPENAI_API_BASE", "/openai/v1")


def installed(path: str) -> Path | None:
    """Find what `scripts/test --clients` has installed; None: it has not."""
    root = os.environ.get(CLIENTS)
    return found if root is not None and (found := Path(root) / path).exists() else None


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


def run(agent: Agent, folder: Path, address: Address, prompt: str, *, patience_s: float = RUN_S) -> Run:
    """Let an agent answer a prompt in a fresh home; it gets a minute."""
    home = folder / "home"
    work = home / "work"
    work.mkdir(parents=True)
    for name, content in {**agent.settings, **address.files}.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(json.dumps(content))
    variables = bare(home) | dict(agent.variables) | dict(address.variables)
    return finish([*command_of(agent, *address.arguments), prompt], work, variables, patience_s=patience_s)


def finish(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], *, patience_s: float = RUN_S
) -> Run:  # fmt: skip
    """Let a command end by itself within a minute; else end it with all that it has started."""
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"{command[0]} did not end in {patience_s} s; it printed:\n{output}") from None
    finally:
        if process.poll() is None:  # the tests were interrupted
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Run(process.returncode, output, time.monotonic() - began)


def command_of(agent: Agent, *more: str) -> list[str]:
    """Give the command that lacks only the prompt; `more` goes after the subcommand, where there is one."""
    program = installed(agent.program)
    assert program is not None, "`scripts/test --clients` installs it"
    return [str(program), *agent.arguments[: agent.words], *more, *agent.arguments[agent.words :]]


def bare(home: Path) -> dict[str, str]:
    """Give the environment of somebody who has set nothing."""
    node = shutil.which("node")
    folders = ([str(Path(node).parent)] if node else []) + ["/usr/bin", "/bin"]
    return {"HOME": str(home), "TMPDIR": str(home), "PATH": os.pathsep.join(folders), "LANG": "C.UTF-8"}
