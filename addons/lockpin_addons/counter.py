"""Sends a prompt to its provider's own counting endpoint, as the caller would: same host, same credentials, no cost."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import certifi
from mitmproxy import ctx

from lockpin_addons import guard
from lockpin_core.admission_counts import PATIENCE_S, CountAsk
from lockpin_core.config import Upstream

if TYPE_CHECKING:
    from tornado.httpclient import AsyncHTTPClient, HTTPResponse

MAX_REPLY_BYTES = 1 << 20
MAX_AT_ONCE = 64
# What a counting endpoint needs of the caller: who it is, and which version it speaks.
_PASSED_ON = (
    *("authorization", "x-api-key", "api-key", "x-goog-api-key", "x-goog-user-project"),
    *("anthropic-version", "anthropic-beta", "anthropic-workspace-id", "openai-organization", "openai-project"),
    *("openai-beta", "user-agent"),
)


class ProviderCounter:
    """Asks over HTTP; `upstreams` says where the calls of a host go instead."""

    def __init__(self, upstreams: Mapping[str, Upstream]) -> None:
        self._upstreams = upstreams
        self._client: AsyncHTTPClient | None = None
        self._trust: ssl.SSLContext | None = None

    async def __call__(self, ask: CountAsk) -> bytes | None:
        """See Counter. In upstream mode nothing is asked: the way there is another proxy's."""
        if any(mode.startswith("upstream") for mode in ctx.options.mode):
            return None
        return await guard.never_fail(self._post(ask), "a prompt was counted by its provider")

    async def _post(self, ask: CountAsk) -> bytes | None:
        client = await self._open()
        headers = {name: ask.headers[name] for name in _PASSED_ON if name in ask.headers}
        asking = client.fetch(
            self._url(ask), raise_error=False, method="POST", body=ask.body, follow_redirects=False,
            headers={**headers, "content-type": "application/json"}, decompress_response=False,
            connect_timeout=PATIENCE_S, request_timeout=PATIENCE_S, ssl_options=self._trust,
        )  # fmt: skip
        asking.add_done_callback(_taken_note_of)
        # Waited for from beside: one that is broken off here would be told in a log when it ends.
        await asyncio.wait([asking])
        reply = asking.result()
        return reply.body if 200 <= reply.code < 300 else None

    async def _open(self) -> AsyncHTTPClient:
        """Make the client at the first count, which pays for it; the start does not."""
        if self._client is None:
            made, trust = await asyncio.to_thread(_client_and_trust)
            if self._client is None:
                self._client, self._trust = made(), trust
        return self._client

    def _url(self, ask: CountAsk) -> str:
        upstream = self._upstreams.get(ask.host)
        if upstream is None:
            return f"https://{ask.host}{ask.path}"
        return f"{upstream.scheme}://{upstream.host}:{upstream.port}{ask.path}"


def _client_and_trust() -> tuple[Callable[[], AsyncHTTPClient], ssl.SSLContext]:
    """Import the client, and read the certificates that mitmproxy trusts too: slow work, for a thread."""
    from tornado.simple_httpclient import SimpleAsyncHTTPClient

    def make() -> AsyncHTTPClient:
        return SimpleAsyncHTTPClient(
            force_instance=True, max_clients=MAX_AT_ONCE, max_body_size=MAX_REPLY_BYTES, defaults={"user_agent": ""}
        )

    file, folder = ctx.options.ssl_verify_upstream_trusted_ca, ctx.options.ssl_verify_upstream_trusted_confdir
    trust = ssl.create_default_context(cafile=file or (None if folder else certifi.where()), capath=folder)
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT  # mitmproxy is not as strict, and both shall trust the same
    if ctx.options.ssl_insecure:
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    return make, trust


def _taken_note_of(asked: asyncio.Future[HTTPResponse]) -> None:
    """Look at how it ended, so that nobody complains that nobody did."""
    if not asked.cancelled():
        asked.exception()
