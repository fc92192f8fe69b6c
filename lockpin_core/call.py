"""The nouns of a call's route: Request → Parsed → Quote → Hold → Reading → Charge, or a Refusal. Data, no logic."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lockpin_core.money import ZERO, Money
from lockpin_core.usage import Unit, Usage, total_tokens


@dataclass(frozen=True, slots=True)
class Request:
    """A request as a wire sees it: the body decoded, header names in lower case, the path without query."""

    method: str
    host: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    path_model: str | None = None  # the model where the path names it, decoded, case kept
    presigned: bool = False  # the query has a signature that covers the body
    # By globs of models, first match: which fields of an output limit the host obeys, first the one that Lockpin sets.
    # Empty: whichever the format has.
    output_fields: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply that Lockpin itself gives."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Terms:
    """What changes every rate of a call, as a request asks or a reply states it; None: not said."""

    tier: str | None = None  # service tier: "default", "priority", "flex", "batch", …
    speed: str | None = None  # "fast", "standard"
    geo: str | None = None  # "us", "eu", "global": inference geography or data residency


class Image(NamedTuple):
    """One image of a request: its size in pixels, where the body shows it, and the detail that is asked for."""

    width: int | None = None
    height: int | None = None
    detail: str = ""


class Picture(NamedTuple):
    """What a request asks of the pictures that a model draws; None: the model or its default decides."""

    width: int | None = None
    height: int | None = None
    quality: str = ""


@dataclass(frozen=True, slots=True)
class Content:
    """How much a request body holds, counted without a tokenizer (PRICING §8)."""

    text_bytes: int  # UTF-8 bytes of every decoded string, key and number, tool schemas and image data left out
    nfc_bytes: int  # the same after Unicode NFC, which some tokenizers apply first
    strings: int  # how many strings those are
    messages: int  # how many messages frame them
    schema_bytes: int = 0  # JSON bytes of tools, functions and response schemas
    images: tuple[Image, ...] = ()  # each bounded by the model's rule, or its ceiling
    extra_tokens: int = 0  # fixed allowances: hidden prompts of client-side tools that the provider defines
    hidden: str | None = None  # why the body does not show the whole prompt ("file_id"); the context window bounds it
    counted: int | None = None  # tokens of the whole prompt as something better than bytes has counted them
    images_times: int = 1  # how often each of the images is read
    images_most: int | None = None  # tokens of them all, where that was worked out: then nobody looks at each again
    prompts: int = 1  # separate prompts of one request, each of which may fill the context window
    explains_tools: bool = False  # `extra_tokens` allows for the prompt that tells the model how to use tools


@dataclass(frozen=True, slots=True)
class Layout:
    """Where members stand in a body's bytes, so that a change need not read the body again. Only its wire looks in."""

    size: int  # of the body
    opening: int  # just after the object's brace
    is_empty: bool  # the object has no member
    spans: Mapping[str, tuple[int, int]]  # where values begin and end, of the members that a change may touch


