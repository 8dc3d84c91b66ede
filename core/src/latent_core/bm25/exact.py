"""Exact search in Postgres: candidates by trigram signatures, which the caller checks against their text.

Texts come in batches: the caller reads them in chunk_no order, checks them outside (a regular expression never runs
in Postgres), and stops when it has enough or its time is over.
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Composed, Literal

from latent_core.db.connection import Connection, Database
from latent_core.domain.generated import FIRST_POSITION

SIZES: Final = (8192, 32768, 65536)
"""Bits of a signature, by the size of its text: about a quarter of them is set, so that one percent of the texts
match a string of three characters that it does not contain. Hashes are cut to the size, so that one mask per size
is enough."""
CHARS: Final = (1500, 8000)
"""Texts longer than these take the next size."""
MIN_CHARS: Final = 3
"""A shorter string has no trigram and excludes nothing."""
TELLING: Final = 12
"""Bits that are compared: by chance, one in millions of texts without the literals has all of them."""
TEXTS_AT_ONCE: Final = 32
"""Few enough that their trigrams stay in the processor's cache."""

_SECOND: Final = np.uint32(0x297A2D39)
_THIRD: Final = np.uint32(0x7FEB352D)
_FACTORS: Final = (np.uint32(0x9E3779B1), np.uint32(0x85EBCA77), np.uint32(0xC2B2AE3D))


def signature(text: str) -> str:
    """The bits of ``text``, as Postgres reads a bit string: ``x`` and hexadecimal digits."""
    return "x" + signatures([text])[0].hex()


def signatures(texts: Sequence[str]) -> list[bytes]:
    """The signatures of many texts, in order: together they cost a fraction of single calls."""
    by_size: defaultdict[int, list[int]] = defaultdict(list)
    for number, text in enumerate(texts):
        by_size[SIZES[sum(len(text) > limit for limit in CHARS)]].append(number)
    found = [b""] * len(texts)
    for size, numbers in by_size.items():
        for start in range(0, len(numbers), TEXTS_AT_ONCE):
            some = numbers[start : start + TEXTS_AT_ONCE]
            bits = _bits([texts[number] for number in some], size)
            for number, row in zip(some, np.packbits(bits, axis=1), strict=True):
                found[number] = row.tobytes()
    return found


