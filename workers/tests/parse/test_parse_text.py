from __future__ import annotations

import codecs
import io
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from latent_core.domain.chunk import BlockType, SourceType
from latent_core.domain.errors import IngestFailed, Issue, IssueCode
from latent_workers.parse import wire
from latent_workers.parse.parsed import ParsedDocument, ParsedPage, SourceFile, TextBlock
from latent_workers.parse.registry import HEAD_BYTES, DetectedType, detect
from latent_workers.parse.run import parse_file
from latent_workers.parse.text import parser as text
from latent_workers.parse.text.decode import clean, clean_value, decode
from latent_workers.parse.text.lines import Lines
from latent_workers.sandbox.budget import Budget
from latent_workers.sandbox.frames import FrameItem
from latent_workers.sandbox.pool import Sandbox

anything = st.text(st.characters(codec="utf-8"), max_size=300)
lined = st.lists(st.sampled_from(["", " ", "word", "two words", "é中\u2028x", "\t"]), max_size=12)


def source(data: bytes, source_type: SourceType = SourceType.TEXT) -> SourceFile:
    return SourceFile("a.txt", io.BytesIO(data), source_type, max_pages=10)


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"]
)
def test_text_is_read_in_its_own_encoding(encoding: str) -> None:
    content = "Crème brûlée costs 5 €, he said, and that was that."
    decoded = decode(content.encode(encoding))
    assert decoded.text == content
    assert decoded.replaced == 0


@given(anything)
def test_utf8_text_comes_back_as_it_was(content: str) -> None:
    decoded = decode(codecs.BOM_UTF8 + content.encode())
    expected, replaced = clean(content)
    assert (decoded.text, decoded.replaced) == (expected, replaced)


@given(st.binary(max_size=200))
def test_any_bytes_become_storable_text(data: bytes) -> None:
    decoded = decode(data)
    decoded.text.encode("utf-8")
    assert "\0" not in decoded.text


def test_what_cannot_be_stored_is_replaced_one_for_one_and_counted() -> None:
    assert decode(b"a\x00b\xed\xa0\x80c").text == "a\ufffdb\ufffdc"
    assert decode(b"a\x00b\xed\xa0\x80c").replaced == 2


def test_a_damaged_byte_does_not_change_the_encoding_of_a_utf8_file() -> None:
    decoded = decode("ä ö ü ß".encode() + b" \xff end")
    assert decoded.text == "ä ö ü ß \ufffd end"
    assert decoded.replaced == 1


def test_every_byte_of_an_unknown_encoding_is_kept() -> None:
    decoded = decode(bytes(range(0x20, 0x100)))
    assert decoded.encoding == "latin-1"
    assert len(decoded.text) == 0x100 - 0x20


def test_metadata_becomes_storable_json() -> None:
    value = clean_value({"a\0": ["x\ud800", 1, None, {1, 2}.__class__], "deep": [[[1.5]]]})
    assert value["a\ufffd"][:3] == ["x\ufffd", 1, None]
    assert value["deep"] == [[[1.5]]]


