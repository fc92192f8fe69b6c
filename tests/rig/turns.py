"""Plays the model of an agent: so many turns that ask for a tool, then one that ends; on four wires, with usage.

The turn is read from the conversation itself (the tool results in it), so a request that is sent again gets the same
answer. A script is JSON: {"tool_turns", "start", "step"}, the last two with the tokens of each kind: "input",
"cache_read", "cache_write", "output". Turn n uses start + n × step of each, and no more output than the call allows.
"tools" may name the tool of a turn: {"0": ["WebSearch", {"query": …}]}; else it is a shell. Who offers none, but asks
for edits of files in its own words (aider), gets one that fails, and asks again. With "cut_off" a reply of Messages
that uses its whole output limit says that it stopped there.
"""

import itertools
import json
import re
from dataclasses import asdict, dataclass, replace

PAID = ("/messages", "/responses", "/chat/completions", ":generateContent", ":streamGenerateContent")
COUNTING = ("/count_tokens", "/input_tokens", ":countTokens")
_SHELLS = ("Bash", "bash", "exec_command", "shell", "shell_command", "run_shell_command")
_EDITS, _FAILED = "*SEARCH/REPLACE block*", "SEARCH/REPLACE block failed to match!"
_EDIT = "turn.txt\n```\n<<<<<<< SEARCH\nwhat was never there\n=======\nturn-{turn}\n>>>>>>> REPLACE\n```\n"
_ids = itertools.count(1)


@dataclass(frozen=True)
class Used:
    """The usage of a turn, in disjoint units."""

    input: int
    cache_read: int
    cache_write: int
    output: int


def bare(path: str) -> str:
    return path.split("?")[0]


def is_paid(method: str | None, path: str | None) -> bool:
    return method == "POST" and bare(path or "").endswith(PAID)


def answer(path: str, body: bytes, script: dict) -> dict:
    """Give the order for a request's answer; what is neither paid nor a count gets an empty object."""
    if bare(path).endswith(COUNTING):
        request = json.loads(body)
        used = _usage(request, script, None)
        return _json(_count(path, used.input + used.cache_read + used.cache_write))
    if not bare(path).endswith(PAID):
        return _json({})
    request = json.loads(body)
    for end, play in _PLAYS.items():
        if bare(path).endswith(end):
            return play(path, request, script)
    raise AssertionError(path)


_INPUT = ("input", "cache_read", "cache_write")


def _usage(request: dict, script: dict, limit: int | None) -> Used:
    turn = turn_of(request)
    planned = {unit: script["start"].get(unit, 0) + turn * script["step"].get(unit, 0) for unit in (*_INPUT, "output")}
    if limit is not None:
        planned["output"] = min(planned["output"], limit)
    return Used(**planned)


def turn_of(request: dict) -> int:
    """Count the tool results that the conversation has or had, on whatever wire."""
    text = json.dumps(request)
    shortened = sum(map(int, re.findall(r'"encrypted_content": "turns-(\d+)"', text)))
    return shortened + max(
        sum(text.count(mark) for mark in ('"type": "tool_result"', '"type": "function_call_output"')),
        text.count('"functionResponse": '),
        text.count(_FAILED),
    )


def is_compaction(request: dict) -> bool:
    """Say whether Codex asks to shorten the conversation."""
    items = request.get("input")
    return isinstance(items, list) and items[-1].get("type") == "compaction_trigger"


def _tool(request: dict, script: dict) -> tuple[str, dict] | None:
    """Choose the tool of this turn: the script's, else the one by which this agent runs a command; None: no more."""
    turn, offered = turn_of(request), json.dumps(request.get("tools", []))
    shell = next((name for name in _SHELLS if f'"name": "{name}"' in offered), None)
    if shell is None or turn >= script["tool_turns"]:
        return None
    told = script.get("tools", {}).get(str(turn))
    if told is not None:
        return told[0], told[1]
    command = f"echo turn-{turn}"
    return shell, {"cmd": command} if shell == "exec_command" else {"command": command, "description": "say the turn"}


