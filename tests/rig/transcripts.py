"""Conversations of agents with their tools, as each format writes them: turns of (tool, arguments, result, failed)."""

import itertools
import json
import random
from typing import NamedTuple

from lockpin_core.call import Request


class Use(NamedTuple):
    """A tool that a turn calls. `result` None: it gave none yet."""

    tool: str
    arguments: dict
    result: str | None
    failed: bool = False


def anthropic(turns, said=()):
    messages, ids = [{"role": "user", "content": "Do it."}], itertools.count(1)
    for turn in turns:
        named = [(f"toolu_{next(ids):04}", use) for use in turn]
        uses = [{"type": "tool_use", "id": i, "name": use.tool, "input": use.arguments} for i, use in named]
        texts = [{"type": "text", "text": text} for text in said[len(messages) // 2 :][:1]]
        messages.append({"role": "assistant", "content": [*texts, *uses]})
        results = [
            {
                "type": "tool_result",
                "tool_use_id": i,
                "content": [{"type": "text", "text": use.result}],
                **({"is_error": True} if use.failed else {}),
            }
            for i, use in named
            if use.result is not None
        ]
        messages.append({"role": "user", "content": results})
    return {"model": "claude-sonnet-4-6", "max_tokens": 1024, "messages": messages}


def chat(turns, said=()):
    messages, ids = [{"role": "user", "content": "Do it."}], itertools.count(1)
    for place, turn in enumerate(turns):
        named = [(f"call_{next(ids):04}", use) for use in turn]
        calls = [
            {"id": i, "type": "function", "function": {"name": use.tool, "arguments": json.dumps(use.arguments)}}
            for i, use in named
        ]
        text = said[place] if place < len(said) else None
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": i, "content": use.result} for i, use in named if use.result is not None
        ]
    return {"model": "gpt-5.5", "messages": messages}


def responses(turns, said=()):
    items, ids = [{"type": "message", "role": "user", "content": "Do it."}], itertools.count(1)
    for place, turn in enumerate(turns):
        named = [(f"call_{next(ids):04}", use) for use in turn]
        if place < len(said):
            items.append({"type": "message", "role": "assistant", "content": said[place]})
        items += [
            {"type": "function_call", "call_id": i, "name": use.tool, "arguments": json.dumps(use.arguments)}
            for i, use in named
        ]
        items += [
            {"type": "function_call_output", "call_id": i, "output": use.result}
            for i, use in named
            if use.result is not None
        ]
    return {"model": "gpt-5.5", "input": items}


def gemini(turns, said=()):
    contents = [{"role": "user", "parts": [{"text": "Do it."}]}]
    for place, turn in enumerate(turns):
        texts = [{"text": said[place]}] if place < len(said) else []
        calls = [{"functionCall": {"name": use.tool, "args": use.arguments}} for use in turn]
        contents.append({"role": "model", "parts": [*texts, *calls]})
        given = [
            {"functionResponse": {"name": use.tool, "response": {"error" if use.failed else "output": use.result}}}
            for use in turn
            if use.result is not None
        ]
        contents.append({"role": "user", "parts": given})
    return {"contents": contents}


def code_assist(turns, said=()):
    return {"model": "gemini-3.5-flash", "project": "p", "request": gemini(turns, said)}


def interactions(turns, said=()):
    items, ids = [{"type": "user_input", "content": [{"type": "text", "text": "Do it."}]}], itertools.count(1)
    for place, turn in enumerate(turns):
        named = [(f"call_{next(ids):04}", use) for use in turn]
        if place < len(said):
            items.append({"type": "model_output", "content": [{"type": "text", "text": said[place]}]})
        items += [{"type": "function_call", "id": i, "name": use.tool, "arguments": use.arguments} for i, use in named]
        items += [
            {
                "type": "function_result",
                "call_id": i,
                "name": use.tool,
                "is_error": use.failed,
                "result": [{"type": "text", "text": use.result}],
            }
            for i, use in named
            if use.result is not None
        ]
    return {"model": "gemini-3.5-flash", "input": items}


def converse(turns, said=()):
    messages, ids = [{"role": "user", "content": [{"text": "Do it."}]}], itertools.count(1)
    for place, turn in enumerate(turns):
        named = [(f"tooluse_{next(ids):04}", use) for use in turn]
        uses = [{"toolUse": {"toolUseId": i, "name": use.tool, "input": use.arguments}} for i, use in named]
        texts = [{"text": said[place]}] if place < len(said) else []
        messages.append({"role": "assistant", "content": [*texts, *uses]})
        results = [
            {
                "toolResult": {
                    "toolUseId": i,
                    "content": [{"text": use.result}],
                    "status": "error" if use.failed else "success",
                }
            }
            for i, use in named
            if use.result is not None
        ]
        messages.append({"role": "user", "content": results})
    return {"messages": messages}


# How each format writes a conversation, and where it is sent.
FORMATS = {
    "anthropic_messages": (anthropic, "api.anthropic.com", "/v1/messages", None),
    "bedrock_invoke": (
        lambda turns, said=(): {
            key: value for key, value in anthropic(turns, said).items() if key != "model"
        } | {"anthropic_version": "bedrock-2023-05-31"},
        "bedrock-runtime.us-east-1.amazonaws.com",
        "/model/anthropic.claude-sonnet-4-6/invoke",
        "anthropic.claude-sonnet-4-6",
    ),
    "openai_chat": (chat, "api.openai.com", "/v1/chat/completions", None),
    "openai_responses": (responses, "api.openai.com", "/v1/responses", None),
    "gemini": (
        gemini,
        "generativelanguage.googleapis.com",
        "/v1beta/models/gemini-3.5-flash:generateContent",
        "gemini-3.5-flash",
    ),
    "code_assist": (code_assist, "cloudcode-pa.googleapis.com", "/v1internal:generateContent", None),
    "gemini_interactions": (interactions, "generativelanguage.googleapis.com", "/v1beta/interactions", None),
    "bedrock_converse": (
        converse,
        "bedrock-runtime.us-east-1.amazonaws.com",
        "/model/anthropic.claude-sonnet-4-6/converse",
        "anthropic.claude-sonnet-4-6",
    ),
}  # fmt: skip


def request_of(name: str, turns, said=()) -> Request:
    """Write a conversation in a format, as a request."""
    write, host, path, model = FORMATS[name]
    return Request("POST", host, path, {}, json.dumps(write(turns, said)).encode(), model)


def near(number: int, *, failed: bool = False, result: str = "") -> list[Use]:
    """Give a turn that is nearly the one before it."""
    return [Use("search", {"query": f"latest release notes {number}", "limit": 10}, result, failed)]


_WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "lexer",
    "parser",
    "cache",
    "router",
    "token",
    "window",
    "ledger",
    "socket",
    "budget",
    "stream",
]


