"""Words that are still being typed: the terms that the last word of a query may become.

The index holds stems, and half a word has none: no term begins with "authenticat", since the term of "authentication" is
"authent". So a beginning stands for the terms that begin with it and for the stems of the beginning with the endings of
the language. If none of them is in the index, it stands for the longest term that is itself a beginning of the word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Final

from psycopg.rows import tuple_row

from latent_core.bm25 import segment
from latent_core.bm25.analyser import query_terms
from latent_core.bm25.endings import tails
from latent_core.bm25.language import SIMPLE
from latent_core.db.connection import Connection

MAX_COMPLETIONS: Final = 128
"""Terms of one beginning, the most common first: a beginning of one letter has thousands."""
MAX_POSTINGS: Final = 150_000
"""Of all completions of one beginning but the most common one: further ones would only make the search slow."""
MAX_ROWS: Final = 20_000
"""Rows of the index that are read for one beginning. If it has more, it is completed from one part of each container:
the words of that part are common ones."""
MIN_STEM: Final = 3
"""Letters of a term that is a beginning of the word."""
MAX_SUFFIX: Final = 8
"""Letters of the word after it."""
LAST_CHARACTER: Final = "\U0010ffff"
MARK: Final = "*"
"""Ends the name of a beginning among the terms of a query. No term contains it."""

BEGINNING_WITH: Final = """
SELECT p.term, sum(p.postings)::bigint AS postings
FROM (SELECT term, octet_length(tfs) AS postings FROM postings
      WHERE container_id = ANY(%(container_ids)s) AND term >= %(first)s AND term <= %(last)s
      UNION ALL
      (SELECT term, octet_length(tfs) FROM unmerged_postings
       WHERE container_id = ANY(%(container_ids)s) AND term >= %(first)s AND term <= %(last)s
       LIMIT %(rows)s)) AS p
GROUP BY p.term
ORDER BY 2 DESC, p.term COLLATE "C"
LIMIT %(completions)s
"""

# Of a row of another block only its entry in the index is read.
BEGINNING_IN_BLOCKS: Final = """
SELECT p.term, sum(p.postings)::bigint AS postings
FROM (SELECT term, octet_length(tfs) AS postings FROM postings
      WHERE container_id = ANY(%(container_ids)s) AND term >= %(first)s AND term <= %(last)s AND block = ANY(%(blocks)s)
      UNION ALL
      (SELECT term, octet_length(tfs) FROM unmerged_postings
       WHERE container_id = ANY(%(container_ids)s) AND term >= %(first)s AND term <= %(last)s
       LIMIT %(rows)s)) AS p
GROUP BY p.term
ORDER BY 2 DESC, p.term COLLATE "C"
LIMIT %(completions)s
"""

# From the index alone.
BLOCKS: Final = """
SELECT container_id, block, count(*) AS terms
FROM (SELECT container_id, block FROM postings
      WHERE container_id = ANY(%(container_ids)s) AND term >= %(first)s AND term <= %(last)s
      LIMIT %(rows)s) AS p
