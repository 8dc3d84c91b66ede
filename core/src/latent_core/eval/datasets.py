"""Judged sets on disk, in the layout of BEIR: ``queries.jsonl`` and ``qrels/test.tsv`` (or ``qrels.tsv``); and
query sets.

The corpus must be ingested first, as a JSONL corpus: judgements name documents by their ``_id``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import yaml
from pydantic import ValidationError

from latent_core.domain.errors import Invalid
from latent_core.domain.golden import MAX_QUERIES, GoldenQuery, GoldenSet, Thresholds, parse_golden
from latent_core.eval.gates import query_failures
from latent_core.eval.metrics import QueryFigures, of_documents, of_golden
from latent_core.wire.evaluation import EvalRequest, JudgedQuery, QueryVerdict
from latent_core.wire.search import Hit

QRELS: Final = ("qrels/test.tsv", "qrels.tsv", "qrels/dev.tsv")
MAX_LINES: Final = 2_000_000
MAX_GOLDEN_BYTES: Final = 16 * 1024 * 1024
YAML_SUFFIXES: Final = (".yaml", ".yml")
COLUMNS: Final = {3: (0, 1, 2), 4: (0, 2, 3)}
"""BEIR writes query, document, grade; TREC has an iteration after the query."""


def read_golden(file: Path, where: str | None = None) -> GoldenSet:
    """Read golden queries in either form, as JSON or YAML; ``Invalid`` says what is wrong. ``where`` is the file's name in
    messages."""
    where = where or str(file)
    try:
        if file.stat().st_size > MAX_GOLDEN_BYTES:
            raise Invalid(f"{where} has more than {MAX_GOLDEN_BYTES} bytes (the limit)")
        text = file.read_bytes()
        data = yaml.safe_load(text) if file.suffix in YAML_SUFFIXES else orjson.loads(text)
    except OSError as exc:
        raise Invalid(f"{where} cannot be read: {exc.strerror}") from exc
    except (ValueError, yaml.YAMLError) as exc:
        raise Invalid(f"{where} cannot be read: {exc}") from exc
    return parse_golden(data, where=where)


def write_golden(file: Path, golden: GoldenSet) -> None:
    """Write golden queries so that ``read_golden`` reads them, by the ending as YAML or JSON; ``Invalid`` if the file
    cannot be written."""
    if file.suffix in YAML_SUFFIXES:
        text = yaml.safe_dump(golden.written(), sort_keys=False, allow_unicode=True)
    else:
        text = orjson.dumps(golden.written(), option=orjson.OPT_INDENT_2).decode() + "\n"
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise Invalid(f"{file} cannot be written: {exc.strerror}") from exc


def read_judged(folder: Path) -> list[JudgedQuery]:
    """Queries of ``folder`` that have a relevant document, in the order of the file; ``Invalid`` if malformed."""
    grades = _grades(folder)
    found: list[JudgedQuery] = []
    for number, line in _lines(folder / "queries.jsonl"):
        record = _json(line, folder / "queries.jsonl", number)
        relevant = grades.get(str(record.get("_id", "")), {})
        if not any(grade > 0 for grade in relevant.values()):
            continue
        if len(found) == MAX_QUERIES:
            raise Invalid(f"{folder} has more than {MAX_QUERIES} judged queries. Split the set.")
        found.append(_query(record, relevant, folder / "queries.jsonl", number))
    if not found:
        raise Invalid(f"{folder} has no query with a relevant document in {', '.join(QRELS)}")
    return found


def _grades(folder: Path) -> dict[str, dict[str, float]]:
    file = next((folder / name for name in QRELS if (folder / name).is_file()), None)
    if file is None:
        raise Invalid(f"{folder} has no judgements: expected {' or '.join(QRELS)}")
    grades: dict[str, dict[str, float]] = {}
    for number, line in _lines(file):
        parts = line.split("\t") if "\t" in line else line.split()
        places = COLUMNS.get(len(parts))
        if places is None:
            raise Invalid(f"{file}:{number}: expected query, document and grade")
        query, document, grade = (parts[place].strip() for place in places)
        try:
            grades.setdefault(query, {})[document] = float(grade)
        except ValueError as exc:
            if number == 1:
                continue  # a heading
            raise Invalid(f"{file}:{number}: '{grade}' is no grade") from exc
    return grades


def _query(
    record: dict[str, Any], relevant: dict[str, float], file: Path, number: int
) -> JudgedQuery:
    try:
        return JudgedQuery(
            id=str(record["_id"]),
            query=str(record.get("text", "")),
            relevant={name: grade for name, grade in relevant.items() if grade > 0},
        )
    except ValidationError as exc:
        raise Invalid(f"{file}:{number}: {exc.errors()[0]['msg']}") from exc


def _json(line: str, file: Path, number: int) -> dict[str, Any]:
    try:
        record = orjson.loads(line)
    except ValueError as exc:
        raise Invalid(f"{file}:{number}: {exc}") from exc
    if not isinstance(record, dict):
        raise Invalid(f"{file}:{number}: expected an object with _id and text")
    return record


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    try:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if number > MAX_LINES:
                    raise Invalid(f"{file} has more than {MAX_LINES} lines")
                if line.strip():
                    yield number, line.rstrip("\n")
    except (OSError, UnicodeDecodeError) as exc:
        raise Invalid(f"{file} cannot be read: {exc}") from exc


@dataclass(frozen=True, slots=True)
class QueryResult:
    """One query, as one setup answered it."""

    id: str
    figures: QueryFigures
    verdict: QueryVerdict


@dataclass(frozen=True, slots=True)
class QuerySet:
    """What is asked, and the thresholds of the means."""

    queries: Sequence[GoldenQuery | JudgedQuery]
    thresholds: Thresholds
    dataset: str
    """Hash of the queries and what is expected of them: runs compare only when it is the same."""

    @classmethod
    def of(cls, request: EvalRequest, thresholds: Mapping[Any, float]) -> QuerySet:
        """``thresholds`` of the manifest hold where the set itself names none."""
        queries: Sequence[GoldenQuery | JudgedQuery] = request.judged
        own = Thresholds()
        if request.golden is not None:
            queries = request.golden.queries
            own = request.golden.thresholds
        dumped = [query.model_dump(mode="json") for query in queries]
        digest = hashlib.sha256(orjson.dumps(dumped, option=orjson.OPT_SORT_KEYS)).hexdigest()
        return cls(queries, own.filled(thresholds), digest[:32])


def judged(query: GoldenQuery | JudgedQuery, hits: Sequence[Hit]) -> QueryResult:
    """The figures of an answer, and of a golden query the rules it breaks."""
    if isinstance(query, JudgedQuery):
        figures = of_documents(query.relevant, hits)
        failures = [] if hits else ["no hit"]
    else:
        figures = of_golden(query, hits)
        failures = query_failures(query, hits, figures)
    verdict = QueryVerdict(
        id=query.id,
        query=query.query,
        ndcg_at_10=figures.ndcg,
        recall_at_20=figures.recall_20,
        hits=figures.hits,
        reciprocal_rank=figures.reciprocal_rank,
        failures=failures,
    )
    return QueryResult(query.id, figures, verdict)
