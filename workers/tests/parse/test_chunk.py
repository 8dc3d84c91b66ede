from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from typing_extensions import override

from latent_core.domain.chunk import BlockType, DraftChunk, SourceType
from latent_core.domain.ids import content_hash
from latent_core.models.embedding.port import Tokenizer
from latent_workers.chunk.counting import WordCounter
from latent_workers.chunk.writing import chunk
from latent_workers.parse.parsed import ParsedDocument, ParsedPage, TextBlock
from latent_workers.parse.text import markdown, parser as plain_text
from latent_workers.parse.text.decode import decode
from latent_workers.parse.text.lines import Lines

TOKEN = re.compile(r"[^\W_]{1,6}|[^\w\s]|_")


class Words:
    """Counts like WordPiece: words in pieces of six letters, each mark alone, that below a line too."""

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(TOKEN.findall(text)) for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in TOKEN.finditer(text)]


class Bytes(Words):
    """Counts white space too, so that a text costs more than its words."""

    @override
    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(TOKEN.findall(text)) + text.count(" ") + text.count("\n") for text in texts]


class Giant(Words):
    """Takes every word, however long, for one token."""

    @override
    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    @override
    def offsets(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in re.finditer(r"\S+", text)]


def chunks(
    parsed: ParsedDocument | str,
    budget: int = 60,
    *,
    source_type: SourceType = SourceType.MARKDOWN,
    **options: Any,
) -> list[DraftChunk]:
    if isinstance(parsed, str):
        decoded = decode(parsed.encode())
        if source_type is SourceType.MARKDOWN:
            parsed = markdown.of_decoded(decoded)
        else:
            kind = BlockType.CODE if source_type is SourceType.YAML else BlockType.PARAGRAPH
            parsed = plain_text.of_decoded(decoded, kind)
    given = {"overlap": 0.12, "table_rows": 25, "tokenizer": Words(), **options}
    return chunk(parsed, source_type=source_type, budget_tokens=budget, **given)


def evidence(found: Sequence[DraftChunk]) -> list[str]:
    return [draft.text for draft in found]


PIECES = st.sampled_from(
    [
        *(
            "",
            "",
            "# Title",
            "## Part `one`",
            "### Deeper",
            "***",
            "- item",
            "- second\n  - nested",
            "1. first",
        ),
        *(
            "```py\nx = 1\n\ny = 2\n```",
            "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |",
            "> quoted text",
            "    code",
        ),
        *(
            "One sentence. Another one! A third? Yes.",
            "word " * 90,
            "x" * 700,
            "中文句子。" * 40,
            "a, b\tc\n" * 30,
        ),
        *(
            "| h1 | h2 |\n|:-:|--:|\n" + "| cell *x* | [l](u) |\n" * 40,
            "```\n" + "line of code;\n" * 60 + "```",
        ),
        *(
            "- " + "long item of a list " * 30,
            "[ref]: http://example.com",
            "<div>\nraw\n</div>",
            "line\n" * 70,
        ),
    ]
)
DOCUMENTS = st.builds(
    lambda parts, end: "\n\n".join(parts).replace("\n", end),
    st.lists(PIECES, max_size=10),
    st.sampled_from(["\n", "\r\n"]),
)
TYPES = st.sampled_from([SourceType.MARKDOWN, SourceType.TEXT, SourceType.YAML])


@settings(max_examples=100, deadline=None)
@given(
    DOCUMENTS,
    TYPES,
    st.integers(16, 120),
    st.sampled_from([0.0, 0.12, 0.5]),
    st.sampled_from([Words(), Bytes(), Giant()]),
)
def test_chunks_lose_nothing_keep_their_place_and_the_budget(
    source: str, source_type: SourceType, budget: int, overlap: float, tokenizer: Tokenizer
) -> None:
    found = chunks(source, budget, source_type=source_type, overlap=overlap, tokenizer=tokenizer)
    text = decode(source.encode()).text
    lines = Lines(text)
    covered: set[int] = set()
    last = (-1, 0)
    for draft in found:
        place = draft.place
        own = draft.text[draft.meta.get("repeated_chars", 0) :]
        assert own == text[place.offset_start : place.offset_end]
        assert draft.text.strip()
        assert draft.content_hash == content_hash(draft.text)
        assert place.line_start == lines.at(place.offset_start)
        assert place.line_end == lines.at(place.offset_end - 1)
        # A chunk that had to be halved may begin after what the next one shares with it.
        assert place.offset_start > last[0] or isinstance(tokenizer, Bytes)
        assert place.offset_end > last[1]
        last = (place.offset_start, place.offset_end)
        covered.update(n for n in range(place.offset_start, place.offset_end))
        assert [draft.token_count] == tokenizer.count([draft.embed_text])
        fence = source_type is SourceType.MARKDOWN and draft.block_type is BlockType.CODE
        assert draft.token_count <= budget or fence
    assert all(at in covered for at, char in enumerate(text) if not char.isspace())
    assert found == chunks(
        source, budget, source_type=source_type, overlap=overlap, tokenizer=tokenizer
    )


