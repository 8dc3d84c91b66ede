"""Rows of an export on their way into the archive: batches, their parts, and lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson

from latent_core.transfer.records import PageRecord

_PAGE: Final = frozenset(PageRecord.model_fields)


@dataclass(frozen=True, slots=True)
class ExportPart:
    """At least one chunk."""

    chunks: Sequence[dict[str, Any]]
    vectors: bytes | None

    @property
    def lacks_vectors(self) -> bool:
        return self.vectors is None and not self.chunks[0]["mapped"]


@dataclass(frozen=True, slots=True)
class ExportBatch:
    """Consistent rows of some documents."""

    documents: Mapping[UUID, dict[str, Any]]
    parts: Sequence[ExportPart]
    pages: Sequence[dict[str, Any]]
    refs: Sequence[dict[str, Any]]


def batched(found: Sequence[dict[str, Any]], chunks: int) -> Iterator[list[dict[str, Any]]]:
    """Group documents with at most ``chunks`` chunks in total; a larger document is alone."""
    batch: list[dict[str, Any]] = []
    remaining = chunks
    for one in found:
        if batch and one["live_chunks"] > remaining:
            yield batch
            batch, remaining = [], chunks
        batch.append(one)
        remaining -= one["live_chunks"]
    if batch:
        yield batch


def only(row: Mapping[str, Any], fields: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name in fields}


def generations_of(found: Iterable[Mapping[str, Any]]) -> dict[UUID, int]:
    return {d["doc_id"]: d["generation"] for d in found}


def page_line(row: dict[str, Any], document: Mapping[str, Any], uri: str | None) -> bytes:
    """One line of ``pages.jsonl``; ``uri`` is the name of the image in the archive."""
    fields = {
        "uri": uri,
        "sha256": row["image_sha256"],
        "source_pdf": document["uri"] if document["source_type"] == "pdf" else None,
        "source_file": document["uri"],
    }
    return orjson.dumps(only(row, _PAGE) | fields)
