"""Deterministic ids: the same input gives the same ids on every machine (DESIGN §12.4)."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Final, NewType
from uuid import UUID, uuid5

from pydantic import PlainSerializer

ContainerId = NewType("ContainerId", str)
DocumentId = NewType("DocumentId", UUID)
ChunkId = NewType("ChunkId", UUID)
PointId = NewType("PointId", UUID)
JobId = NewType("JobId", int)
SpaceId = NewType("SpaceId", int)
Sha256 = NewType("Sha256", str)
"""Lower-case hexadecimal, 64 characters."""

WireJobId = Annotated[int, PlainSerializer(str, return_type=str, when_used="json")]
"""A job's id in requests and answers: a text in JSON, as the contract has it, and a number in Python."""

NAMESPACE: Final = UUID("6f1d5b0a-6b52-5c2b-9d1b-0c8b7a1e7801")
CONTAINER_SLUG: Final = re.compile(r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")


def document_id(container_id: str, uri: str) -> DocumentId:
    """Identity of a document: its container and canonical source uri (DESIGN §4)."""
    return DocumentId(uuid5(NAMESPACE, f"{container_id}\n{uri}"))


def chunk_id(doc_id: UUID, content_hash: str, occurrence: int) -> ChunkId:
    """Identity of a chunk: the same text keeps its id across generations.

    ``occurrence`` counts from 0 the chunks of one generation with that ``content_hash``.
    """
    return ChunkId(uuid5(doc_id, f"{content_hash}\n{occurrence}"))


def point_id(chunk: UUID, generation: int, window: int) -> PointId:
    """Identity of a vector: one per embedder window of a chunk of a generation."""
    return PointId(uuid5(chunk, f"{generation}\n{window}"))


def content_hash(text: str) -> Sha256:
    """SHA-256 of the UTF-8 bytes of ``text``, which must not contain lone surrogates."""
    return Sha256(hashlib.sha256(text.encode("utf-8")).hexdigest())


SHARED: Final = "s_"
"""Prefix of the names of shared collections."""
WITHIN: Final = "/"
"""Separates a shared collection from a collection in it."""


def collection_name(
    container_id: str, modality: str, space_id: int, shared: str | None = None
) -> str:
    """Name of the vector collection: one per container, modality and embedding space, in ``shared`` if given.

    A space id is never reused, so a container that is deleted and created again never reads
    the vectors of the deleted one.
    """
    own = f"c_{container_id}_{modality}_{space_id}"
    return own if shared is None else f"{shared}{WITHIN}{own}"


def container_of_collection(name: str) -> str:
    """The container's id in a ``collection_name``."""
    return name.removeprefix("c_").rsplit("_", 2)[0]


def shared_collection(embedder: str, version: str, dims: int, modality: str = "text") -> str:
    """Name of the collection that small containers with this embedding space and modality share."""
    key = "\0".join((embedder, version, str(dims), modality))
    return SHARED + hashlib.sha256(key.encode()).hexdigest()[:16]
