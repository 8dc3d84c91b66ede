"""Whether a server still has the model that made the stored vectors (docs/adr/0051).

A name such as ``work/nomic`` may mean another model tomorrow: its address, its kind or the weights behind a tag change.
When a model is first used, the vector of a text is stored with the key of its vectors. Later uses compare.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, Protocol

from latent_core.db.connection import Database
from latent_core.db.spaces import embedder_references
from latent_core.db.spaces.embedder_references import EmbedderReference
from latent_core.domain.errors import OtherModel, ReadOnlyStore
from latent_core.domain.vector_types import Vector
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.runtime.load_once import LoadOnce

TEXT: Final = "The keeper of the lighthouse notes fog at dawn and a gale at noon."
SAME_MODEL: Final = 0.995
"""Cosine. The same weights on another processor, in another batch or in bf16 reach .999; other weights, and the same
ones in 4 bits, do not reach this."""
CHECK_SECONDS: Final = 60.0
"""After this time a use compares again: the model behind a tag may change while a process runs."""

Embed = Callable[[str], Awaitable[Vector]]
"""Embeds one text as a document, in one request."""
ReadMaxTokens = Callable[[], Awaitable[int]]
"""Asks the server; 0 if it reports nothing."""


class References(Protocol):
    async def find(self, key: str) -> EmbedderReference | None: ...

    async def keep(self, key: str, reference: EmbedderReference) -> EmbedderReference:
        """The stored reference: ``reference``, or an earlier one."""
        ...

    async def fix_max_tokens(self, key: str, max_tokens: int) -> int:
        """The stored number: ``max_tokens``, or an earlier one."""
        ...


class StoredReferences:
    """References in Postgres."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def find(self, key: str) -> EmbedderReference | None:
        async with self._db.reading() as conn:
            return await embedder_references.find(conn, key)

    async def keep(self, key: str, reference: EmbedderReference) -> EmbedderReference:
        try:
            async with self._db.transaction() as conn:
                await embedder_references.insert(conn, key, reference)
                return await embedder_references.find(conn, key) or reference
        except ReadOnlyStore:  # nothing can be embedded for it now
            return reference

    async def fix_max_tokens(self, key: str, max_tokens: int) -> int:
        async with self._db.transaction() as conn:
            await embedder_references.fix_max_tokens(conn, key, max_tokens)
            found = await embedder_references.find(conn, key)
        return max_tokens if found is None or found.max_tokens is None else found.max_tokens


class ModelIdentity:
    """Of one model in one process."""

    def __init__(
        self,
        model: EmbeddingModel,
        references: References,
        embed: Embed,
        read_max_tokens: ReadMaxTokens,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._references = references
        self._embed = embed
        self._read_max_tokens = read_max_tokens
        self._clock = clock
        self._compared = LoadOnce(self._compare)
        self._valid_until: float | None = None
        self._max_tokens: int | None = None
        self.other: str | None = None
        """Why the model is another one; None if it is not known to be."""

    async def confirm(self) -> None:
        """``OtherModel`` if the server's model is another one now; its errors if it does not answer."""
        if self._valid_until is None or self._clock() >= self._valid_until:
            await self._compared.get()

    async def max_tokens(self) -> int:
        """Texts are sent in parts of so many tokens, in all processes; 0: whole."""
        await self.confirm()
        if self._max_tokens is None:
            reported = await self._read_max_tokens()
            self._max_tokens = await self._references.fix_max_tokens(self._model.key, reported)
        return self._max_tokens

    async def _compare(self) -> None:
        key = self._model.key
        kept = await self._references.find(key)
        if kept is None:
            made = EmbedderReference(TEXT, await self._embed(TEXT))
            kept = await self._references.keep(key, made)
            vector = made.vector if kept.text == TEXT else await self._embed(kept.text)
        else:
            vector = await self._embed(kept.text)
        cosine = cosine_of(kept.vector, vector)
        if cosine < SAME_MODEL:
            self._valid_until = None
            self.other = _other_model(self._model, cosine)
            raise OtherModel(self.other)
        self.other = None
        self._max_tokens = kept.max_tokens if self._max_tokens is None else self._max_tokens
        self._valid_until = self._clock() + CHECK_SECONDS
        self._compared.forget()


def cosine_of(one: Vector, other: Vector) -> float:
    """Of unit vectors; 0 if their dimensions differ."""
    return float(one @ other) if one.shape == other.shape else 0.0


def _other_model(model: EmbeddingModel, cosine: float) -> str:
    name, version = model.embedder, datetime.now(UTC).date().isoformat()
    if version == model.version:
        version += "b"
    return (
        f"the model behind {name} is another one now: the vector of a fixed text has a cosine of {cosine:.3f} to that of the"
        f" model that made the stored vectors (version {model.version}), below {SAME_MODEL}. It"
        " embeds nothing for them. Serve the former model again, or embed everything by the present one: latent refresh"
        f" CONTAINER --to {name} --version {version} --dims {model.dims}"
    )
