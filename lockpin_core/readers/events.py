"""The events of a ledger in words: who changed what, and when. Pure over the reader's events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from lockpin_core.clock import instant, stamp, stamp_after
from lockpin_core.ledger.alerts import PASSED, REFUSED
from lockpin_core.ledger.allowances import ENDED, GIVEN, PASSED_ON
from lockpin_core.ledger.definitions import COMMAND, budget_of
from lockpin_core.ledger.pauses import DEFINED, REMOVED, RESET, RESUMED, STOPPED, TRIPPED, read_rule, rule_words
from lockpin_core.ledger.questions import ANSWERED, ASKED, LOOP
from lockpin_core.ledger.reader import Event
from lockpin_core.money import Money
from lockpin_core.readers.figures import said
from lockpin_core.readers.rulebook import line, rhythm
from lockpin_core.windows import Window, duration_text, named

FIELDS = ("at", "who", "code", "what", "loosens", "task", "data")
# What the ledger notes for itself, call by call and account by account: nobody decided it.
BOOKKEEPING = ("account_opened", "account_caught_up", "hold_deferred", "hold_adopted", "rows_taken_out")
_SOMEWHERE = "a proxy's configuration"

type Data = Mapping[str, Any]


def record(event: Event) -> dict[str, object]:
    """Build the JSON object of an event; `data` is what the ledger keeps of it (`docs/ledger.md`)."""
    return {
        "at": stamp(event.at), "who": event.data.get("who"), "code": event.code, "what": words(event),
        "loosens": bool(event.data.get("loosens")), "task": event.task, "data": event.data,
    }  # fmt: skip


def words(event: Event) -> str:
    """Say what an event changed; one that is not known here is named by its code."""
    write = _WORDS.get(event.code)
    return event.code.replace("_", " ") if write is None else write(event.data, event.task)


def _defined(data: Data, task: str | None) -> str:
    budget = budget_of(data["name"], data)
    by = "" if data.get("source") == "command" else f", from {data.get('origin', _SOMEWHERE)}"
    acts = "" if budget.enforce else ", it only warns"
    return f'budget "{budget.name}" is in force: {line(budget)}{acts}{by}'


def _removed(data: Data, task: str | None) -> str:
    by = f", it is no more in {data['origin']}" if "origin" in data else ""
    return f'budget "{data["name"]}" is out of force{by}'


def _raised(data: Data, task: str | None) -> str:
    until = f" until {stamp(instant(data['leaves_at']))}" if data.get("leaves_at") else ""
    return f"limit raised by {_usd(data['by_nano'])}{until}: {_account(data['account'])}"


def _asked(data: Data, task: str | None) -> str:
    kind = "a loop" if data["kind"] == LOOP else f"{_usd(data['needed_nano'])}, short by {_usd(data['short_nano'])}"
    return f'question {data["question"]} about a call of task "{task}" to {data["model"]}: {kind}'


def _answered(data: Data, task: str | None) -> str:
    by = f" by {_usd(data['by_nano'])}" if data.get("by_nano") else ""
    return f'question {data["question"]} is answered "{data["answer"]}"{by}'


def _allowed(data: Data, task: str | None) -> str:
    call, question = data["call"], data["question"]
    raised = f"limit raised by {_usd(data['by_nano'])} for call {call}"
    return f"{raised}, by the answer to question {question}: {_account(data['account'])}"


def _passed_on(data: Data, task: str | None) -> str:
    return f"what call {data['call']} was allowed, {_usd(data['by_nano'])}, is its next attempt's, call {data['to']}"


def _allowance_ended(data: Data, task: str | None) -> str:
    back = f"{_usd(data['by_nano'])} of what call {data['call']} was allowed and has not used is taken back"
    return f"{back}: {_account(data['account'])}"


def _forgotten(data: Data, task: str | None) -> str:
    return f"raises of {_usd(data['raised_nano'])} taken back: {_account(data['account'])}"


def _reset(data: Data, task: str | None) -> str:
    tokens = f" and {data['spent_tokens']:,} tokens" if data["spent_tokens"] else ""
    return f"spent counts anew, {_usd(data['spent_nano'])}{tokens} taken off: {_account(data['account'])}"


def _task_new(data: Data, task: str | None) -> str:
    window = rhythm(named(data["window"], Window("lifetime")))
    limit = "no budget of its own" if data["limit_nano"] is None else f"a budget of {_usd(data['limit_nano'])}"
    again = "; it was closed and is open again" if data.get("reopened") else ""
    of = f" of {data['user']}" if data.get("user") else ""
    return f'task "{task}"{of} has {limit}, {window}{again}'


def _task_closed(data: Data, task: str | None) -> str:
    return f'task "{task}" is closed'


def _breaker(data: Data, task: str | None) -> str:
    rule, by = read_rule(data), "" if data["source"] == COMMAND else f", from {data.get('origin', _SOMEWHERE)}"
    return f"the breaker is set to {rule_words(rule)}{by}"


def _no_breaker(data: Data, task: str | None) -> str:
    return f"the breaker that {'a command' if data['source'] == COMMAND else 'the configuration'} had set is gone"


def _tripped(data: Data, task: str | None) -> str:
    until, within = stamp_after(instant(data["until"])), _span(data["window_us"])
    charged = f"was charged {_usd(data['charged_nano'])} within {within}, above {_usd(data['usd_nano'])}"
    return f"{_subject(data)} {charged}: its calls pause until {until}"


def _let_go(data: Data, task: str | None) -> str:
    return f"the breaker lets the calls of {_subject(data)} go on"


def _stopped(data: Data, task: str | None) -> str:
    return f"{_subject(data)} is stopped"


def _resumed(data: Data, task: str | None) -> str:
    return f"{_subject(data)} goes on"


def _subject(data: Data) -> str:
    of = f" of {data['user']}" if data.get("user") else ""
    return f'{data["scope"]} "{data["subject"]}"{of}'


def _span(us: int) -> str:
    return duration_text(us // 1000)


def _pruned(data: Data, task: str | None) -> str:
    return f"rows up to {data['rows_to']:,} are taken out"


def _opened(data: Data, task: str | None) -> str:
    spent, held = _usd(data["spent_nano"]), _usd(data["held_nano"])
    return f"begins with {spent} spent and {held} held: {_account(data['account'])}"


def _caught_up(data: Data, task: str | None) -> str:
    spent, held = _usd(data["spent_nano"]), _usd(data["held_nano"])
    return f"counts {spent} spent and {held} held that it had missed: {_account(data['account'])}"


def _deferred(data: Data, task: str | None) -> str:
    return f"the cost of call {data['call']} comes later, until {stamp(instant(data['until']))}"


def _adopted(data: Data, task: str | None) -> str:
    count = len(data["calls"])
    return f"{count} deferred call{'' if count == 1 else 's'} of a proxy that has ended go on"


def _key_made(data: Data, task: str | None) -> str:
    until = f", until {stamp(instant(data['expires']))}" if data["expires"] is not None else ""
    return f"key {data['key']} of {data['user']} is made{until}"


def _key_rotated(data: Data, task: str | None) -> str:
    until = f", and is good until {stamp(instant(data['expires']))}" if data["expires"] is not None else ""
    ends = stamp(instant(data["until"]))
    return f"key {data['key']} has another secret{until}; the one before ends at {ends}"


def _key_revoked(data: Data, task: str | None) -> str:
    return f"key {data['key']} is revoked"


def _passed(data: Data, task: str | None) -> str:
    return f"{(Decimal(data['step']) * 100).normalize():f}% is spent, {_of_limit(data)}: {_account(data['account'])}"


def _short(data: Data, task: str | None) -> str:
    held = f", {_usd(data['held_nano'])} held" if data["held_nano"] else ""
    return f"a call did not fit, {_of_limit(data)}{held}: {_account(data['account'])}"


def _of_limit(data: Data) -> str:
    """Say how much of which limit is spent: in dollars, in tokens, or in both."""
    parts = [] if data["limit_nano"] is None else [f"{_usd(data['spent_nano'])} of {_usd(data['limit_nano'])}"]
    if data["limit_tokens"] is not None:
        parts.append(f"{data['spent_tokens']:,} of {data['limit_tokens']:,} tokens")
    return " and ".join(parts)


def _loop(data: Data, task: str | None) -> str:
    what = {
        "same_tool_call": "the same tool call with the same result",
        "near_repeats": "nearly the same tool call, which gives nothing,",
        "same_request": "the same request",
    }.get(data["what"], str(data["what"]))
    tools = f" ({', '.join(data['tools'])})" if data.get("tools") else ""
    return f'task "{task}" goes round in a circle: {what} {data["repeats"]} times in a row{tools}'


def _drift(data: Data, task: str | None) -> str:
    call, was, now = data["call"], data["was"], data["now"]
    match data["kind"]:
        case "model":
            what = f"was of {now}, and the first ones were of {', '.join(was)}"
        case "cost":
            what = f"cost {_usd(now)}, and the first ones of {was['model']} cost {_usd(was['median_nano'])}"
        case "cache":
            what = f"and those before it had {now} of their prompts from the cache, the first ones {was}"
        case kind:
            what = f"had another {'system prompt' if kind == 'system' else 'set of tools'} than the first ones"
    return f'task "{task}" has changed: call {call} {what}'


def _usd(nano: int) -> str:
    return said(Money(nano))


def _account(account: str) -> str:
    """Name an account: its budget, its subject, and the start of its window where it has one."""
    budget, scope, subject, window = account.split("\x1f")
    window, _, owner = window.partition("@")
    start = f", window from {window.partition('/')[0]}" if window and not window.startswith("~") else ""
    whose = f" of {owner}" if owner else ""
    return f"{budget} of {scope}:{subject}{whose}{start}"


_WORDS: Mapping[str, Callable[[Data, str | None], str]] = {
    "budget_defined": _defined,
    "budget_removed": _removed,
    "budget_raised": _raised,
    "raises_forgotten": _forgotten,
    ASKED: _asked,
    ANSWERED: _answered,
    GIVEN: _allowed,
    ENDED: _allowance_ended,
    PASSED_ON: _passed_on,
    "budget_reset": _reset,
    PASSED: _passed,
    REFUSED: _short,
    "loop_found": _loop,
    DEFINED: _breaker,
    REMOVED: _no_breaker,
    TRIPPED: _tripped,
    RESET: _let_go,
    STOPPED: _stopped,
    RESUMED: _resumed,
    "drift": _drift,
    "task_new": _task_new,
    "task_closed": _task_closed,
    "prune_begun": _pruned,
    "rows_taken_out": _pruned,
    "key_created": _key_made,
    "key_rotated": _key_rotated,
    "key_revoked": _key_revoked,
    "account_opened": _opened,
    "account_caught_up": _caught_up,
    "hold_deferred": _deferred,
    "hold_adopted": _adopted,
}
