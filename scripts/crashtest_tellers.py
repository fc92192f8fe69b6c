"""Starts processes that have a ledger open and do what they are told, and ends exactly those, by their pid."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.crashtest_books import Broken, need, until

PATIENCE_S = 120  # the longest order takes a good part of that
FAULT_S = 15
_PROGRAM = Path(__file__).resolve().with_name("crashtest_teller.py")


class Teller:
    """One such process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(_PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.faults: list[str] = []
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read_on)
        self._reader.start()

    def _read_on(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def tell(self, do: str, **more: object) -> None:
        """Give an order, and do not wait for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do} | more) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the next answer; note the faults that are told before it."""
        while "fault" in (told := self.read()):
            self.faults.append(told["fault"])
        return told

    def fault(self, what: str) -> str:
        """Wait for the next fault to be told, or the end of one (""); `what` says of which."""
        told = self.read(FAULT_S, what)
        self.faults.append(told.get("fault", "none"))
        return self.faults[-1]

    def read(self, patience_s: float = PATIENCE_S, what: str = "an order") -> dict[str, Any]:
        """Wait for one line that it prints. Raises Broken where none comes."""
        try:
            line = self._lines.get(timeout=patience_s)
        except queue.Empty:
            raise Broken(f"a process said nothing within {patience_s:g} s: {what}") from None
        need(line, "a process ended by itself")
        told: dict[str, Any] = json.loads(line)
        return told

    def ask(self, do: str, **more: object) -> dict[str, Any]:
        """Give an order and wait for its answer."""
        self.tell(do, **more)
        return self.answer()

    def send(self, sign: signal.Signals) -> None:
        """Send a signal; SIGSTOP is waited for until the process has stopped."""
        self.process.send_signal(sign)
        if sign == signal.SIGSTOP:
            self.wait_until_stopped()
        if sign == signal.SIGKILL:
            self.process.wait()

    def wait_until_stopped(self) -> None:
        """Wait until the system says that the process is stopped."""
        how = os.WSTOPPED | os.WNOWAIT | os.WNOHANG
        until(lambda: os.waitid(os.P_PID, self.process.pid, how), "the process has stopped")

    def end(self) -> None:
        """End the process: at once, and also where it is stopped."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self._reader.join()
        self.process.stdout.close()


@contextlib.contextmanager
def tellers(count: int) -> Iterator[list[Teller]]:
    """Start some tellers; all have ended when the block has."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            teller = Teller()
            stack.callback(teller.end)
            made.append(teller)
        yield made