GROUP BY container_id, block
ORDER BY terms DESC
"""

IN_INDEX: Final = """
SELECT DISTINCT term FROM postings WHERE container_id = ANY(%(container_ids)s) AND term = ANY(%(terms)s)
UNION
SELECT DISTINCT term FROM unmerged_postings WHERE container_id = ANY(%(container_ids)s) AND term = ANY(%(terms)s)
"""


@dataclass(frozen=True, slots=True)
class OpenWord:
    """The last word of a query, which a writer may still go on with."""

    text: str
    start: int
    """Where it begins in the query."""

    @classmethod
    def of(cls, query: str) -> OpenWord | None:
        """None if the query does not end with a word: the last one is then complete. A letter after other words stands
        for itself, since nearly every text has a word that begins with it."""
        tokens = list(segment.TOKEN.finditer(query))
        if not tokens or tokens[-1].end() < len(query):
            return None
        last = tokens[-1]
        is_letter = len(last.group()) == 1 and last.group().isascii() and len(tokens) > 1
        return None if is_letter else cls(last.group(), last.start())

    @property
    def beginnings(self) -> list[segment.Form]:
        """Its forms that go on where the word does: the whole, and the last part of an identifier."""
        whole = _bare(segment.fold(self.text))
        return [form for form in segment.shape(self.text).forms if whole.endswith(_bare(form.text))]

    @property
    def parts(self) -> list[str]:
        """Its forms that are complete: the first parts of an identifier."""
        ends = self.beginnings
        return [form.text for form in segment.shape(self.text).forms if form not in ends]


def _bare(text: str) -> str:
    return "".join(char for char in text if char.isalnum())


@dataclass(frozen=True, slots=True)
class Completions:
    """What each beginning of a word stands for."""

    terms: Mapping[str, tuple[str, ...]]
    """By the name of the beginning, such as ``harb*``: its terms in the index, the most common first."""
    is_word: bool
    """The word as it stands is in the index, or a stop word."""


async def completions(
    conn: Connection, container_ids: Sequence[str], word: OpenWord, languages: Iterable[str]
) -> Completions:
    """The completions of ``word`` in containers with documents in ``languages``; a beginning without any is absent."""
    forms, spoken = word.beginnings, list(languages)
    begun = [await _beginning_with(conn, container_ids, form.text) for form in forms]
    own = [query_terms(form.text, spoken) if form.word else [form.text] for form in forms]
    inflected = [_inflected(form, spoken) for form in forms]
    in_index = await _in_index(conn, container_ids, {*chain(*own), *chain(*inflected)})
    found = [
        list(dict.fromkeys([*in_index.intersection(word_terms), *terms, *sorted(more & in_index)]))
        for word_terms, terms, more in zip(own, begun, inflected, strict=True)
    ]
    if forms and not any(found) and any(language != SIMPLE for language in spoken):
        found[-1] = await _longest_stem(conn, container_ids, forms[-1])
    terms = {form.text + MARK: tuple(one) for form, one in zip(forms, found, strict=True) if one}
    return Completions(terms, is_word=any(not its or in_index.intersection(its) for its in own))


async def _beginning_with(conn: Connection, container_ids: Sequence[str], text: str) -> list[str]:
    """The terms that begin with ``text``, the most common first."""
    values: dict[str, Any] = {
        "container_ids": list(container_ids),
        "first": text,
        "last": text + LAST_CHARACTER,
        "rows": MAX_ROWS,
        "completions": MAX_COMPLETIONS,
    }
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(BLOCKS, values)
        blocks = await cursor.fetchall()
        if sum(terms for *_, terms in blocks) < MAX_ROWS:
            await cursor.execute(BEGINNING_WITH, values)
        else:
            largest = {container_id: block for container_id, block, _ in reversed(blocks)}
            await cursor.execute(BEGINNING_IN_BLOCKS, {**values, "blocks": [*largest.values()]})
        found = await cursor.fetchall()
    sums = accumulate(postings for _, postings in found)
    return [term for (term, _), n in zip(found, sums, strict=True) if n <= MAX_POSTINGS] or [
        term for term, _ in found[:1]
    ]


async def _in_index(
    conn: Connection, container_ids: Sequence[str], terms: Iterable[str]
) -> set[str]:
    values = {"container_ids": list(container_ids), "terms": sorted(terms)}
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(IN_INDEX, values)
        return {term for (term,) in await cursor.fetchall()}


async def _longest_stem(
    conn: Connection, container_ids: Sequence[str], form: segment.Form
) -> list[str]:
    """The longest term in the index that is a beginning of the word, without a long rest."""
    shortest = max(MIN_STEM, len(form.text) - MAX_SUFFIX)
    stems = [form.text[:length] for length in range(shortest, len(form.text))] if form.word else []
    found = await _in_index(conn, container_ids, stems)
    return [max(found, key=len)] if found else []


def _inflected(form: segment.Form, languages: Iterable[str]) -> set[str]:
    """Stems of the word with endings, unless they begin with it: those are found by their beginning."""
    if not form.word:
        return set()
    return {
        stem
        for language in languages
        for tail in tails(language)
        for stem in query_terms(form.text + tail, [language])
        if not stem.startswith(form.text)
    }
