"""What a hit shows: tables with their header row, and how its page is best read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from latent_core.bm25.analyser import query_terms
from latent_core.db.conditions import FilterCondition
from latent_core.db.containers import Container, Space
from latent_core.db.documents.chunks import HitRow, PageFiles
from latent_core.domain.ids import SpaceId
from latent_core.domain.manifest.model import Display, Manifest, SearchMode
from latent_core.search.container_search import ContainerCandidates
from latent_core.search.hydrate import HydratedRows
from latent_core.search.plan import ContainerPlan
from latent_core.search.ranking import Group, RankedCandidate
from latent_core.search.render import IMAGE_FROM, render
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
) -> Hit:
    plan = ContainerPlan(container(template), SearchMode.HYBRID, ("bm25",), FilterCondition())
    retrieved = ContainerCandidates(plan, terms=query_terms(query, ["english"]))
    # As the statement finds them: those that the chunk spans, in order.
    first, last = row["page"] or 1, row["page_end"] or row["page"] or 0
    spanned = [page for n, page in sorted((pages or {}).items()) if first <= n <= last]
    files = [PageFiles(**one) for one in spanned]
    found = HydratedRows({("ships", 1): HitRow(**row | {"pages": files})}, {}, {})
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
    ("visual", "read_as"),
    [
        (None, "text"),
        (0.0, "text"),
        (IMAGE_FROM - 0.01, "text"),
        (IMAGE_FROM, "image"),
        (1.0, "image"),
    ],
)
def test_a_page_is_looked_at_when_enough_of_it_is_picture(
    visual: float | None, read_as: str
) -> None:
    hit = shown(chunk("kipper", page=1), pages={1: page(visual)})
    assert (hit.read_as, hit.visual_importance, hit.page_uri) == (read_as, visual, "image:a")


def test_the_page_status_is_that_of_the_linked_page() -> None:
    pages = {3: page(0.1, image=None), 4: page(0.9, image="b", pdf="c"), 5: page(0.2)}
    hit = shown(chunk("kipper", page=3, page_end=5), pages=pages)
    assert hit.page_uris == ["image:b", "image:a"]
    assert (hit.page_uri, hit.read_as, hit.visual_importance) == ("image:b", "image", 0.9)
    assert hit.page_pdf_uri == "inline:c:application/pdf:p.pdf"


def test_an_image_is_looked_at_before_it_is_drawn_and_a_record_is_read() -> None:
    image = shown(chunk("kipper", page=1, modality="image"), pages={1: page(None, image=None)})
    assert (image.read_as, image.visual_importance, image.page_uri) == ("image", 1.0, None)
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
        HydratedRows(found, {}, {}),
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
