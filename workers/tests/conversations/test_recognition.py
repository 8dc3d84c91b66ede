"""Transcripts and exports are recognised by their content; a corpus of records stays one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.conversation.messages import (
    FoundConversation,
    TranscriptOptions,
    UnreadPart,
)
from latent_workers.parse.conversation.readers import READERS
from latent_workers.parse.conversation.recognise import ConversationFormat, recognise
from tests.support import transcripts

EVERYTHING = TranscriptOptions(tools=True, reasoning=True)


def _read(
    folder: Path, name: str, data: bytes, options: TranscriptOptions | None = None
) -> list[FoundConversation | UnreadPart]:
    written_as = recognise(name, data[:65_536])
    assert written_as is not None
    path = folder / name
    path.write_bytes(data)
    with path.open("rb") as file:
        return list(READERS[written_as](file, name, options or TranscriptOptions()))


def _one(folder: Path, name: str, data: bytes, **more: Any) -> FoundConversation:
    (found,) = _read(folder, name, data, **more)
    assert isinstance(found, FoundConversation)
    return found


def _spoken(found: FoundConversation) -> list[tuple[str, str]]:
    return [(m.role.value, m.content) for m in found.conversation.messages]


@pytest.mark.parametrize(
    ("name", "data", "written_as"),
    [
        ("a.jsonl", transcripts.claude_code(), ConversationFormat.CLAUDE_CODE),
        ("a.jsonl", transcripts.codex(), ConversationFormat.CODEX),
        ("a.jsonl", transcripts.codex_older(), ConversationFormat.CODEX),
        ("conversations.json", transcripts.chatgpt(), ConversationFormat.CHATGPT),
        ("conversations.json", transcripts.claude(), ConversationFormat.CLAUDE),
        ("a.json", b'{"mapping": {"properties": {"title": {"type": "text"}}}}', None),
        ("a.json", b'["user", "assistant"]', None),
        ("a.txt", transcripts.claude_code(), None),
        ("a.jsonl", b'{"_id": "1", "title": "", "text": "sessionId"}\n', None),
        ("a.jsonl", b'{"type": "user", "message": "not an object"}\n', None),
        ("a.jsonl", b'{"_id": "1", "messages": []}\n', ConversationFormat.RECORDS),
        ("a.jsonl", b'{"_id": "1", "messages": [], "text": ""}\n', None),
        ("a.jsonl", b'{"messages": [{"role": "user", "content": "x"}]}\n', None),
        ("a.jsonl", b"not JSON at all\n", None),
        ("a.jsonl", b"", None),
    ],
)
def test_a_file_is_recognised_by_its_first_bytes(
    name: str, data: bytes, written_as: ConversationFormat | None
) -> None:
    assert recognise(name, data) is written_as


def test_records_about_conversations_are_records() -> None:
    line = {"_id": "1", "type": "user", "sessionId": "s", "message": {}, "uuid": "u", "text": "x"}
    assert recognise("a.jsonl", orjson.dumps(line) + b"\n") is None
    assert recognise("a.jsonl", orjson.dumps(line)[:60]) is None


def test_a_transcript_is_recognised_behind_instructions_longer_than_its_first_bytes() -> None:
    meta = {"type": "session_meta", "payload": {"id": "s", "instructions": "x" * 100_000}}
    head = orjson.dumps(meta)[:65_536]
    assert recognise("a.jsonl", head) is ConversationFormat.CODEX


def test_a_transcript_of_claude_code_keeps_messages_of_people_and_models(tmp_path: Path) -> None:
    found = _one(tmp_path, "a.jsonl", transcripts.claude_code())
    assert _spoken(found) == [
        ("user", "Why is the lamp dark?"),
        ("assistant", "I will look at the wick.\n\nThe wick is wet."),
        ("user", "Dry it."),
    ]
    assert found.conversation.session == "5e55-10"
    assert found.conversation.title == "A dark lamp"
    assert str(found.conversation.messages[0].time) == "2026-03-01 10:00:00+00:00"


def test_tools_and_reasoning_are_kept_on_request(tmp_path: Path) -> None:
    found = _one(tmp_path, "a.jsonl", transcripts.claude_code(), options=EVERYTHING)
    assert [role for role, _ in _spoken(found)] == [
        *("user", "reasoning", "assistant", "tool", "tool", "assistant", "user")
    ]
    assert [text for role, text in _spoken(found) if role == "tool"] == [
        'Read: {"file_path":"wick.log"}',
        "drip drip",
    ]


@pytest.mark.parametrize("data", [transcripts.codex(), transcripts.codex_older()])
def test_a_rollout_of_codex_leaves_out_the_context_of_the_machine(
    tmp_path: Path, data: bytes
) -> None:
    found = _one(tmp_path, "a.jsonl", data)
    assert _spoken(found) == [
        ("user", "Trim the wick.\nThen light it."),
        ("assistant", "It is trimmed and lit."),
    ]
    assert found.conversation.session == "019a"
    assert found.conversation.title == "Trim the wick. Then light it."
    kept = _one(tmp_path, "a.jsonl", data, options=EVERYTHING)
    assert [role for role, _ in _spoken(kept)] == ["user", "reasoning", "tool", "tool", "assistant"]


def test_an_export_of_chatgpt_gives_its_current_branch(tmp_path: Path) -> None:
    first, second = _read(tmp_path, "conversations.json", transcripts.chatgpt())
    assert isinstance(first, FoundConversation)
    assert isinstance(second, FoundConversation)
    assert _spoken(first) == [("user", "Which oil?"), ("assistant", "Colza oil.")]
    assert (first.id, first.conversation.title) == ("c-1", "Oil for lamps")
    assert _spoken(second) == [("user", "Hello")]


def test_an_export_of_claude_gives_each_conversation(tmp_path: Path) -> None:
    (found,) = _read(tmp_path, "conversations.json", transcripts.claude())
    assert isinstance(found, FoundConversation)
    assert _spoken(found) == [("user", "Which wick?"), ("assistant", "A flat one.")]
    kept = _read(tmp_path, "conversations.json", transcripts.claude(), EVERYTHING)[0]
    assert isinstance(kept, FoundConversation)
    assert [role for role, _ in _spoken(kept)] == ["user", "reasoning", "tool", "tool", "assistant"]


def test_malformed_lines_are_reported_with_their_numbers(tmp_path: Path) -> None:
    lines = transcripts.claude_code().split(b"\n")
    damaged = b"\n".join([lines[0], b'{"type": "user", ', b"[1]", *lines[1:]])
    *unread, found = _read(tmp_path, "a.jsonl", damaged)
    assert isinstance(found, FoundConversation)
    assert len(found.conversation.messages) == 3
    assert [one.number for one in unread if isinstance(one, UnreadPart)] == [2, 3]


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.9])
def test_an_export_that_was_cut_off_gives_what_is_whole(tmp_path: Path, cut: float) -> None:
    data = transcripts.chatgpt(filler=3_000_000)
    outcomes = _read(tmp_path, "conversations.json", data[: int(len(data) * cut)])
    assert isinstance(outcomes[-1], UnreadPart)
    assert "not valid JSON" in outcomes[-1].message


@pytest.mark.parametrize(
    "element",
    [
        "text",
        {"mapping": []},
        {"mapping": {"a": {"parent": "a", "message": None}}, "current_node": "a"},
        {"mapping": {"a": {"message": {"author": None, "content": {"parts": [1, None]}}}}},
        {"title": 3, "mapping": {"a": {"message": {"author": {"role": ["x"]}, "content": "x"}}}},
    ],
)
def test_a_strange_conversation_of_an_export_is_reported(tmp_path: Path, element: Any) -> None:
    good = orjson.loads(transcripts.chatgpt())
    first, strange, _ = _read(
        tmp_path, "conversations.json", orjson.dumps([good[0], element, good[1]])
    )
    assert isinstance(first, FoundConversation)
    assert isinstance(strange, UnreadPart)
    assert strange.number == 2


def test_a_transcript_without_messages_is_refused(tmp_path: Path) -> None:
    meta = orjson.dumps({"type": "session_meta", "payload": {"id": "s"}})
    with pytest.raises(IngestFailed, match="no messages"):
        _read(tmp_path, "a.jsonl", meta + b"\n")


def test_records_with_messages_are_conversations(tmp_path: Path) -> None:
    lines: list[Any] = [
        {"_id": 7, "title": "Oil", "messages": [{"name": "Ada", "content": "Colza."}], "shelf": 1},
        {"_id": "8", "title": "Text", "text": "Not one."},
        {"messages": [{"content": "No id."}]},
        {"_id": "9", "messages": [{"content": "Last."}]},
    ]
    data = b"\n".join(orjson.dumps(line) for line in lines)
    first, *unread, last = _read(tmp_path, "a.jsonl", data)
    assert isinstance(first, FoundConversation)
    assert isinstance(last, FoundConversation)
    assert (first.id, first.conversation.title, last.id) == ("7", "Oil", "9")
    assert [one.number for one in unread if isinstance(one, UnreadPart)] == [2, 3]
