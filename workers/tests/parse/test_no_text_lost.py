"""Whatever the file, the chunks together hold every line of it that is not blank."""

from __future__ import annotations

import io
import random
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import assume, given, settings, strategies as st

from latent_core.domain.chunk import DraftChunk, SourceType
from latent_workers.chunk.counting import WordCounter
from latent_workers.chunk.writing import chunk
from latent_workers.parse.code import parser
from latent_workers.parse.parsed import ParsedDocument, SourceFile
from latent_workers.parse.run import parse_file
from latent_workers.parse.structured import json_file, yaml_file
from latent_workers.parse.text import markdown, parser as plain_text
from latent_workers.parse.text.decode import decode
from latent_workers.parse.text.front_matter import front_matter
from latent_workers.parse.text.lines import Lines
from latent_workers.sandbox.pool import Sandbox
from tests.support.tokenizers import WordPieceTokenizer

SEED = 20
FILES = 150
COUNTER = WordCounter(WordPieceTokenizer())
PARSERS: dict[str, tuple[SourceType, Callable[[SourceFile], ParsedDocument]]] = {
    "a.txt": (SourceType.TEXT, plain_text.parse),
    "a.md": (SourceType.MARKDOWN, markdown.parse),
    "a.py": (SourceType.CODE, parser.parse),
    "a.ts": (SourceType.CODE, parser.parse),
    "a.go": (SourceType.CODE, parser.parse),
    "a.c": (SourceType.CODE, parser.parse),
    "a.yaml": (SourceType.YAML, yaml_file.parse),
    "a.json": (SourceType.JSON, json_file.parse),
}


def ingested(data: bytes, name: str) -> tuple[ParsedDocument, list[DraftChunk]]:
    source_type, parse = PARSERS[f"a{Path(name).suffix}"]
    parsed = parse(SourceFile(name, io.BytesIO(data), source_type, max_pages=10))
    found = chunk(
        parsed,
        source_type=source_type,
        budget_tokens=256,
        overlap=0.12,
        table_rows=25,
        tokenizer=COUNTER,
    )
    return parsed, found


def lost(parsed: ParsedDocument, found: Iterable[DraftChunk]) -> list[str]:
    """Lines with a character that stands in no chunk; front matter that was read is meta."""
    held = bytearray(len(parsed.text))
    for draft in found:
        own = draft.text[draft.meta.get("repeated_chars", 0) :]
        start, end = draft.place.offset_start, draft.place.offset_end
        assert own == parsed.text[start:end]
        held[start:end] = b"\1" * (end - start)
    lines = Lines(parsed.text)
    return [
        line
        for number, line in enumerate(lines.texts(), start=1)
        if not _is_meta(parsed, number)
        and any(
            not held[at] and not parsed.text[at].isspace()
            for at in range(*lines.span(number, number))
        )
    ]


def _is_meta(parsed: ParsedDocument, number: int) -> bool:
    first = parsed.blocks[0].line_start if parsed.blocks else None
    return set(parsed.meta) != {"encoding"} and first is not None and number < first


def begins_with_empty_front_matter(data: bytes) -> bool:
    """It is no text, also if it holds a comment, and leaves no key behind."""
    text = decode(data).text
    matter = front_matter(text, Lines(text))
    return not matter.is_text and not matter.meta


ROWS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=60),
    st.sampled_from(
        [
            *(
                "",
                " ",
                "\t",
                "# Title",
                "```",
                "| a | b |",
                "|---|---|",
                "- item",
                "> quote",
                "***",
            ),
            *("def f():", "    return {", "}", "class A:", '"""', "func main() {", "/*", "*/"),
            *(
                "key:",
                "  - item",
                "key: |",
                "---",
                "[1, 2,",
                '{"a": "b"}',
                '"k": [',
                "],",
                "*alias",
            ),
            *("word " * 400, "x" * 3000, "é中😀", "\u2028", "\x0c", "<div>", "[ref]: http://a.b"),
        ]
    ),
)
ENDS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"])
NOISE = st.sampled_from([b"", b"\0", b"\xff", b"\xed\xa0\x80", b"\x80\x81", b"\xef\xbb\xbf"])
ENCODINGS = st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1"])


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Lines of every kind with mixed ends, in some encoding, with bytes in it that are no text."""
    rows = draw(st.lists(st.tuples(ROWS, ENDS), min_size=1, max_size=30))
    encoding = draw(ENCODINGS)
    parts = ["x"] if not any(row.strip() for row, _ in rows) else []
    data = "".join([*parts, *(row + end for row, end in rows)]).encode(encoding, "replace")
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(NOISE) + data[at:]


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=80, deadline=None)
@given(data=files())
def test_no_line_of_a_generated_file_is_lost(name: str, data: bytes) -> None:
    assume(name != "a.md" or not begins_with_empty_front_matter(data))
    if not decode(data).text.strip():
        return
    parsed, found = ingested(data, name)
    assert lost(parsed, found) == []
    assert ingested(data, name) == (parsed, found)


def test_what_is_no_text_is_replaced_in_place_and_counted() -> None:
    for name in PARSERS:
        parsed, found = ingested(b'"a\0b": "\xed\xa0\x80",\r"c":\r\n  "d"', name)
        assert parsed.replaced_characters == 2
        assert "a\ufffdb" in found[0].text
        assert found[0].place.line_start == 1
        assert found[-1].place.line_end == 3


def library() -> list[Path]:
    """Files of Python's standard library, of the kinds that are read here."""
    root = Path(sysconfig.get_paths()["stdlib"])
    kinds = {".py", ".txt", ".md", ".json", ".yaml", ".c"}
    return sorted(
        path
        for path in root.rglob("*")
        if path.suffix in kinds and "site-packages" not in path.parts and path.is_file()
    )


def test_no_line_of_the_standard_library_is_lost() -> None:
    chosen = random.Random(SEED).sample(library(), FILES)
    read = 0
    for path in chosen:
        data = path.read_bytes()
        if not decode(data).text.strip():
            continue
        parsed, found = ingested(data, path.name)
        assert lost(parsed, found) == [], path.name
        read += 1
    assert read > FILES // 2


@pytest.mark.parametrize("name", ["a.py", "a.ts", "a.go", "a.c", "a.yaml", "a.json"])
async def test_the_sandbox_gives_what_the_parser_gives(
    sandbox: Sandbox, name: str, tmp_path: Path
) -> None:
    source = '{"k": [1, 2], "größe": {"a": "😀"}}' if name[2:] in ("yaml", "json") else "x = 1\ny"
    path = tmp_path / name
    path.write_text(source, encoding="utf-8")
    parsed = await parse_file(sandbox, path, name=name, source_type=PARSERS[name][0])
    assert parsed == ingested(source.encode(), name)[0]
    assert parsed.blocks


@pytest.mark.parametrize("name", ["a.txt", "a.md"])
def test_a_line_of_marks_costs_no_more_than_a_line(name: str) -> None:
    """Runs of full stops, as logs have them, once took time by the square of their length: the test's own
    deadline stops it then."""
    text = "." * 300_000 + "\n\n" + "!?" * 100_000 + " End."
    assert lost(*ingested(text.encode(), name)) == []
