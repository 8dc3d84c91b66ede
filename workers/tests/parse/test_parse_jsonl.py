from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from latent_core.domain.chunk import BlockType
from latent_workers.parse.run import read_records
from latent_workers.parse.structured import jsonl
from latent_workers.parse.structured.jsonl import Record, RecordBatch, RecordFailure
from latent_workers.sandbox.pool import Sandbox


def read(path: Path, **cursor: Any) -> RecordBatch:
    with path.open("rb") as file:
        return jsonl.read_batch(file, **{"max_records": 100, "max_bytes": 1_000_000, **cursor})


def write(path: Path, *lines: str | bytes | dict[str, Any], end: bytes = b"\n") -> Path:
    raw = [
        json.dumps(line).encode()
        if isinstance(line, dict)
        else line.encode()
        if isinstance(line, str)
        else line
        for line in lines
    ]
    path.write_bytes(end.join(raw))
    return path


def test_records_are_read_with_their_meta(tmp_path: Path) -> None:
    path = write(
        tmp_path / "c.jsonl",
        {"_id": "a", "title": "T", "text": "x\u2028y", "year": 2024, "tags": ["q"]},
        {"_id": 7, "text": "no title"},
        {"_id": "b", "title": "only a title", "text": ""},
    )
    batch = read(path)
    assert batch.failures == ()
    assert [(r.id, r.title, r.text, r.line) for r in batch.records] == [
        ("a", "T", "x\u2028y", 1),
        ("7", "", "no title", 2),
        ("b", "only a title", "", 3),
    ]
    assert batch.records[0].meta == {"year": 2024, "tags": ["q"]}
    assert batch.next_offset == batch.total_bytes == path.stat().st_size


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{not json", "not valid JSON"),
        ('["list"]', "an object, not list"),
        ('{"text": "no id"}', "needs an '_id'"),
        ('{"_id": true, "text": "x"}', "needs an '_id'"),
        ('{"_id": " ", "text": "x"}', "needs an '_id'"),
        ('{"_id": "a"}', "title and text are empty"),
        ('{"_id": "a", "text": ["x"]}', "'text' is list, not text"),
        ('{"_id": "a", "text": "x", "n": NaN}', "NaN"),
        ('{"_id": "a", "text": "x", "n": ' + "[" * 100_000, "not valid JSON"),
        ('{"_id": "' + "x" * 600 + '", "text": "x"}', "longer than 512"),
    ],
)
def test_a_bad_line_fails_alone_with_its_number(tmp_path: Path, line: str, words: str) -> None:
    path = write(
        tmp_path / "c.jsonl", {"_id": "1", "text": "x"}, "", line, {"_id": "2", "text": "y"}
    )
    batch = read(path)
    assert [record.id for record in batch.records] == ["1", "2"]
    assert [failure.line for failure in batch.failures] == [3]
    assert words in batch.failures[0].message
    assert "line 3" in batch.failures[0].message


def test_a_failure_names_the_record_where_it_can(tmp_path: Path) -> None:
    batch = read(write(tmp_path / "c.jsonl", {"_id": "a", "text": 5}))
    assert batch.failures[0].id == "a"


def test_what_cannot_be_stored_is_replaced_and_counted(tmp_path: Path) -> None:
    line = b'{"_id": "a\\u0000", "title": "\\ud800t", "text": "x\\u0000y", "k\\u0000": ["\\udfff"]}'
    record = read(write(tmp_path / "c.jsonl", b"\xef\xbb\xbf" + line, end=b"\r\n")).records[0]
    assert (record.id, record.title, record.text) == ("a\ufffd", "\ufffdt", "x\ufffdy")
    assert record.meta == {"k\ufffd": ["\ufffd"]}
    assert record.replaced_characters == 2


def test_an_overlong_line_is_a_failure_and_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 1000)
    path = write(
        tmp_path / "c.jsonl",
        {"_id": "1", "text": "x" * 5000},
        {"_id": "2", "text": "y"},
        {"_id": "3", "text": "z" * 990},
    )
    batch = read(path)
    assert [record.id for record in batch.records] == ["2"]
    assert [(failure.line, "longer than" in failure.message) for failure in batch.failures] == [
        (1, True),
        (3, True),
    ]
    assert batch.next_offset == batch.total_bytes


records = st.lists(
    st.one_of(
        st.builds(
            lambda n, text: json.dumps({"_id": str(n), "text": text}),
            st.integers(),
            st.text(min_size=1),
        ),
        st.sampled_from(["", "  ", "oops", "{}"]),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(records, st.integers(1, 7), st.integers(1, 200), st.booleans())
def test_batches_from_a_cursor_add_up_to_the_whole(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    max_records: int,
    max_bytes: int,
    closed: bool,
) -> None:
    path = tmp_path_factory.mktemp("corpus") / "c.jsonl"
    path.write_bytes("\n".join(lines).encode() + b"\n" * closed)
    whole = read(path, max_records=1000)
    found: list[Record] = []
    failed: list[RecordFailure] = []
    offset, line = 0, 1
    while offset < path.stat().st_size:
        batch = read(path, offset=offset, line=line, max_records=max_records, max_bytes=max_bytes)
        assert batch.next_offset > offset
        assert len(batch.records) + len(batch.failures) <= max_records
        found += batch.records
        failed += batch.failures
        offset, line = batch.next_offset, batch.next_line
    assert (tuple(found), tuple(failed)) == (whole.records, whole.failures)


def test_a_record_becomes_a_document_under_its_title() -> None:
    parsed = jsonl.parsed(
        Record("a", " The\n title ", "One.\n\nTwo.", {"k": 1}, replaced_characters=2)
    )
    assert parsed.text == "The title\n\nOne.\n\nTwo."
    assert parsed.title == "The title"
    assert parsed.meta == {"k": 1}
    assert parsed.replaced_characters == 2
    assert [(b.kind, b.text, b.heading_path) for b in parsed.blocks] == [
        (BlockType.HEADING, "The title", ("The title",)),
        (BlockType.PARAGRAPH, "One.", ("The title",)),
        (BlockType.PARAGRAPH, "Two.", ("The title",)),
    ]
    for block in parsed.blocks:
        assert parsed.text[block.offset_start : block.offset_end] == block.text


@pytest.mark.parametrize(
    ("title", "text", "whole"), [("", "x", "x"), ("t", "", "t"), ("t", " ", "t\n\n ")]
)
def test_a_record_may_lack_title_or_text(title: str, text: str, whole: str) -> None:
    assert jsonl.parsed(Record("a", title, text)).text == whole


async def test_a_batch_is_read_in_the_sandbox(sandbox: Sandbox, tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", *({"_id": n, "text": f"text {n}"} for n in range(10)), "bad")
    first = await read_records(sandbox, path, max_records=4)
    fd = os.open(path, os.O_RDONLY)
    try:
        rest = await read_records(sandbox, fd, offset=first.next_offset, line=first.next_line)
    finally:
        os.close(fd)
    assert [record.id for record in (*first.records, *rest.records)] == [str(n) for n in range(10)]
    assert [failure.line for failure in rest.failures] == [11]
    assert rest.next_offset == rest.total_bytes