def places(literals: Sequence[str], size: int) -> list[int]:
    """Bits, counted from the left, that are set in a signature of ``size`` bits if the text contains all of
    ``literals``: enough bits to identify them, from all of the literals."""
    found = np.flatnonzero(_bits(literals, size).any(axis=0))
    step = max(1, len(found) // TELLING)
    return [int(place) for place in found[::step]]


def _bits(texts: Sequence[str], size: int) -> NDArray[np.uint8]:
    """One row per text, one byte per bit."""
    folded = [text.casefold() for text in texts]
    codes: NDArray[np.uint32] = np.frombuffer(
        "".join(folded).encode("utf-32-le"), dtype=np.dtype("<u4")
    ).astype(np.uint32, copy=False)
    bits = np.zeros((len(texts) + 1, size), np.uint8)
    if len(codes) >= MIN_CHARS:
        rows = _rows(folded, len(codes)) * size
        for hashes in _hashes(codes):
            bits.reshape(-1)[rows + (hashes & np.uint32(size - 1))] = 1
    return bits[:-1]


def _rows(texts: Sequence[str], chars: int) -> NDArray[np.int64]:
    """The text of each trigram, with one more text for a trigram that starts in one text and ends in another."""
    lengths = [len(text) for text in texts]
    rows = np.repeat(np.arange(len(texts)), lengths)[: chars - MIN_CHARS + 1]
    ends = np.cumsum(lengths)
    across = np.concatenate([ends - 2, ends - 1])
    rows[across[(across >= 0) & (across < len(rows))]] = len(texts)
    return rows


def _hashes(codes: NDArray[np.uint32]) -> Iterator[NDArray[np.uint32]]:
    """Three hashes per trigram."""
    mixed: NDArray[np.uint32] = (
        codes[:-2] * _FACTORS[0] + codes[1:-1] * _FACTORS[1] + codes[2:] * _FACTORS[2]
    )
    mixed ^= mixed >> np.uint32(15)
    mixed *= np.uint32(0x2C1B3C6D)
    mixed ^= mixed >> np.uint32(12)
    yield mixed
    second = (mixed >> np.uint32(16)) ^ (mixed * _SECOND)
    yield second
    yield (second >> np.uint32(15)) ^ (second * _THIRD)


BATCH: Final = 512

# By itself, since nobody can tell beforehand how many pass: joined in one statement, a guess of half of all
# has every chunk and document read.
SIGNED: Final = SQL("""
SELECT s.chunk_no
FROM signatures s
WHERE s.container_id = %(container_id)s
  AND (%(chunk_nos)s::bigint[] IS NULL OR s.chunk_no = ANY(%(chunk_nos)s::bigint[]))
  AND CASE length(s.bits) WHEN 8192 THEN {small} WHEN 32768 THEN {middle} ELSE {large} END
ORDER BY s.chunk_no
""")
# One bit after the other: the first turns away three texts of four, where a mask reads all bits of each.
HAS: Final = SQL("get_bit(s.bits, {place}) = 1")

# Texts that a model wrote about the document are behind its own (domain.generated).
TEXTS: Final = f"""
SELECT c.chunk_no, c.doc_id, c.text, c.line_start, c.meta->'repeated_chars', d.uri
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation AND d.deleted_at IS NULL
WHERE c.container_id = %(container_id)s AND c.position < {FIRST_POSITION}
  AND (%(chunk_nos)s::bigint[] IS NULL OR c.chunk_no = ANY(%(chunk_nos)s::bigint[]))
  AND (%(path)s::text IS NULL OR d.uri ILIKE %(path)s)
ORDER BY c.chunk_no
"""


@dataclass(frozen=True, slots=True)
class SubstringQuery:
    """The strings that a candidate's text must contain."""

    all_of: tuple[str, ...] = ()
    any_of: tuple[tuple[str, ...], ...] = ()
    """All strings of one of these; empty: no condition."""
    path: str | None = None
    """A LIKE pattern on the source uri, case-insensitive."""

    @property
    def narrows(self) -> bool:
        """Whether signatures can exclude texts: an alternative without literals matches anywhere."""
        return bool(self.all_of) or bool(self.any_of and all(self.any_of))


@dataclass(frozen=True, slots=True)
class CandidateText:
    """A candidate's raw text with the starts of its lines."""

    chunk_no: int
    doc_id: UUID
    text: str
    line_start: int | None
    repeated_chars: int
    """Characters at its start: a table's header that is elsewhere in the source."""
    uri: str


class ExactIndex:
    """Over ``signatures`` and the chunks' texts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def candidates(
        self,
        container_id: str,
        query: SubstringQuery,
        *,
        chunk_nos: NDArray[np.int64] | None = None,
    ) -> AsyncGenerator[list[CandidateText], None]:
        """Visible chunks that may match, by chunk_no, in batches; only from ``chunk_nos`` if given.

        The caller sets the deadline. Close the generator if it is not read to its end.
        """
        if not query.narrows:
            async with aclosing(self._all(container_id, query.path, chunk_nos)) as batches:
                async for batch in batches:
                    yield batch
            return
        async with self._database.reading() as conn:
            passed = await _signed(conn, container_id, query, chunk_nos)
            for start in range(0, len(passed), BATCH):
                values = {
                    "container_id": container_id,
                    "path": query.path,
                    "chunk_nos": passed[start : start + BATCH],
                }
                async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
                    await cursor.execute(TEXTS, values)
                    yield _texts(await cursor.fetchall())

    async def _all(
        self, container_id: str, path: str | None, chunk_nos: NDArray[np.int64] | None
    ) -> AsyncGenerator[list[CandidateText], None]:
        """Visible chunks by chunk_no, streamed: every text must be read."""
        async with (
            self._database.transaction(read_only=True) as conn,
            conn.cursor("exact", row_factory=tuple_row) as cursor,
        ):
            await cursor.execute(
                TEXTS, {"container_id": container_id, "path": path, "chunk_nos": chunk_nos}
            )
            while rows := await cursor.fetchmany(BATCH):
                yield _texts(rows)


def _texts(rows: Sequence[tuple[Any, ...]]) -> list[CandidateText]:
    return [CandidateText(o, d, t, line, repeated or 0, u) for o, d, t, line, repeated, u in rows]


async def _signed(
    conn: Connection, container_id: str, query: SubstringQuery, chunk_nos: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """The chunk_nos whose signatures match."""
    conditions = [_passing(query, size) for size in SIZES]
    statement = SIGNED.format(**dict(zip(("small", "middle", "large"), conditions, strict=True)))
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        values = {"container_id": container_id, "chunk_nos": chunk_nos}
        await cursor.execute(statement, values, prepare=False)
        return np.fromiter((chunk_no for (chunk_no,) in await cursor.fetchall()), np.int64)


def _passing(query: SubstringQuery, size: int) -> Composed:
    """Signatures of ``size`` bits with all of ``all_of`` and all of one alternative."""
    alternatives = query.any_of if all(query.any_of) else ()
    place_sets = {tuple(places((*query.all_of, *one), size)): None for one in alternatives or ((),)}
    tests = [_has(one) for one in place_sets]
    return SQL("({})").format(SQL(" OR ").join(tests))


def _has(place_sets: Sequence[int]) -> Composed:
    """All of these bits; literals of fewer than three characters have none."""
    tests = [HAS.format(place=Literal(place)) for place in place_sets]
    return SQL("({})").format(SQL(" AND ").join(tests) if tests else SQL("true"))


_parser: Final[Any] = re._parser  # type: ignore[attr-defined]  # the structure of a pattern, by the standard library
_constants: Final[Any] = re._constants  # type: ignore[attr-defined]

MAX_DEPTH: Final = 50


def required(pattern: str) -> list[str]:
    """Strings that every match of ``pattern`` contains, in any case; [] if none is certain."""
    if "[:" in pattern:  # a POSIX class: Python reads its end as a character
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError, ValueError):
        return []
    return [run for run in _runs(parsed, 0) if len(run) >= MIN_CHARS]


def _runs(items: Any, depth: int) -> Iterator[str]:
    """Literal runs of a sequence, all of them required; optional parts and alternatives end a run."""
    run: list[str] = []
    for op, argument in items:
        if op is _constants.LITERAL:
            run.append(chr(argument))
            continue
        if op is _constants.AT:  # an anchor takes no room
            continue
        yield "".join(run)
        run = []
        if depth < MAX_DEPTH:
            yield from _inside(op, argument, depth + 1)
    yield "".join(run)


def _inside(op: Any, argument: Any, depth: int) -> Iterator[str]:
    if op is _constants.SUBPATTERN:
        yield from _runs(argument[-1], depth)
    elif op in (_constants.MAX_REPEAT, _constants.MIN_REPEAT) and argument[0] > 0:
        yield from _runs(argument[2], depth)
