"""Calls for questions, and a client of them alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final, Literal

import orjson
from pydantic import BaseModel, ValidationError

from latent_client.errors import error_class
from latent_client.streams import read_events
from latent_client.transport import ClientCalls, GatewayClient
from latent_core.domain.errors import IssueCode, LatentError, Unavailable
from latent_core.wire.ask import AskAnswer, AskRequest

PATH: Final = "/v1/containers/ask"
MAX_SECONDS: Final = 3600.0
"""The gateway ends an answer earlier (``LLC_ASK_SECONDS``)."""
QUIET_SECONDS: Final = 60.0
"""The gateway sends a comment in every silence of 15 s."""
ERROR: Final = "error"
END: Final = "end"


class AskNews(BaseModel):
    """An event of an answer."""

    event: Literal["sources", "text", "citations", "end"]
    """``end`` is the last one."""
    text: str = ""
    """The new piece of the text."""
    answer: AskAnswer
    """The answer so far."""


class QuestionCalls(ClientCalls):
    async def ask(self, request: AskRequest) -> AskAnswer:
        """The whole answer. One that was refused has ``answered: false``."""
        body = _body(request, stream=False)
        return await self._transport.ask(
            AskAnswer, "POST", PATH, json=body, repeatable=False, read_seconds=MAX_SECONDS
        )

    async def ask_stream(self, request: AskRequest) -> AsyncGenerator[AskNews]:
        """The answer while it is written. A client that stops reading ends the call of the model."""
        answer: dict[str, Any] = {"answered": False}
        async with (
            self._transport.stream(
                PATH, method="POST", json=_body(request, stream=True), read_seconds=QUIET_SECONDS
            ) as response,
            aclosing(read_events(response.aiter_bytes())) as events,
        ):
            async for event in events:
                news = _news(event.event, event.data, answer)
                yield news
                if news.event == END:
                    return
        raise Unavailable("the answer ended before it was complete: ask again")


class QuestionClient(QuestionCalls, GatewayClient):
    """A client that only asks questions."""


def _body(request: AskRequest, *, stream: bool) -> dict[str, Any]:
    return {**request.model_dump(mode="json", exclude_unset=True), "stream": stream}


def _news(event: str, data: str, answer: dict[str, Any]) -> AskNews:
    """The event, added to ``answer``. Raises the error that ended it."""
    try:
        fields: dict[str, Any] = orjson.loads(data)
        if event == ERROR:
            raise _error(fields)
        text = fields.pop("text", "") if event == "text" else ""
        answer |= {**fields, "text": answer.get("text", "") + text}
        return AskNews.model_validate({"event": event, "text": text, "answer": answer})
    except (ValueError, TypeError, ValidationError) as exc:
        raise Unavailable(
            f"this client cannot parse the answer ({exc}); use client and gateway of the same release"
        ) from exc


def _error(envelope: dict[str, Any]) -> LatentError:
    issue = (envelope.get("issues") or [{}])[0]
    kind = error_class(0, issue.get("code", IssueCode.UNAVAILABLE.value))
    details = {**(issue.get("details") or {}), "request_id": envelope.get("request_id", "")}
    return kind(str(issue.get("message") or "the answer failed"), **details)
