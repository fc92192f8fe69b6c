"""Sends a prompt to its provider's own counting endpoint, as the caller would: same host, same credentials, no cost."""

from __future__ import annotations

from collections.abc import Mapping

from mitmproxy import ctx

from lockpin_addons import guard
from lockpin_addons.http_client import HttpClient
from lockpin_core.admission_counts import PATIENCE_S, CountAsk
from lockpin_core.config import Upstream

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
        self._client = HttpClient()

    async def __call__(self, ask: CountAsk) -> bytes | None:
        """See Counter. In upstream mode nothing is asked: the way there is another proxy's."""
        if any(mode.startswith("upstream") for mode in ctx.options.mode):
            return None
        return await guard.never_fail(self._post(ask), "a prompt was counted by its provider")

    async def _post(self, ask: CountAsk) -> bytes | None:
        headers = {name: ask.headers[name] for name in _PASSED_ON if name in ask.headers}
        headers["content-type"] = "application/json"
        return await self._client.fetch(
            self._url(ask), method="POST", body=ask.body, headers=headers, patience_s=PATIENCE_S
        )

    def _url(self, ask: CountAsk) -> str:
        upstream = self._upstreams.get(ask.host)
        if upstream is None:
            return f"https://{ask.host}{ask.path}"
        return f"{upstream.scheme}://{upstream.host}:{upstream.port}{ask.path}"
