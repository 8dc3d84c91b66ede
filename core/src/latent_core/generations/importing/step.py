"""The documents of one transaction of an import, and where they go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from latent_core.archive.records import ChunkRecord, DocumentRecord, Header, PageRecord
from latent_core.domain import versions
from latent_core.domain.ids import ChunkId, chunk_id
from latent_core.domain.recipe import recipe
from latent_core.domain.vector import Matrix
from latent_core.generations.importing.payload import ImportPayload
from latent_core.registry.containers import Container


@dataclass(frozen=True, slots=True)
class Target:
    """Where documents go, and what is known of where they came from."""

    container: Container
    header: Header
    payload: ImportPayload
    same_space: bool

    @property
    def founded(self) -> bool:
        """Whether this import made the container."""
        return not self.payload.merge

    @property
    def recipe(self) -> str | None:
        """Of documents that were made as this container makes them; None when another release made them."""
        if self.header.handler != versions.HANDLER:
            return None
        return recipe(self.container.manifest)


@dataclass(slots=True)
class Taken:
    """A document that is taken in, with its chunks in their order."""

    record: DocumentRecord
    doc_id: UUID
    request: int
    generation: int
    pages: list[PageRecord] = field(default_factory=list)
    chunks: list[ChunkRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Numbered:
    """A chunk with its document, where it belongs."""

    document: Taken
    chunk: ChunkRecord
    ord: int
    id: ChunkId


@dataclass(slots=True)
class Step:
    """Documents of one transaction, and the chunks of them all, in the order of the ords."""

    taken: list[Taken]
    skipped: int
    chunks: list[Numbered]
    vectors: Matrix
    windows: list[int]
    embedded: int


def numbered(target: Target, taken: Sequence[Taken], first_ord: int) -> Iterator[Numbered]:
    """Every chunk of ``taken`` with its ord and id."""
    ord_ = first_ord
    for one in taken:
        seen: Counter[str] = Counter()
        for chunk in one.chunks:
            occurrence = seen[chunk.content_hash]
            seen[chunk.content_hash] += 1
            number = chunk.n if target.founded else ord_
            yield Numbered(one, chunk, number, chunk_id(one.doc_id, chunk.content_hash, occurrence))
            ord_ += 1