@given(lined, st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_lines_are_counted_by_all_three_line_ends_and_no_others(
    parts: list[str], end: str, closed: bool
) -> None:
    content = end.join(parts) + (end if closed and parts else "")
    lines = Lines(content)
    expected = content.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    expected = expected[:-1] if expected[-1] == "" else expected
    assert list(lines.texts()) == expected
    for number, line in enumerate(expected, start=1):
        start, stop = lines.span(number, number)
        assert content[start:stop] == line == lines.text(number)
        assert lines.at(start) == number


@given(st.lists(lined, max_size=6), st.sampled_from(["\n", "\r\n", "\r"]))
def test_paragraphs_hold_every_line_that_is_not_blank(groups: list[list[str]], end: str) -> None:
    content = (end * 2).join(end.join(group) for group in groups)
    blocks = list(text.paragraphs(content, BlockType.PARAGRAPH))
    lines = Lines(content)
    covered: set[int] = set()
    for block in blocks:
        assert content[block.offset_start : block.offset_end] == block.text
        assert block.line_start is not None
        assert block.line_end is not None
        covered.update(range(block.line_start, block.line_end + 1))
        assert lines.span(block.line_start, block.line_end) == (
            block.offset_start,
            block.offset_end,
        )
    assert covered == {n for n, line in enumerate(lines.texts(), start=1) if line.strip()}


def test_code_is_kept_as_code_with_its_indentation() -> None:
    parsed = text.parse(source(b"def f():\n    pass\n\n\n    x = 1\n", SourceType.CODE))
    assert [(b.kind, b.text, b.line_start) for b in parsed.blocks] == [
        (BlockType.CODE, "def f():\n    pass", 1),
        (BlockType.CODE, "    x = 1", 5),
    ]


@pytest.mark.parametrize(("data", "words"), [(b"", "is empty"), (b" \n\t\r\n ", "is empty")])
def test_a_file_with_nothing_to_read_is_refused_by_name(data: bytes, words: str) -> None:
    with pytest.raises(IngestFailed, match=rf"'a.txt'.*{words}"):
        text.parse(source(data))


@pytest.mark.parametrize(
    ("name", "head", "expected"),
    [
        ("notes.txt", b"hello", SourceType.TEXT),
        ("README.md", b"# hi", SourceType.MARKDOWN),
        ("paper.PDF", b"%PDF-1.7 ...", SourceType.PDF),
        ("download", b"%PDF-1.4", SourceType.PDF),
        ("main.py", b"import os", SourceType.CODE),
        ("Makefile", b"all:\n", SourceType.CODE),
        ("a.yml", b"a: 1", SourceType.YAML),
        ("a.json", b"{}", SourceType.JSON),
        ("page.html", b"<!doctype html>", SourceType.WEB),
        ("LICENSE", b"Permission is hereby granted", SourceType.TEXT),
        ("wide.txt", "BMX bikes".encode("utf-16"), SourceType.TEXT),
        ("bmx.txt", b"BMX bikes, ID3 tags and MZ headers", SourceType.TEXT),
        (
            "nul.txt",
            b"a few \0 NULs are \0 no reason to refuse a text of this length",
            SourceType.TEXT,
        ),
    ],
)
def test_the_source_type_is_known_by_name_and_content(
    name: str, head: bytes, expected: SourceType
) -> None:
    assert detect(name, head[:HEAD_BYTES]).source_type is expected


def test_a_corpus_is_known_by_its_ending_or_its_type() -> None:
    assert detect("corpus.jsonl", b"{}").corpus
    assert detect("corpus", b"{}", "application/x-ndjson; charset=utf-8").corpus
    assert not detect("a.json", b"{}").corpus


@pytest.mark.parametrize(
    ("head", "mime"),
    [
        (b"RIFF\x26\x00\x00\x00WAVEfmt " + bytes(50), "audio/wav"),
        (b"ID3\x04\x00" + bytes(50), "audio/mpeg"),
        (b"\xff\xfb\x90\x64\x00" + bytes(50), "audio/mpeg"),
        (b"OggS\x00\x02" + bytes(50), "audio/ogg"),
        (b"fLaC\x00\x00\x00\x22" + bytes(50), "audio/flac"),
        (b"\x00\x00\x00\x20ftypM4A \x00" + bytes(50), "audio/mp4"),
        (b"\x1aE\xdf\xa3\x9f" + bytes(50), "audio/webm"),
    ],
)
def test_recordings_are_recognised_by_their_first_bytes_whatever_their_name(
    head: bytes, mime: str
) -> None:
    assert detect("talk.md", head) == DetectedType(SourceType.AUDIO, mime)


@pytest.mark.parametrize(
    ("name", "head", "what"),
    [
        ("program.md", b"\x00asm\x01\x00\x00\x00" + bytes(50), "a WebAssembly module"),
        ("letter.odp", b"PK\x03\x04\x14\x00", "an OpenDocument presentation"),
        ("files.zip", b"PK\x03\x04\x14\x00", "a ZIP archive"),
        ("tool", b"\x7fELF\x02\x01", "a program"),
        ("noise.txt", bytes(range(32)) * 20, "binary data"),
        ("nothing.md", b"", "empty"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_true_type(
    name: str, head: bytes, what: str
) -> None:
    with pytest.raises(IngestFailed) as caught:
        detect(name, head)
    assert name in caught.value.message
    assert what in caught.value.message
    assert not head or "supported are text, Markdown, PDF" in caught.value.message


spans = st.lists(st.integers(min_value=0, max_value=40), max_size=8).map(sorted)


@settings(max_examples=50)
@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=40, max_size=60), spans
)
def test_what_is_parsed_survives_the_way_out_of_the_child(content: str, cuts: list[int]) -> None:
    pairs = list(zip(cuts[::2], cuts[1::2], strict=False))
    blocks = tuple(
        TextBlock(
            BlockType.LIST, content[a:b], a, b, 1, 2, heading_path=("x", str(a % 2)), level=None
        )
        for a, b in pairs
    )
    first, second = content[:20], content[21:]
    parsed = ParsedDocument(
        text=content,
        title="t",
        blocks=blocks,
        pages=(ParsedPage(1, first, 10.0, 20.0), ParsedPage(2, second, 1.5, 2.0)),
        meta={"a": [1]},
        warnings=(Issue(code=IssueCode.INGEST_FAIL, message="m", details={"p": [1]}),),
        replaced_characters=3,
    )
    assert wire.unpack(sent(parsed)) == parsed


def sent(parsed: ParsedDocument) -> FrameItem:
    import orjson

    output = wire.pack(parsed)
    return FrameItem(orjson.dumps(output.value), bytes(output.attachment))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"paragraph",0,5', b'"paragraph",0,6'),
        (b'"paragraph",0,5', b'"paragraph",4,3'),
        (b'"blocks"', b'"bricks"'),
    ],
)
def test_an_answer_that_does_not_hold_together_is_refused(before: bytes, after: bytes) -> None:
    item = sent(
        ParsedDocument(text="hello", blocks=(TextBlock(BlockType.PARAGRAPH, "hello", 0, 5, 1, 1),))
    )
    assert before in item.value
    with pytest.raises(ValueError, match=r"place|bricks"):
        wire.unpack(FrameItem(item.value.replace(before, after), item.attachment))


async def test_a_file_is_parsed_in_the_sandbox(sandbox: Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"One.\r\n\r\nTwo \0.\r\n")
    parsed = await parse_file(sandbox, path, name="a.txt", source_type=SourceType.TEXT)
    assert [block.text for block in parsed.blocks] == ["One.", "Two \ufffd."]
    assert [block.line_start for block in parsed.blocks] == [1, 3]
    assert parsed.replaced_characters == 1
    assert parsed.meta["encoding"] == "utf-8"


async def test_a_parser_that_says_too_much_is_stopped(sandbox: Sandbox, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 100_000)
    with pytest.raises(IngestFailed, match="the text parser gave more than 0 MB"):
        await parse_file(
            sandbox,
            path,
            name="a.txt",
            source_type=SourceType.TEXT,
            budget=Budget(output_bytes=50_000),
        )
