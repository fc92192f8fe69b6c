import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from lockpin_cli.authority import AUTHORITY, BUNDLE, NODE_BUNDLE, Trust
from lockpin_cli.env import kept_bypass, key_of, proxy_note, proxy_url, variables
from lockpin_cli.listener import health
from lockpin_core.config import Config
from lockpin_core.config_budgets import own_budget
from lockpin_core.ledger.place import mark
from lockpin_core.ledger.protocol import Rules
from lockpin_core.prices import shipped_dir
from lockpin_core.providers import Providers

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nTG9ja3Bpbg==\n-----END CERTIFICATE-----"
COMPANY = "-----BEGIN CERTIFICATE-----\nQ29tcGFueQ==\n-----END CERTIFICATE-----"
ROOT = Path(__file__).resolve().parent.parent.parent
PROVIDERS = Providers.load(shipped_dir())


@pytest.fixture
def authority(home) -> Path:
    """Give the folder where mitmproxy has made its certificate."""
    folder = home.path / ".mitmproxy"
    folder.mkdir()
    (folder / AUTHORITY).write_text(CERTIFICATE + "\n")
    return folder


class Health(BaseHTTPRequestHandler):
    """Answers as the proxy's own page does."""

    status = 200
    words = b'{"status":"ok","version":"1"}'

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/lockpin/healthz" else 404)
        self.end_headers()
        self.wfile.write(self.words)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering(**settings: object) -> Iterator[int]:
    """Give the port of something that answers so."""
    handler = type("Handler", (Health,), settings)
    with HTTPServer(("127.0.0.1", 0), handler) as server, ThreadPoolExecutor(1) as threads:
        threads.submit(server.serve_forever, 0.01)
        yield server.server_port
        server.shutdown()


@pytest.fixture(params=[200])
def port(request, home) -> Iterator[int]:
    """Give the port of something that answers with a status, as a proxy on the home's ledger."""
    words = f'{{"status":"ok","ledger":"{mark(home.ledger)}"}}'.encode()
    with answering(status=request.param, words=words) as found:
        yield found


