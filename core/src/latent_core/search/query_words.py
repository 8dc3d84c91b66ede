"""The words of one query: what each container is searched for, while they are typed and where they are misspelt.

A word that is still being typed is one term that stands for all its completions. A word that no searched container
contains is replaced by the most common word at one edit from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from latent_core.bm25.analyser import plain_terms
from latent_core.bm25.completion import MARK, Completions, OpenWord, completions
from latent_core.bm25.names import query_names
from latent_core.bm25.port import KeywordAnswers
from latent_core.bm25.segment import fold, tokens
from latent_core.bm25.spelling import one_edit, plain_words
from latent_core.db.documents import chunk_texts
from latent_core.domain.errors import Issue, IssueCode, TimedOut
from latent_core.search.constraints import unquoted
from latent_core.search.plan import BM25, VECTOR, SearchPlan
from latent_core.search.readable import SearchStores
from latent_core.search.time_budget import TimeBudget

MAX_TRIED: Final = 5
"""Terms whose words are read, to correct one word."""
MAX_SAMPLED: Final = 20
"""Chunks of each container that are read for the words of one term."""
MAX_CORRECTED: Final = 4
"""Words of one query. A query with more unknown words is in another language, and not misspelt."""


@dataclass(frozen=True, slots=True)
class SpellingCorrection:
    word: str
    """As the query has it."""
    searched: str

    def issue(self) -> Issue:
        return Issue(
            code=IssueCode.NO_HITS,
            message=f"No text contains '{self.word}'; searched '{self.searched}' instead.",
            details={"word": self.word, "searched": self.searched},
        )


@dataclass(frozen=True, slots=True)
class QueryWords:
    languages: Mapping[str, Sequence[str]]
    """Of each container."""
    terms: Mapping[str, Sequence[str]]
    """Of each container; a beginning (``harb*``) is one term."""
    embedded: str
    """The text for the vector channel: without half a word, unless there is nothing else."""
    completions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The terms that each beginning stands for."""
    correctable: Mapping[str, str] = field(default_factory=dict)
    """Words whose spelling may be corrected: folded, with the form in the query."""
    is_half_word: bool = False
    """The query is half a word and nothing else."""
    corrections: tuple[SpellingCorrection, ...] = ()

    def in_texts(self, container_id: str) -> list[str]:
        """The terms that a matching text contains: completions instead of their beginning."""
        return list(
            chain.from_iterable(
                self.completions.get(term, (term,)) for term in self.terms[container_id]
            )
        )

    def unknown(self, dfs: Mapping[str, int]) -> dict[str, str]:
        """The correctable words that are in no text. Stop words of one of the languages are in many."""
        found: dict[str, str] = {}
        languages = self._all_languages()
        for word, written in self.correctable.items():
            own = [plain_terms([word], language)[0] for language in languages]
            if own and all(own) and not any(dfs.get(term) for term in own):
                found[word] = written
        return dict(list(found.items())[:MAX_CORRECTED])

    def variants(self, word: str) -> dict[str, set[str]]:
        """Every word at one edit, with its terms in any of the languages."""
        words = one_edit(word)
        found: dict[str, set[str]] = {one: set() for one in words}
        for language in self._all_languages():
            for one, term in zip(words, plain_terms(words, language), strict=True):
                found[one] |= {term} if term else set()
        return found

    def corrected(self, chosen: Sequence[SpellingCorrection]) -> QueryWords:
        """With the terms of the corrections, and without those of the words that are in no text."""
        misspelt, searched = [fold(one.word) for one in chosen], [one.searched for one in chosen]
        terms = {
            container_id: [
                *(one for one in self.terms[container_id] if one not in _terms(misspelt, spoken)),
                *filter(None, _terms(searched, spoken)),
            ]
            for container_id, spoken in self.languages.items()
        }
        return replace(self, terms=terms, correctable={}, corrections=tuple(chosen))

    def _all_languages(self) -> list[str]:
        return sorted(set(chain.from_iterable(self.languages.values())))


def _terms(words: Sequence[str], languages: Iterable[str]) -> list[str]:
    return [term for language in languages for term in plain_terms(words, language)]