def test_a_chunk_stays_under_its_heading_and_carries_the_path() -> None:
    found = chunks("# Book\n\n## One\n\nalpha\n\nbeta\n\n## Two\n\ngamma\n")
    assert evidence(found) == ["# Book\n\n## One\n\nalpha\n\nbeta", "## Two\n\ngamma"]
    assert [draft.place.heading_path for draft in found] == [("Book", "One"), ("Book", "Two")]
    assert found[0].embed_text == found[0].text
    assert found[1].embed_text == "Book\n\n## Two\n\ngamma"


def test_the_embedder_reads_the_headings_above_each_further_chunk() -> None:
    found = chunks(
        "# Book\n\n" + "\n\n".join(f"Paragraph number {n} with some more words." for n in range(20))
    )
    assert len(found) > 2
    assert all(draft.embed_text == f"Book\n\n{draft.text}" for draft in found[1:])


def test_headings_take_no_more_than_their_share_of_the_budget() -> None:
    long = "very long heading " * 10
    found = chunks(f"# Top\n\n## {long}\n\n{'word ' * 200}", budget=40)
    assert all("Top" not in draft.embed_text for draft in found[2:])
    assert all(draft.token_count <= 40 for draft in found)


def test_the_title_is_read_where_no_heading_says_it() -> None:
    parsed = markdown.of_decoded(decode(b"---\ntitle: Handbook\n---\n\n## Part\n\ntext\n"))
    assert chunks(parsed)[-1].embed_text == "Handbook\n\n## Part\n\ntext"


def test_a_long_paragraph_is_cut_at_sentences_that_neighbours_share() -> None:
    sentences = [f"Sentence number {n} says this." for n in range(30)]
    found = chunks(" ".join(sentences), budget=50, overlap=0.3)
    for one, other in pairwise(found):
        assert one.text.startswith("Sentence")
        assert one.text.endswith("this.")
        assert 0 < one.place.offset_end - other.place.offset_start < len(one.text)
    without = chunks(" ".join(sentences), budget=50, overlap=0)
    assert " ".join(evidence(without)) == " ".join(sentences)


def test_words_are_cut_only_when_one_alone_is_too_long() -> None:
    found = chunks("short " * 100 + "y" * 2000, budget=20, overlap=0)
    assert all(set(draft.text) <= set("short ") or set(draft.text) == {"y"} for draft in found)
    assert "".join(evidence(found)).count("y") == 2000


def test_a_word_that_the_tokenizer_takes_for_one_token_is_cut_by_length() -> None:
    found = chunks("z" * 5000, budget=20, overlap=0, tokenizer=Giant())
    assert "".join(evidence(found)) == "z" * 5000
    assert all(len(draft.text) <= 20 * 16 for draft in found)


def test_a_list_is_cut_between_its_items() -> None:
    items = [f"- item {n} with a few words\n  and a second line" for n in range(30)]
    found = chunks("\n".join(items), overlap=0)
    assert len(found) > 3
    assert "\n".join(evidence(found)) == "\n".join(items)
    assert all(
        draft.text.startswith("- item") and draft.block_type is BlockType.LIST for draft in found
    )


def test_a_fence_stays_whole_up_to_many_budgets() -> None:
    fence = "```py\n" + "\n\n".join(f"value_{n} = {n}" for n in range(40)) + "\n```"
    found = chunks(f"# Code\n\nintro\n\n{fence}\n\noutro\n")
    assert fence in evidence(found)
    whole = next(draft for draft in found if draft.text == fence)
    assert whole.block_type is BlockType.CODE
    assert whole.token_count > 60


