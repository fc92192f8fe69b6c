"""mitmproxy's options: which must be ours, which would open a way round the gate, which write prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from mitmproxy.options import Options
from mitmproxy.proxy import mode_specs

from lockpin_addons.guard import GuardError
from lockpin_core.config import Config

OURS: Mapping[str, object] = {
    "rawtcp": False,  # else a first packet that is no HTTP verb makes a tunnel through intercepted TLS
    "connection_strategy": "lazy",  # eager opens the upstream before any hook
    "tcp_timeout": 3600,  # a thinking model may be silent for long
    "upstream_cert": False,
    "onboarding": False,  # answers mitm.it by itself
    "store_streamed_bodies": False,  # would keep every stream in memory
}
REFUSED = (
    "tcp_hosts", "udp_hosts", "ignore_hosts", "allow_hosts", "map_*", "modify_*", "sticky*", "proxyauth",
    "client_replay", "server_replay", "rfile", "stream_large_bodies", "body_size_limit", "validate_inbound_headers",
    "websocket", "ssl_insecure", "anticomp", "anticache", "block_list", "keep_host_header", "server", "emudhra*",
)  # fmt: skip
WRITES_PROMPTS = ("save_stream_file", "hardump", "proxy_debug")
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
PREFIX = "lockpin_"
ALLOWED_MODES = (mode_specs.RegularMode, mode_specs.ReverseMode, mode_specs.UpstreamMode, mode_specs.Socks5Mode)
_MODES = "regular, reverse:TARGET, upstream:PROXY and socks5 are allowed"


class OptionError(GuardError):
    """An option that Lockpin does not start with; the message names it and the way out."""


def force(options: Options) -> None:
    """Set what must be ours. Raises OptionError where the user set a third value."""
    for name, value in OURS.items():
        if name in options and getattr(options, name) not in (value, options.default(name)):
            raise OptionError(f"option {name} must be {_shown(value)} with Lockpin; leave it out")
    changes = {name: value for name, value in OURS.items() if name in options}
    if not options.listen_host:
        changes["listen_host"] = "127.0.0.1"
    options.update(**changes)


def check(options: Options, config: Config) -> None:
    """Refuse what opens a way round the gate, or does not go with a configuration. Raises OptionError naming it."""
    for name, value in OURS.items():
        if name in options and getattr(options, name) != value:
            raise OptionError(f"option {name} must be {_shown(value)} with Lockpin")
    for name in _changed(options, REFUSED):
        if name == "ssl_insecure" and config.upstreams:
            continue
        raise OptionError(f"option {name} opens a way round the spend cap; Lockpin does not run with it")
    check_modes(options, is_team=config.mode == "team")


def ask_for_certificates(options: Options, config: Config) -> None:
    """In team mode ask clients for a certificate, which may stand for a key; who has none goes on without one."""
    if config.mode == "team":
        options.update(request_client_cert=True)


def warnings(options: Options) -> list[str]:
    """List options that are allowed but write prompts, or trust anybody."""
    found = [f"option {name} writes prompts and replies" for name in _changed(options, WRITES_PROMPTS)]
    if "flow_detail" in options and options.flow_detail > 1:
        found.append("option flow_detail above 1 writes prompts and replies to the screen")
    if options.ssl_insecure:
        found.append("option ssl_insecure trusts any certificate of an upstream")
    return found


def misspelled(options: Options) -> list[str]:
    """List `--set lockpin_…` names that are no options: mitmproxy itself ignores them silently."""
    return sorted(name for name in options.deferred if name.startswith(PREFIX))


def _changed(options: Options, patterns: tuple[str, ...]) -> Iterator[str]:
    for name in sorted(options.keys()):
        if any(fnmatchcase(name, pattern) for pattern in patterns) and getattr(options, name) != options.default(name):
            yield name


def check_modes(options: Options, *, is_team: bool) -> None:
    """Refuse modes that are not metered, and listening where nobody may. Raises OptionError naming the mode."""
    for text in options.mode:
        mode = mode_specs.ProxyMode.parse(text)
        _check_mode(mode, text)
        if is_team:
            _check_team_mode(mode, text)
        else:
            _check_solo_host(mode.listen_host(options.listen_host))


def is_near(options: Options) -> bool:
    """Say whether this machine alone is listened to."""
    hosts = (mode_specs.ProxyMode.parse(text).listen_host(options.listen_host) for text in options.mode)
    return all(host in LOOPBACK_HOSTS for host in hosts)


def _check_mode(mode: mode_specs.ProxyMode, text: str) -> None:
    if not isinstance(mode, ALLOWED_MODES):
        raise OptionError(f'mode "{text}" is not allowed with Lockpin: {_MODES}')
    if isinstance(mode, mode_specs.ReverseMode):
        if mode.scheme not in ("http", "https"):
            raise OptionError(f'mode "{text}" is not allowed with Lockpin: reverse needs a target of http or https')
        # For https it would listen on UDP as well, for HTTP/3, which is not metered. mitmproxy has the same object.
        mode.transport_protocol = mode_specs.TCP


def _check_team_mode(mode: mode_specs.ProxyMode, text: str) -> None:
    if not isinstance(mode, mode_specs.RegularMode):
        words = "the others have no place for a key, and lead to hosts that nobody has looked at"
        raise OptionError(f'mode "{text}" is not in this version with "mode: team", regular alone is: {words}')


def _check_solo_host(host: str) -> None:
    if host not in LOOPBACK_HOSTS:
        raise OptionError(
            f'listening on "{host or "all addresses"}" is refused in solo mode: anybody who reaches the port '
            'could spend your budgets; listen on 127.0.0.1, or give out keys ("mode: team" in lockpin.yaml)'
        )


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
