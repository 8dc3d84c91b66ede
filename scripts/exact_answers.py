"""Exact terms, lines and pages over a corpus of code and prose (``samples/nextjs-auth``), for ``make golden-queries``.

What is true is read from the files and from the images of their pages, not from the product: a term's lines are those
of the text, its page is where a person sees it (``page_marks``).
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from PIL import Image
from rich.console import Console

from latent_client import SyncClient
from latent_core.domain.document import DocumentView
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import Manifest
from latent_core.wire.search import Hit, SearchRequest
from scripts.page_marks import pages_of_code, pages_of_markdown
from tests.support import REPOSITORY

CONTAINER: Final = "nextjs-auth"
CORPUS: Final = REPOSITORY / "samples" / CONTAINER
QUESTION: Final = "How to configure PKCE in Next.js App Router?"
GUIDE: Final = f"{CONTAINER}/guides/pkce.md"
TERMS: Final = ("redirect_uri", "NEXTAUTH_URL", "pkce_verifier")
REGEXES: Final = (r"\bauth\b",)
TOP: Final = 5
ALL: Final = 100
PASSAGES: Final = 5
SECONDS: Final = 300.0
LONGEST_LINK: Final = 2_000
"""Characters of a link with its signature; a page's bytes would have more."""


@dataclass(frozen=True, slots=True)
class PagedText:
    """A file of the corpus and the images of its pages."""

    text: str
    code: bool
    images: tuple[Image.Image, ...] = ()
    """Empty: it has one page."""

    def lines(self, pattern: re.Pattern[str]) -> list[int]:
        """The numbers of all lines with a match."""
        lines = self.text.split("\n")
        return [number for number, line in enumerate(lines, start=1) if pattern.search(line)]

    def pages(self, line: int) -> range:
        """The page on which a line can be; several if its section goes from one page to another."""
        if not self.images:
            return range(1, 2)
        if self.code:
            return pages_of_code(line, self.images)
        return pages_of_markdown(self.text, line, self.images)


@dataclass
class AnswerCheck:
    """The differences of one answer from the truth."""

    name: str
    problems: list[str] = field(default_factory=list)

    def expect_page(self, where: str, got: int | None, true: range) -> None:
        if got not in true:
            self.problems.append(f"{where}: page {got}, but it is {true.start} (to {true[-1]})")

    def expect(self, what: str, got: object, true: object) -> None:
        if got != true:
            self.problems.append(f"{what}: {got}, but it is {true}")


def passed(client: SyncClient, folder: Path, console: Console) -> bool:
    """Add the corpus to a container of its own, ask, and print what differs from the truth."""
    shutil.copytree(CORPUS, folder)
    manifest = Manifest(id=CONTAINER, name="Sign-in for a Next.js application", embedder="local")
    client.create(manifest)
    client.wait(client.sync_folder(CONTAINER, folder).job_ids, timeout_seconds=SECONDS)
    drawing = [job.job_id for job in client.jobs(container_id=CONTAINER) if _open(job.state)]
    client.wait(drawing, timeout_seconds=SECONDS)
    corpus = dict(paged_texts(client))
    checks = [
        question(client, corpus),
        *(exact(client, corpus, term, re.escape(term), must_terms=[term]) for term in TERMS),
        *(exact(client, corpus, regex, regex, regexes=[regex]) for regex in REGEXES),
    ]
    console.print(f"\n{CORPUS}: {len(corpus)} files")
    for check in checks:
        console.print(f"  {'failed' if check.problems else 'passed'}  {check.name}")
        for problem in check.problems:
            console.print(f"          {problem}")
    return not any(check.problems for check in checks)


def _open(state: JobState) -> bool:
    return state in (JobState.QUEUED, JobState.RUNNING)


def paged_texts(client: SyncClient) -> Iterator[tuple[str, PagedText]]:
    """All files by source path."""
    for document in client.documents(CONTAINER):
        path = document.source_uri.removeprefix("file:///")
        text = (CORPUS.parent / path).read_text("utf-8")
        images = tuple(images_of(client, document)) if document.pages > 1 else ()
        yield path, PagedText(text, Path(path).suffix != ".md", images)


def images_of(client: SyncClient, document: DocumentView) -> Iterator[Image.Image]:
    for number in range(1, document.pages + 1):
        page = client.page(document.doc_id, number)
        if page.page_uri is None:
            raise AssertionError(f"page {number} of {document.source_uri}: {page.page_image}")
        yield Image.open(BytesIO(client.fetch(page.page_uri).content))


def question(client: SyncClient, corpus: Mapping[str, PagedText]) -> AnswerCheck:
    """The guide is among the first hits, with the page on which the snippet stands."""
    check = AnswerCheck(QUESTION)
    request = SearchRequest(containers=[CONTAINER], query=QUESTION, top_k=TOP)
    hits = client.search(request).hits
    links(check, hits)
    of_guide = [hit for hit in hits if hit.source_path == GUIDE]
    if not of_guide:
        check.problems.append(f"the first {TOP} are {[hit.source_path for hit in hits]}")
    for hit in of_guide:
        at = corpus[GUIDE].text.index(hit.snippet.strip().split("\n")[0])
        line = corpus[GUIDE].text.count("\n", 0, at) + 1
        check.expect_page(f"snippet of {GUIDE}", hit.provenance.page, corpus[GUIDE].pages(line))
    return check


def exact(
    client: SyncClient, corpus: Mapping[str, PagedText], name: str, pattern: str, **asks: list[str]
) -> AnswerCheck:
    """Every line of the corpus with a match is named, no other one, and each hit has the page of its first one."""
    check = AnswerCheck(name)
    request = SearchRequest(
        containers=[CONTAINER], top_k=ALL, passages=PASSAGES, dedup=False, **asks
    )
    hits = client.search(request).hits
    links(check, hits)
    compare(check, hits, corpus, re.compile(pattern, re.ASCII))
    return check


def compare(
    check: AnswerCheck,
    hits: Iterable[Hit],
    corpus: Mapping[str, PagedText],
    pattern: re.Pattern[str],
) -> None:
    found: dict[str, set[int]] = defaultdict(set)
    for hit in hits:
        for reason in hit.why:
            if not reason.lines:
                continue
            found[hit.source_path].update(reason.lines)
            pages = corpus[hit.source_path].pages(reason.lines[0])
            where = f"{hit.source_path}:{reason.lines[0]}"
            if len(pages) > 1:
                check.problems.append(f"{where} can be on {len(pages)} pages: set another rule")
            check.expect_page(f"{where} in why", reason.page, pages)
            check.expect_page(where, hit.provenance.page, pages)
    true = {path: lines for path, one in corpus.items() if (lines := one.lines(pattern))}
    for path in sorted(true.keys() | found.keys()):
        check.expect(f"lines of {path}", sorted(found[path]), true.get(path, []))


def links(check: AnswerCheck, hits: Iterable[Hit]) -> None:
    """Pages come as addresses that can be fetched, never as bytes."""
    for hit in hits:
        shown = hit.model_dump(mode="json", exclude={"text", "snippet", "rendered_snippet"})
        for value in _strings(shown):
            if value.startswith("data:") or len(value) > LONGEST_LINK:
                check.problems.append(f"{hit.source_path}: bytes in the answer: {value[:60]}…")
        for uri in (hit.uri, hit.page_uri):
            if uri is None or not uri.startswith("http"):
                check.problems.append(f"{hit.source_path}: no link to the page: {uri}")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