@dataclass(frozen=True, slots=True)
class Also:
    """Another model that the provider may run within a call: on the same prompt, so many times."""

    model: str
    output_limit: int | None  # each time; None: the model's maximum
    rounds: int = 1
    extra_prompt: int = 0  # tokens that it reads besides: what models before it have said
    speed: str | None = None  # None: as the request
    fills: bool = False  # what the provider's tools have brought in before may fill its window
    # Limits of the attempts before it, which fall with the request's, as its own does; None: neither does.
    after: tuple[int, ...] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Calls of tools that the provider runs, where a limit in the body can say how many, and what each brings."""

    calls: int
    rounds: int = 1  # of `Parsed.rounds`
    output_rounds: int = 0
    fees: Mapping[Unit, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parsed:
    """What price and policy need of a request body; made by a wire only."""

    model: str
    streamed: bool
    content: Content
    output_limit: int | None  # tokens a choice may have, as the request says; None: it does not say
    clamped: bool = True  # no reply is longer than the price table's maximum, whatever limit the request says
    choices: int = 1
    rounds: int = 1  # samplings that the provider may make by itself: 1 + the calls of its own tools; each reads it all
    output_rounds: int = 1  # how many of them may each have the output limit
    extra_output: int = 0  # output tokens billed beside the limit (rejected predictions)
    thinking: int = 0  # tokens that each sampling of a choice may think beside the limit, as the request says
    has_budget: bool = False  # `thinking_budget` says so, which those keep to who made it
    output_settable: bool = True  # False: the body must not get a limit, nor a lower one
    least_output: int = 0  # no smaller limit is valid beside what the request says of thinking
    attested: bool = False  # the body is signed or attested and passes byte for byte or not at all
    asks_usage: bool = (
        True  # the client gets usage in the stream by itself; False: Lockpin may ask and take it out again
    )
    prompt_units: frozenset[Unit] = frozenset({Unit.INPUT})  # what a prompt token may be billed as, cache reads apart
    output_units: frozenset[Unit] = frozenset({Unit.OUTPUT})
    fees: Mapping[Unit, int] = field(default_factory=dict)  # the most pieces the tools, or a model's own work, can cost
    unbounded_fees: frozenset[Unit] = frozenset()  # pieces without a bound: no cap holds where they cost
    terms: Terms = Terms()
    subscription: bool = False  # a plan login, billed by the plan and held at list price
    routed: bool = False  # the request has a say in which of several hosts serves it, and so at whose price
    beyond_limit: bool = False  # more than the output limit may be billed: the model's maximum comes on top
    also: tuple[Also, ...] = ()  # other models that the provider may run on this prompt within the call
    tool_limit: int | None = None  # the limit on the provider's tools that the body must get: the bound counts on it
    tool_most: int | None = None  # to which the client's own limits on such tools must be lowered
    tools: tuple[ToolUse, ...] = ()  # what a lower limit on the provider's tools makes less of
    grows: bool = False  # the provider may add input while the call runs: its hold is not trued up on the way
    chain: str | None = None  # the provider's id of an earlier reply whose whole conversation is input
    chain_rest: int | None = None  # the most tokens of the prompt beside that conversation; None: not known
    left_out: int = 0  # the most tokens of that conversation that are billed as input and may not be in the usage
    chain_reasoning: int = 0  # tokens of reasoning there and in the body, which a turn may leave out for a later one
    chain_images: int = 0  # the most tokens of the body's images, which a turn may shrink and a later one not
    hides_images: bool = False  # input that the body does not show may be images, or one of its own has no bound
    is_whole: bool = True  # the provider leaves nothing of the prompt out, but for reasoning and images that are known
    background: bool = False  # the usage comes by a later call
    batch: Iterable[Parsed] = field(default=(), repr=False)  # the requests of a call that brings many
    batched: bool = False  # one of those: it is billed at the price of a batch and at no other
    name_sum: int = 0  # of the name by which its result is known: see `Ceiling.name_sum`
    text_reply: bool = False  # the reply is asked for as plain text, which states nothing, whatever it looks like
    picture: Picture | None = None  # each choice is one, and its output is bounded by what is asked of it
    layout: Layout | None = field(default=None, repr=False, compare=False)
    unheeded_limit: int | None = None  # an output limit in a field that the host does not obey, and none in one it does

    @property
    def stays_as_it_came(self) -> bool:
        """Say whether nothing of what was said may change: the body is signed, or goes out under a plan's login."""
        return self.attested or self.subscription


class ToolStep(NamedTuple):
    """A call of one of the client's tools and its result, as a conversation in a request has them; no text of either.

    Steps of one turn, which the model asked for together, have the same `turn`.
    """

    turn: int  # its place in the conversation; a later one has a higher number
    name: str
    arguments: bytes  # digest, whatever order and spaces they are written with
    likeness: frozenset[int]  # hashes of the words in the arguments, numbers being all one: what two of them share
    result: bytes  # digest; that of nothing where there is no result
    is_empty: bool  # the result says nothing, or that there is nothing
    is_error: bool  # the result is a failure


