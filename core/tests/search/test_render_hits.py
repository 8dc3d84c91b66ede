"""What a hit shows: tables with their header row, and how its page is best read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from latent_core.bm25.analyser import query_terms
from latent_core.bm25.exact import CandidateText
from latent_core.db.conditions import FilterCondition
from latent_core.db.containers import Container, Space
from latent_core.db.documents.chunks import HitRow, PageFiles
from latent_core.domain.ids import SpaceId
from latent_core.domain.manifest.model import Display, Manifest, SearchMode
from latent_core.search.container_search import ContainerCandidates
from latent_core.search.exact import ExactQuery, Matcher
from latent_core.search.fuse import RankedList
from latent_core.search.hydrate import HydratedRows
from latent_core.search.plan import EXACT, ContainerPlan
from latent_core.search.ranking import Group, RankedCandidate
from latent_core.search.render import render
from latent_core.wire.containers import ContainerState
from latent_core.wire.search import Hit

DOC, NOW = UUID(int=1), datetime(2026, 1, 1, tzinfo=UTC)
HEADER = "| Ship | Port | Tons |"
RULE = "| --- | :-: | --: |"
ROWS = [f"| Gull {n} | Oban | {n}00 |" for n in range(40)]
LAST = "| Kipper | Mallaig | 7 |"
TABLE = "\n".join([HEADER, RULE, *ROWS, LAST])


class LinkSigner:
    """Says what was asked for."""

    def page_image(self, bucket: str, sha256: str, mime: str, filename: str) -> str:
        return f"image:{sha256}"

    def link(self, bucket: str, sha256: str, mime: str, disposition: str, filename: str) -> str:
        return f"{disposition}:{sha256}:{mime}:{filename}"


def container(template: str) -> Container:
    display = Display(max_snippet_chars=120, snippet_template=template)
    manifest = Manifest(id="ships", name="Ships", display=display)
    space = Space(SpaceId(1), "ships", "local", "1", 3)
    return Container(
        "ships", manifest, "etag", ContainerState.ACTIVE, space, ("english",), NOW, NOW
    )


def chunk(text: str, **more: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(
            (
                *("external_id", "page", "page_end", "line_start", "line_end", "key_path"),
                *(
                    "table_id",
                    "row_group",
                    "source_modified_at",
                    "first_fetched_at",
                    "fetched_at",
                    "sha256",
                ),
                *("parent_id", "original", "mapped"),
                *("written_by", "superseded_by", "superseded_at"),
            )
        ),
        "id": UUID(int=2),
        "doc_id": DOC,
        "container_id": "ships",
        "chunk_no": 1,
        "text": text,
        "language": "english",
        "modality": "text",
        "source_type": "markdown",
        "block_type": "table",
        "title": "Ships",
        "uri": "file:///ships.md",
        "offset_start": 0,
        "offset_end": len(text),
        "heading_path": [],
        "created_at": NOW,
        "origin": "file",
        "written_at": NOW,
        "doc_meta": {},
        "meta": {},
        "generation": 1,
        "position": 0,
        "provenance": dict.fromkeys(
            ("handler", "handler_version", "embedder", "embedder_version"), "x"
        ),
        **more,
    }


def shown(
    row: dict[str, Any],
    query: str = "kipper",
    pages: Mapping[int, dict[str, Any]] | None = None,
    template: str = "{snippet}",
    exact: ExactQuery | None = None,
) -> Hit:
    plan = ContainerPlan(container(template), SearchMode.HYBRID, ("bm25",), FilterCondition())
    retrieved = ContainerCandidates(plan, terms=query_terms(query, ["english"]))
    if exact is not None:
        retrieved.matcher = Matcher(exact)
        text = CandidateText(1, DOC, row["text"], row["line_start"], 0, row["uri"])
        retrieved.matches = {1: match} if (match := retrieved.matcher.judge(text)) else {}
        retrieved.lists[EXACT] = RankedList([1], [1.0])
    # As the statement finds them: those that the chunk spans, in order.
    first, last = row["page"] or 1, row["page_end"] or row["page"] or 0
    spanned = [{"page": n} | one for n, one in sorted((pages or {}).items()) if first <= n <= last]
    files = [PageFiles(**one) for one in spanned]
    found = HydratedRows({("ships", 1): HitRow(**row | {"pages": files})}, {})
    ((hit,),) = render(
        [Group(RankedCandidate("ships", 1, DOC, 0.5, 0.5))], found, [retrieved], LinkSigner()
    )
    return hit


def page(
    visual: float | None, *, image: str | None = "a", pdf: str | None = None
) -> dict[str, Any]:
    names = {"mime": "image/webp", "filename": "p.webp", "pdf_mime": "application/pdf"}
    return {
        "image_sha256": image,
        "visual": visual,
        "pdf_sha256": pdf,
        "pdf_filename": "p.pdf",
    } | names


def test_a_table_that_is_shown_from_below_begins_with_its_header_row() -> None:
    hit = shown(chunk(TABLE), template="{title}: {snippet}")
    assert hit.rendered_snippet.startswith(f"Ships: {HEADER}\n...")
    assert hit.rendered_snippet.endswith("| **Kipper** | Mallaig | 7 |")
    assert hit.snippet in TABLE
    assert HEADER not in hit.snippet
    assert hit.text == TABLE
    assert [hit.snippet[start:end] for start, end in hit.highlights] == ["Kipper"]


@pytest.mark.parametrize(
    ("text", "query", "kind"),
    [
        (TABLE, "ship", "table"),
        (TABLE, "kipper", "paragraph"),
        ("\n".join([*ROWS, LAST]), "kipper", "table"),
        ("\n".join(["| " + "wide " * 300 + "|", RULE, *ROWS, LAST]), "kipper", "table"),
        ("-" * 50_000 + "x\n" + "-" * 50_000 + "x\n", "nothing", "table"),
    ],
    ids=["has it", "no table", "no header", "too long", "hostile"],
)
def test_nothing_is_put_before_what_needs_no_header_or_has_none(
    text: str, query: str, kind: str
) -> None:
    hit = shown(chunk(text, block_type=kind), query)
    assert hit.rendered_snippet.replace("**", "").strip(".") == hit.snippet.strip(".")


@pytest.mark.parametrize(
    ("share", "importance", "read_as"),
    [
        (None, None, "text"),
        (0.0, 1, "text"),
        (0.39, 3, "text"),
        (0.4, 4, "image"),
        (1.0, 5, "image"),
    ],
)
def test_a_page_is_looked_at_when_enough_of_it_is_picture(
    share: float | None, importance: int | None, read_as: str
) -> None:
    hit = shown(chunk("kipper", page=1), pages={1: page(share)})
    assert (hit.read_as, hit.visual_importance, hit.page_uri) == (read_as, importance, "image:a")
    assert (hit.visual_share, hit.cite_as) == (share, "p. 1")
    assert hit.visual_importance_by == (None if importance is None else "measure")


@pytest.mark.parametrize(
    ("share", "importance", "read_as"), [(0.0, 5, "image"), (1.0, 2, "text"), (None, 4, "image")]
)
def test_a_models_judgement_of_a_page_counts_more_than_the_measure(
    share: float | None, importance: int, read_as: str
) -> None:
    names = {"next_pdf_mime": "application/pdf", "next_pdf_filename": "q.pdf"}
    judged = {**page(share, pdf="c"), "importance": importance, "next_pdf_sha256": "d", **names}
    hit = shown(chunk("kipper", page=1), pages={1: judged})
    assert (hit.visual_importance, hit.visual_importance_by) == (importance, "model")
    assert (hit.read_as, hit.visual_share) == (read_as, share)
    assert hit.page_pdf_uri == "inline:c:application/pdf:p.pdf"
    assert hit.next_page_pdf_uri == "inline:d:application/pdf:q.pdf"


WHARF = "\n".join(f"Berth {n} is let to ship {n}." for n in range(1, 60))
LINES = WHARF.split("\n")


def wharf(**more: Any) -> dict[str, Any]:
    """Lines 11 to 69 of a source, on pages 3 to 5."""
    place = {"page": 3, "page_end": 5, "line_start": 11, "line_end": 69}
    return chunk(WHARF, block_type="paragraph", **{**place, **more})


def three_pages(first: dict[str, Any] | None = None) -> dict[int, dict[str, Any]]:
    """Page 4 begins with line 31 (berth 21), page 5 with line 51 (berth 41)."""
    return {
        3: {**page(0.1), **(first or {}), "line_start": 1, "head": "Before the chunk"},
        4: {**page(0.9, image="b", pdf="c"), "line_start": 31, "head": "\n".join(LINES[20:28])},
        5: {**page(0.2, image="d"), "line_start": 51, "head": "\n".join(LINES[40:48])},
    }


@pytest.mark.parametrize(
    ("query", "number", "image"), [("20", 3, "a"), ("21", 4, "b"), ("40", 4, "b"), ("41", 5, "d")]
)
def test_a_hit_shows_the_page_of_its_best_words_and_lists_all_pages_of_its_chunk(
    query: str, number: int, image: str
) -> None:
    hit = shown(wharf(), f"berth {query}", three_pages())
    assert f"Berth {query} " in hit.snippet
    assert (hit.provenance.page, hit.page_uri, hit.uri) == (number, *[f"image:{image}"] * 2)
    assert hit.page_uris == ["image:a", "image:b", "image:d"]
    assert (hit.place.page, hit.place.page_end) == (3, 5)
    assert (hit.visual_share, hit.read_as) == {
        3: (0.1, "text"),
        4: (0.9, "image"),
        5: (0.2, "text"),
    }[number]
    assert hit.page_pdf_uri == ("inline:c:application/pdf:p.pdf" if number == 4 else None)


def test_an_exact_match_decides_the_snippet_and_the_page_before_the_words() -> None:
    exact = ExactQuery(must_terms=("ship 45",), regexes=(r"\bship 5\d\b",))
    hit = shown(wharf(), "berth 2 3 4 5 6 7 8", three_pages(), exact=exact)
    assert "ship 45" in hit.snippet
    assert (hit.provenance.page, hit.page_uri) == (5, "image:d")
    assert {(why.term or why.regex, why.page, why.lines[0]) for why in hit.why} == {
        ("ship 45", 5, 55),
        (r"\bship 5\d\b", 5, 60),
    }
    assert "ship 45" in [hit.snippet[start:end] for start, end in hit.highlights]
    alone = shown(wharf(), "", three_pages(), exact=ExactQuery(regexes=("let to ship 33",)))
    assert (alone.provenance.page, alone.why[0].lines) == (4, [43])
    assert "let to ship 33" in alone.snippet


def test_a_page_that_begins_within_a_long_line_is_found_there() -> None:
    line = " ".join(f"berth {n} is let to ship {n}." for n in range(60))
    middle = line.index("berth 30 ")
    pages = {
        1: {**page(0.0), "line_start": 1, "head": line},
        2: {**page(0.0, image="b"), "line_start": 1, "head": line[middle : middle + 300]},
    }
    place = {"page": 1, "page_end": 2, "line_start": 1, "line_end": 1}
    assert shown(chunk(line, **place), "ship 29", pages).provenance.page == 1
    assert shown(chunk(line, **place), "ship 30", pages).provenance.page == 2


def test_a_chunk_of_a_long_line_may_be_on_one_of_the_pages_of_the_line() -> None:
    line = " ".join(f"berth {n} is let to ship {n}." for n in range(60))
    middle, later = line.index("berth 30 "), line.index("berth 40 ")
    place = {"page": 1, "page_end": 2, "line_start": 1, "line_end": 1}
    pages = {
        1: {**page(0.0), "line_start": 1, "head": line[:400], "opening": True},
        2: {**page(0.0, image="b"), "line_start": 1, "head": line[middle : middle + 400]},
    }
    before = shown(chunk(line[: middle - 20], **place), "ship 27", pages)
    assert (before.provenance.page, before.page_uri) == (1, "image:a")
    pages[1]["opening"], pages[2]["opening"] = False, True
    after = shown(chunk(line[later:], **place), "ship 41", pages)
    assert (after.provenance.page, after.page_uri) == (2, "image:b")


def test_pages_of_a_source_without_lines_begin_where_their_text_does() -> None:
    first, second, third = "The tide turns at noon.", "Berth 7 is let.", "Gulls are fed at dusk."
    text = f"{first}\f{second} \f{third[:12]}"
    pages = {
        1: {**page(0.0), "head": f"Before. {first}"},
        2: {**page(0.0, image="b"), "head": f"{second} "},
        3: {**page(0.0, image=None), "head": None},
        4: {**page(0.0, image="d"), "head": third},
    }
    row = chunk(text, page=1, page_end=4)
    numbers = [shown(row, word, pages).provenance.page for word in ("noon", "let", "gulls")]
    assert numbers == [1, 2, 4]


def test_a_page_without_an_image_has_no_link_though_its_neighbours_have() -> None:
    pages = three_pages(first={"image_sha256": None})
    hit = shown(wharf(), "berth 20", pages)
    assert (hit.provenance.page, hit.page_uri, hit.page_image) == (3, None, "none")
    assert hit.page_uris == ["image:b", "image:d"]


def test_an_image_is_looked_at_before_it_is_drawn_and_a_record_is_read() -> None:
    image = shown(chunk("kipper", page=1, modality="image"), pages={1: page(None, image=None)})
    assert (image.read_as, image.visual_importance, image.page_uri) == ("image", 5, None)
    record = shown(chunk("kipper"))
    assert (record.read_as, record.visual_importance, record.page_pdf_uri) == ("text", None, None)


B = UUID(int=8)


def passages(*rows: dict[str, Any], channels: tuple[str, ...] = ("bm25", "vector")) -> list[int]:
    """Chunk_nos of the hits of a document whose best chunk is the first of ``rows``, and of another one."""
    plan = ContainerPlan(container("{snippet}"), SearchMode.HYBRID, channels, FilterCondition())
    found = {("ships", row["chunk_no"]): HitRow(**row | {"pages": []}) for row in rows}
    best, *rest, last = (
        RankedCandidate("ships", row["chunk_no"], row["doc_id"], 0.5) for row in rows
    )
    documents = render(
        [Group(best, tuple(rest)), Group(last)],
        HydratedRows(found, {}),
        [ContainerCandidates(plan)],
        LinkSigner(),
    )
    assert [hits[0].doc_id for hits in documents] == [DOC, B]
    return [hit.provenance.generation for hit in documents[0]]


def row_of(number: int, position: int, doc_id: UUID = DOC, **more: Any) -> dict[str, Any]:
    own = {"id": UUID(int=100 + number), "chunk_no": number, "position": position}
    return chunk(f"text {number}", **own, doc_id=doc_id, generation=number, **more)


def test_passages_follow_the_best_one_in_the_order_of_the_document() -> None:
    assert passages(row_of(5, 4), row_of(9, 8), row_of(2, 1), row_of(30, 0, B)) == [5, 2, 9]


def test_a_passage_that_repeats_what_is_shown_is_omitted() -> None:
    copies = (row_of(5, 4), row_of(9, 8, original=30), row_of(2, 1), row_of(30, 0, B))
    assert passages(*copies) == [5, 2]
    assert passages(*copies, channels=("bm25",)) == [5, 2, 9]  # alike is not the same words
    same = (*copies[:3], copies[3] | {"text": "text 9"})
    assert passages(*same, channels=("bm25",)) == [5, 2]
