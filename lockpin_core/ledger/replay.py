"""The books recomputed from rows alone, one after another, up to the first row that is wrong. Pure: knows no SQL.

What it keeps grows with accounts, tasks and writers, not with calls: of a call that is resolved nothing stays, and
whether a correction's call is on the books is asked of whoever has them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from lockpin_core.budgets import SCOPES, subjects_in
from lockpin_core.call import Payers
from lockpin_core.clock import instant
from lockpin_core.ledger.chain import ZERO_HASH
from lockpin_core.ledger.columns import FACT_NAMES, PAYER_NAMES, payers_of
from lockpin_core.ledger.effects import Effects
from lockpin_core.ledger.expected import Content, Earlier, Nothing, Resolution, Seating, Who, Wrong, not_its
from lockpin_core.ledger.key_states import KeyStates
from lockpin_core.ledger.pause_states import PauseStates
from lockpin_core.ledger.pauses import TRIPPED, Subject
from lockpin_core.ledger.question_states import QuestionStates
from lockpin_core.ledger.shares import TOKEN_COLUMNS, raw
from lockpin_core.ledger.tally import PLACES, Defined, OpenCall, Tally, Task, amount, shown
from lockpin_core.ledger.whose import WHO_NAMES
from lockpin_core.money import Money
from lockpin_core.refusals import stamp

OUTSIDE = ("id", "prev", "hash")  # the columns that a row's hash does not cover
STATE_VERSION = 2
_TASK = PLACES["task"]

# The content comes in canonical order already.
_encode = json.JSONEncoder(separators=(",", ":")).encode

_NOTHING = Nothing()


class Replay(Effects):
    """Everything that rows say, up to the last one applied."""

    def apply(self, row: Content) -> None:
        """Take the next row, by column name; columns that are NULL may be left out. Raises Wrong."""
        content = {name: row[name] for name in sorted(row) if name not in OUTSIDE and row[name] is not None}
        self.step(row["id"], row.get("prev"), row.get("hash"), content)

    def step(self, row: int, prev: object, digest: object, content: Content) -> None:
        """Do the same for a row whose content comes in the order of its column names and without NULL."""
        if row <= self.row:
            raise Wrong(row, f"no row of that number can come after row {self.row}")
        if row != self.row + 1:
            raise Wrong(self.row + 1, f"it is missing; row {row} comes after row {self.row}")
        self.row, self._content = row, content
        try:
            self._follow(prev, digest)
            at = content["at"]
            if at < self.at:
                raise self._wrong(f"its time is before that of row {row - 1}, {stamp(instant(self.at))}")
            self.at = at
            kind = _KINDS.get(content["kind"])
            if kind is None:
                raise self._wrong(f'its kind is "{content["kind"]}", which no version writes')
            if self.pauses.due and content.get("code") != TRIPPED:
                raise self._wrong(f"before it {self.pauses.missing()}")
            if self.next is None:
                kind(self, content)
            else:
                self._follow_allowance(kind, content)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            # Content that the chain covers and no ledger writes: somebody made the chain anew.
            raise self._wrong(f"it does not say what its kind must say ({type(error).__name__}: {error})") from error

    def over_limit(self) -> list[str]:
        """List the accounts that stand above an enforced limit, which corrections and dear charges may bring about."""
        over = []
        for account in self.accounts.values():
            account.expire(self.at)
            if account.contains(self.at):
                self._put_limit(account)
                if account.is_over():
                    over.append(account.id)
        return over

    def state(self) -> dict[str, object]:
        """Give everything as JSON-ready data, for a checkpoint."""
        return {
            "version": STATE_VERSION, "row": self.row, "at": self.at, "calls": self.calls, "over_hold": self.over_hold,
            "is_new": self.is_new, "unjudged": self.unjudged,
            "ends": {writer: [seq, digest.hex()] for writer, (seq, digest) in self.ends.items()},
            "definitions": {name: defined.state() for name, defined in self.definitions.items()},
            "tasks": {name: task.state() for name, task in self.tasks.items()}, "keys": self.keys.state(),
            "accounts": {name: account.state() for name, account in self.accounts.items()},
            "open": {call: held.state() for call, held in self.open.items()},
            "questions": self.questions.state(), "next": self.next, "pauses": self.pauses.state(),
        }  # fmt: skip

    @classmethod
    def of(cls, state: Mapping[str, Any], earlier: Earlier = _NOTHING) -> Replay:
        """Go on from what `state` gave. Raises KeyError, TypeError or ValueError where it is no such thing."""
        if state["version"] not in (1, STATE_VERSION):
            raise ValueError(f"a state of version {state['version']}")
        made = cls(earlier)
        made.row, made.at, made.calls, made.over_hold = (state[n] for n in ("row", "at", "calls", "over_hold"))
        made.ends = {writer: (seq, bytes.fromhex(digest)) for writer, (seq, digest) in state["ends"].items()}
        made.definitions = {name: Defined.of(name, told) for name, told in state["definitions"].items()}
        made.tasks = {name: Task.of(told) for name, told in state["tasks"].items()}
        made.keys = KeyStates.of(state.get("keys", {}))
        made.questions = QuestionStates.of(state.get("questions", ({}, {})))
        made.next = tuple(state["next"]) if state.get("next") is not None else None
        made.pauses = PauseStates.of(state.get("pauses", ({}, (), ())))
        made.accounts = {name: Tally.of(name, told) for name, told in state["accounts"].items()}
        made.open = {call: OpenCall.of(told) for call, told in state["open"].items()}
        made.is_new, made._charged_from = state.get("is_new", False), made.at
        made.unjudged = state.get("unjudged", 0 if made.is_new else made.calls)
        made._seating = Seating(made.definitions, made.tasks)
        for account in made.accounts.values():
            made._by_subject[account.name.scope, account.name.subject].append(account.id)
        return made

    def _follow(self, prev: object, digest: object) -> None:
        """Check a row's place in its writer's chain."""
        content = self._content
        try:
            written = hashlib.sha256(prev + _encode(content).encode()).digest()  # type: ignore[operator]
        except TypeError:  # a value that is no text and no number, or no `prev` at all
            written = None
        if written is None or written != digest:
            raise self._wrong("its content is not what was written: the hash differs")
        writer, seq = content["writer"], content["seq"]
        last, end = self.ends.get(writer, (0, ZERO_HASH))
        if seq != last + 1:
            raise self._wrong(f"rows of its writer {writer} are missing before it: its seq is {seq} after {last}")
        if prev != end:
            raise self._wrong(f"it does not follow the row before it of its writer {writer}: that row's hash differs")
        self.ends[writer] = (seq, written)

    def _follow_allowance(self, kind: Callable[[Replay, Content], None], content: Content) -> None:
        """Take the row that must follow on what was allowed to a call, taken back of it, or passed on to the next."""
        assert self.next is not None, "nothing was allowed or taken back"
        (wanted, call, by, to), self.next = self.next, None
        kinds = {"end": ("charge", "void"), "heir": ("hold",)}.get(wanted, (wanted,))
        if content["kind"] not in kinds or content["call"] != call:
            raise self._wrong(f"the row before it is of call {call}, whose {kinds[-1]} does not follow")
        if wanted == "hold" and content.get("user", "") != to:
            raise self._wrong(f"call {call} is not of the user whom the question before it was about")
        if wanted == "end":
            account = self._account(self.questions.allowances.pop(call).account)
            before = account.balance.allowed_nano
            kind(self, content)
            if by != before - account.balance.allowed_nano:
                raise self._wrong(f"what was taken back of its allowance is not ${Money(by).exact()}")
        elif wanted == "void":
            self.next, self._keeps = ("heir", to, self._held(content).usd, ""), True
            kind(self, content)
            self._keeps = False
        else:
            kind(self, content)
            if wanted == "heir":  # the attempts held one after the other, and no other call between
                self._account(self.questions.allowances[call].account).free(by - content["usd"])

    @contextlib.contextmanager
    def _changing(self, names: Iterable[str]) -> Iterator[None]:
        """Change accounts; where room comes free, as much of what was allowed once on them is taken back."""
        allowed = [each for name in names if (each := self._account(name)).balance.allowed_nano]
        used = [account.balance.used_nano for account in allowed]
        yield
        for account, before in zip(allowed, used, strict=True):
            if not self._keeps:
                account.free(before - account.balance.used_nano)

    def _hold(self, content: Content) -> None:
        call, usd, tokens, at, task = (content[n] for n in ("call", "usd", "tokens", "at", "task"))
        names, data = _names(content["accounts"]), content.get("data")
        if call in self.open:
            raise self._wrong("its call has an open hold already")
        if usd < 0 or tokens < 0:
            raise self._wrong("it holds less than nothing")
        told = {} if data is None else json.loads(data)
        unchecked = bool(told.get("unchecked"))
        who = _who(content)
        if task not in self.tasks:
            self.tasks[task] = Task()
        elif self.tasks[task].terms.closes(_payers(content)) and not unchecked:
            raise self._wrong(f'its task "{task}" was closed')
        if not unchecked and (words := self.pauses.refuses(_payers(content), at)) is not None:
            raise self._wrong(words)
        accounts = [self._account(name) for name in names]
        for account in accounts:
            self._judge(account, usd, tokens, checked=not unchecked)
        if self.is_new:
            wanted = self._seating.accounts(who, at)
            if names != wanted:
                raise self._wrong(not_its(names, wanted))
            if unchecked:
                self._judge_unchecked(who, told.get("after_row"))
        else:
            self.unjudged += 1
        for account in accounts:
            account.balance.held_nano += usd
            account.balance.held_tokens += tokens
        self.open[call] = OpenCall(at, usd, tokens, names, content["writer"], _facts(content))
        self.calls += 1

    def _judge_unchecked(self, who: Who, after_row: int | None) -> None:
        """Check that no limit stood against a hold that was written later: one that came meanwhile may be there now.

        `after_row` is the last row that was there when its call was let go.
        """
        since = self._seating.limited_since(who, self.at)
        if after_row is not None and not 0 <= after_row < self.row:
            raise self._wrong(f"it was let go after row {after_row}, which was not there yet")
        if since is not None and (after_row is None or since <= after_row):
            raise self._wrong(f"it went unchecked, and a limit stands against it since row {since}")

    def _judge(self, account: Tally, usd: int, tokens: int, *, checked: bool) -> None:
        """Check that a hold may be on an account. One that is of no budget in force now is only counted."""
        if not account.contains(self.at):
            raise self._wrong(f"it is outside the window of {shown(account.id)}")
        if account.name.subject not in subjects_in(account.name.scope, _payers(self._content)):
            raise self._wrong(f"{shown(account.id)} is not its own")
        self._put_limit(account)
        if account.fault:
            raise self._wrong(account.fault)
        if checked and not account.fits(usd, tokens):
            raise self._wrong(f"its hold of {amount(usd, tokens)} passes the limit of {account.words()}")

    def _shrink(self, content: Content) -> None:
        held, usd, tokens = self._held(content), content["usd"], content["tokens"]
        if not (0 <= usd <= held.usd and 0 <= tokens <= held.tokens) or not (usd or tokens):
            raise self._wrong(f"it takes {amount(usd, tokens)} off a hold of {amount(held.usd, held.tokens)}")
        self._compare(content, held)
        self._compare_facts(content, held)
        with self._changing(held.accounts):
            self._release(held, usd, tokens)
        held.usd -= usd
        held.tokens -= tokens

    def _charge(self, content: Content) -> None:
        held, usd, tokens = self._held(content), content["usd"], content["tokens"]
        if content["call"] in self.questions.allowances:
            raise self._wrong("nothing is said of what it was allowed and has not used")
        names = self._compare(content, held)
        self._compare_facts(content, held)
        is_charge = content["kind"] == "charge"
        if usd < 0 or tokens < 0 or (not is_charge and (usd or tokens)):
            raise self._wrong(f"it costs {amount(usd, tokens)}")
        with self._changing(held.accounts):
            self._release(held, held.usd, held.tokens)
            if usd or tokens:
                self._spend(held, usd, tokens)
        over = usd > held.usd or 0 < held.tokens < tokens
        self.over_hold += over
        if self.is_new:
            if is_charge and content["over_hold"] != over:
                raise self._wrong(f"it says that it {'was not' if over else 'was'} above its hold")
            self._compare_receipt(content, names)
            self._compare_shares(content, usd)
        if is_charge:
            self.pauses.charged(content, usd, self.at, self._charges)
        del self.open[content["call"]]

    def _charges(self, subject: Subject, after_at: int, after_row: int) -> Iterable[tuple[int, int]] | None:
        return self._earlier.charges(subject, after_at, after_row, (self.row, self.at))

    def _spend(self, held: OpenCall, usd: int, tokens: int) -> None:
        for name in held.accounts:
            self.accounts[name].spend(held.at, self.at, usd, tokens)
        self.tasks[held.facts[_TASK]].spent_nano += usd
        self._note_charge(held.payers)

    def _compare_receipt(self, content: Content, names: tuple[str, ...]) -> None:
        """Check what a resolution says of its accounts, limits included."""
        accounts = [self.accounts[name] for name in names]
        for account in accounts:
            if account.generation != self._generation:
                self._put_limit(account)
        receipts = [account.receipt() for account in accounts]
        text = content["data"]
        if text != _encode({"balances": receipts}) and json.loads(text)["balances"] != receipts:
            raise self._wrong("the balances that it tells are not those that its rows say")

    def _compare_shares(self, content: Content, usd: int) -> None:
        """Check that what the models of a call came to adds up to what the row says of it: dollars, and the usage."""
        shares = raw(content["data"])
        if not shares:
            return
        if sum(share["usd"] for share in shares) != usd:
            raise self._wrong(f"what it says of its models does not add up to ${Money(usd).exact()}")
        if "usage" in content:
            whole: dict[str, int] = {}
            for share in shares:
                for unit, count in share["usage"].items():
                    whole[unit] = whole.get(unit, 0) + count
            counts = {name: sum(share.get(name, 0) for share in shares) for name in TOKEN_COLUMNS}
            is_same = all(counts[name] == content.get(name, 0) for name in TOKEN_COLUMNS)
            if whole != json.loads(content["usage"]) or not is_same:
                raise self._wrong("what it says of its models does not add up to its usage")

    def _held(self, content: Content) -> OpenCall:
        held = self.open.get(content["call"])
        if held is None:
            raise self._wrong("its call has no open hold")
        return held

    def _compare(self, content: Content, held: OpenCall) -> tuple[str, ...]:
        names = _names(content["accounts"])
        if names != held.accounts and (len(names) != len(held.accounts) or set(names) != set(held.accounts)):
            raise self._wrong("it is on other accounts than its hold")
        if content.get("held_at") != held.at:
            raise self._wrong(f"its hold was taken at {stamp(instant(held.at))}, which is not what it says")
        return names

    def _compare_facts(self, content: Content, held: OpenCall) -> None:
        facts = _facts(content)
        if facts != held.facts and (found := held.differs(facts)) is not None:
            raise self._wrong(f'its {found[0]} is "{found[1]}", and its hold was of "{found[2]}"')

    def _release(self, held: OpenCall, usd: int, tokens: int) -> None:
        for name in held.accounts:
            account = self._account(name)
            balance = account.balance
            balance.held_nano -= usd
            balance.held_tokens -= tokens
            if balance.held_nano < 0 or balance.held_tokens < 0:
                raise self._wrong(f"it takes more off {shown(name)} than that holds")

    def _correction(self, content: Content) -> None:
        call, usd, tokens, held_at = (content[n] for n in ("call", "usd", "tokens", "held_at"))
        if call in self.open:
            raise self._wrong("its call has not ended yet")
        told = json.loads(content["data"]).get("row") if "data" in content else None
        found = self._earlier.resolution(call, held_at, told, self.row)
        if found is None:
            raise self._wrong("no call of that id and instant has ended before it")
        names = _names(content["accounts"])
        if found.row:
            self._judge_correction(content, found, names)
            # Usage that came late says all that its call costs; a person, by how much it is another amount.
            self._compare_shares(content, found.usd + usd if "usage" in content else usd)
        payers = _payers(content)
        for name in names:
            account = self.accounts[name]
            is_its = account.name.subject in subjects_in(account.name.scope, payers)
            if not is_its or not account.contains(held_at) or (told is not None and account.reset_row >= told):
                raise self._wrong(f"it is on {shown(name)}, which does not count it")
            account.expire(self.at)
            with self._changing((name,)):
                account.spend(held_at, self.at, usd, tokens)
            if account.is_below_zero():
                raise self._wrong(f"by it {shown(name)} would have spent less than nothing")
        self._task(content["task"]).spent_nano += usd
        self.over_hold += content.get("over_hold", 0)
        self._note_charge(payers)

    def _judge_correction(self, content: Content, found: Resolution, names: tuple[str, ...]) -> None:
        """Check a correction of a call whose end is there: what it costs now, whose it is, and who counts it."""
        facts = _facts(content)
        if facts != found.facts:
            name, theirs, ours = next(
                each for each in zip(FACT_NAMES, facts, found.facts, strict=True) if each[1] != each[2]
            )
            raise self._wrong(f'its {name} is "{theirs}", and its call was of "{ours}"')
        usd, tokens = content["usd"], content["tokens"]
        cost = (found.usd + usd, found.tokens + tokens)
        if min(cost) < 0:
            raise self._wrong(f"by it its call costs {amount(*cost)}")
        if "over_hold" in content and content["over_hold"] != (usd > 0 or 0 < found.tokens < cost[1]):
            raise self._wrong("what it says of its hold is not so")
        wanted = [name for name in found.accounts if self.accounts[name].reset_row < found.row]
        payers, what = _payers(content), (content["provider"], content["model"])
        for scope in SCOPES:
            for subject in subjects_in(scope, payers):
                for name in self._by_subject.get((scope, subject), ()):
                    has_counted = self.accounts[name].has_counted(found.row, content["held_at"], payers, *what)
                    if name not in found.accounts and has_counted:
                        wanted.append(name)
        if set(names) != set(wanted):
            raise self._wrong(not_its(names, tuple(wanted)))

    def _decision(self, content: Content) -> None:
        self.calls += content.get("count", 1)


_KINDS: Mapping[str, Callable[[Replay, Content], None]] = {
    "hold": Replay._hold,
    "shrink": Replay._shrink,
    "charge": Replay._charge,
    "void": Replay._charge,
    "correction": Replay._correction,
    "refusal": Replay._decision,
    "uncapped": Replay._decision,
    "event": Replay._event,
}


@functools.lru_cache(maxsize=4096)
def _names(text: str) -> tuple[str, ...]:
    names = tuple(json.loads(text))
    if len(set(names)) != len(names) or not all(isinstance(name, str) for name in names):
        raise ValueError("accounts are named twice")
    return names


def _facts(content: Content) -> tuple[object, ...]:
    return tuple(map(content.get, FACT_NAMES))


def _who(content: Content) -> Who:
    return tuple(map(content.get, WHO_NAMES))


def _payers(content: Content) -> Payers:
    return payers_of(*map(content.get, PAYER_NAMES))
