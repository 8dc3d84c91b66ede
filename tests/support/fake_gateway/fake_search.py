"""Search as the fake gateway does it: documents with a word of the query, those with more first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from latent_core.domain.ids import chunk_id, content_hash
from latent_core.wire.chunks import ChunkView
from latent_core.wire.search import (
    Facet,
    FacetValue,
    Hit,
    PlaceView,
    Provenance,
    Reason,
    SearchRequest,
)
from tests.support.fake_gateway.world import StoredDocument, World


def find(world: World, request: SearchRequest) -> list[Hit]:
    words = set(request.query.casefold().split())
    found: list[tuple[int, StoredDocument]] = []
    for container_id in searched(world, request):
        world.container(container_id)
        for stored in world.contents(container_id):
            common = len(words & set(re.findall(r"\w+", stored.text.casefold())))
            found += [(common, stored)] if common else []
    found.sort(key=lambda scored: (-scored[0], str(scored[1].view.doc_id)))
    return [
        _hit(world, stored, words, rank, score / len(words))
        for rank, (score, stored) in enumerate(found[: request.top_k], start=1)
    ]


def count_types(hits: Sequence[Hit]) -> dict[str, Facet]:
    """The facet ``source_type``."""
    counts = Counter(hit.source_type for hit in hits)
    values = [FacetValue(value=value, count=count) for value, count in counts.most_common()]
    return {
        "source_type": Facet(
            documents=len(hits), values=values, other_count=4, other_values=2, missing=1
        )
    }


def searched(world: World, request: SearchRequest) -> list[str]:
    return request.containers if request.containers is not None else list(world.manifests)


def whole_chunk(stored: StoredDocument, number: int) -> ChunkView:
    """A document as its only chunk."""
    view = stored.view
    return ChunkView(
        chunk_id=chunk_id(view.doc_id, content_hash(stored.text), 0),
        doc_id=view.doc_id,
        source_uri=view.source_uri,
        file_hash=None,
        chunk_no=number,
        position=0,
        modality="text",
        source_type="text",
        block_type="paragraph",
        text=stored.text,
        embed_text=stored.text,
        place=PlaceView(page=1),
        parent_section=None,
        key_path=None,
        table_id=None,
        row_group=None,
        offsets=(0, len(stored.text)),
        content_hash=content_hash(stored.text),
        token_count=len(stored.text.split()),
        windows=1,
        duplicate_of=None,
        provenance={},
        meta={},
        indexed_at=view.updated_at,
    )


def _hit(world: World, stored: StoredDocument, words: set[str], rank: int, score: float) -> Hit:
    view = stored.view
    found = [m.span() for m in re.finditer(r"\w+", stored.text) if m.group().casefold() in words]
    return Hit(
        container_id=view.container_id,
        doc_id=view.doc_id,
        chunk_id=chunk_id(view.doc_id, content_hash(stored.text), 0),
        modality="text",
        source_type="text",
        block_type="paragraph",
        score=score,
        base_score=score,
        title=view.title or "",
        snippet=stored.text,
        highlights=found,
        rendered_snippet=stored.text,
        text=stored.text,
        uri=world.page_uri(stored),
        page_uri=world.page_uri(stored),
        page_image="ready",
        offsets=(0, len(stored.text)),
        place=PlaceView(page=1, line_start=1, line_end=stored.text.count("\n") + 1),
        source_path=view.source_uri.removeprefix("file:///"),
        source_uri=view.source_uri,
        why=[Reason(channel="bm25", rank=rank, score=score, term=", ".join(sorted(words)))],
        provenance=Provenance(
            source_uri=view.source_uri,
            handler="text",
            handler_version="1",
            embedder="local",
            embedder_version="1",
            generation=1,
        ),
    )
