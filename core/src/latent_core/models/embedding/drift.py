"""Drift adapters map vectors of one model into another model's space (docs/adr/0009), with an embedder that uses one.

``DriftAdapter`` maps vectors of the *new* model into the *old* space: an orthogonal map (Procrustes) between
centred vectors. It keeps distances, so it cannot overfit. ``ForwardMap`` maps vectors of the *old* model into the
*new* space by ridge regression, which may stretch and so loses less. Both are trained on pairs: one row per text
and model.
"""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from latent_core.db.connection import Database
from latent_core.db.spaces import drift_adapters
from latent_core.domain.errors import Invalid, Unavailable
from latent_core.domain.vector_types import Matrix, Vector
from latent_core.models.embedding.port import (
    IN_FLIGHT,
    MAX_TEXTS,
    Embedder,
    EmbeddingModel,
    IdentityAware,
    RemoteEmbedderLimits,
    Tokenizer,
    UnreachableAware,
    images_a_request,
)

FORMAT: Final = 1
FEWEST_PAIRS: Final = 2
HELD_BACK: Final = 0.1
"""Share of the pairs that selects the ridge."""
RIDGES: Final = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Candidates, as multiples of the mean variance of a dimension."""
_MIN_NORM: Final = 1e-12
_MAX_BYTES: Final = 1 << 30
_ARRAYS: Final = ("matrix", "mean_from", "mean_to", "scale")

Array = NDArray[np.float32]


class ShapesDiffer(Invalid):
    """Vectors have the wrong width or number."""


class TooFewPairs(Invalid):
    """There are too few pairs to train on."""


class AdapterUnreadable(Invalid):
    """The stored bytes are not an adapter of this program."""


@dataclass(frozen=True, slots=True, eq=False)
class _Affine:
    """``(x - mean_from) @ matrix * scale + mean_to``, then unit length."""

    matrix: Array
    """(from, to)"""
    mean_from: Array
    mean_to: Array
    scale: Array
    """(to,): ones where nothing is scaled."""
    _weights: Array = field(init=False, repr=False)
    """``matrix`` times ``scale``"""
    _offset: Array = field(init=False, repr=False)
    """Both means in the target space, so that vectors are read only once."""

    def __post_init__(self) -> None:
        # Once per adapter: scaling the matrix takes ten times as long as mapping a query.
        scaled = bool((self.scale != 1).any())
        weights = np.ascontiguousarray(self.matrix * self.scale if scaled else self.matrix)
        object.__setattr__(self, "_weights", weights)
        object.__setattr__(self, "_offset", self.mean_to - self.mean_from @ weights)

    @property
    def dims_from(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def dims_to(self) -> int:
        return int(self.matrix.shape[1])

    def apply(self, vectors: ArrayLike) -> Matrix:
        """Map the rows of ``vectors`` (n, from) to (n, to), unit length, with one matrix product."""
        given = np.asarray(vectors, dtype=np.float32)
        if given.ndim != 2 or given.shape[1] != self.dims_from:
            raise ShapesDiffer(
                f"the adapter maps rows of {self.dims_from} dimensions, not {_shape(given)}"
            )
        mapped = given @ self._weights
        mapped += self._offset
        lengths = np.sqrt(np.einsum("nd,nd->n", mapped, mapped))[:, None]
        if not np.isfinite(lengths).all() or (lengths < _MIN_NORM).any():
            raise Invalid("a vector is not finite, or the adapter maps it to zero")
        mapped /= lengths
        return np.asarray(mapped, dtype=np.float32)

    def to_bytes(self) -> bytes:
        """Serialised for ``from_bytes``, independent of the machine."""
        buffer = io.BytesIO()
        arrays = {name: getattr(self, name).astype("<f4") for name in _ARRAYS}
        np.savez(buffer, format=np.int64(FORMAT), way=np.bytes_(self._way()), **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """``AdapterUnreadable`` names what is wrong with ``data``."""
        found = _unpacked(data)
        if int(found["format"]) != FORMAT:
            raise AdapterUnreadable(
                f"the adapter is of format {int(found['format'])}, not {FORMAT}"
            )
        way = bytes(found["way"].item()).decode("ascii", "replace")
        if way != cls._way():
            raise AdapterUnreadable(f"this adapter is a '{way}', not a '{cls._way()}'")
        arrays = {name: np.asarray(found[name], dtype=np.float32) for name in _ARRAYS}
        _check(arrays)
        return cls(**arrays)

    def save(self, path: Path) -> None:
        path.write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: Path) -> Self:
        """``AdapterUnreadable`` when the file is missing or not an adapter."""
        try:
            return cls.from_bytes(path.read_bytes())
        except OSError as exc:
            raise AdapterUnreadable(f"{path.name} cannot be read: {exc.strerror}") from exc

    @classmethod
    def _way(cls) -> str:
        return cls.__name__


class DriftAdapter(_Affine):
    """Maps vectors of the new model into the old space, so that the new model's queries search an old collection."""

    __slots__ = ()

    @classmethod
    def train(cls, old: ArrayLike, new: ArrayLike, *, scaling: bool = False) -> Self:
        """Train on pairs, ``old`` (n, d_old) and ``new`` (n, d_new); the widths may differ.

        ``scaling`` stretches each dimension of the result to fit the pairs; it usually makes results worse.
        """
        old, new = _pairs(old, new)
        mean_old, mean_new = _mean(old), _mean(new)
        centred_old, centred_new = old - mean_old, new - mean_new
        scale = np.ones(old.shape[1], dtype=np.float32)
        with _one_thread():
            rotation = _rotation(centred_old, centred_new)
            back = np.ascontiguousarray(rotation.T)
            if scaling:
                mapped = np.asarray(centred_new @ back, dtype=np.float32)
                scale = _stretch(mapped, centred_old)
        return cls(back, mean_new, mean_old, scale)

    @property
    def rotation(self) -> Array:
        """R of the contract, (d_old, d_new): ``old @ R`` approximates ``new``, both centred."""
        return self.matrix.T

    def adapt_query(self, query: ArrayLike) -> Vector:
        """Map one vector (d_new,) to the old space (d_old,), unit length."""
        given = np.asarray(query, dtype=np.float32)
        if given.ndim != 1:
            raise ShapesDiffer(f"a query is one vector, not {_shape(given)}")
        return np.asarray(self.apply(given[None, :])[0], dtype=np.float32)

    def adapt_queries(self, queries: ArrayLike) -> Matrix:
        """Map many vectors, (n, d_new) to (n, d_old)."""
        return self.apply(queries)


