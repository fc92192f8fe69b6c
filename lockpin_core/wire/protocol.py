"""What every wire format does. A wire knows JSON field names; it knows no prices, no clock and no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from lockpin_core.call import Also, Parsed, Reading, Refusal, Reply, Request, Rewrite, Setting, ToolStep
from lockpin_core.wire.jsonbody import digest


class Scanner(Protocol):
    """Reads a passing reply in any chunking, with bounded memory; never raises.

    It keeps one event of at most 1 MiB, or a JSON body: of at most 16 MiB where the call asked for a stream.
    """

    def feed(self, chunk: bytes) -> None:
        """Take decoded bytes of the reply."""

    def result(self) -> Reading:
        """Say what is known now; also after a cut."""


@runtime_checkable
class StreamScanner(Scanner, Protocol):
    """A scanner of a stream, which may be asked with each piece of it."""

    def so_far(self) -> Reading:
        """Say what whole events have said: half of one is not read, for it may be long, and come in many pieces."""


@runtime_checkable
class EndingScanner(Scanner, Protocol):
    """A scanner that knows at once when nothing more of a reply will matter: a client may go on by the reply's id."""

    @property
    def has_ended(self) -> bool: ...


@runtime_checkable
class ListScanner(Scanner, Protocol):
    """A scanner of a list of any length, of which it keeps what was stated and one line."""

    @property
    def reads_any_length(self) -> bool: ...


class UsageFilter(Protocol):
    """Takes out of a passing stream the usage chunk that Lockpin asked for; everything else passes unchanged."""

    def feed(self, chunk: bytes) -> bytes:
        """Give what the client gets of this chunk; may be empty."""

    def close(self) -> bytes:
        """Give what was kept back, at the stream's end."""


@dataclass(frozen=True, slots=True)
class CountRequest:
    """What asks the provider how many tokens a prompt has, on the call's own host and with its own credentials."""

    path: str  # with query
    body: bytes


class Wire(Protocol):
    """One format. Vendors that speak it are data (`pricing/*.yaml`).

    What stands here with a body or a value is that of a format which has nothing of the kind.
    """

    error_shape: ClassVar[str] = "openai"  # whose error bodies its refusals look like
    stream_type: ClassVar[str] = "text/event-stream"  # how the content type of a streamed reply begins
    reads_headers: ClassVar[frozenset[str]] = frozenset()  # of those that change a cost, the ones that `parse` reads
    links: ClassVar[bool] = False  # a later call may name its replies by their id: for what they hold, or for usage
    omits_history: ClassVar[bool] = False  # usage may leave out what a conversation that the provider keeps brings in
    held_as: ClassVar[str] = "background"  # for how long a hold waits for usage that comes later, by `hold_for`
    has_limit: ClassVar[bool] = True  # a request can say how much output it may have
    tool_mark: ClassVar[bytes] = b""  # stands in a body at least once for each result of a tool
    always_limited: ClassVar[bool] = False  # each request says so, often much more than it needs
    lends_limit: ClassVar[bool] = False  # others speak it and may not know its limit on tools that the provider runs

    @property
    def name(self) -> str: ...
    @property
    def min_output(self) -> int:
        """The smallest output limit that the wire accepts when Lockpin sets one; see `least_output`."""

    @property
    def cut_rule(self) -> str:
        """How a cut stream is charged: "observed" (prompt as stated, output from bytes) or "hold"."""

    def parse(self, request: Request) -> Parsed:
        """Read what price and policy need. Raises WireError and nothing else, whatever the bytes are."""

    def rewrite(
        self,
        request: Request,
        change: Rewrite,
        *,
        output_field: str = "max_completion_tokens",
        parsed: Parsed | None = None,
    ) -> bytes:
        """Give the body with just that change; every other byte stays as it was. A limit is never raised.

        `output_field` is what the host calls the output limit of a request that has none. `parsed` is what `parse` gave
        for this request: with it the body is not read again, which would take as long as parsing it.
        """

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for a 2xx reply: of `stream_type` when `streamed`, else one JSON body.

        `asked` is the request, where it is known: it settles what a reply leaves open (cache lifetimes, choices).
        """

    def usage_filter(self) -> UsageFilter | None:
        """Make the filter for a stream whose request was rewritten with `ask_usage`; None: the wire needs none."""
        return None

    def count_request(self, request: Request) -> CountRequest | None:
        """Make the request to the provider's free counting endpoint for this call; None: there is none."""
        return None

    def read_count(self, body: bytes) -> int | None:
        """Read the answer of the counting endpoint: tokens of the whole prompt; None: it says nothing. Never raises."""
        return None

    def texts(self, request: Request) -> list[str] | None:
        """Give every text of the prompt, as `parse` counted it, for a tokenizer of our own; None: none would be exact.

        Tool schemas are left out, as in `Content.text_bytes`. Raises WireError as `parse` does.
        """
        return None

    def polled_id(self, path: str) -> str | None:
        """Give the provider's id that a poll's path names, where its reply names none; None: it names one."""
        return None

    def also_within(self, parsed: Parsed, limit: int) -> tuple[Also, ...]:
        """Say what the other models of `parsed.also` may do once the request was rewritten to this output limit."""
        return parsed.also

    def least_output(self, parsed: Parsed) -> int:
        """Give the smallest output limit with which this request is valid once it was rewritten."""
        return max(self.min_output, parsed.least_output)

    def conversation(self, request: Request) -> bytes | None:
        """Give a digest by which a conversation is known again while it grows: of its first user message.

        None: there is none, or the provider keeps it. To be asked once the request was parsed, as the three below.
        """
        return None

    def trimmable(self, request: Request) -> int:
        """Count the leading results of tools that may begin to be left out: those older than the last three turns.

        None of them where the model has thought since and its maker binds thoughts to what stands before them. What was
        left out once stays out: the larger of this number and the one of the conversation's call before is to be used.
        """
        return 0

    def lightened(self, request: Request, *, cache_5m: bool, trim: int) -> bytes | None:
        """Give the body with 1 hour in the cache as 5 minutes, and without the long texts of the first `trim` results.

        Every other byte stays. The same `trim` gives the same bytes for what a later call of the conversation repeats.
        None: nothing changes, or nothing may.
        """
        return None

    def with_model(self, request: Request, model: str) -> Request | None:
        """Give the same call to another model; None: it cannot be named there. Every other byte stays."""
        return None

    def same_call(self, request: Request) -> bytes:
        """Give a digest by which the same call is known again, whether it streams and whatever its output limit."""
        return digest(request, ())

    def tool_steps(self, request: Request) -> Iterator[ToolStep]:
        """Give the calls of the client's tools in the request's conversation, the last turn first, read as asked for.

        Of a request that was parsed; what cannot be read as a step is left out. Never raises.
        """
        return iter(())

    def setting(self, request: Request) -> Setting | None:
        """Digest the tools and the system prompt of a request that was parsed; None: the format has neither."""
        return None

    def error_code(self, body: bytes) -> str | None:
        """Read the code of a provider's error body, for `billed_errors`; None where there is none. Never raises."""

    def refuse(self, refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
        """Put a refusal into the format's own error shape; `lockpin` is the JSON-ready object of SPEC §8."""
