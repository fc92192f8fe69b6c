"""More request bodies for `bodies`: the richest that wires are known to read, and what Codex was seen to send."""

import functools
import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from bodies import CALLS, MARKED_1H, ONE_SEARCH, OPENAI_WRITES, SEARCH_LIMIT, TEXT, WRITTEN, Body, Other, Use

TESTS = Path(__file__).resolve().parents[1]


@functools.cache
def contract() -> ModuleType:
    """Give the module with the richest request of each wire."""
    spec = importlib.util.spec_from_file_location("contract_of_wires", TESTS / "wire" / "test_contract.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _rich(wire: str, limit: int | None, **facts: object) -> Body:
    told = json.loads(json.dumps(contract().RICH[wire]).replace('"models/m"', '"models/MODEL"'))
    told = json.loads(json.dumps(told).replace('"model": "m"', '"model": "MODEL"'))
    return Body("rich", wire, told, limit, **facts)


def rich_bodies() -> list[Body]:
    """Give the richest requests that wires read, with what may be billed for them."""
    completed = {"choices": 3 * 3, "prompts": 3, "beside": 3 * 5}  # the prompts may be echoed each time
    listened = {"hears": True, "speaks": True, "images": 1, "hides": True}
    chat_writes = ("cache_write_30m", "cache_write_12h", *MARKED_1H)
    responses = {"hides": True, "images": 1, "cached": ("cache_write_30m", "cache_write_12h")}
    claude = _rich("anthropic_messages", 9)
    invoked = _rich("bedrock_invoke", 9)
    del invoked.told["container"]  # which no price is known for there
    for one in (claude, invoked):
        one.told["tools"][3]["model"] = one.told["fallbacks"][0]["model"] = "OTHER"
    calls = 2 + SEARCH_LIMIT + CALLS  # searches, the advisor, a server's tools
    hops = (Other(2 * (1 + calls), fills=True, limit=9), Other(2 * SEARCH_LIMIT, fills=True, limit=None))
    searches = {"fees": {"search_prompt": 1}, "beyond": True, "choices": 2, "beside": 2 * 5}
    return [
        replace(
            claude,
            reads=2 * (1 + calls),  # a summary before each
            writes=2 * (1 + calls),
            hides=True,
            cached=MARKED_1H,
            fees={"web_search": 2 * 2, "code_session": 1},  # the fallback searches again
            others=hops,
        ),
        _rich(  # two requests, and one of them searches twice
            "anthropic_batches", 9, reads=1 + 2, writes=1 + (1 + 2), images=1, cached=MARKED_1H, fees={"web_search": 2}
        ),
        _rich("openai_completions", 9, **completed),
        _rich("compatible_completions", 9, **completed),
        _rich("openai_embeddings", 0, prompts=3),
        _rich("openai_chat", 9, choices=2, beside=1, cached=chat_writes, **listened),
        _rich("openai_responses", 99, reads=1 + 2 + 3, writes=1 + 3, beyond=True, fees={"web_search": 2}, **responses),
        _rich("openai_compact", None, beyond=True, **responses),
        _rich("openai_images", 158, choices=2, again=1, beside=2 * 100, images=3, made=("output", "image_out")),
        _rich("openai_speech", None, speaks=True, made=()),
        _rich("openai_transcriptions", None, hears=True, seconds=2),
        _rich("gemini", None, **searches, **listened),
        _rich("code_assist", None, **searches, **listened),
        _rich("gemini_interactions", None, **listened),
        _rich("gemini_embed", 0, prompts=2, hides=True, images=1),
        _rich("bedrock_converse", 9, hides=True, images=1, cached=MARKED_1H),
        replace(
            invoked,
            reads=2 * (1 + calls),
            writes=2 * (1 + calls),
            hides=True,
            cached=MARKED_1H,
            fees={"web_search": 2 * 2},
            others=hops,
        ),
    ]


def codex_bodies() -> list[Body]:
    """Give what Codex sends, as it was seen on the wire; one of them may search."""
    found = []
    for path in sorted((TESTS / "data" / "openai_responses" / "requests").glob("*.json")):
        told = json.loads(path.read_text().replace("Some words.", "TEXT")) | {"model": "MODEL"}
        told = json.loads(json.dumps(told).replace("TEXT", json.dumps(TEXT)[1:-1]))
        searches = path.stem.endswith("web_search")
        found.append(
            Body(
                path.stem,
                "openai_responses",
                told,
                None,
                reads=1 + SEARCH_LIMIT if searches else 1,
                cached=OPENAI_WRITES,
                fees={"web_search": SEARCH_LIMIT} if searches else {},
                uses=(Use(SEARCH_LIMIT, ONE_SEARCH),) if searches else (),
            )
        )
    return found


BODIES = [*WRITTEN, *rich_bodies(), *codex_bodies()]