def legitimate(kind: str, seed: int) -> tuple[list[list[Use]], list[str]]:
    """Play a long conversation of an agent that gets on, and what it says between: 25 to 60 turns of one kind."""
    draw = random.Random(f"{kind} {seed}")
    length = draw.randint(25, 60)
    turns = list(itertools.islice(_KINDS[kind](draw), length))
    said = [" ".join(draw.choices(_WORDS, k=draw.randint(1, 9))) for _ in range(draw.choice((0, length)))]
    return turns, said


def _polls_a_clock(draw):
    arguments, at = {"job": draw.choice(_WORDS)}, draw.randint(0, 59)
    while True:
        at += draw.randint(1, 30)
        yield [Use("job_status", arguments, f"2026-11-30T12:{at // 60 % 60:02}:{at % 60:02}Z {at} still running")]


def _polls_progress(draw):
    for done in itertools.count(1):
        state = draw.choice(("running", "pending", "errors: 0, running", "not ready yet"))
        yield [Use("get_progress", {"id": 7}, json.dumps({"status": state, "percent": done, "error": None}))]


def _polls_with_attempts(draw):
    for number in itertools.count(1):
        lines = draw.choices(_WORDS, k=3)
        yield [Use("tail_log", {"path": "build.log", "since": 1000 + number}, f"[{number}] " + " ".join(lines))]


