"""What agents ask and what the provider answers: real bodies of three formats, with a bill for each.

The bill is what the provider charges whatever Lockpin sees of it: within the limits of the body that reached it, and
within what a prompt can hold.
"""

import json
from dataclasses import dataclass, replace

PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
FACTS = {"max_output_tokens": "20000", "context_tokens": "200000", "tokenizer": "bytes"}
PRICING = {
    "pen": {"input": "0", "output": "10", **FACTS},
    "ink": {"input": "1.0005", "output": "5", "cache_read": "0.1", "cache_write_5m": "1.25", "cache_write_1h": "2", **FACTS},
    "big-ink": {"input": "10", "output": "50", "cache_read": "1", "cache_write_5m": "12.5", "cache_write_1h": "20", **FACTS},
    "gift": {"free": "true", **FACTS},
    "scout": {"input": "2", "output": "1", "fees": {"web_search": "0.001"}, **FACTS, "context_tokens": "20000"},
}  # fmt: skip
# Picodollars a token, of prompt and output.
RATES = {
    "pen": (0, 10_000_000), "ink": (1_000_500, 5_000_000), "big-ink": (10_000_000, 50_000_000), "gift": (0, 0),
    "scout": (2_000_000, 1_000_000),
}  # fmt: skip
NANO_A_WORD = 10_000  # of pen, whose prompts are free: what it holds is this times its limit
SEARCH_PICO = 10**9
WORDS = "alpha beta gamma delta "


@dataclass
class Asked:
    """A request of an agent."""

    provider: str
    model: str
    body: bytes
    streamed: bool
    prompt_bytes: int  # of the text in it: no prompt has more tokens
    limit: int | None
    background: bool = False
    path: str = ""
    searches: int = 0  # that the provider's tool may make


@dataclass
class Script:
    """What becomes of a call at the provider: pieces of the reply with the seconds before each, then how it ends."""

    kind: str
    status: int | None
    pieces: list
    bill: tuple  # (usd in nanodollars, tokens)
    upstream_id: str | None = None
    poll: bytes = b""
    served: str = ""  # the model that answers


def ask(dice, *, small):
    """Make a request."""
    provider = dice.choice(("openai", "openai", "anthropic"))
    model = dice.choices(("pen", "ink", "big-ink", "gift", "scout"), (12, 8, 4, 2, 1))[0]
    limit = dice.choice((16, 100, 400, 1000, 2000) if small else (100, 1000, 4000, 20000))
    if provider == "openai" and dice.random() < 0.25:
        limit = None
    text = WORDS * dice.randint(1, 12)
    streamed, searches = dice.random() < 0.5, 0
    if model == "scout":
        provider, streamed, searches = "anthropic", True, dice.randint(1, 2)
    body = {"model": model, "messages": [{"role": "user", "content": text}], "stream": streamed}
    path = PATHS[provider]
    background = provider == "openai" and model != "gift" and limit is not None and dice.random() < 0.06
    if background:
        path, streamed = "/v1/responses", False
        body = {"model": model, "input": text, "background": True, "max_output_tokens": limit}
    elif provider == "anthropic":
        body["max_tokens"] = limit = limit or 1000
        if searches:
            body["tools"] = [{"type": "web_search_20250305", "name": "web_search", "max_uses": searches}]
    elif limit is not None:
        body["max_completion_tokens"] = limit
    return Asked(provider, model, json.dumps(body).encode(), streamed, len(text), limit, background, path, searches)


def limit_of(body):
    """Read the output limit of a body as the provider does."""
    told = json.loads(body)
    found = [told.get(name) for name in ("max_completion_tokens", "max_tokens", "max_output_tokens")]
    return next((limit for limit in found if limit is not None), int(FACTS["max_output_tokens"]))


def searches_of(body):
    """Read how often the provider's tool may search."""
    return sum(tool.get("max_uses", 0) for tool in json.loads(body).get("tools", ()))


def least_of(asked, usd, tokens, limit, floor, *, near):
    """Give what the smallest version needs of a call that needs so much at an output limit; None: there is none.

    A search less saves a whole window of prompt, one more turn of output, and its fee. A limit of the request's own is
    lowered where its format always has one, and near its task's cap.
    """
    prompt, output = RATES[asked.model]
    fewer, window = max(asked.searches - 1, 0), int(PRICING["scout"]["context_tokens"])
    lowers = (asked.limit is None or asked.provider == "anthropic" or near) and limit > floor
    if not fewer and not lowers:
        return None
    usd -= fewer * (window * prompt + limit * output + SEARCH_PICO) // 1000
    tokens -= fewer * (window + limit)
    turns = 2 if asked.searches else 1
    less = turns * (limit - floor) if lowers else 0
    return usd - less * output // 1000, tokens - less


