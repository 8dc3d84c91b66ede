"""Answers with an ``ETag``: a client that has the same content gets 304 (RFC 9110 §13).

The tag covers the content without request id and timings. Signed links to the same bytes count as equal within one
minute.
"""

from __future__ import annotations

import hashlib
from time import time
from typing import Annotated, Any, Final

import orjson
from fastapi import Header, Response
from pydantic import BaseModel

from latent_gateway.envelope import json_answer

LINK_VALID_SECONDS: Final = 60
"""Of their five minutes: a client that gets 304 has at least four minutes left."""
OF_THE_REQUEST: Final = frozenset({"request_id", "timings"})
LINKS: Final = frozenset({"page_uri", "pdf_uri"})

IfNoneMatch = Annotated[str | None, Header(max_length=4096)]


def tagged_answer(
    body: BaseModel, request_id: str, if_none_match: str | None, *, version: str | None = None
) -> Response:
    """``body`` as JSON, or 304 if one of ``if_none_match`` is its tag.

    ``version`` is what ``If-Match`` compares, for objects that have one: the tag begins with it.
    """
    tag = _tag(body, version)
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if has_match(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    return json_answer(body, request_id, headers=headers)


def has_match(given: str | None, tag: str) -> bool:
    """Whether an ``If-None-Match`` names ``tag``, by the weak comparison."""
    if given is None:
        return False
    named = [part.strip().removeprefix("W/") for part in given.split(",")]
    return "*" in named or tag.removeprefix("W/") in named


def version_of(if_match: str) -> str:
    """The version in an ``If-Match``: a whole tag of ours, or the version alone."""
    return if_match.strip().strip('"').partition(".")[0]


def _tag(body: BaseModel, version: str | None) -> str:
    content = body.model_dump(mode="json", exclude=set(OF_THE_REQUEST))
    linked = _without_signatures(content)
    minute = int(time() // LINK_VALID_SECONDS) if linked else 0
    digest = hashlib.sha256(orjson.dumps([content, minute])).hexdigest()[:24]
    return f'"{version}.{digest}"' if version else f'"{digest}"'


def _without_signatures(content: Any) -> bool:
    """Replace links by their targets, in place; returns whether there was one."""
    found, waiting = False, [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            for key, inner in value.items():
                if key in LINKS and isinstance(inner, str):
                    value[key], found = inner.partition("?")[0], True
            waiting += value.values()
    return found
