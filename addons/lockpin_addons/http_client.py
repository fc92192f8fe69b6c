"""The client by which Lockpin itself asks others: providers that count prompts, an identity provider for its keys."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import certifi
from mitmproxy import ctx

if TYPE_CHECKING:
    from tornado.httpclient import AsyncHTTPClient, HTTPResponse

MAX_REPLY_BYTES = 1 << 20
MAX_AT_ONCE = 64


class HttpClient:
    """Asks over HTTP, and trusts whom mitmproxy trusts."""

    def __init__(self) -> None:
        self._client: AsyncHTTPClient | None = None
        self._trust: ssl.SSLContext | None = None

    async def fetch(
        self, url: str, *, patience_s: float, method: str = "GET", body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes | None:  # fmt: skip
        """Ask, and give the body of a good reply; None: it was another. Follows nothing.

        `patience_s` is for connecting and for all of it. Raises OSError where nobody answers.
        """
        client = await self._open()
        from tornado.httpclient import HTTPClientError  # by now it is imported

        asking = client.fetch(
            url, raise_error=False, method=method, body=body, headers=dict(headers or {}), follow_redirects=False,
            decompress_response=False, connect_timeout=patience_s, request_timeout=patience_s,
            ssl_options=self._trust,
        )  # fmt: skip
        asking.add_done_callback(_taken_note_of)
        # Waited for from beside: one that is broken off here would be told in a log when it ends.
        await asyncio.wait([asking])
        try:
            reply = asking.result()
        except HTTPClientError as error:
            raise ConnectionError("no answer in time, or none that could be read") from error
        return reply.body if 200 <= reply.code < 300 else None

    async def _open(self) -> AsyncHTTPClient:
        """Make the client at the first question, which pays for it; the start does not."""
        if self._client is None:
            made, trust = await asyncio.to_thread(_client_and_trust)
            if self._client is None:
                self._client, self._trust = made(), trust
        return self._client


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