def one_word_more(asked, usd, tokens, most):
    """Give what a call would need whose output was lowered so far, with one token more; None: it was not lowered so."""
    if asked.searches or tokens >= most:
        return None
    return usd + -(-RATES[asked.model][1] // 1000), tokens + 1


def script(dice, asked, sent, number):
    """Say what the provider does with the body that was sent."""
    most = limit_of(sent)
    share = dice.choice((0.01, 0.03, 0.1, 0.5, 1.0)) if dice.random() < 0.5 else 0.02
    output, prompt = max(1, int(most * share)), max(1, int(asked.prompt_bytes * dice.choice((0.25, 0.3, 1.0))))
    searches, served = searches_of(sent), asked.model
    if served == "big-ink" and dice.random() < 0.3:
        served = "ink"  # the provider may serve a smaller one, and bills that
    grown = prompt + sum(dice.randint(0, 18_000) for _ in range(searches))
    bill = bill_of(served, grown, output, searches)
    wait = dice.choice((0.1, 0.5, 2.0, 8.0, 20.0)) * dice.random()
    kind = dice.choices(
        ("done", "not_sent", "refused", "failed", "dropped", "cut", "silent", "garbled"), (74, 3, 5, 4, 3, 5, 3, 3)
    )[0]
    if asked.background:
        kind = dice.choice(("later", "later", "never"))
    name = f"up_{number}"
    if kind == "not_sent":
        return Script(kind, None, [(wait, b"")], (0, 0))
    if kind == "refused":
        return Script(kind, dice.choice((400, 404, 429, 429)), [(wait, b'{"error":{"message":"no"}}')], (0, 0))
    if kind == "failed":
        return Script(kind, 500, [(wait, b'{"error":{"message":"oops"}}')], (0, 0))
    if kind == "dropped":
        return Script(kind, None, [(wait, b"")], (0, 0))
    if kind in ("later", "never"):
        queued = json.dumps({"id": name, "object": "response", "status": "queued", "model": served}).encode()
        usage = {"input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output}
        ended = {
            "id": name,
            "object": "response",
            "status": "completed",
            "model": served,
            "output": [],
            "usage": usage,
        }
        return Script(kind, 200, [(wait, queued)], bill, name, json.dumps(ended).encode(), served)
    pieces = reply(
        replace(asked, model=served, searches=searches),
        prompt,
        output,
        wait,
        dice,
        with_usage=kind != "silent",
        grown=grown,
    )
    if kind == "garbled":
        pieces = [(wait, b"\x00\x01 this is no reply")]
    if kind == "cut":
        whole = b"".join(piece for _, piece in pieces)
        end = dice.randint(1, max(1, len(whole) - 1))
        pieces = cut(pieces, end)
    return Script(kind, 200, pieces, bill, served=served)


def bill_of(model, prompt, output, searches=0):
    """Price a call: nanodollars, rounded up once, and tokens."""
    rates = RATES[model]
    pico = prompt * rates[0] + output * rates[1] + searches * SEARCH_PICO
    return -(-pico // 1000), prompt + output


def cut(pieces, end):
    kept, left = [], end
    for delay, piece in pieces:
        kept.append((delay, piece[:left]))
        left -= len(piece)
        if left <= 0:
            break
    return kept


def reply(asked, prompt, output, wait, dice, *, with_usage, grown):
    if asked.provider == "anthropic":
        return (
            messages_stream(asked, prompt, output, wait, dice, with_usage, grown)
            if asked.streamed
            else messages_body(asked, prompt, output, wait, with_usage)
        )
    return (
        chat_stream(asked, prompt, output, wait, dice, with_usage)
        if asked.streamed
        else chat_body(asked, prompt, output, wait, with_usage)
    )


def chat_body(asked, prompt, output, wait, with_usage):
    usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    message = {"role": "assistant", "content": "x" * min(output, 40)}
    told = {
        "id": "c",
        "object": "chat.completion",
        "model": asked.model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    return [(wait, json.dumps(told | ({"usage": usage} if with_usage else {})).encode())]


def event(data, name=None):
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def chat_stream(asked, prompt, output, wait, dice, with_usage):
    base = {"id": "c", "object": "chat.completion.chunk", "model": asked.model}
    parts = dice.randint(1, 4)
    pieces = [
        (wait / parts, event(base | {"choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]}))
        for _ in range(parts)
    ]
    pieces.append((0.01, event(base | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})))
    usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    if with_usage:
        pieces.append((0.01, event(base | {"choices": [], "usage": usage})))
    return [*pieces, (0.01, event(b"[DONE]"))]


def messages_body(asked, prompt, output, wait, with_usage):
    told = {"id": "m", "type": "message", "role": "assistant", "model": asked.model, "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "x" * min(output, 40)}]}  # fmt: skip
    usage = {"input_tokens": prompt, "output_tokens": output}
    return [(wait, json.dumps(told | ({"usage": usage} if with_usage else {})).encode())]


def messages_stream(asked, prompt, output, wait, dice, with_usage, grown):
    """One letter for each token of output, so that what was relayed bounds what was billed."""
    start = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": [],
        "stop_reason": None,
    }
    start["usage"] = {"input_tokens": prompt, "output_tokens": 1}
    pieces = [
        (wait / 3, event({"type": "message_start", "message": start}, "message_start")),
        (0.01, event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}, "content_block_start")),
    ]  # fmt: skip
    parts = dice.randint(1, 3)
    for part in range(parts):
        text = "x" * (output // parts + (output % parts if part == 0 else 0))
        delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        pieces.append((wait / 3 / parts, event(delta, "content_block_delta")))
    pieces.append((0.01, event({"type": "content_block_stop", "index": 0}, "content_block_stop")))
    if with_usage:
        end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": output}}
        if asked.searches:
            end["usage"] |= {"input_tokens": grown, "server_tool_use": {"web_search_requests": asked.searches}}
        pieces.append((0.01, event(end, "message_delta")))
    return [*pieces, (0.01, event({"type": "message_stop"}, "message_stop"))]