class Setting(NamedTuple):
    """In what setting a request puts its model: digests of the tools that it may call, and of its system prompt."""

    tools: bytes
    system: bytes


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What to change in a request body, and nothing else."""

    max_output: int | None = None  # set where there is none, and in place of a higher one; a lower one stays
    ask_usage: bool = False
    tool_limit: int | None = None  # for tools of the provider's without a limit
    tool_most: int | None = None  # for those with a higher one


@dataclass(frozen=True, slots=True)
class Ceiling:
    """No reply to the call bills more: prompt tokens in any split over `prompt_units`, output likewise, and fees.

    Where a model bills by the second or the character, those are among the fees, and it has no tokens.
    """

    prompt: int
    output: int  # over all choices
    prompt_units: frozenset[Unit]
    output_units: frozenset[Unit]
    fees: Mapping[Unit, int]
    requests: int = 1  # that the call brings; each has a result of its own
    name_sum: int = 0  # sum of digests of the names that those go by, in any order; 0: they have none
    left_out: int = 0  # of `prompt`, the most tokens of a kept conversation that the usage may leave out
    rest: int | None = None  # the most tokens of `prompt` beside that conversation; None: not known
    refills: int = field(default=0, compare=False)  # how often `window` is in `prompt`, for rounds of hosted tools
    window: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Quote:
    """The most a call can cost, in dollars and in tokens."""

    most: Money
    tokens: int
    ceiling: Ceiling
    is_endless: bool = False  # it costs nothing, and nobody knows how many tokens it takes: those are not counted here

    def others(self) -> int:
        """Give how many of the tokens other models may take, which run within the call: the ceiling is its own."""
        return max(0, self.tokens - self.ceiling.prompt - self.ceiling.output)


@dataclass(frozen=True, slots=True)
class Payers:
    """Who is charged. Solo mode knows task, machine, project and tags; the rest is for team mode."""

    task: str
    machine: str
    key: str | None = None
    user: str | None = None
    team: str | None = None
    groups: tuple[str, ...] = ()
    ring: str | None = None
    project: str | None = None
    tags: tuple[tuple[str, str], ...] = ()

    @property
    def whose(self) -> str:
        """Name the task, of users each one's own: what is remembered of one's calls is not for another's."""
        return self.task if self.user is None else f"{self.task}\x1f{self.user}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """Which sending of a client's request a call is: what failed before may be sent once more, at a hold of its own."""

    number: int = 1
    of: int = 1  # at most
    first: str | None = None  # the call that failed first; None: it is this one


FIRST_ATTEMPT = Attempt()


@dataclass(frozen=True, slots=True)
class Call:
    """A call ready to be held: who pays, what it is, what it can cost."""

    id: str
    payers: Payers
    provider: str
    host: str
    wire: str
    model: str  # canonical name, as the price table has it
    asked_model: str  # as the request says it
    client: str  # product of the user agent: "claude-cli/2.1.197"; no more of it is kept
    streamed: bool
    quote: Quote
    terms: Terms
    output_limit: int | None  # in force for the call: the request's or the one Lockpin set
    limit_set: bool  # Lockpin set or lowered it
    billing: str  # "metered" | "subscription"
    price_date: str
    rates: Mapping[str, str]  # unit → dollars per million (fees: each), as decimal text
    degrade: tuple[str, ...] = ()
    waited_ms: int = 0
    reserve: Quote | None = None  # what it must leave besides on the task's own account, where that enforces a limit
    attempt: Attempt = FIRST_ATTEMPT
    instead_of: str | None = None  # provider/model that the client asked for, where another one serves


class Doubt(NamedTuple):
    """Tokens that stand under one unit because a reply does not say what they are, and may be another one's."""

    counted: Unit
    tokens: int
    units: frozenset[Unit]  # what else they may be: as far as the request asked for it