class ForwardMap(_Affine):
    """Maps stored vectors of the old model into the new space, so that the new model's own queries search them."""

    __slots__ = ()

    @classmethod
    def train(cls, old: ArrayLike, new: ArrayLike, *, ridge: float | None = None) -> Self:
        """Train on pairs. ``ridge`` is a multiple of the mean variance; by default held-back pairs select it."""
        old, new = _pairs(old, new)
        with _one_thread():
            if ridge is None:
                ridge = _best_ridge(old, new)
            ((matrix, mean_old, mean_new),) = _ridge_maps(old, new, (ridge,))
        return cls(matrix, mean_old, mean_new, np.ones(new.shape[1], dtype=np.float32))


def _pairs(old: ArrayLike, new: ArrayLike) -> tuple[Array, Array]:
    one, other = np.asarray(old, dtype=np.float32), np.asarray(new, dtype=np.float32)
    if one.ndim != 2 or other.ndim != 2 or len(one) != len(other):
        raise ShapesDiffer(
            f"pairs are two matrices with one row per text, not {_shape(one)} and {_shape(other)}"
        )
    if len(one) < FEWEST_PAIRS:
        raise TooFewPairs(f"{len(one)} pairs are too few: an adapter needs at least {FEWEST_PAIRS}")
    if not one.shape[1] or not other.shape[1]:
        raise ShapesDiffer("vectors without dimensions")
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        raise Invalid("pairs contain a number that is not finite")
    return one, other


def _one_thread() -> AbstractContextManager[object]:
    """Limits the linear algebra of the process to one thread. Its threads wait for each other actively: on a machine
    with other work, training takes several times as long with them as without."""
    limit: AbstractContextManager[object] = threadpool_limits(limits=1, user_api="blas")
    return limit


def _rotation(old: Array, new: Array) -> Array:
    """R (d_old, d_new) with orthonormal rows or columns that minimises the distance of ``old @ R`` to ``new``."""
    # Orthogonal Procrustes. For unlike widths the thin SVD is equivalent to padding the shorter side with zeros.
    left, _, right = np.linalg.svd(old.T @ new, full_matrices=False)
    return np.asarray(left @ right, dtype=np.float32)


def _stretch(mapped: Array, expected: Array) -> Array:
    """The least-squares factor of each dimension of ``mapped``."""
    energy = np.einsum("nd,nd->d", mapped, mapped)
    shared = np.einsum("nd,nd->d", mapped, expected)
    scale = np.divide(shared, energy, out=np.ones_like(shared), where=energy > _MIN_NORM)
    return np.asarray(np.where(scale > 0, scale, 1.0), dtype=np.float32)


def _best_ridge(old: Array, new: Array) -> float:
    """The ridge with the highest mean cosine on held-back pairs."""
    held = max(1, round(HELD_BACK * len(old)))
    if len(old) - held < FEWEST_PAIRS:
        return RIDGES[-1]
    chosen = np.random.default_rng(len(old)).permutation(len(old))
    aside, rest = chosen[:held], chosen[held:]
    expected = new[aside] / np.maximum(np.linalg.norm(new[aside], axis=1, keepdims=True), _MIN_NORM)
    similarity = []
    for matrix, mean_old, mean_new in _ridge_maps(old[rest], new[rest], RIDGES):
        mapped = (old[aside] - mean_old) @ matrix + mean_new
        mapped /= np.maximum(np.linalg.norm(mapped, axis=1, keepdims=True), _MIN_NORM)
        similarity.append(float(np.einsum("nd,nd->n", mapped, expected).mean()))
    return RIDGES[int(np.argmax(similarity))]


