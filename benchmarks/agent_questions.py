"""What an agent reads after one brief search: how often the expected fact stands literally in the answer, and its size.

Questions with known answers over Wikipedia articles, tables, PDFs and long texts. All containers are searched at once,
as an agent does that names none. ``--data`` is a folder with the judged sets ``xquad/en``, ``fetaqa-tables``,
``pdf-mmlongbench`` and ``chunking-eval``; a set that is missing is skipped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import pymupdf

from benchmarks.installation import (
    BenchmarkInstallation,
    add,
    create,
    ended,
    idle,
    running,
    work_folder,
)

QUESTIONS: Final = 60
"""Per set."""
TABLES: Final = 600
MAX_FACT_CHARS: Final = 160
MIN_FACT_CHARS: Final = 3
SEED: Final = 18
ACCEPT: Final = {"Accept": "application/json, text/event-stream"}
WAIT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class AgentQuestion:
    text: str
    fact: str
    """What must stand in the answer; white space and case are ignored."""


@dataclass(frozen=True, slots=True)
class QuestionSet:
    name: str
    """Also of its container."""
    files: Mapping[str, bytes]
    questions: Sequence[AgentQuestion]


@dataclass(frozen=True, slots=True)
class SetAnswers:
    """Of one set: shares of questions, and bytes of the answers to brief searches."""

    name: str
    questions: int
    by_search: float
    with_document: float
    median_bytes: int
    max_bytes: int


def holds(answer: Any, fact: str) -> bool:
    """Whether a text of ``answer`` contains the fact."""
    return bool(
        re.search(rf"(?<!\w){re.escape(plain(fact))}(?!\w)", plain(" \n ".join(_texts(answer))))
    )


def plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)


def read_sets(data: Path) -> list[QuestionSet]:
    readers = {
        "xquad/en": _wiki,
        "fetaqa-tables": _tables,
        "pdf-mmlongbench": _pdfs,
        "chunking-eval": _texts_of_length,
    }
    return [read(data / name) for name, read in readers.items() if (data / name).is_dir()]


def _records(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="\n") as lines:
        return [json.loads(line) for line in lines]


def _chosen(questions: Sequence[AgentQuestion]) -> list[AgentQuestion]:
    fit = [
        q
        for q in questions
        if MIN_FACT_CHARS <= len(q.fact) <= MAX_FACT_CHARS and plain(q.fact) not in plain(q.text)
    ]
    return random.Random(SEED).sample(fit, min(QUESTIONS, len(fit)))


def _wiki(folder: Path) -> QuestionSet:
    """Articles as Markdown, of the paragraphs that have their title."""
    articles: dict[str, list[str]] = defaultdict(list)
    for record in _records(folder / "corpus.jsonl"):
        articles[record["title"]].append(record["text"])
    files = {
        f"{title}.md": f"# {title.replace('_', ' ')}\n\n{chr(10).join(f'{p}{chr(10)}' for p in parts)}".encode()
        for title, parts in articles.items()
    }
    questions = [
        AgentQuestion(q["text"], q["metadata"]["answer"])
        for q in _records(folder / "queries.jsonl")
    ]
    return QuestionSet("wiki", files, _chosen(questions))


def _tables(folder: Path) -> QuestionSet:
    """Facts are cells that the long answer names and the question does not."""
    texts = {r["_id"]: r["text"] for r in _records(folder / "corpus.jsonl")}
    relevant = dict(
        line.split("\t")[:2] for line in (folder / "qrels.tsv").read_text().splitlines()[1:]
    )
    found = []
    for query in _records(folder / "queries.jsonl"):
        table = texts[relevant[query["_id"]]]
        answer, question = plain(query["metadata"]["answer"]), plain(query["text"])
        rows = [row for row in table.splitlines() if row[:1] == "|"]
        cells = {cell.strip() for row in rows[2:] for cell in row.split("|")}
        named = [c for c in cells if plain(c) in answer and plain(c) not in question]
        if named:
            found.append(
                (AgentQuestion(query["text"], max(named, key=len)), relevant[query["_id"]])
            )
    chosen = set(_chosen([question for question, _ in found]))
    names = {table for question, table in found if question in chosen}
    names |= set(random.Random(SEED).sample(sorted(texts), TABLES))
    files = {f"{name}.md": texts[name].encode() for name in sorted(names)}
    return QuestionSet("tables", files, sorted(chosen, key=lambda q: q.text))


def _pdfs(folder: Path) -> QuestionSet:
    """Facts that stand in the text of the page where the answer was found."""
    pages: dict[str, tuple[str, int]] = {}
    for line in (folder / "qrels.pages.tsv").read_text().splitlines()[1:]:
        query_id, document, number, _ = line.split("\t")
        pages.setdefault(query_id, (document, int(number)))
    texts = {d["_id"]: d for d in _records(folder / "docs.jsonl") if not d["image_only"]}
    untyped: Any = pymupdf
    opened = {name: untyped.open(folder / d["file"]) for name, d in texts.items()}
    questions = []
    for query in _records(folder / "queries.jsonl"):
        name, page = pages.get(query["_id"], ("", 0))
        fact = str(query["metadata"]["answer"])
        stored = name in opened and page < len(opened[name])
        if stored and holds(opened[name][page].get_text(), fact):
            questions.append(AgentQuestion(query["text"], fact))
    files = {name: (folder / d["file"]).read_bytes() for name, d in texts.items()}
    return QuestionSet("pdfs", files, _chosen(questions))


def _texts_of_length(folder: Path) -> QuestionSet:
    """Facts are short passages of long texts."""
    files = {path.name: path.read_bytes() for path in sorted((folder / "corpora").glob("*.md"))}
    kept = {name: content for name, content in files.items() if len(content) < 200_000}
    questions = [
        AgentQuestion(q["text"], q["references"][0]["content"])
        for q in _records(folder / "queries.jsonl")
        if len(q["references"]) == 1 and f"{q['corpus']}.md" in kept
    ]
    return QuestionSet("texts", kept, _chosen(questions))


class AgentCaller:
    """Calls tools over MCP, as an agent does."""

    def __init__(self, installation: BenchmarkInstallation) -> None:
        headers = {"Authorization": f"Bearer {installation.token}", **ACCEPT}
        self._http = httpx.Client(
            base_url=installation.url, headers=headers, timeout=WAIT_SECONDS, trust_env=False
        )

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = self._http.post("/mcp", json=body).raise_for_status()
        lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
        message = orjson.loads(lines[-1].removeprefix("data: ") if lines else answer.content)
        content: dict[str, Any] = message["result"]["structuredContent"]
        return content


def measured(caller: AgentCaller, one: QuestionSet) -> SetAnswers:
    sizes, found, read = [], 0, 0
    for question in one.questions:
        answer = caller.call("containers_search", query=question.text)
        sizes.append(len(orjson.dumps(answer)))
        if holds(answer, question.fact):
            found += 1
        elif answer["hits"]:
            best = answer["hits"][0]
            page = {"page": best["page"]} if "page" in best else {}
            document = caller.call("documents_get", doc_id=best["doc_id"], **page)
            read += holds(document, question.fact)
    count = len(one.questions)
    return SetAnswers(
        name=one.name,
        questions=count,
        by_search=round(found / count, 3),
        with_document=round((found + read) / count, 3),
        median_bytes=round(statistics.median(sizes)),
        max_bytes=max(sizes),
    )


async def fill(installation: BenchmarkInstallation, sets: Sequence[QuestionSet]) -> None:
    """Ingest what is not there yet."""
    async with installation.client() as client:
        known = {container.id for container in await client.containers()}
        for one in sets:
            if one.name in known:
                continue
            await create(client, one.name)
            folder = installation.folder / one.name
            folder.mkdir(exist_ok=True)
            jobs = []
            for name, content in one.files.items():
                (folder / name).write_bytes(content)
                jobs.append(await add(client, one.name, folder / name))
            await ended(client, jobs)
        await idle(client)


async def run(data: Path, kept: Path | None) -> list[SetAnswers]:
    sets = read_sets(data)
    with work_folder(kept, "agent-questions") as folder:
        async with running(folder, {"LLC_SEARCH_TIMEOUT_MS": "30000"}) as installation:
            await fill(installation, sets)
            caller = AgentCaller(installation)
            return [await asyncio.to_thread(measured, caller, one) for one in sets]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="keeps the containers for the next run")
    given = parser.parse_args()
    for one in asyncio.run(run(given.data, given.work)):
        print(one)


if __name__ == "__main__":
    main()