@dataclass(frozen=True, slots=True)
class Portion:
    """Usage of one model within a reply; `model` None: the reply did not say. In doubt the dearest is charged."""

    model: str | None
    usage: Usage
    doubts: tuple[Doubt, ...] = ()
    terms: Terms = Terms()  # what is said of this portion alone


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply said of its usage, at any moment of it.

    `complete`: the final usage was stated. `terminal`: the wire's terminal event (or the whole JSON body) was seen.
    `prompt_stated`: the prompt side of `portions` is real although the output is not (Anthropic's first event), and
    all of the reply so far could be read: `generated_bytes` leaves nothing out that was relayed.
    """

    portions: Sequence[Portion] = ()
    complete: bool = False
    terminal: bool = False
    prompt_stated: bool = False
    readable: bool = True  # False: encoding or shape could not be read
    model: str | None = None
    terms: Terms = Terms()
    upstream_id: str | None = None
    requests: int | None = None  # whose results are here, of a call that brought many; None: it is no list of results
    name_sum: int = 0  # of their names: see `Ceiling.name_sum`
    pending: bool = False  # the provider goes on working, and states the usage by another call
    stated_pico: int | None = None  # what the reply says that it cost, in picodollars
    reasoning: int = 0  # tokens of the output that are reasoning, which later turns may bring in again
    unread: bool = False  # what a tool of the provider's found, no sampling may have read: a later turn may
    shrunk: bool | None = None  # whether the provider shrank the prompt's images; None: it does not say
    generated_bytes: int = 0  # UTF-8 bytes of generated text, tool names and input, and thinking that were relayed
    hidden_thinking: bool = False  # thinking ran; what is relayed of it may be a summary of what is billed
    delivered: bool = False  # some output reached the client
    error: str | None = None  # type of an error stated inside a 200 reply
    stopped_at_limit: bool = False


class Ending(enum.StrEnum):
    """How an exchange ended, as the edge saw it."""

    DONE = "done"  # the reply ended by itself
    CUT = "stream_cut"  # the provider's side broke off after the first byte of the reply
    CLIENT_LEFT = "client_left"
    DROPPED = "failed"  # sent, and the provider broke off before a byte of the reply
    NOT_SENT = "not_sent"  # no connection was opened: nothing left
    STOPPED = "lockpin_stopped"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The facts of an exchange beside its reading; `status` None: no reply began."""

    ending: Ending
    status: int | None
    seconds: int = 0  # from sending to the end, rounded up
    error_code: str | None = None  # code of an error body, for `billed_errors`


class Share(NamedTuple):
    """What one model's part of a reply comes to: prompts of the same terms and the same band of its prices."""

    model: str  # canonical name
    usage: Usage
    amount: Money
    prompts: int = 1  # each of which is priced by itself
    least_prompt: int = 0  # tokens of the smallest of them
    most_prompt: int = 0
    terms: Terms = Terms()


@dataclass(frozen=True, slots=True)
class Charge:
    """What a call did cost. `reason` is None where the provider reported usage; else it names the estimate's rule.

    `shares` add up to it where several prompts, or several models, are in it. Of an estimate `least` is what the
    provider has reported: where that is within what is held for the call, so is all of it.
    """

    amount: Money
    usage: Usage
    tokens: int
    model_served: str | None
    tier: str | None
    reason: str | None = None
    estimated: bool = False
    failed: bool = False
    priced: bool = True  # False: the tokens are known, their price is not
    shares: tuple[Share, ...] = ()
    least: Money = field(default=ZERO, compare=False)
    least_tokens: int = field(default=0, compare=False)

    def within(self, usd: Money, tokens: int) -> Charge:
        """Give it as it is booked where so much is held at the last: no estimate is more than that.

        Where what was reported is more already, the bound was wrong, and all of it stands. With a hold of no tokens
        nobody knows their number, and what is estimated of it stands.
        """
        is_wrong = self.least > usd or 0 < tokens < self.least_tokens
        most_tokens = tokens or self.tokens
        if not self.estimated or is_wrong or (self.amount <= usd and self.tokens <= most_tokens):
            return self
        tokens = min(self.tokens, most_tokens)
        usage = self.usage if total_tokens(self.usage) <= tokens else {}
        return replace(self, amount=min(self.amount, usd), tokens=tokens, usage=usage, shares=())


@dataclass(frozen=True, slots=True)
class Void:
    """The exchange cost nothing; the hold is taken off."""

    reason: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Later:
    """The exchange has ended, and its usage comes by another call: the hold stays."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that was not sent: SPEC §8's code, status and words.

    `detail` is the `lockpin` object without `code` and `call`; amounts in it are Money until a wire writes them.
    """

    code: str
    status: int
    message: str  # begins with "lockpin: "
    detail: Mapping[str, object] = field(default_factory=dict)
    retry_after_s: int | None = None
