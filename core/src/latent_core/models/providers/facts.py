"""What servers report about a model: Ollama (``/api/show``), vLLM (``/v1/models``) and TEI (``/info``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from latent_core.domain.errors import (
    Invalid,
    LatentError,
    ServiceUnreachable,
    UpstreamTimeout,
)
from latent_core.models.http.address import below_root, in_version_1, parsed_address
from latent_core.models.http.client import ModelHttpClient, ModelServer
from latent_core.models.providers.entry import Kind
from latent_core.models.providers.registry import Provider
from latent_core.telemetry.redaction import OwnKey

SECONDS: Final = 10.0
STATE_SECONDS: Final = 5.0
MAX_BYTES: Final = 16 * 1024 * 1024
"""Of a list of models, or of one with its vocabulary."""
SPECIAL_TOKENS: Final = 2
"""Around a text, within the window that a server reports."""
MAX_WINDOW: Final = 10_000_000
_NUM_CTX: Final = re.compile(r"^num_ctx\s+(\d+)", re.M)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server reports about a model; None is unknown."""

    window: int | None = None
    """Tokens that it reads per text, without special tokens."""
    max_texts: int | None = None
    """Per request."""
    dims: int | None = None
    source: str | None = None
    """Where it reports this, such as ``/api/show``."""


UNKNOWN: Final = ServerFacts()


async def server_facts(provider: Provider, model: str) -> ServerFacts:
    """``UNKNOWN`` for a server that reports nothing about the model; an error if it cannot be reached."""
    match provider.kind:
        case Kind.OLLAMA:
            return await _of_ollama(provider, model)
        case Kind.TEI:
            return await _of_tei(provider)
        case Kind.VLLM | Kind.OPENAI:
            return await _of_models(provider, model)
    return UNKNOWN


async def _of_ollama(provider: Provider, model: str) -> ServerFacts:
    shown = await _ask(provider, "/api/show", {"model": model})
    info = shown.get("model_info")
    info = info if isinstance(info, dict) else {}
    lengths = [
        _ending(info, ".context_length"),
        _number(provider.options.get("num_ctx")),
        _number(next(iter(_NUM_CTX.findall(str(shown.get("parameters") or ""))), None)),
    ]
    known = [length for length in lengths if length is not None]
    if not known:
        return UNKNOWN
    dims = _ending(info, ".embedding_length")
    return ServerFacts(_without_special(min(known)), dims=dims, source="/api/show")


async def _of_tei(provider: Provider) -> ServerFacts:
    info = await _ask(provider, "/info")
    window = _number(info.get("max_input_length"))
    if window is None:
        return UNKNOWN
    return ServerFacts(
        _without_special(window), _number(info.get("max_client_batch_size")), source="/info"
    )


async def _of_models(provider: Provider, model: str) -> ServerFacts:
    """Of servers in the style of OpenAI, vLLM reports the window."""
    answer = await _ask(provider, "/models")
    listed = answer.get("data")
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item, dict) and item.get("id") == model:
            window = _number(item.get("max_model_len"))
            if window is not None:
                return ServerFacts(_without_special(window), source="/v1/models")
    return UNKNOWN


async def _ask(
    provider: Provider, path: str, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The response of the first place that has the path; empty if the server refuses or knows nothing of it."""
    base = parsed_address(provider.base_url or "", provider.address_setting)
    places = [below_root(base, path)] if path != "/models" else in_version_1(base, path)
    for url in places:
        server = ModelServer(
            name=f"the provider '{provider.name}' at {base.host}",
            url=url,
            key=OwnKey(provider.secret(), provider.key_setting, provider.key_header),
            refused=lambda status, text: Invalid(text, upstream_status=status),
            too_long=lambda limit: Invalid(f"it sends more than {limit} bytes"),
        )
        client = ModelHttpClient(server, connections=1, seconds=SECONDS)
        try:
            if body is None:
                answer = await client.get_json(max_bytes=MAX_BYTES)
            else:
                answer = await client.post_json(orjson.dumps(dict(body)), max_bytes=MAX_BYTES)
        except Invalid:
            continue
        finally:
            await client.close()
        if isinstance(answer, dict):
            return answer
    return {}


def _ending(info: Mapping[str, Any], ending: str) -> int | None:
    return next((_number(value) for key, value in info.items() if key.endswith(ending)), None)


def _number(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if 0 < number <= MAX_WINDOW else None


def _without_special(window: int) -> int:
    return max(1, window - SPECIAL_TOKENS)


async def state_of(provider: Provider) -> str | None:
    """Why a provider cannot be used: a setting is missing, or nothing answers at its address; None if anything does, even
    a refusal. No key is sent and nothing is embedded."""
    if (missing := provider.missing()) is not None:
        return f"the provider '{provider.name}' {missing}"
    base = parsed_address(provider.base_url or "", provider.address_setting)
    server = ModelServer(
        name=f"the provider '{provider.name}' at {base.host}",
        url=base,
        key=OwnKey(None, provider.key_setting),
        refused=lambda status, text: Invalid(text, upstream_status=status),
        too_long=lambda limit: Invalid(f"it sends more than {limit} bytes"),
    )
    client = ModelHttpClient(server, connections=1, seconds=STATE_SECONDS)
    try:
        await client.get_json(max_bytes=MAX_BYTES)
    except (ServiceUnreachable, UpstreamTimeout) as exc:
        return exc.message
    except LatentError:
        return None
    finally:
        await client.close()
    return None
