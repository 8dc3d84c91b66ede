from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from latent_core.domain.chunk import BlockType, DraftChunk, SourceType
from latent_core.domain.ids import content_hash
from latent_workers.chunk.code import CHARS_PER_LINE
from latent_workers.chunk.writing import chunk
from latent_workers.parse.code import parser
from latent_workers.parse.text.decode import decode
from latent_workers.parse.text.lines import Lines
from tests.support.tokenizers import WordPieceTokenizer


def chunks(source: str, name: str = "a.py", **options: Any) -> list[DraftChunk]:
    given = {"code_lines": 180, "code_overlap": 30, "budget_tokens": 256, **options}
    return chunk(
        parser.of_decoded(decode(source.encode()), name),
        source_type=SourceType.CODE,
        overlap=0.12,
        table_rows=25,
        tokenizer=WordPieceTokenizer(),
        **given,
    )


def spans(found: Sequence[DraftChunk]) -> list[tuple[int | None, int | None]]:
    return [(draft.place.line_start, draft.place.line_end) for draft in found]


def statements(count: int) -> str:
    return "".join(f"x{n} = {n}\n" for n in range(count))


def function(name: str, lines: int) -> str:
    return f"def {name}():\n" + "    step()\n" * (lines - 1)


def test_a_short_file_is_one_window_with_its_exact_lines() -> None:
    (found,) = chunks("\n\n" + statements(180) + "\n")
    assert spans([found]) == [(3, 182)]
    assert found.text == statements(180).rstrip("\n")
    assert found.block_type is BlockType.CODE
    assert found.meta == {"code_language": "python"}


def test_windows_share_exactly_the_overlap() -> None:
    assert spans(chunks(statements(400))) == [(1, 180), (151, 330), (301, 400)]
    assert spans(chunks(statements(400), code_overlap=0)) == [(1, 180), (181, 360), (361, 400)]
    assert spans(chunks(statements(50), code_lines=20, code_overlap=5)) == [
        (1, 20),
        (16, 35),
        (31, 50),
    ]


def test_an_overlap_of_more_than_half_is_cut_to_half() -> None:
    assert spans(chunks(statements(50), code_lines=20, code_overlap=500)) == [
        (1, 20),
        (11, 30),
        (21, 40),
        (31, 50),
    ]


def test_a_window_ends_before_a_definition_in_its_last_third() -> None:
    source = function("a", 100) + "\n\n" + function("b", 40) + "\n" + function("c", 100)
    first, second = chunks(source)
    assert spans([first]) == [(1, 142)]
    assert first.meta["symbols"] == ["a", "b"]
    assert second.place.line_start == 142 - 29
    assert second.place.line_end == 243


def test_a_top_level_definition_is_preferred_to_one_inside_and_that_to_a_blank_line() -> None:
    methods = "".join(
        f"    def m{n}(self):\n" + "        step()\n" * 8 + "\n        last()\n\n"
        for n in range(12)
    )
    source = "class A:\n" + methods + function("f", 100)
    first, *_ = chunks(source)
    assert source.splitlines()[first.place.line_end or 0 :][1].startswith("def f")
    inside, *_ = chunks("class A:\n" + methods, code_lines=40)
    assert (inside.place.line_end, inside.place.heading_path) == (36, ("A",))
    blank, *_ = chunks(function("g", 30) + "\n" + "    step()\n" * 60, code_lines=40)
    assert blank.place.line_end == 30


def test_the_embedder_reads_the_definition_that_goes_on_and_no_name_of_the_file() -> None:
    source = (
        "import os\n"
        + "class A:\n"
        + "".join(f"    def m{n}(self):\n" + "        step()\n" * 50 for n in range(4))
    )
    first, second = chunks(source)
    assert first.embed_text == first.text
    assert second.embed_text == f"A > m2\n\n{second.text}"
    assert second.place.heading_path == ("A",)
    assert first.place.heading_path == ()
    assert first.meta["symbols"] == ["A", "A.m0", "A.m1", "A.m2"]
    assert [first.token_count] == WordPieceTokenizer().count([first.embed_text])


def test_a_window_never_lies_within_its_neighbour_where_lines_are_long() -> None:
    long = "y = '" + "word " * 300 + "'\n"
    found = chunks(statements(19) + long + statements(5), code_lines=20, code_overlap=10)
    for one, other in pairwise(found):
        assert one.place.offset_start < other.place.offset_start
        assert one.place.offset_end < other.place.offset_end


def test_a_line_longer_than_a_window_is_cut_after_its_punctuation() -> None:
    source = "a();" * 20_000
    found = chunks(source, "a.min.js")
    assert "".join(draft.text for draft in found) == source
    assert all(draft.text.endswith(";") for draft in found)
    assert all(len(draft.text) <= 180 * CHARS_PER_LINE for draft in found)
    assert set(spans(found)) == {(1, 1)}


def test_each_chunk_names_its_language() -> None:
    assert {d.meta["code_language"] for d in chunks(statements(400), "a.rb")} == {"ruby"}
    assert "code_language" not in chunks("x", "a.lock")[0].meta


PIECES = st.sampled_from(
    [
        *(
            "",
            "  ",
            "x = 1",
            "def f():",
            "    return 1",
            "class A:",
            "    def g(self):",
            "}",
            "# c",
        ),
        *(
            "\n\n\n",
            statements(7),
            function("f", 9),
            function("g", 70),
            "z" * 900,
            "w " * 700,
            "中" * 300,
        ),
    ]
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(PIECES, min_size=1, max_size=12).filter(lambda rows: any(map(str.strip, rows))),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["a.py", "a.c"]),
    st.integers(10, 40),
    st.integers(0, 60),
)
def test_windows_lose_nothing_keep_their_place_and_never_hold_each_other(
    rows: list[str], end: str, name: str, max_lines: int, overlap: int
) -> None:
    text = "\n".join(rows).replace("\n", end)
    found = chunks(text, name, code_lines=max_lines, code_overlap=overlap)
    lines = Lines(text)
    held: set[int] = set()
    for draft in found:
        place = draft.place
        assert draft.text == text[place.offset_start : place.offset_end]
        assert draft.content_hash == content_hash(draft.text)
        assert place.line_start == lines.at(place.offset_start)
        assert place.line_end == lines.at(place.offset_end - 1)
        assert place.line_end - place.line_start < max_lines
        assert place.offset_end - place.offset_start <= max_lines * CHARS_PER_LINE
        held.update(range(place.offset_start, place.offset_end))
    assert all(at in held for at, char in enumerate(text) if not char.isspace())
    for one, other in pairwise(found):
        assert one.place.offset_start < other.place.offset_start
        assert one.place.offset_end < other.place.offset_end
        shared = (one.place.line_end or 0) - (other.place.line_start or 0) + 1
        assert shared <= max(1, min(overlap, max_lines // 2))
    assert found == chunks(text, name, code_lines=max_lines, code_overlap=overlap)


def test_line_ends_of_two_characters_count_as_two() -> None:
    text = "\r\n".join(["x" * (CHARS_PER_LINE - 1)] * 30)
    found = chunks(text, "a.py", code_lines=23, code_overlap=0)
    assert all(len(draft.text) <= 23 * CHARS_PER_LINE for draft in found)
    assert sum(draft.text.count("x") for draft in found) >= text.count("x")


@pytest.mark.parametrize("name", ["a.py", "a.c"])
def test_a_file_of_one_character_is_a_chunk(name: str) -> None:
    assert [draft.text for draft in chunks("x", name)] == ["x"]
