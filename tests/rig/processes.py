"""Starts what edge tests need as real processes: the origin, `mitmdump -s`, `lockpin up`; ends each by its pid."""

import contextlib
import datetime
import itertools
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
RIG = Path(__file__).resolve().parent
PATIENCE_S = 30


@dataclass
class Origin:
    port: int
    log: Path
    process: subprocess.Popen
    _read: list[dict] = field(default_factory=list)
    _read_bytes: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def calls(self) -> list[dict]:
        """Give what reached the origin, oldest first; of the log, read only what is new."""
        with self.log.open("rb") as log:
            log.seek(self._read_bytes)
            lines = log.read().splitlines(keepends=True)
        for line in lines:
            if line.endswith(b"\n"):  # else it is still being written
                self._read.append(json.loads(line))
                self._read_bytes += len(line)
        return list(self._read)


@dataclass
class Proxy:
    port: int
    home: Path
    process: subprocess.Popen
    log: Path
    ledger: Path
    closed: bool = field(default=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        return self.home / ".mitmproxy" / "mitmproxy-ca-cert.pem"

    def printed(self) -> str:
        return self.log.read_text()

    def rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        """Read the ledger beside the running process."""
        with contextlib.closing(sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True)) as books:
            books.row_factory = sqlite3.Row
            return books.execute(query, values).fetchall()

    def settled(self, count: int) -> list[sqlite3.Row]:
        """Wait until so many holds are resolved; give the resolutions, oldest first."""
        query = "SELECT * FROM rows WHERE kind IN ('charge', 'void') ORDER BY id"
        return until(lambda: (rows := self.rows(query)) and len(rows) >= count and rows)

    def stop(self, sign: int = signal.SIGTERM) -> int:
        self.process.send_signal(sign)
        return self.process.wait(PATIENCE_S)


def until(condition, patience_s: float = PATIENCE_S):
    """Wait until `condition()` is true and give its value."""
    end = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.01)
    return value


# Of each worker of a run of tests its own, and none that the system gives to a client meanwhile.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS = itertools.cycle(range(12_000 + _WORKER % 16 * 1000 + os.getpid() % 500, 13_000 + _WORKER % 16 * 1000))


def free_port() -> int:
    """Find a port that nobody listens on, on any address, and that no other worker finds."""
    for port in _PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("0.0.0.0", port))
            return port
    raise AssertionError("there is a next one")


@contextlib.contextmanager
def origin(
    folder: Path, *, ledger: Path | None = None, cert: Path | None = None, bills: Path | None = None,
    script: Path | None = None, program: str = "origin.py",
) -> Iterator[Origin]:  # fmt: skip
    log = folder / f"origin-{time.monotonic_ns()}.jsonl"
    log.touch()
    command = [sys.executable, str(RIG / program), "--log", str(log)]
    command += ["--data", str(DATA)] if program == "origin.py" else []
    command += ["--ledger", str(ledger)] if ledger else []
    command += ["--cert", str(cert)] if cert else []
    command += ["--bills", str(bills)] if bills else []
    command += ["--script", str(script)] if script else []
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Origin(int(process.stdout.readline()), log, process)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def make_home(folder: Path) -> Path:
    """Make a user's empty home with a quick CA, so that no start pays for RSA keys."""
    home = folder / f"home-{time.monotonic_ns()}"
    (home / ".mitmproxy").mkdir(parents=True)
    key, cert = authority()
    pem = cert.public_bytes(serialization.Encoding.PEM)
    (home / ".mitmproxy" / "mitmproxy-ca.pem").write_bytes(private_pem(key) + pem)
    (home / ".mitmproxy" / "mitmproxy-ca-cert.pem").write_bytes(pem)
    return home


@contextlib.contextmanager
def proxy(
    folder: Path, config: str = "", *, kind: str = "mitmdump", arguments: tuple[str, ...] = (),
    addons: Path | None = None, environment: dict | None = None, home: Path | None = None,
) -> Iterator[Proxy]:  # fmt: skip
    """Run Lockpin until the block ends; `kind` is "mitmdump" or "up"; `addons` is another entry script's path."""
    found = launch(
        folder, config, kind=kind, arguments=arguments, addons=addons, environment=environment, home=home
    )  # fmt: skip
    try:
        until(lambda: _is_up(found))
        yield found
    finally:
        end(found.process)


def launch(
    folder: Path, config: str = "", *, kind: str = "mitmdump", arguments: tuple[str, ...] = (),
    addons: Path | None = None, environment: dict | None = None, home: Path | None = None,
) -> Proxy:  # fmt: skip
    """Start Lockpin as `proxy` does, and give it before it listens; whoever asks for it ends it."""
    home = home or make_home(folder)
    port = free_port()
    settings = home / "lockpin.yaml"
    settings.write_text(config)
    log = home / f"printed-{port}.txt"
    if kind == "mitmdump":
        entry = addons or ROOT / "addons" / "lockpin.py"
        command = [str(Path(sys.executable).with_name("mitmdump")), "-s", str(entry), "-p", str(port)]
        command += ["--set", f"lockpin_config={settings}", *arguments]
    elif arguments or addons:
        command = [sys.executable, "-m", "lockpin_addons.up", "--port", str(port)]
        command += ["--set", f"lockpin_config={settings}", *arguments]
    else:
        command = [sys.executable, "-m", "lockpin_cli.main", "up", "--port", str(port), "--config", str(settings)]
    variables = {name: os.environ[name] for name in ("PATH", "LANG", "COVERAGE_PROCESS_START") if name in os.environ}
    roots = [addons.parent.parent, addons.parent] if addons else [ROOT, ROOT / "addons"]
    variables |= {
        "HOME": str(home),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(map(str, [*roots, RIG / "resolver"])),
    }
    variables |= environment or {}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=variables, cwd=home)
    return Proxy(port, home, process, log, home / ".local/share/lockpin/ledger.sqlite3")


def end(process: subprocess.Popen, patience_s: float = 10) -> None:
    """End a process, by SIGTERM where that is enough."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_up(found: Proxy) -> bool:
    assert found.process.poll() is None, f"the proxy ended with {found.process.returncode}: {found.printed()}"
    try:
        with urllib.request.urlopen(f"{found.url}/lockpin/healthz", timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False


def authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Lockpin test CA")])
    cert = _builder(name, name, key.public_key()).add_extension(x509.BasicConstraints(True, None), critical=True)
    cert = cert.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    return key, cert.add_extension(usage, critical=True).sign(key, hashes.SHA256())


def leaf(folder: Path, hosts: list[str]) -> tuple[Path, Path]:
    """Make a certificate for the origin; give (certificate with key, the CA that it trusts)."""
    key, issuer = authority()
    own = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    cert = (
        _builder(name, issuer.subject, own.public_key()).add_extension(names, critical=False).sign(key, hashes.SHA256())
    )
    pair, ca = folder / "origin.pem", folder / "origin-ca.pem"
    pair.write_bytes(private_pem(own) + cert.public_bytes(serialization.Encoding.PEM))
    ca.write_bytes(issuer.public_bytes(serialization.Encoding.PEM))
    return pair, ca


def _builder(name: x509.Name, issuer: x509.Name, key) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=30))
    )  # fmt: skip


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, kind = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(encoding, kind, serialization.NoEncryption())
