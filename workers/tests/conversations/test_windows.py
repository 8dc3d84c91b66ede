"""Conversations in windows of whole turns."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from latent_core.domain.chunk import DraftChunk, SourceType
from latent_core.domain.conversation import Conversation, Message
from latent_workers.chunk.conversation import MESSAGES_PER_WINDOW
from latent_workers.chunk.writing import chunk
from latent_workers.parse.conversation.parser import of_conversation
from latent_workers.parse.parsed import ParsedDocument
from tests.support.harness.worker_harness import WordTokenizer

BEGIN = datetime(2026, 3, 1, 22, 30, tzinfo=UTC)


def _parsed(*contents: str, title: str | None = "Lamps", timed: bool = True) -> ParsedDocument:
    messages = tuple(
        Message(
            name=("Ada", "Bob")[n % 2],
            content=content,
            time=BEGIN + timedelta(hours=n) if timed else None,
        )
        for n, content in enumerate(contents)
    )
    return of_conversation(Conversation(title=title, messages=messages))


def _chunks(parsed: ParsedDocument, budget: int = 40) -> list[DraftChunk]:
    drafts = chunk(
        parsed,
        source_type=SourceType.CONVERSATION,
        budget_tokens=budget,
        overlap=0.12,
        table_rows=25,
        tokenizer=WordTokenizer(),
    )
    for draft in drafts:
        place = draft.place
        assert draft.text == parsed.text[place.offset_start : place.offset_end]
        assert draft.token_count <= budget
    return drafts


def _spans(drafts: list[DraftChunk]) -> list[Any]:
    return [draft.meta["turn"] for draft in drafts]


def test_windows_are_whole_messages_and_overlap_by_one() -> None:
    contents = [f"remark {n} about the lamp and its wick" for n in range(7)]
    drafts = _chunks(_parsed(*contents))
    spans = _spans(drafts)
    assert spans[0][0] == 1
    assert spans[-1][1] == 7
    assert all(one[1] == other[0] for one, other in pairwise(spans))
    for draft in drafts:
        first, last = draft.meta["turn"]
        assert all(contents[n - 1] in draft.text for n in range(first, last + 1))


def test_a_window_has_a_limited_number_of_messages() -> None:
    spans = _spans(_chunks(_parsed(*["yes"] * 30), budget=500))
    assert max(last - first + 1 for first, last in spans) == MESSAGES_PER_WINDOW


def test_the_embedder_reads_title_date_and_speakers_and_the_text_stays_as_it_is() -> None:
    (draft,) = _chunks(_parsed("Is it lit?", "Not yet."))
    assert draft.embed_text == "Lamps\nAda: Is it lit?\nBob: Not yet. (1 March 2026)"
    assert draft.text == "Ada (2026-03-01 22:30):\nIs it lit?\n\nBob (2026-03-01 23:30):\nNot yet."


def test_a_chunk_names_its_messages_their_speakers_and_the_time() -> None:
    (draft,) = _chunks(_parsed("Is it lit?", "Not yet.", "Well?"))
    assert draft.meta == {
        "turn": [1, 3],
        "speaker": ["Ada", "Bob"],
        "time": "2026-03-01T22:30:00+00:00",
    }
    assert draft.place.heading_path == ("Ada, Bob, 2026-03-01 22:30",)
    assert (draft.place.line_start, draft.place.line_end) == (1, 8)


def test_without_times_only_speakers_are_named() -> None:
    (draft,) = _chunks(_parsed("Is it lit?", title=None, timed=False))
    assert draft.meta == {"turn": [1, 1], "speaker": ["Ada"]}
    assert draft.place.heading_path == ("Ada",)
    assert draft.embed_text == "Ada: Is it lit?"


def test_a_long_message_is_cut_and_every_part_names_its_speaker() -> None:
    long = " ".join(f"Sentence {n} tells of one more lamp." for n in range(40))
    drafts = _chunks(_parsed("Tell me.", long, "Thanks."))
    parts = [draft for draft in drafts if draft.meta["turn"][0] <= 2 <= draft.meta["turn"][1]]
    assert len(parts) > 3
    assert all("Bob" in draft.embed_text for draft in parts)
    joined = " ".join(draft.text for draft in drafts)
    assert all(f"Sentence {n} tells" in joined for n in range(40))


@pytest.mark.parametrize(
    "content", ["x" * 100_000, "word\n" * 5_000, ". . . " * 3_000, "\U0001f600"]
)
def test_no_text_is_lost_and_every_chunk_fits(content: str) -> None:
    parsed = _parsed("Look:", content, "Oh.")
    drafts = _chunks(parsed)
    covered = set()
    for draft in drafts:
        covered.update(range(draft.place.offset_start, draft.place.offset_end))
    missing = {parsed.text[at] for at in range(len(parsed.text)) if at not in covered}
    assert not any(character.strip() for character in missing)


def test_a_title_that_fills_the_budget_is_not_embedded() -> None:
    parsed = replace(_parsed("Is it lit?"), title="lamp " * 100)
    (draft,) = _chunks(parsed)
    assert draft.embed_text == "Ada: Is it lit? (1 March 2026)"
