"""Packing many chunks at once says what packing them one by one would; term vectors are read as Postgres wrote them."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from latent_core.bm25.exact import TEXTS_AT_ONCE, signature, signatures
from latent_core.bm25.packing import (
    MAX_CHUNK_NO,
    MAX_LENGTH,
    MAX_TF,
    ChunkTerms,
    Tfs,
    columns_of,
    pack,
    pack_columns,
    unpack,
)
from latent_core.bm25.postings import PostingBlock
from latent_core.bm25.term_vectors import read_vectors, tfs_of
from latent_core.db.connection import Database
from latent_core.db.copying import (
    BINARY_END,
    BINARY_HEAD,
    copy_bytes,
    int_field,
    json_field,
    text_field,
    texts_field,
    time_field,
)
from latent_core.domain.errors import Invalid, TooLarge
from tests.support.queue import sql

TERM = st.text(alphabet="ab'\\ :,é日😀1", min_size=1, max_size=6)
DOUBLED = str.maketrans({"'": "''", "\\": "\\\\"})
TFS = st.dictionaries(TERM, st.integers(1, 400), max_size=8)
CHUNKS = st.lists(st.tuples(TFS, st.integers(0, 70_000)), max_size=12)


@given(CHUNKS, st.integers(0, 2**31))
def test_postings_are_those_of_each_chunk_in_the_order_of_terms_and_chunks(
    chunks: list[tuple[dict[str, int], int]], first: int
) -> None:
    entries = [ChunkTerms(first + 3 * n, *c[::-1]) for n, c in enumerate(chunks)]
    expected: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for entry in entries:
        for term, tf in entry.tfs.items():
            expected[term].append((entry.chunk_no, min(tf, MAX_TF), min(entry.length, MAX_LENGTH)))
    found = []
    for term, packed in pack(entries):
        opened = unpack([packed])
        columns = opened.chunk_nos.tolist(), opened.tfs.tolist(), opened.lens.tolist()
        found.append((term, list(zip(*columns, strict=True))))
    assert found == sorted(expected.items(), key=lambda one: one[0].encode())


def test_a_chunk_no_beyond_32_bits_cannot_be_packed() -> None:
    with pytest.raises(TooLarge):
        list(pack([ChunkTerms(MAX_CHUNK_NO + 1, 1, {"a": 1})]))


@settings(deadline=None)  # long texts, on a machine that may be busy
@given(st.lists(st.text(max_size=40) | st.sampled_from(["ab " * 900, "ßÉ日" * 3000]), max_size=6))
def test_many_signatures_at_once_are_those_of_each_text(texts: list[str]) -> None:
    found = ["x" + bits.hex() for bits in signatures(texts * TEXTS_AT_ONCE)]
    assert found == [signature(text) for text in texts] * TEXTS_AT_ONCE


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.dictionaries(TERM, st.integers(1, 200), max_size=8))
async def test_a_term_vector_is_read_as_postgres_writes_it(
    database: Database, terms: dict[str, int]
) -> None:
    written = " ".join(
        f"'{t.replace(chr(92), chr(92) * 2).replace(chr(39), chr(39) * 2)}':"
        + ",".join(str(n + 1) for n in range(count))
        for t, count in terms.items()
    )
    (row,) = await sql(database, "SELECT %(written)s::tsvector::text AS tsv", written=written)
    assert tfs_of(row["tsv"]) == terms


@given(CHUNKS, st.integers(0, 2**63 - 1))
def test_rows_of_postings_are_in_the_form_in_which_they_are_copied(
    chunks: list[tuple[dict[str, int], int]], number: int
) -> None:
    entries = [ChunkTerms(n, length, tfs) for n, (tfs, length) in enumerate(chunks)]
    expected = b""
    for term, row in pack(entries):
        given = (
            b"notes",
            term.encode(),
            number.to_bytes(8, "big"),
            row.chunk_nos,
            row.tfs,
            row.lens,
        )
        expected += b"\0\6" + b"".join(len(one).to_bytes(4, "big") + one for one in given)
    block = PostingBlock.of("notes", pack_columns(columns_of(entries)))
    assert bytes(block.numbered(number)) == BINARY_HEAD + expected + BINARY_END
    assert block.rows == len({term for tfs, _ in chunks for term in tfs})


LONG_TERM = st.text(alphabet="ab :,é😀", min_size=12, max_size=24)


@given(st.lists(st.dictionaries(TERM | LONG_TERM, st.integers(1, 3), max_size=8), max_size=6))
def test_terms_of_any_length_stay_distinct(chunks: list[dict[str, int]]) -> None:
    chunks = [{t: tf for t, tf in tfs.items() if "'" not in t and "\\" not in t} for tfs in chunks]
    tsvs = [
        " ".join(f"'{term}':" + ",".join(["7"] * tf) for term, tf in one.items()) for one in chunks
    ]
    found = read_vectors(tsvs)[0]
    terms = [found.terms[place] for place in found.places.tolist()]
    assert terms == [term for one in chunks for term in one]
    assert found.tfs.tolist() == [tf for one in chunks for tf in one.values()]
    assert len(set(found.terms)) == len(found.terms)


@given(st.lists(TFS, max_size=6), st.integers(0, 300))
def test_many_term_vectors_at_once_are_read_as_each_is(
    chunks: list[dict[str, int]], plain: int
) -> None:
    tsvs = [
        " ".join(
            f"'{term.translate(DOUBLED)}':" + ",".join(["7"] * min(tf, 3))
            for term, tf in tfs.items()
        )
        for tfs in chunks
    ]
    tsvs = ["'a b':1 'c,d:2':3,4"] * plain + tsvs + [""]
    found = read_vectors(tsvs)[0]
    expected = [tfs_of(tsv) for tsv in tsvs]
    assert found.sizes.tolist() == [len(one) for one in expected]
    pairs = [pair for one in expected for pair in one.items()]
    terms = [found.terms[place] for place in found.places.tolist()]
    assert list(zip(terms, found.tfs.tolist(), strict=True)) == pairs
    last = found.only(np.arange(len(tsvs))[::-1])
    assert last.sizes.tolist() == [len(one) for one in expected[::-1]]
    terms = [last.terms[place] for place in last.places.tolist()]
    assert terms == [term for one in expected[::-1] for term in one]


@pytest.mark.parametrize(
    "tsvs",
    [
        ["'a", "'b':1"],
        ["'a':1 'b", "c':2"],
        ["'a':1", ":2"],
        ["'a':1 'x", "'b':2"],
        ["'a':1", " "],
        ["'a':,1"],
        ["'a':1,", "'b':2"],
        ["'a'1"],
        ["x'a':1"],
    ],
)
def test_a_vector_that_only_another_one_completes_is_refused(tsvs: list[str]) -> None:
    with pytest.raises(Invalid, match="term vector"):
        read_vectors(tsvs)


NOW = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
COPIED = """
CREATE TEMP TABLE copied (n integer, one text, many text[], at timestamptz, told jsonb, none integer) ON COMMIT DROP
"""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
async def test_rows_are_copied_as_they_are_whatever_stands_in_them(
    database: Database, texts: list[str]
) -> None:
    texts = ["\\N", "\\.", "a\tb\r\nc\\", '{"x"}', "NULL", *texts]
    rows = [
        b"\0\6"
        + int_field(n)
        + text_field(text)
        + texts_field(texts[:n])
        + time_field(NOW)
        + json_field(orjson.dumps({"n": n}))
        + int_field(None)
        for n, text in enumerate(texts)
    ]
    async with database.transaction() as conn:
        await conn.execute(COPIED)
        data = b"".join([BINARY_HEAD, *rows, BINARY_END])
        await copy_bytes(conn, "COPY copied FROM STDIN (FORMAT BINARY)", data)
        found = await (await conn.execute("SELECT * FROM copied ORDER BY n")).fetchall()
    assert [row["one"] for row in found] == texts
    assert [row["many"] for row in found] == [texts[:n] for n in range(len(texts))]
    assert {row["at"] for row in found} == {NOW}
    assert [row["told"] for row in found] == [{"n": n} for n in range(len(texts))]
    assert {row["none"] for row in found} == {None}


def test_a_time_without_a_zone_is_of_utc_and_a_number_beyond_an_integer_is_refused() -> None:
    assert time_field(NOW.replace(tzinfo=None)) == time_field(NOW)
    with pytest.raises(Invalid, match="too large"):
        int_field(2**31)


POSITIONS = st.lists(st.integers(1, 20_000) | st.integers(1, 40), min_size=1, max_size=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    st.lists(st.dictionaries(TERM | LONG_TERM, POSITIONS, max_size=6), max_size=6), st.booleans()
)
async def test_term_vectors_as_fields_are_what_postgres_makes_of_their_text(
    database: Database, chunks: list[dict[str, list[int]]], ordered: bool
) -> None:
    if ordered:  # as Postgres and the analyser write them
        chunks = [
            {t: sorted({min(place, 16_383) for place in ps}) for t, ps in c.items() if t.isalpha()}
            for c in chunks
        ]
    chunks.append({"often": list(range(1, 300))})
    tsvs = [
        " ".join(f"'{t.translate(DOUBLED)}':{','.join(map(str, ps))}" for t, ps in one.items())
        for one in chunks[: len(chunks) - ordered]
    ]
    tsvs += [] if ordered else ["'twice':5 'b':2 'twice':3"]
    rows = [b"\0\2" + int_field(n) + one for n, one in enumerate(read_vectors(tsvs)[1])]
    async with database.transaction() as conn:
        await conn.execute("CREATE TEMP TABLE copied (n integer, v tsvector) ON COMMIT DROP")
        data = b"".join([BINARY_HEAD, *rows, BINARY_END])
        await copy_bytes(conn, "COPY copied FROM STDIN (FORMAT BINARY)", data)
        found = await (await conn.execute("SELECT v::text FROM copied ORDER BY n")).fetchall()
        given_text = "SELECT t::tsvector::text AS v FROM unnest(%s::text[]) WITH ORDINALITY u (t, n) ORDER BY n"
        expected = await (await conn.execute(given_text, (tsvs,))).fetchall()
    assert found == expected


@pytest.mark.parametrize(
    "tsv",
    [
        "'':1",
        "'a\0b':1",
        f"'{'x' * 2047}':1",
        f"'{'é' * 1024}':1",
        " ".join(f"'{n:0>64}':1" for n in range(20_000)),
    ],
    ids=["empty", "nul", "long", "long in bytes", "long in all"],
)
def test_a_vector_that_postgres_would_refuse_is_refused_before_it_is_sent(tsv: str) -> None:
    with pytest.raises(Invalid, match="term vector"):
        read_vectors(["'a':1", tsv])


def test_the_longest_term_that_postgres_takes_is_taken() -> None:
    (field,) = read_vectors([f"'{'x' * 2046}':1"])[1]
    assert b"x" * 2046 + b"\0" in field


def test_a_position_that_no_vector_can_have_is_cut_or_refused() -> None:
    (field,) = read_vectors(["'a':" + "9" * 5000])[1]
    assert field.endswith(b"a\0" + (1).to_bytes(2, "big") + (16_383).to_bytes(2, "big"))
    with pytest.raises(Invalid, match="position 0"):
        read_vectors(["'a':0"])


@pytest.mark.parametrize(
    "tsv",
    [
        "a:1", "'a'", "'a':", "'a':1,", "'a':,1", "'a':1,,2", "'a':1  'b':2", "'a':1'b':2", "'a':1\n",
        "'a':1A", "x 'a':1", "'a':1 x", "'a'b':1", "'a\\b':1", "'" * 200_001,
    ],
)  # fmt: skip
def test_what_is_no_term_vector_is_refused(tsv: str) -> None:
    with pytest.raises(Invalid, match="term vector"):
        tfs_of(tsv)


@given(st.dictionaries(st.text("abcé'\\", min_size=1), st.integers(1, 300), max_size=20))
def test_packed_frequencies_read_as_the_mapping_they_were(tfs: dict[str, int]) -> None:
    packed = Tfs(tfs)
    capped = {term: min(count, 255) for term, count in tfs.items()}
    assert dict(packed.items()) == capped
    assert (list(packed), list(packed.values())) == (list(capped), list(capped.values()))
    assert (len(packed), [packed[term] for term in tfs]) == (len(tfs), list(capped.values()))
