"""Holds a proxy in the moment between its sockets' first clients and its saying where it listens."""

import asyncio
import os
from pathlib import Path

from mitmproxy.proxy.mode_servers import AsyncioServerInstance


def install() -> None:
    """Let each server touch `$RIG_OPEN` once its sockets are open, and go on when `$RIG_GO` is there."""
    real = AsyncioServerInstance.listen

    async def listen(server, host, port):
        found = await real(server, host, port)
        Path(os.environ["RIG_OPEN"]).touch()
        while not Path(os.environ["RIG_GO"]).exists():
            await asyncio.sleep(0.01)
        return found

    AsyncioServerInstance.listen = listen