def _said(request: dict, script: dict) -> str:
    turn = turn_of(request)
    if turn < script["tool_turns"] and "tools" not in request and _EDITS in json.dumps(request):
        return _EDIT.format(turn=turn)
    return f"finished after {turn} tools"


def _order(kind: str, body: str, used: Used, model: str) -> dict:
    """Make the order; its bill is for all of the output once the last event was sent."""
    events = body.count("\n\n")
    bill = {**asdict(used), "model": model, "skip": max(0, events - 1), "each": used.output}
    chunk = {} if kind == "application/json" else {"chunk": "event" if events else 0}
    return {"type": kind, "body": body, "bill": bill} | chunk


def _json(value: object) -> dict:
    return {"body": json.dumps(value)}


def _count(path: str, tokens: int) -> dict:
    return {"totalTokens": tokens} if path.endswith(":countTokens") else {"input_tokens": tokens}


def _named_events(events: list[dict]) -> str:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def _messages(_path: str, request: dict, script: dict) -> dict:
    used, number = _usage(request, script, request["max_tokens"]), next(_ids)
    model, tool = request["model"], _tool(request, script)
    stated = {"input_tokens": used.input, "cache_read_input_tokens": used.cache_read,
              "cache_creation_input_tokens": used.cache_write, "output_tokens": 1,
              "cache_creation": {"ephemeral_5m_input_tokens": used.cache_write, "ephemeral_1h_input_tokens": 0}}  # fmt: skip
    if tool is not None:
        block, made = {"type": "tool_use", "id": f"toolu_{number}", "name": tool[0], "input": {}}, tool[1]
        delta = {"type": "input_json_delta", "partial_json": json.dumps(made)}
    else:
        block, made = {"type": "text", "text": ""}, _said(request, script)
        delta = {"type": "text_delta", "text": made}
    stop = "end_turn" if tool is None else "tool_use"
    if script.get("cut_off") and used.output == request["max_tokens"]:
        tool, block, made, stop = None, {"type": "text", "text": ""}, "half of it", "max_tokens"
        delta = {"type": "text_delta", "text": made}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": stated}  # fmt: skip
    if not request.get("stream"):
        whole = block | ({"text": made} if tool is None else {"input": made})
        message |= {"content": [whole], "stop_reason": stop, "usage": stated | {"output_tokens": used.output}}
        return _order("application/json", json.dumps(message), used, model)
    end = {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None},
           "usage": {"output_tokens": used.output}}  # fmt: skip
    events = [{"type": "message_start", "message": message},
              {"type": "content_block_start", "index": 0, "content_block": block},
              {"type": "content_block_delta", "index": 0, "delta": delta},
              {"type": "content_block_stop", "index": 0}, end, {"type": "message_stop"}]  # fmt: skip
    return _order("text/event-stream", _named_events(events), used, model)


def _responses(_path: str, request: dict, script: dict) -> dict:
    used = replace(_usage(request, script, request.get("max_output_tokens")), cache_write=0)
    number, model, tool = next(_ids), request["model"], _tool(request, script)
    if is_compaction(request):
        item = {"type": "compaction", "id": f"cmp_{number}", "encrypted_content": f"turns-{turn_of(request)}"}
    elif tool is not None:
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": tool[0],
                "arguments": json.dumps(tool[1]), "status": "completed"}  # fmt: skip
    else:
        part = {"type": "output_text", "text": _said(request, script), "annotations": []}
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [part]}
    prompt = used.input + used.cache_read + used.cache_write
    usage = {"input_tokens": prompt, "output_tokens": used.output, "total_tokens": prompt + used.output,
             "input_tokens_details": {"cached_tokens": used.cache_read},
             "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    started = {"id": f"resp_{number}", "object": "response", "created_at": 1, "status": "in_progress", "model": model,
               "output": [], "service_tier": "default", "usage": None}  # fmt: skip
    ended = started | {"status": "completed", "output": [item], "usage": usage}
    if not request.get("stream"):
        return _order("application/json", json.dumps(ended), used, model)
    begun = item | {"status": "in_progress"} | ({"content": []} if item["type"] == "message" else {})
    events = [{"type": "response.created", "response": started},
              {"type": "response.output_item.added", "output_index": 0, "item": begun},
              *_parts(item),
              {"type": "response.output_item.done", "output_index": 0, "item": item},
              {"type": "response.completed", "response": ended}]  # fmt: skip
    numbered = [event | {"sequence_number": index} for index, event in enumerate(events)]
    return _order("text/event-stream", _named_events(numbered), used, model)


