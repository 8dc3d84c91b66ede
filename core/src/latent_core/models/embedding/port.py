"""The ``Embedder`` interface: texts and pictures in, unit vectors out; and the prefixes that models expect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.errors import IngestFailed, Invalid
from latent_core.domain.vector_types import Matrix, Vector

MAX_TEXTS: Final = 64
"""Texts per batch for an embedder without ``RemoteEmbedderLimits``."""
IN_FLIGHT: Final = 2
"""Concurrent batches for such an embedder: the second fills the gap when the first ends."""


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """What determines a vector: two vectors are comparable only when all of this is equal."""

    embedder: str
    """As in the manifest: ``local``, ``local-int8``, ``openai/<model>``, …"""
    version: str
    dims: int
    window: int
    """Tokens that the model reads per text, without special tokens."""
    reads_images: bool = False
    """Whether pictures have vectors in the same space. The name or the version tells it."""

    @property
    def key(self) -> str:
        """Name of the space in the embedding cache."""
        return f"{self.embedder}@{self.version}/{self.dims}"


class Tokenizer(Protocol):
    """The embedder's own tokenizer, or an approximation for a remote one."""

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, without special tokens, never truncated."""
        ...

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Character range of each token of ``text``."""
        ...


class Embedder(Protocol):
    """Vectors are float32 of unit length; NaN and zero vectors raise ``IngestFailed``."""

    @property
    def model(self) -> EmbeddingModel: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """One row per text, in order. Transient errors are ``Unavailable``, ``UpstreamTimeout`` and ``RateLimited``."""
        ...

    async def embed_query(self, text: str) -> Vector: ...

    async def embed_images(self, images: Sequence[bytes]) -> Matrix:
        """One row per picture (PNG, JPEG or WebP), in order; ``Invalid`` when the model reads texts only."""
        ...

    async def embed_query_image(self, image: bytes) -> Vector: ...

    async def close(self) -> None: ...


@runtime_checkable
class UnreachableAware(Protocol):
    """An embedder that may be unreachable for a long time."""

    def raise_if_unreachable(self) -> None:
        """Raise ``Unreachable`` while it is known to be; lets callers skip work that needs the embedder later."""
        ...


@runtime_checkable
class IdentityAware(Protocol):
    """An embedder whose model may become another one under the same name."""

    async def refuse_other_model(self) -> None:
        """``OtherModel`` if it has; nothing while it cannot be known."""
        ...


@runtime_checkable
class TroubleAware(Protocol):
    """An embedder that notices what its server does wrong without an error."""

    @property
    def trouble(self) -> str | None:
        """What is wrong with all vectors, and what to do; None if nothing is known to be."""
        ...


@runtime_checkable
class RemoteEmbedderLimits(Protocol):
    """An embedder that sends texts to a server."""

    @property
    def texts_a_request(self) -> int: ...

    @property
    def requests_at_a_time(self) -> int: ...


@runtime_checkable
class RemoteImageLimits(Protocol):
    """An embedder that sends pictures to a server."""

    @property
    def images_a_request(self) -> int: ...


def images_a_request(embedder: Embedder) -> int:
    """Pictures per request to ``embedder``: they succeed or fail together."""
    return embedder.images_a_request if isinstance(embedder, RemoteImageLimits) else 1


@runtime_checkable
class TokenMetered(Protocol):
    """An embedder that is billed by the token."""

    def tokens_of(self, texts: Sequence[str], images: int = 0) -> int:
        """Estimated tokens of ``texts`` and of this many pictures."""
        ...


class _HasModel(Protocol):
    @property
    def model(self) -> EmbeddingModel: ...


class TextsOnly:
    """Base of embedders that read no pictures."""

    async def embed_images(self: _HasModel, images: Sequence[bytes]) -> Matrix:  # noqa: ARG002 - of none
        raise no_images(self.model)

    async def embed_query_image(self: _HasModel, image: bytes) -> Vector:  # noqa: ARG002 - of none
        raise no_images(self.model)


def no_images(model: EmbeddingModel) -> Invalid:
    return Invalid(
        f"the embedder {model.embedder} reads no images: use one that does in the manifest"
        " (a local model of texts and pictures, nomic-embed-multimodal-7b, vllm/<model>, jina/<model> or"
        " nomic/nomic-embed-vision-v1.5)",
        embedder=model.embedder,
    )


def unit_rows(rows: NDArray[np.floating], embedder: str) -> Matrix:
    """``rows`` scaled to unit length, float32; ``IngestFailed`` for NaN, infinite and zero vectors.

    Norms are computed in float64: a float32 square overflows from 1e19 on.
    """
    wide = rows.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    good = np.isfinite(norms) & (norms > 0)
    if not good.all():
        bad = [int(index) for index in np.flatnonzero(~good)]
        raise IngestFailed(
            f"{embedder} returned a vector that is zero or not a number for text {bad[0] + 1} of {len(rows)};"
            " such a vector cannot be searched: check that text and the embedder",
            texts=bad,
        )
    return np.ascontiguousarray(wide / norms, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Prefixes:
    document: str = ""
    query: str = ""

    def put(self, texts: Sequence[str], *, query: bool) -> Sequence[str]:
        prefix = self.query if query else self.document
        return [prefix + text for text in texts] if prefix else texts


NONE: Final = Prefixes()
_NOMIC_TEXT: Final = Prefixes("search_document: ", "search_query: ")


def prefixes_of(model: str) -> Prefixes:
    """The prefixes of ``model``, named as on its server, with or without a path."""
    return _NOMIC_TEXT if model.rpartition("/")[2].startswith("nomic-embed-text") else NONE