def _polls_that_sometimes_say_nothing(draw):
    for number in itertools.count(1):
        is_quiet = number % draw.randint(3, 6) and draw.random() < 0.5
        yield [Use("read_queue", {"queue": "jobs"}, "" if is_quiet else f"message {number}")]


def _pages(draw):
    for page in itertools.count(1):
        rows = [{"id": 50 * page + n, "name": draw.choice(_WORDS)} for n in range(draw.randint(1, 5))]
        yield [Use("list_issues", {"state": "open", "page": page}, json.dumps({"issues": rows, "next": page + 1}))]


def _fixes_tests(draw):
    for number in itertools.count(1):
        name = draw.choice(_WORDS)
        edit = {"file_path": f"src/{name}.py", "old_string": f"x = {number}", "new_string": f"x = {number + 1}"}
        yield [Use("Edit", edit, f"The file src/{name}.py has been updated.")]
        failed = draw.random() < 0.8
        words = f"{draw.randint(1, 9)} failed, {draw.randint(1, 90)} passed in {draw.random():.2f}s"
        yield [Use("Bash", {"command": "pytest -q"}, words, failed)]


def _fixes_tests_by_shell(draw):
    for number in itertools.count(1):
        name = draw.choice(_WORDS)
        yield [Use("Bash", {"command": f"sed -i 's/{name}/{name}_{number}/' src/{name}.py"}, "")]
        yield [Use("Bash", {"command": "python -m pytest tests -x -q"}, f"FAILED in {draw.random():.2f}s", True)]


def _reads_files(draw):
    for number in itertools.count(1):
        path = f"/srv/project/src/{draw.choice(_WORDS)}/{draw.choice(_WORDS)}{number}.py"
        yield [Use("Read", {"file_path": path}, f"1\timport {draw.choice(_WORDS)}\n2\tx = {number}")]


def _retries_a_flaky_tool(draw):
    for number in itertools.count(1):
        arguments = {"url": f"https://api.example.com/items/{number}"}
        for _ in range(draw.randint(0, 6)):
            yield [Use("fetch", arguments, draw.choice(("timed out", "503 Service Unavailable")), True)]
        yield [Use("fetch", arguments, json.dumps({"item": number, "name": draw.choice(_WORDS)}))]


def _searches_side_by_side(draw):
    for number in itertools.count(1):
        names = draw.sample(_WORDS, draw.randint(2, 4))
        found = "no matches found" if draw.random() < 0.3 else f"src/{names[0]}.py:{number}: {names[0]}"
        first = Use("Grep", {"pattern": names[0], "path": "src"}, f"src/x.py:{number}")
        yield [first, *(Use("Grep", {"pattern": name, "path": "src"}, found) for name in names[1:])]


def _does_everything(draw):
    plays = [play(draw) for play in list(_KINDS.values())[:-1]]
    while True:
        play = draw.choice(plays)
        yield from itertools.islice(play, draw.randint(1, 8))


_KINDS = {
    "clock": _polls_a_clock,
    "progress": _polls_progress,
    "attempts": _polls_with_attempts,
    "quiet": _polls_that_sometimes_say_nothing,
    "pages": _pages,
    "tests": _fixes_tests,
    "shell": _fixes_tests_by_shell,
    "files": _reads_files,
    "flaky": _retries_a_flaky_tool,
    "beside": _searches_side_by_side,
    "everything": _does_everything,
}
KINDS = tuple(_KINDS)
