"""Conversations: their stored form, and how one is continued."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from latent_core.domain import conversation
from latent_core.domain.conversation import Conversation, Message, append, read_conversation
from latent_core.domain.errors import Invalid


def _messages(*contents: str, **fields: Any) -> Conversation:
    return read_conversation({"messages": [{"content": c} for c in contents], **fields})


def _contents(one: Conversation) -> list[str]:
    return [message.content for message in one.messages]


def test_the_stored_form_is_read_as_the_same_conversation() -> None:
    one = read_conversation(
        {
            "title": "Lamps",
            "session": "s-1",
            "messages": [
                {"role": "human", "content": "Is it lit?", "time": "2026-03-01T10:00:00+02:00"},
                {"role": "assistant", "name": "Ada", "content": "Yes.\n\tIt is."},
            ],
        }
    )
    assert read_conversation(one.encode()) == one
    assert one.messages[0].time == datetime(2026, 3, 1, 8, tzinfo=UTC)
    assert [message.speaker for message in one.messages] == ["user", "Ada"]


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"content": " \n"}]}, "must not be empty"),
        ({"messages": [{"content": "a\0b"}]}, "control character U+0000"),
        ({"messages": [{"content": "a", "role": "king"}]}, "messages.0.role"),
        ({"messages": [{"content": "a", "mood": "glad"}]}, "messages.0.mood"),
        ({"messages": [{"content": "a", "time": "noon"}]}, "messages.0.time"),
        (b"[1, 2", "JSON"),
    ],
)
def test_what_is_no_conversation_is_refused_with_the_place_of_the_problem(
    written: Any, problem: str
) -> None:
    with pytest.raises(Invalid, match="not a conversation") as refused:
        read_conversation(written)
    assert problem in refused.value.message


def test_a_conversation_beyond_its_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MAX_CHARS", 10)
    with pytest.raises(Invalid, match="limit of a conversation is 10"):
        append(_messages("12345"), _messages("678901"))


def test_new_messages_are_added_in_their_order() -> None:
    assert _contents(append(_messages("a", "b"), _messages("c", "d"))) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("repeated", [("a", "b", "c"), ("b", "c"), ("b",), ("c",)])
def test_messages_that_are_already_there_are_not_added_again(repeated: tuple[str, ...]) -> None:
    old = _messages("a", "b", "c")
    assert append(old, _messages(*repeated)) == old


def test_a_sender_of_the_whole_conversation_adds_only_what_is_new() -> None:
    assert _contents(append(_messages("a", "b"), _messages("a", "b", "c"))) == ["a", "b", "c"]
    continued = append(_messages("a", "b", "a"), _messages("b", "a", "b"))
    assert _contents(continued) == ["a", "b", "a", "b"]


def test_a_message_with_a_time_is_the_same_wherever_it_is() -> None:
    first = Message(content="ok", time=datetime(2026, 3, 1, tzinfo=UTC))
    later = Message(content="ok", time=datetime(2026, 3, 2, tzinfo=UTC))
    other = Message(content="done", time=datetime(2026, 3, 3, tzinfo=UTC))
    old = Conversation(messages=(first, other))
    assert append(old, Conversation(messages=(later, first))).messages == (first, other, later)


def test_title_and_session_that_are_given_replace_the_former_ones() -> None:
    old = _messages("a", title="Lamps", session="s-1")
    assert append(old, _messages("b")).title == "Lamps"
    continued = append(old, _messages("b", title="Lamps and wicks"))
    assert (continued.title, continued.session) == ("Lamps and wicks", "s-1")
