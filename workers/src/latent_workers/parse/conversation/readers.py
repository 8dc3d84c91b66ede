"""The reader of each format: the open file, its name and what to keep in, conversations and unread parts out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, Final

from latent_core.domain.conversation import Conversation, read_conversation
from latent_core.domain.errors import IngestFailed, Invalid
from latent_workers.parse.conversation import exports, transcripts
from latent_workers.parse.conversation.messages import (
    FoundConversation,
    TranscriptOptions,
    UnreadPart,
)
from latent_workers.parse.conversation.recognise import ConversationFormat

ConversationReader = Callable[
    [BinaryIO, str, TranscriptOptions], Iterator[FoundConversation | UnreadPart]
]


def _stored(file: BinaryIO, name: str, _options: TranscriptOptions) -> Iterator[FoundConversation]:
    try:
        conversation = read_conversation(file.read())
    except Invalid as exc:
        raise IngestFailed(f"'{name}' is {exc.message}") from exc
    yield FoundConversation(conversation.session or name, conversation)


def _records(
    file: BinaryIO, _name: str, _options: TranscriptOptions
) -> Iterator[FoundConversation | UnreadPart]:
    for line, value in transcripts.numbered_objects(file):
        if isinstance(value, UnreadPart):
            yield value
            continue
        fields = {key: item for key, item in value.items() if key in Conversation.model_fields}
        identity = value.get("_id")
        if isinstance(identity, bool) or not isinstance(identity, str | int) or identity == "":
            yield UnreadPart(line, "needs an '_id' (text or a whole number)")
            continue
        try:
            yield FoundConversation(str(identity), read_conversation(fields))
        except Invalid as exc:
            yield UnreadPart(line, f"is {exc.message}")


READERS: Final[Mapping[ConversationFormat, ConversationReader]] = {
    ConversationFormat.CLAUDE_CODE: transcripts.claude_code,
    ConversationFormat.CODEX: transcripts.codex,
    ConversationFormat.CHATGPT: exports.chatgpt,
    ConversationFormat.CLAUDE: exports.claude,
    ConversationFormat.RECORDS: _records,
    ConversationFormat.STORED: _stored,
}
