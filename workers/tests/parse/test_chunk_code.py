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


def test_each_function_is_a_window_that_begins_with_its_comments_and_decorators() -> None:
    source = (
        "import os\n\nLIMIT = 3\n\n# Of a.\n@cached\n"
        + function("a", 100)
        + "\n\n"
        + function("b", 3)
        + "\n"
        + function("c", 180)
    )
    found = chunks(source)
    assert spans(found) == [(1, 3), (5, 106), (109, 111), (113, 292)]
    assert [draft.meta.get("symbol") for draft in found] == [None, "a", "b", "c"]
    assert [draft.place.heading_path for draft in found] == [(), ("a",), ("b",), ("c",)]
    assert found[1].text.startswith("# Of a.\n@cached\ndef a():")


def test_a_class_is_its_head_and_its_methods_and_whole_without_methods() -> None:
    source = (
        "class A(B):\n    x = 1\n\n    def m(self):\n        return 1\n\n    y = m\n\n"
        "    @property\n    def n(self):\n        return 2\n\n\n"
        "class E:\n    a = 1\n    b = 2\n"
    )
    found = chunks(source)
    assert spans(found) == [(1, 2), (4, 7), (9, 11), (14, 16)]
    names = [(draft.meta["symbol"], draft.meta["parents"]) for draft in found]
    assert names == [("A", []), ("m", ["A"]), ("n", ["A"]), ("E", [])]
    assert [draft.meta["symbols"] for draft in found] == [["A"], ["A.m"], ["A.n"], ["E"]]
    assert found[1].embed_text == f"A > m\n\n{found[1].text}"


def test_a_long_function_is_split_inside_and_each_part_has_its_name() -> None:
    found = chunks("x = 1\n\n" + function("f", 400) + "\n" + function("g", 5))
    assert spans(found) == [(1, 1), (3, 182), (153, 332), (303, 402), (404, 408)]
    assert [draft.meta.get("symbol") for draft in found] == [None, "f", "f", "f", "g"]
    assert [draft.meta.get("symbols") for draft in found] == [None, ["f"], ["f"], ["f"], ["g"]]
    assert [draft.meta.get("continued") for draft in found] == [None, None, True, True, None]
    assert found[2].embed_text.startswith("f\n\n")


def test_the_embedder_reads_the_name_of_a_definition_in_words() -> None:
    source = "class HTTPServer {\n  handleURLRequest2_now() {\n    return 1\n  }\n}\n"
    head, method = chunks(source, "a.js")
    assert head.embed_text.splitlines()[0] == "HTTP Server"
    assert method.embed_text.splitlines()[0] == "HTTPServer > handle URL Request 2 now"
    assert method.meta["symbols"] == ["HTTPServer.handleURLRequest2_now"]


def test_a_long_function_is_cut_before_the_functions_in_it() -> None:
    inner = "".join(f"    def m{n}(self):\n" + "        step()\n" * 50 + "\n" for n in range(4))
    found = chunks("def f():\n" + inner)
    assert spans(found) == [(1, 156), (127, 208)]
    assert found[0].meta["symbols"] == ["f", "f.m0", "f.m1", "f.m2"]
    assert [draft.meta["symbol"] for draft in found] == ["f", "m2"]


def test_definitions_within_conditions_are_known_and_large_gaps_stand_alone() -> None:
    source = (
        "if sys.platform:\n    def a():\n        return 1\nelse:\n    def a():\n        return 2\n"
        + statements(10)
        + function("b", 2)
    )
    assert spans(chunks(source)) == [(1, 1), (2, 4), (5, 6), (7, 16), (17, 18)]


def test_the_end_of_a_class_belongs_to_its_last_method() -> None:
    source = "class A {\n  m() {\n    return 1\n  }\n}\n\nfunction f() {}\n"
    assert spans(chunks(source, "a.js")) == [(1, 1), (2, 5), (7, 7)]


def test_a_file_without_a_grammar_is_windowed_by_its_lines() -> None:
    source = "".join(f"(define (f{n})\n" + "  (step)\n" * 9 + "\n" for n in range(40))
    found = chunks(source, "a.scm")
    assert [after - first + 1 for first, after in spans(found)] == [175, 173, 151]
    assert all("symbol" not in draft.meta for draft in found)


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
