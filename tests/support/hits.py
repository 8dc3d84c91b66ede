"""Hits of documents that are nowhere."""

from __future__ import annotations

from uuid import NAMESPACE_URL, UUID, uuid5

from latent_core.wire.search import Hit, PlaceView, Provenance


def doc(name: str) -> UUID:
    """The document's id."""
    return uuid5(NAMESPACE_URL, name)


def hit(name: str, text: str = "", title: str = "", external_id: str | None = None) -> Hit:
    """The only chunk of ``file:///<name>``."""
    uri = f"file:///{name}"
    return Hit(
        container_id="c",
        doc_id=doc(name),
        chunk_id=doc(name + "#0"),
        external_id=external_id,
        modality="text",
        source_type="text",
        block_type="paragraph",
        score=1.0,
        base_score=1.0,
        title=title,
        snippet=text,
        rendered_snippet=text,
        text=text,
        offsets=(0, len(text)),
        place=PlaceView(),
        source_path=name,
        source_uri=uri,
        provenance=Provenance(
            source_uri=uri,
            handler="text",
            handler_version="1",
            embedder="local",
            embedder_version="1",
            generation=1,
        ),
    )
