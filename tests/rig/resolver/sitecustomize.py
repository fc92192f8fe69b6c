"""Resolves every provider's name to loopback, for proxies under test: their upstream is then the loopback origin."""

import os
import socket

_real = socket.getaddrinfo


def _getaddrinfo(host, *rest, **more):
    name = host.decode() if isinstance(host, bytes) else host
    if isinstance(name, str) and name.rstrip(".").lower().endswith((".openai.com", ".anthropic.com", ".alias.test")):
        host = "127.0.0.1"
    return _real(host, *rest, **more)


if os.environ.get("RIG_RESOLVER"):
    socket.getaddrinfo = _getaddrinfo