@pytest.fixture
def silent() -> Iterator[int]:
    """Give a port on which something listens and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def exports(text: str) -> dict[str, str]:
    pairs = [shlex.split(line)[1].partition("=") for line in text.splitlines() if line.startswith("export ")]
    return {name: value for name, _, value in pairs}


def test_env_serves_every_client(lockpin, authority, port):
    lockpin("task", "new", "fix login", "--budget", "1")
    done = lockpin("env", "--task", "fix login", "--port", str(port))

    bundle, certificate = str(authority / BUNDLE), str(authority / AUTHORITY)
    proxy = f"http://fix%20login:task@127.0.0.1:{port}"
    assert (done.returncode, done.stderr) == (0, "")
    assert exports(done.stdout) == {
        "HTTPS_PROXY": proxy,
        "HTTP_PROXY": proxy,
        "https_proxy": proxy,
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "NODE_EXTRA_CA_CERTS": certificate,
        "SSL_CERT_FILE": bundle,
        "CODEX_CA_CERTIFICATE": bundle,
        "REQUESTS_CA_BUNDLE": bundle,
        "CURL_CA_BUNDLE": bundle,
        "AWS_CA_BUNDLE": bundle,
        "NODE_USE_ENV_PROXY": "1",
    }


def test_bundle_holds_the_public_certificates_too_and_everybody_may_read_it(lockpin, authority):
    lockpin("env")

    bundle = authority / BUNDLE
    text = bundle.read_text()
    assert text.startswith(CERTIFICATE)
    assert text.count("BEGIN CERTIFICATE") > 50
    assert "PRIVATE" not in text
    assert bundle.stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in authority.iterdir()) == sorted([AUTHORITY, BUNDLE])


def test_second_env_inside_the_first_one_does_not_grow_the_bundle(lockpin, authority):
    lockpin("env")
    first = (authority / BUNDLE).read_text()

    lockpin("env", SSL_CERT_FILE=str(authority / BUNDLE))

    assert (authority / BUNDLE).read_text() == first


def test_without_a_ca_it_says_to_start_the_proxy_once(lockpin, home):
    done = lockpin("env")

    assert (done.returncode, done.stdout) == (1, "false\n")
    assert "start `lockpin up` once" in done.stderr


@pytest.mark.parametrize("words", ["", "--port 0", "--bla"])
def test_after_a_fault_the_agent_does_not_start(home, words):
    command = f'eval "$({sys.executable} -m lockpin_cli.main env {words})" && echo started'
    environment = {"HOME": str(home.path), "PYTHONPATH": str(ROOT), "PATH": "/nowhere"}

    done = subprocess.run(["/bin/sh", "-c", command], env=environment, cwd=home.path, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("lockpin")


def test_shell_takes_the_assignments_as_they_are(lockpin, authority, home):
    strange = home.path / "it's $HOME"
    strange.mkdir()
    shutil.copytree(authority, strange / ".mitmproxy")
    assignments = lockpin("env", "--task", "a'b;c", HOME=str(strange)).stdout

    shown = subprocess.run(
        ["sh", "-c", assignments + 'printf "%s|%s" "$HTTPS_PROXY" "$SSL_CERT_FILE"'], capture_output=True, text=True
    )

    assert shown.stdout == f"http://a%27b%3Bc:task@127.0.0.1:8080|{strange}/.mitmproxy/{BUNDLE}"


def test_other_shells_have_their_own_quotes(lockpin, authority, home):
    strange = home.path / "it's\\’"
    shutil.copytree(authority, strange / ".mitmproxy")

    fish = lockpin("env", "--shell", "fish", HOME=str(strange)).stdout
    powershell = lockpin("env", "--shell", "powershell", HOME=str(strange)).stdout

    fish_home, powershell_home = f"{home.path}/it\\'s\\\\’", f"{home.path}/it''s\\’’"
    assert f"set -gx SSL_CERT_FILE '{fish_home}/.mitmproxy/{BUNDLE}';\n" in fish
    assert f"$env:SSL_CERT_FILE = '{powershell_home}/.mitmproxy/{BUNDLE}'\n" in powershell


def test_bash_and_zsh_are_sh(lockpin, authority, port):
    sh, bash, zsh = (lockpin("env", "--port", str(port), "--shell", shell) for shell in ("sh", "bash", "zsh"))

    assert sh.stdout == bash.stdout == zsh.stdout
    assert sh.stdout.startswith("export ")


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("sh", "unset SSL_CERT_DIR\n"),
        ("zsh", "unset SSL_CERT_DIR\n"),
        ("fish", "set -e SSL_CERT_DIR;\n"),
        ("powershell", "Remove-Item Env:SSL_CERT_DIR -ErrorAction SilentlyContinue\n"),
    ],
)
def test_folders_of_certificates_are_unset_and_their_certificates_stay(lockpin, home, authority, shell, line):
    (home.path / "cas").mkdir()
    (home.path / "cas" / "company.pem").write_text(COMPANY)

    done = lockpin("env", "--shell", shell, SSL_CERT_DIR=str(home.path / "cas"))

    assert done.stdout.endswith(line)
    assert COMPANY in (authority / BUNDLE).read_text()
    assert "SSL_CERT_DIR" not in lockpin("env", "--shell", shell).stdout


def test_certificates_that_node_adds_already_stay(lockpin, home, authority):
    (home.path / "mine.pem").write_text(COMPANY)

    found = exports(lockpin("env", NODE_EXTRA_CA_CERTS=str(home.path / "mine.pem")).stdout)["NODE_EXTRA_CA_CERTS"]

    assert Path(found) == authority / NODE_BUNDLE
    assert Path(found).read_text() == f"{CERTIFICATE}\n{COMPANY}\n"


@pytest.mark.parametrize("task", ["fix", "über uns"])
def test_task_without_a_budget_of_its_own_is_said(lockpin, authority, ledger, port, task):
    done = lockpin("env", "--task", task, "--port", str(port))

    how = f"`lockpin task new {shlex.quote(task)} --budget USD` makes one"
    assert (done.returncode, done.stderr) == (0, f'lockpin: task "{task}" has no budget of its own; {how}\n')


def test_budget_of_every_task_is_one_of_its_own(lockpin, home, authority, port):
    home.config("task: {budget_usd: 2}\n")

    assert lockpin("env", "--task", "fix", "--port", str(port)).stderr == ""


def test_closed_task_is_said(lockpin, authority, port):
    lockpin("task", "new", "x", "--budget", "1")
    lockpin("task", "close", "x")

    assert 'task "x" is closed' in lockpin("env", "--task", "x", "--port", str(port)).stderr


def test_unreadable_ledger_is_a_note_and_no_fault(lockpin, home, authority, port):
    home.ledger.mkdir(parents=True)

    done = lockpin("env", "--task", "x", "--port", str(port))

    assert done.returncode == 0
    assert str(home.ledger) in done.stderr


def test_proxy_that_does_not_run_is_said_with_how_to_start_it(lockpin, authority):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    done = lockpin("env", "--port", str(port))

    assert done.returncode == 0
    assert done.stderr == (
        f"lockpin: no proxy answers at http://127.0.0.1:{port}; `lockpin up --port {port}` starts it\n"
    )


def test_silence_is_no_proxy(silent):
    assert "no proxy answers" in proxy_note(silent, health(silent))


@pytest.mark.parametrize(("port", "words"), [(200, ""), (503, "refuses calls")], indirect=["port"])
def test_proxy_that_refuses_calls_is_a_warning_only(lockpin, authority, port, words):
    done = lockpin("env", "--port", str(port))

    assert (done.returncode, bool(exports(done.stdout))) == (0, True)
    assert words in done.stderr if words else done.stderr == ""


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"words": b"<html>"}, "is no Lockpin; name the port of one with --port"),
        ({"status": 404}, "is no Lockpin"),
        ({"words": b'{"status":"ok","ledger":"0123456789ab"}'}, "books in another (id 0123456789ab) than this"),
        ({"words": b'{"status":"ok"}'}, "books in one that it does not name than this"),
        ({"words": b'{"status":7'}, "books in one that it does not name"),
    ],
)
def test_agent_does_not_start_where_its_calls_would_go_past_this_ledger(lockpin, home, authority, settings, words):
    with answering(**settings) as port:
        done = lockpin("env", "--port", str(port))

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "false\n", 1)
    assert words in done.stderr
    if "books in" in words:
        assert f"{home.ledger} (id {mark(home.ledger)})" in done.stderr


def test_other_ledger_that_is_named_is_the_one_that_is_compared(lockpin, home, authority):
    other = home.path / "other.sqlite3"
    with answering(words=f'{{"status":"ok","ledger":"{mark(other)}"}}'.encode()) as port:
        done = lockpin("env", "--port", str(port), "--ledger", f"sqlite://{other}")

    assert (done.returncode, done.stderr) == (0, "")


def test_providers_are_taken_out_of_no_proxy_and_that_is_said(lockpin, authority, port):
    done = lockpin(
        "env", "--port", str(port), NO_PROXY="localhost,api.openai.com, .corp.example", no_proxy="10.0.0.0/8"
    )

    assert exports(done.stdout)["NO_PROXY"] == "localhost,.corp.example,127.0.0.1"
    assert exports(done.stdout)["no_proxy"] == "10.0.0.0/8,127.0.0.1,localhost"
    assert done.stderr.endswith("go round the cap: api.openai.com\n")


@pytest.mark.parametrize(
    "entry",
    [
        *("*", "api.openai.com", "API.OpenAI.com", "api.openai.com:443", ".openai.com", "openai.com", "*.openai.com"),
        *("api.anthropic.com.", "anthropic.com", "com"),
    ],
)
def test_no_proxy_entry_that_covers_a_provider_is_taken_out(entry):
    kept, taken = kept_bypass({"NO_PROXY": f"localhost,{entry}"}, PROVIDERS)

    assert (kept, taken) == ({"NO_PROXY": "localhost,127.0.0.1", "no_proxy": "127.0.0.1,localhost"}, [entry])


@pytest.mark.parametrize(
    "entry",
    ["", "localhost", "127.0.0.1", "::1", "10.0.0.0/8", "penai.com", "api.openai.com.evil.tld", ".corp.example"],
)
def test_no_proxy_entry_of_others_stays(entry):
    kept, taken = kept_bypass({"NO_PROXY": entry}, PROVIDERS)

    assert (entry in kept["NO_PROXY"].split(",") or not entry, taken) == (True, [])


@pytest.mark.parametrize(
    ("task", "user"), [("fix", "fix"), ("a@b:c", "a%40b%3Ac"), ("übung", "%C3%BCbung"), ("50%", "50%25")]
)
def test_task_is_percent_encoded_as_user_name(task, user):
    assert proxy_url(8080, task) == f"http://{user}:task@127.0.0.1:8080"


def test_without_a_task_there_is_no_user_name():
    assert proxy_url(8080, None) == "http://127.0.0.1:8080"


def test_only_node_adds_to_its_store_and_needs_no_bundle():
    names = variables("http://127.0.0.1:8080", Trust(Path("/ca"), Path("/bundle"), Path("/node")))

    assert [name for name, value in names.items() if value == "/node"] == ["NODE_EXTRA_CA_CERTS"]


TEAM = Config(None, Path("unused"), mode="team")


def test_in_team_mode_the_password_is_the_users_key_and_the_user_name_never_empty():
    key = "lp_" + "a1" * 26

    assert key_of(TEAM, {"LOCKPIN_KEY": key}) == key
    assert key_of(TEAM, {}) == key_of(TEAM, {"LOCKPIN_KEY": ""}) == "lp_KEY"
    assert key_of(replace(TEAM, mode="solo"), {"LOCKPIN_KEY": key}) is None
    assert proxy_url(8080, "fix", key) == f"http://fix:{key}@127.0.0.1:8080"


@pytest.mark.usefixtures("authority")
def test_in_team_mode_the_address_has_the_key_of_the_environment_or_says_where_it_goes(lockpin, home):
    home.config("mode: team\ntask: {default: shared}\n")
    key = "lp_" + "a1" * 26

    told, known = lockpin("env"), lockpin("env", "--task", "fix", LOCKPIN_KEY=key)

    assert "HTTPS_PROXY=http://shared:lp_KEY@127.0.0.1:8080\n" in told.stdout
    assert "put a key in the place of lp_KEY, or set LOCKPIN_KEY first" in told.stderr
    assert f"HTTPS_PROXY=http://fix:{key}@127.0.0.1:8080\n" in known.stdout
    assert "LOCKPIN_KEY" not in known.stderr


@pytest.mark.usefixtures("authority")
def test_the_key_goes_to_a_team_proxy_from_whatever_folder(lockpin, ledger):
    ledger.define(Rules((), own_budget(None, (), "UTC")), "there", "team").result(10)
    key = "lp_" + "a1" * 26

    told, known = lockpin("env"), lockpin("env", "--task", "fix", LOCKPIN_KEY=key)

    assert "HTTPS_PROXY=http://default:lp_KEY@127.0.0.1:8080\n" in told.stdout
    assert f"HTTPS_PROXY=http://fix:{key}@127.0.0.1:8080\n" in known.stdout


@pytest.mark.usefixtures("authority")
def test_in_team_mode_notes_say_whose_a_task_must_be_and_that_a_key_is_not_good(lockpin, home):
    home.config("mode: team\ntask: {budget_usd: 3}\n")
    ann = lockpin("key", "create", "--user", "ann").stdout.strip()

    told = lockpin("env", "--task", "fix", LOCKPIN_KEY=ann)
    wrong = lockpin("env", LOCKPIN_KEY="lp_abc")

    assert 'task "fix" has no budget of its own; `lockpin task new fix --budget USD --user ID` makes one' in told.stderr
    assert "LOCKPIN_KEY" not in told.stderr
    assert "the key in LOCKPIN_KEY is not known in " in wrong.stderr
    assert "lp_abc" not in wrong.stderr