def _ridge_maps(
    old: Array, new: Array, ridges: tuple[float, ...]
) -> list[tuple[Array, Array, Array]]:
    """Matrix and both means per ridge; the expensive decomposition is shared."""
    mean_old, mean_new = _mean(old), _mean(new)
    centred = (old - mean_old).astype(np.float64)
    gram = centred.T @ centred
    cross = centred.T @ (new - mean_new)
    unit = max(float(np.trace(gram)) / gram.shape[0], _MIN_NORM)
    values, vectors = np.linalg.eigh(gram)
    turned = vectors.T @ cross
    return [
        (
            np.asarray(vectors @ (turned / (values + ridge * unit)[:, None]), dtype=np.float32),
            mean_old,
            mean_new,
        )
        for ridge in ridges
    ]


def _mean(vectors: Array) -> Array:
    return np.asarray(vectors.mean(axis=0, dtype=np.float64), dtype=np.float32)


def _unpacked(data: bytes) -> dict[str, NDArray[Any]]:
    if len(data) > _MAX_BYTES:
        raise AdapterUnreadable(f"the adapter has more than {_MAX_BYTES} bytes (the limit)")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            return {name: stored[name] for name in ("format", "way", *_ARRAYS)}
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as exc:
        raise AdapterUnreadable("these bytes are not a complete drift adapter") from exc


def _check(arrays: Mapping[str, Array]) -> None:
    wide = arrays["matrix"].shape
    expected = {"matrix": wide, "mean_from": wide[:1], "mean_to": wide[1:], "scale": wide[1:]}
    fits = len(wide) == 2 and all(arrays[name].shape == expected[name] for name in _ARRAYS)
    if not fits or not all(np.isfinite(array).all() for array in arrays.values()):
        raise AdapterUnreadable("the adapter's arrays have mismatched shapes or non-finite numbers")


def _shape(array: NDArray[Any]) -> str:
    return " x ".join(map(str, array.shape)) or "a single number"


class Adapters(Protocol):
    async def get(self, adapter_id: int) -> DriftAdapter:
        """Raises ``Unavailable`` when it is not stored."""
        ...


class StoredAdapters:
    """Adapters in Postgres; a process reads each once."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._kept: dict[int, DriftAdapter] = {}

    async def get(self, adapter_id: int) -> DriftAdapter:
        if adapter_id not in self._kept:
            async with self._db.transaction() as conn:
                data = await drift_adapters.read(conn, adapter_id)
            if data is None:
                raise Unavailable(f"drift adapter {adapter_id} is not in the database")
            self._kept[adapter_id] = await asyncio.to_thread(DriftAdapter.from_bytes, data)
        return self._kept[adapter_id]


class AdaptedEmbedder:
    """``Embedder`` of the new model that returns vectors of the old space."""

    def __init__(self, inner: Embedder, adapter_id: int, dims: int, adapters: Adapters) -> None:
        """``dims`` is the width of the old space."""
        self._inner = inner
        self._adapter_id = adapter_id
        self._adapters = adapters
        of = inner.model
        # Its own version: adapted vectors must never mix with the model's own.
        self._model = EmbeddingModel(
            of.embedder, f"{of.version}+drift{adapter_id}", dims, of.window, of.reads_images
        )

    @property
    def model(self) -> EmbeddingModel:
        return self._model

    @property
    def tokenizer(self) -> Tokenizer:
        return self._inner.tokenizer

    @property
    def texts_a_request(self) -> int:
        return (
            self._inner.texts_a_request
            if isinstance(self._inner, RemoteEmbedderLimits)
            else MAX_TEXTS
        )

    @property
    def requests_at_a_time(self) -> int:
        return (
            self._inner.requests_at_a_time
            if isinstance(self._inner, RemoteEmbedderLimits)
            else IN_FLIGHT
        )

    @property
    def images_a_request(self) -> int:
        return images_a_request(self._inner)

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        adapter = await self._adapters.get(self._adapter_id)
        return adapter.adapt_queries(await self._inner.embed_documents(texts))

    def raise_if_unreachable(self) -> None:
        if isinstance(self._inner, UnreachableAware):
            self._inner.raise_if_unreachable()

    async def refuse_other_model(self) -> None:
        if isinstance(self._inner, IdentityAware):
            await self._inner.refuse_other_model()

    async def embed_query(self, text: str) -> Vector:
        adapter = await self._adapters.get(self._adapter_id)
        return adapter.adapt_query(await self._inner.embed_query(text))

    async def embed_images(self, images: Sequence[bytes]) -> Matrix:
        adapter = await self._adapters.get(self._adapter_id)
        return adapter.adapt_queries(await self._inner.embed_images(images))

    async def embed_query_image(self, image: bytes) -> Vector:
        adapter = await self._adapters.get(self._adapter_id)
        return adapter.adapt_query(await self._inner.embed_query_image(image))

    async def close(self) -> None:
        """Does nothing: the registry closes the inner embedder."""
