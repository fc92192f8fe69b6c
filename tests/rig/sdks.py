"""The real SDKs on their two ways through a proxy: by CONNECT, trusting its CA, or by a base URL."""

import contextlib
import json
import ssl
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import openai
from google import genai
from google.genai import types
from processes import Proxy

WAYS = ("connect", "base_url")
KEY = "sk-test-key"
MESSAGE = {"role": "user", "content": "hi"}


def _settings(
    proxy: Proxy, way: str, base_path: str, client_type: type, headers: dict, key: str = KEY, login: str = ""
) -> dict[str, Any]:
    told = {"api_key": key, "max_retries": 0, "timeout": 30, "default_headers": headers}
    if way == "base_url":
        return told | {"base_url": proxy.url + base_path, "http_client": client_type(trust_env=False)}
    context = ssl.create_default_context(cafile=str(proxy.ca))
    return told | {"http_client": client_type(proxy=_address(proxy, login), verify=context, trust_env=False)}


def _address(proxy: Proxy, login: str) -> str:
    """Write the proxy's address with a user name and password ("fix:secret"), or without."""
    return f"http://{login}@127.0.0.1:{proxy.port}" if login else proxy.url


@contextlib.contextmanager
def openai_client(
    proxy: Proxy, way: str = "base_url", *, key: str = KEY, login: str = "", **headers: str
) -> Iterator[openai.OpenAI]:
    """Open a client for Chat Completions; header names take `_` for `-`."""
    settings = _settings(proxy, way, "/openai/v1", openai.DefaultHttpxClient, _named(headers), key, login)
    with openai.OpenAI(**settings) as client:
        yield client


@contextlib.contextmanager
def anthropic_client(
    proxy: Proxy, way: str = "base_url", *, key: str = KEY, login: str = "", **headers: str
) -> Iterator[anthropic.Anthropic]:
    """Open a client for Messages."""
    settings = _settings(proxy, way, "/anthropic", anthropic.DefaultHttpxClient, _named(headers), key, login)
    with anthropic.Anthropic(**settings) as client:
        yield client


@contextlib.contextmanager
def gemini_client(
    proxy: Proxy, way: str = "base_url", *, key: str = "test-key", login: str = "", **headers: str
) -> Iterator[genai.Client]:
    """Open a client for the Gemini API."""
    options = {"timeout": 30_000, "headers": _named(headers)}
    if way == "base_url":
        options |= {"base_url": proxy.url + "/gemini"}
        http = httpx2.Client(trust_env=False)
    else:
        context = ssl.create_default_context(cafile=str(proxy.ca))
        http = httpx2.Client(proxy=_address(proxy, login), verify=context, trust_env=False)
    with http:
        yield genai.Client(api_key=key, http_options=types.HttpOptions(**options, httpx_client=http))


def async_openai(proxy: Proxy, way: str = "base_url") -> openai.AsyncOpenAI:
    """Make the client for many calls at once."""
    return openai.AsyncOpenAI(**_settings(proxy, way, "/openai/v1", openai.DefaultAsyncHttpxClient, {}))


def async_anthropic(proxy: Proxy, way: str = "base_url") -> anthropic.AsyncAnthropic:
    """Make the client for many calls at once."""
    return anthropic.AsyncAnthropic(**_settings(proxy, way, "/anthropic", anthropic.DefaultAsyncHttpxClient, {}))


def order(**told: object) -> dict[str, str]:
    """Make the header that tells the origin what to answer."""
    return {"x-origin": json.dumps(told)}


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