def test_a_giant_fence_is_cut_between_lines() -> None:
    fence = "```\n" + "\n".join(f"value_{n} = {n};" for n in range(400)) + "\n```"
    found = chunks(fence)
    assert "\n".join(evidence(found)) == fence
    assert all(draft.token_count <= 60 for draft in found)


def test_structured_data_that_was_read_as_text_is_cut_between_lines() -> None:
    source = "def f():\n    return 1\n\n\ndef g():\n" + "\n".join(
        f"    step_{n}()" for n in range(50)
    )
    found = chunks(source, source_type=SourceType.YAML)
    assert len(found) > 3
    assert "\n".join(evidence(found)) == source
    assert all(draft.block_type is BlockType.CODE for draft in found)


HEADER = "| name | value of it |\n|------|:-----------:|\n"


def table(rows: int) -> str:
    return HEADER + "".join(f"| row {n} | {n * n} |\n" for n in range(rows))


def test_a_small_table_is_one_chunk_with_its_heading_and_a_summary() -> None:
    found = chunks(f"# Squares\n\nSquares of small numbers:\n\n{table(3)}\nafter\n")
    (small,) = [draft for draft in found if draft.block_type is BlockType.TABLE]
    assert small.text == table(3).rstrip("\n")
    assert small.place.row_group is None
    assert small.place.table_id
    assert small.embed_text == (
        "Squares\nSquares of small numbers:\nTable with columns name, value of it; 3 rows.\n"
        "row 0, 0\nrow 1, 1\nrow 2, 4"
    )


def test_a_table_right_below_a_heading_keeps_it() -> None:
    found = chunks(f"# Squares\n\n{table(3)}")
    assert evidence(found) == [f"# Squares\n\n{table(3)}".rstrip("\n")]


@pytest.mark.parametrize("options", [{"table_rows": 10}, {"budget": 60}])
def test_a_long_table_is_cut_into_row_groups_that_repeat_the_header(
    options: dict[str, Any],
) -> None:
    source = f"# Squares\n\n{table(40)}"
    found = chunks(source, **{"budget": 10_000, **options})
    assert len(found) >= 3
    assert [draft.place.row_group for draft in found] == list(range(len(found)))
    assert len({draft.place.table_id for draft in found}) == 1
    for draft in found[1:]:
        assert draft.text.startswith(HEADER)
        assert draft.meta["repeated_chars"] == len(HEADER)
        own = source[draft.place.offset_start : draft.place.offset_end]
        assert draft.text == HEADER + own
        assert f" of 40.\n{own.split('|')[1].strip()}" in draft.embed_text
    rows = [line for draft in found for line in draft.text.splitlines() if line.startswith("| row")]
    assert rows == table(40).splitlines()[2:]
    assert all(sum(line.startswith("| row") for line in d.text.splitlines()) <= 25 for d in found)


def test_the_id_of_a_table_is_kept_when_rows_are_added_and_differs_between_tables() -> None:
    (before,) = chunks(table(3))
    (after,) = chunks(table(4))
    assert before.place.table_id == after.place.table_id
    twice = chunks(f"{table(3)}\ntext\n\n{table(3)}")
    assert len({draft.place.table_id for draft in twice if draft.place.table_id}) == 2


def test_a_row_over_the_budget_stays_whole() -> None:
    row = "| " + "cell with many words " * 60 + "| x |"
    found = chunks(f"{HEADER}| a | b |\n{row}\n| c | d |\n")
    assert any(draft.text == HEADER + row for draft in found)
    assert all(draft.token_count <= 60 for draft in found)


def test_cells_are_read_without_markup() -> None:
    source = "| **Key** | Link |\n|---|---|\n| `a\\|b` <br> _x_ | [text](http://example.com) |\n"
    (found,) = chunks(source)
    assert found.embed_text == "Table with columns Key, Link; 1 rows.\na|b x, text"


def test_what_has_no_words_goes_with_its_neighbour() -> None:
    found = chunks("***\n\n# Title\n\ntext\n\n---\n\n## Next\n\nmore\n\n***\n")
    assert evidence(found) == ["***\n\n# Title\n\ntext\n\n---", "## Next\n\nmore\n\n***"]