def _parts(item: dict) -> list[dict]:
    """Give the events by which the text of a message comes."""
    at = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    found = []
    for part in item.get("content", []):
        found.append({"type": "response.content_part.added", **at, "part": part | {"text": ""}})
        found.append({"type": "response.output_text.delta", **at, "delta": part["text"]})
    return found


def _chat(_path: str, request: dict, script: dict) -> dict:
    limit = request.get("max_completion_tokens", request.get("max_tokens"))
    used = replace(_usage(request, script, limit), cache_write=0)
    number, model = next(_ids), request["model"]
    said = {"role": "assistant", "content": _said(request, script)}
    prompt = used.input + used.cache_read
    usage = {"prompt_tokens": prompt, "completion_tokens": used.output, "total_tokens": prompt + used.output,
             "prompt_tokens_details": {"cached_tokens": used.cache_read},
             "completion_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    told = {"id": f"chatcmpl-{number}", "created": 1, "model": model}
    if not request.get("stream"):
        choice = {"index": 0, "message": said | {"refusal": None}, "finish_reason": "stop", "logprobs": None}
        whole = told | {"object": "chat.completion", "choices": [choice], "usage": usage}
        return _order("application/json", json.dumps(whole), used, model)
    told |= {"object": "chat.completion.chunk"}
    chunks = [told | {"choices": [{"index": 0, "delta": said, "finish_reason": None}]},
              told | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
              told | {"choices": [], "usage": usage}]  # fmt: skip
    lines = [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]
    return _order("text/event-stream", "".join(f"data: {line}\n\n" for line in lines), used, model)


def _gemini(path: str, request: dict, script: dict) -> dict:
    limit = request.get("generationConfig", {}).get("maxOutputTokens")
    used, number = replace(_usage(request, script, limit), cache_write=0), next(_ids)
    model = bare(path).rsplit("/", 1)[1].split(":")[0]
    if "responseJsonSchema" in json.dumps(request) or "responseSchema" in json.dumps(request):
        part = {"text": json.dumps({"reasoning": "short", "model_choice": "flash", "complexity_score": 1,
                                    "complexity_reasoning": "short"})}  # fmt: skip
    elif (tool := _tool(request, script)) is not None:
        part = {"functionCall": {"id": f"call_{number}", "name": tool[0], "args": tool[1]}}
    else:
        part = {"text": _said(request, script)}
    usage = {"promptTokenCount": used.input + used.cache_read, "cachedContentTokenCount": used.cache_read,
             "candidatesTokenCount": used.output, "totalTokenCount": used.input + used.cache_read + used.output,
             "serviceTier": "standard"}  # fmt: skip
    first = {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}],
             "modelVersion": model, "responseId": f"resp_{number}"}  # fmt: skip
    end = {"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": "STOP", "index": 0}]}
    if ":generateContent" in path:
        whole = first | {"usageMetadata": usage}
        whole["candidates"][0]["finishReason"] = "STOP"
        return _order("application/json", json.dumps(whole), used, model)
    chunks = [first, first | end | {"usageMetadata": usage}]
    return _order("text/event-stream", "".join(f"data: {json.dumps(one)}\r\n\r\n" for one in chunks), used, model)


_PLAYS = {
    "/messages": _messages,
    "/responses": _responses,
    "/chat/completions": _chat,
    ":generateContent": _gemini,
    ":streamGenerateContent": _gemini,
}
