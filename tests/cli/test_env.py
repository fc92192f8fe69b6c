import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from lockpin_cli.authority import AUTHORITY, BUNDLE, Trust
from lockpin_cli.env import kept_bypass, proxy_url, variables
from lockpin_core.prices import shipped_dir
from lockpin_core.providers import Providers

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nTG9ja3Bpbg==\n-----END CERTIFICATE-----"
PROVIDERS = Providers.load(shipped_dir())


@pytest.fixture
def authority(home) -> Path:
    """Give the folder where mitmproxy has made its certificate."""
    folder = home.path / ".mitmproxy"
    folder.mkdir()
    (folder / AUTHORITY).write_text(CERTIFICATE + "\n")
    return folder


def exports(text: str) -> dict[str, str]:
    pairs = [shlex.split(line)[1].partition("=") for line in text.splitlines()]
    return {name: value for name, _, value in pairs}


def test_env_serves_every_client(lockpin, authority):
    done = lockpin("env", "--task", "fix login", "--port", "9090")

    bundle, certificate = str(authority / BUNDLE), str(authority / AUTHORITY)
    proxy = "http://fix%20login@127.0.0.1:9090"
    assert (done.returncode, done.stderr) == (0, "")
    assert exports(done.stdout) == {
        "HTTPS_PROXY": proxy,
        "HTTP_PROXY": proxy,
        "https_proxy": proxy,
        "NODE_EXTRA_CA_CERTS": certificate,
        "SSL_CERT_FILE": bundle,
        "CODEX_CA_CERTIFICATE": bundle,
        "REQUESTS_CA_BUNDLE": bundle,
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

    assert (done.returncode, done.stdout) == (1, "")
    assert "start `lockpin up` once" in done.stderr


def test_shell_takes_the_assignments_as_they_are(lockpin, authority, home):
    strange = home.path / "it's $HOME"
    strange.mkdir()
    shutil.copytree(authority, strange / ".mitmproxy")
    assignments = lockpin("env", "--task", "a'b;c", HOME=str(strange)).stdout

    shown = subprocess.run(
        ["sh", "-c", assignments + 'printf "%s|%s" "$HTTPS_PROXY" "$SSL_CERT_FILE"'], capture_output=True, text=True
    )

    assert shown.stdout == f"http://a%27b%3Bc@127.0.0.1:8080|{strange}/.mitmproxy/{BUNDLE}"


def test_other_shells_have_their_own_quotes(lockpin, authority, home):
    strange = home.path / "it's\\’"
    shutil.copytree(authority, strange / ".mitmproxy")

    fish = lockpin("env", "--shell", "fish", HOME=str(strange)).stdout
    powershell = lockpin("env", "--shell", "powershell", HOME=str(strange)).stdout

    fish_home, powershell_home = f"{home.path}/it\\'s\\\\’", f"{home.path}/it''s\\’’"
    assert f"set -gx SSL_CERT_FILE '{fish_home}/.mitmproxy/{BUNDLE}';\n" in fish
    assert f"$env:SSL_CERT_FILE = '{powershell_home}/.mitmproxy/{BUNDLE}'\n" in powershell


def test_providers_are_taken_out_of_no_proxy_and_that_is_said(lockpin, authority):
    done = lockpin("env", NO_PROXY="localhost,api.openai.com, .corp.example", no_proxy="10.0.0.0/8")

    assert exports(done.stdout)["NO_PROXY"] == "localhost,.corp.example"
    assert "no_proxy" not in exports(done.stdout)
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

    assert (kept, taken) == ({"NO_PROXY": "localhost"}, [entry])


@pytest.mark.parametrize(
    "entry",
    ["", "localhost", "127.0.0.1", "::1", "10.0.0.0/8", "penai.com", "api.openai.com.evil.tld", ".corp.example"],
)
def test_no_proxy_entry_of_others_stays(entry):
    assert kept_bypass({"NO_PROXY": entry}, PROVIDERS) == ({}, [])


@pytest.mark.parametrize(
    ("task", "user"), [("fix", "fix"), ("a@b:c", "a%40b%3Ac"), ("übung", "%C3%BCbung"), ("50%", "50%25")]
)
def test_task_is_percent_encoded_as_user_name(task, user):
    assert proxy_url(8080, task) == f"http://{user}@127.0.0.1:8080"


def test_without_a_task_there_is_no_user_name():
    assert proxy_url(8080, None) == "http://127.0.0.1:8080"


def test_only_node_adds_to_its_store_and_gets_the_bare_certificate():
    names = variables("http://127.0.0.1:8080", Trust(Path("/ca"), Path("/bundle")))

    assert [name for name, value in names.items() if value == "/ca"] == ["NODE_EXTRA_CA_CERTS"]