def test_a_document_without_any_word_is_still_a_chunk() -> None:
    assert evidence(chunks("***\n\n+++\n")) == ["***\n\n+++"]


def test_nothing_gives_no_chunks() -> None:
    assert chunks(ParsedDocument(text="")) == []


def test_pages_are_never_mixed() -> None:
    texts = ["Page one says this.", "Page two\nsays that.", "* * *", "Page four."]
    whole = "\f".join(texts)
    offsets = [whole.index(text) for text in texts]
    blocks = tuple(
        TextBlock(
            BlockType.PARAGRAPH, text, at, at + len(text), page=number, heading_path=("Chapter",)
        )
        for number, (text, at) in enumerate(zip(texts, offsets, strict=True), start=1)
    )
    pages = tuple(ParsedPage(number, text, 1, 1) for number, text in enumerate(texts, start=1))
    found = chunks(
        ParsedDocument(text=whole, blocks=blocks, pages=pages), source_type=SourceType.PDF
    )
    assert evidence(found) == texts
    assert [(d.place.page, d.place.page_end, d.place.line_start) for d in found] == [
        (number, number, None) for number in range(1, 5)
    ]


def test_a_block_that_runs_over_the_page_is_in_chunks_of_the_pages_they_show() -> None:
    first, rest = (
        "Before it. " + "One says this. " * 30 + "It runs",
        "over to here. " + "Two says that. " * 30,
    )
    whole = f"{first} {rest.strip()}\n\nBelow it."
    over = len(first) + 1 + len(rest.strip())
    blocks = (
        TextBlock(BlockType.PARAGRAPH, whole[:over], 0, over, page=4, page_end=5),
        TextBlock(BlockType.PARAGRAPH, "Below it.", over + 2, len(whole), page=5),
    )
    pages = (ParsedPage(4, first, 1, 1), ParsedPage(5, whole[len(first) + 1 :], 1, 1))
    found = chunks(
        ParsedDocument(text=whole, blocks=blocks, pages=pages), source_type=SourceType.PDF
    )
    places = [(draft.place.page, draft.place.page_end) for draft in found]
    assert places[0] == (4, 4)
    assert places[-2:] == [(5, 5), (5, 5)]
    (spanning,) = [draft for draft in found if draft.place.page_end != draft.place.page]
    assert (spanning.place.page, spanning.place.page_end) == (4, 5)
    assert "It runs over to here." in spanning.text
    assert found[-1].text == "Below it."


def test_the_place_in_structured_data_is_kept() -> None:
    block = TextBlock(
        BlockType.CODE, "a: 1", 0, 4, key_path="services.api", parent_section="services"
    )
    (found,) = chunks(ParsedDocument(text="a: 1", blocks=(block,)))
    assert (found.place.key_path, found.place.parent_section) == ("services.api", "services")


def test_a_wide_header_is_repeated_too() -> None:
    header = (
        "| " + " | ".join(f"column number {n}" for n in range(30)) + " |\n|" + "---|" * 30 + "\n"
    )
    found = chunks(header + ("| x " * 30 + "|\n") * 8)
    assert len(found) > 1
    assert all(draft.text.startswith(header) for draft in found)


def test_one_counter_serves_many_documents() -> None:
    counter = WordCounter(Words())
    assert counter.additive
    assert not WordCounter(Bytes()).additive
    source = "# A\n\n" + "Some words, and some more of them. " * 80 + table(50)
    assert chunks(source, tokenizer=counter) == chunks(source) == chunks(source, tokenizer=counter)


@settings(max_examples=60)
@given(st.lists(st.text(max_size=80), max_size=8))
def test_counting_by_words_is_counting(texts: list[str]) -> None:
    assert WordCounter(Words()).count(texts) == Words().count(texts)


def test_the_kind_of_a_chunk_is_what_it_mostly_holds() -> None:
    assert chunks("# Only a heading\n")[0].block_type is BlockType.PARAGRAPH
    assert chunks("# T\n\nshort\n\n- a longer list\n- of things\n")[0].block_type is BlockType.LIST


def test_a_block_without_lines_gives_a_chunk_without_lines() -> None:
    parsed = plain_text.of_decoded(decode(b"text"))
    blocks = tuple(replace(block, line_start=None, line_end=None) for block in parsed.blocks)
    assert chunks(replace(parsed, blocks=blocks))[0].place.line_start is None