async def query_words(
    stores: SearchStores, plan: SearchPlan, *, corrects: bool = True
) -> QueryWords:
    """The words of a plan; the one that is being typed is completed in the index."""
    languages = {part.container.id: part.container.languages for part in plan.containers}
    correctable = plain_words(unquoted(plan.written)) if corrects else {}
    word = plan.open_word
    if word is None:
        terms = {one: stores.query_terms(plan.query, spoken) for one, spoken in languages.items()}
        named = _with_names(plan, _with_like(plan, terms))
        return QueryWords(languages, named, plan.query, {}, correctable)
    typed = await _completions(stores, plan, word)
    for beginning in typed.terms:
        correctable.pop(beginning.removesuffix(MARK), None)
    ends = [form.text for form in word.beginnings]
    text = " ".join(
        [plan.finished, *word.parts, *(one for one in ends if one + MARK not in typed.terms)]
    )
    terms = {
        one: [*stores.query_terms(text, spoken), *typed.terms] for one, spoken in languages.items()
    }
    rest = plan.query if typed.is_word else plan.finished
    is_half_word = not rest.strip() and plan.like is None
    return QueryWords(
        languages,
        _with_names(plan, _with_like(plan, terms)),
        plan.query if is_half_word else rest,
        typed.terms,
        correctable,
        is_half_word,
    )


async def _completions(stores: SearchStores, plan: SearchPlan, word: OpenWord) -> Completions:
    """Of the containers that are searched by words. If none is, all tell whether it is a whole word, since only a
    whole one is embedded. None if there is no time."""
    worded = [part.container for part in plan.containers if BM25 in part.channels]
    parts = worded or [part.container for part in plan.containers]
    languages = {language: None for container in parts for language in container.languages}
    try:
        async with stores.db.reading() as conn:
            ids = [container.id for container in parts]
            return await completions(conn, ids, word, list(languages))
    except TimedOut:
        return Completions({}, is_word=True)


def _with_like(plan: SearchPlan, terms: Mapping[str, list[str]]) -> Mapping[str, list[str]]:
    like = plan.like
    return terms if like is None else {one: like.with_words(own) for one, own in terms.items()}


def _with_names(plan: SearchPlan, terms: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """With the names that the words may be. A container without definitions has none of these terms in its index."""
    names = query_names(plan.query)
    return {one: [*own, *names] if own else own for one, own in terms.items()}


def without_half_word(plan: SearchPlan, words: QueryWords) -> SearchPlan:
    """For half a word without the vector channel, where words are searched: its vector means something else."""
    if not words.is_half_word:
        return plan
    parts = (
        replace(part, channels=tuple(name for name in part.channels if name != VECTOR))
        if BM25 in part.channels and not part.by_picture
        else part
        for part in plan.containers
    )
    return replace(plan, containers=tuple(parts))


async def corrected(
    stores: SearchStores,
    words: QueryWords,
    container_ids: Collection[str],
    dfs: Mapping[str, int],
    budget: TimeBudget,
) -> QueryWords:
    """``words`` with a correction for each one that is in no text, if a word at one edit is. ``dfs``: the chunks with
    each term, in all containers together. Of several words the most common one is taken."""
    variants = {word: words.variants(word) for word in words.unknown(dfs)}
    terms = sorted(set().union(*(own for one in variants.values() for own in one.values())))
    if not terms:
        return words
    held = (await _scores(stores, container_ids, terms, budget)).dfs
    chosen = []
    for word, own in variants.items():
        by_term: defaultdict[str, list[str]] = defaultdict(list)
        for one, its in own.items():
            for term in its:
                by_term[term].append(one)
        common = sorted((t for t in by_term if held.get(t)), key=lambda term: (-held[term], term))
        for term in common[:MAX_TRIED]:
            written = await _words_with(stores, container_ids, term, budget)
            if found := next((one for one in by_term[term] if one in written), None):
                chosen.append(SpellingCorrection(words.correctable[word], found))
                break
    return words.corrected(chosen) if chosen else words


async def _words_with(
    stores: SearchStores, container_ids: Collection[str], term: str, budget: TimeBudget
) -> set[str]:
    """The words of the chunks with the most of ``term``. The index alone does not know words: it holds their stems, and
    the stem of a misspelt word can be that of another."""
    answers = await _scores(stores, container_ids, [term], budget)
    found: set[str] = set()
    for container_id in container_ids:
        hits = await answers.best(container_id, MAX_SAMPLED)
        if len(hits.chunk_nos):
            async with stores.db.reading() as conn:
                texts = await chunk_texts.of_chunk_nos(conn, container_id, hits.chunk_nos.tolist())
            found |= {fold(token) for text in texts.values() for token in tokens(text)}
    return found


async def _scores(
    stores: SearchStores, container_ids: Iterable[str], terms: Sequence[str], budget: TimeBudget
) -> KeywordAnswers:
    queries = dict.fromkeys(container_ids, terms)
    return await stores.keywords.read(queries, timeout_seconds=budget.remaining())
