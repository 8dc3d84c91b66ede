"""A conversation as it is stored: one JSON document of messages.

``append`` continues a stored conversation. Senders repeat themselves: after a lost answer they send the same messages
again, and many send the whole conversation each time. A message that is already there is not added again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Self

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from latent_core.domain.errors import Invalid
from latent_core.domain.text import Text, trouble

CONVERSATION_MIME: Final = "application/vnd.latent.conversation+json"
MAX_MESSAGES: Final = 20_000
MAX_MESSAGE_CHARS: Final = 200_000
MAX_CHARS: Final = 2_000_000
"""Of all messages together."""
MAX_NAME_CHARS: Final = 200
MAX_TITLE_CHARS: Final = 500


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"
    REASONING = "reasoning"
    """What a model thought before it answered."""


_ALIASES: Final[Mapping[str, Role]] = {
    "human": Role.USER,
    "ai": Role.ASSISTANT,
    "model": Role.ASSISTANT,
    "developer": Role.SYSTEM,
    "function": Role.TOOL,
}


def _role(given: Any) -> Any:
    return _ALIASES.get(given.lower(), given.lower()) if isinstance(given, str) else given


def _content(value: str) -> str:
    wrong = trouble(value, layout=True)
    if wrong is not None:
        raise ValueError(wrong)
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _moment(value: datetime) -> datetime:
    """In UTC; a time without a zone is taken as UTC."""
    return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)


class _StoredModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Message(_StoredModel):
    """One message of a conversation."""

    role: Annotated[Role, BeforeValidator(_role)] = Role.USER
    name: Annotated[Text, Field(min_length=1, max_length=MAX_NAME_CHARS)] | None = None
    content: Annotated[str, Field(max_length=MAX_MESSAGE_CHARS), AfterValidator(_content)]
    time: Annotated[datetime, AfterValidator(_moment)] | None = None

    @property
    def speaker(self) -> str:
        """The name, or the role of a sender without one."""
        return self.name or self.role.value


class Conversation(_StoredModel):
    """Messages in the order in which they were sent."""

    title: Annotated[Text, Field(max_length=MAX_TITLE_CHARS)] | None = None
    session: Annotated[Text, Field(min_length=1, max_length=MAX_NAME_CHARS)] | None = None
    """The sender's id of the conversation."""
    messages: Annotated[tuple[Message, ...], Field(min_length=1, max_length=MAX_MESSAGES)]

    @model_validator(mode="after")
    def _within_bounds(self) -> Self:
        size = sum(len(message.content) for message in self.messages)
        if size > MAX_CHARS:
            raise ValueError(
                f"the messages have {size:,} characters; the limit of a conversation is {MAX_CHARS:,}"
            )
        return self

    def encode(self) -> bytes:
        """The stored form; equal conversations have equal bytes."""
        return orjson.dumps(self.model_dump(mode="json", exclude_none=True))


def read_conversation(data: bytes | Mapping[str, Any]) -> Conversation:
    """A conversation from its stored form, or from such an object; ``Invalid`` names the first problem."""
    try:
        if isinstance(data, bytes):
            return Conversation.model_validate_json(data)
        return Conversation.model_validate(data)
    except ValidationError as exc:
        error = exc.errors()[0]
        place = ".".join(str(part) for part in error["loc"])
        reason = str(error["msg"]).removeprefix("Value error, ")
        message = f"{place}: {reason}" if place else reason
        raise Invalid(f"not a conversation: {message}", field=place) from exc


def append(old: Conversation, new: Conversation) -> Conversation:
    """``old`` continued by the messages of ``new`` that it does not have; ``Invalid`` beyond the bounds.

    ``new`` may begin anywhere in ``old``: with its first message, with one of the last, or after the end. A message
    with a time is the same message wherever it is; one without a time only in the same order as its neighbours. Title
    and session of ``new`` replace those of ``old`` where they are given.
    """
    messages = (*old.messages, *_added(old.messages, new.messages))
    return read_conversation(
        {
            "title": new.title or old.title,
            "session": new.session or old.session,
            "messages": messages,
        }
    )


def _added(old: Sequence[Message], new: Sequence[Message]) -> list[Message]:
    if _contains(old, new):
        return []
    timed = {message for message in old if message.time is not None}
    return [message for message in new[_shared(old, new) :] if message not in timed]


def _contains(old: Sequence[Message], new: Sequence[Message]) -> bool:
    """Whether ``new`` is a run of neighbours in ``old``."""
    lengths = _prefix_lengths(new)
    matched = 0
    for message in old:
        while matched and new[matched] != message:
            matched = lengths[matched - 1]
        matched += new[matched] == message
        if matched == len(new):
            return True
    return False


def _shared(old: Sequence[Message], new: Sequence[Message]) -> int:
    """The length of the longest beginning of ``new`` with which ``old`` ends; ``old`` does not contain all of it."""
    lengths = _prefix_lengths(new)
    matched = 0
    for message in old:
        while matched and new[matched] != message:
            matched = lengths[matched - 1]
        matched += new[matched] == message
    return matched


def _prefix_lengths(messages: Sequence[Message]) -> list[int]:
    """For each end, the length of the longest shorter beginning that also ends there (Knuth, Morris, Pratt)."""
    lengths = [0] * len(messages)
    matched = 0
    for place in range(1, len(messages)):
        while matched and messages[matched] != messages[place]:
            matched = lengths[matched - 1]
        matched += messages[matched] == messages[place]
        lengths[place] = matched
    return lengths
