"""Drift adapters: what they recover, what they refuse, and that they come back as they were stored."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from threadpoolctl import threadpool_info, threadpool_limits

from latent_core.domain.errors import Invalid
from latent_core.models.embedding import drift
from latent_core.models.embedding.drift import (
    AdapterUnreadable,
    DriftAdapter,
    ForwardMap,
    ShapesDiffer,
    TooFewPairs,
)

Array = NDArray[np.float32]


def unit(rows: NDArray[np.float64]) -> Array:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def orthogonal(rng: np.random.Generator, rows: int, columns: int) -> NDArray[np.float64]:
    """Orthonormal rows or columns, whichever are fewer."""
    whole = np.linalg.qr(rng.normal(size=(max(rows, columns),) * 2))[0]
    return whole[:rows, :columns]


def off_centre(rng: np.random.Generator, count: int, dims: int) -> Array:
    """As real models have them: all of them lean to one side."""
    return unit(rng.normal(size=(count, dims)) + 2.0 * rng.normal(size=dims))


@settings(max_examples=25, deadline=None)
@given(dims=st.integers(2, 24), seed=st.integers(0, 2**32 - 1))
def test_a_rotation_is_recovered_exactly(dims: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    old = off_centre(rng, 12 * dims, dims)
    rotation = orthogonal(rng, dims, dims)
    new = (old @ rotation).astype(np.float32)
    adapter = DriftAdapter.train(old, new)
    np.testing.assert_allclose(adapter.rotation, rotation, atol=2e-3)
    np.testing.assert_allclose(adapter.adapt_queries(new), old, atol=2e-3)
    np.testing.assert_allclose(adapter.adapt_query(new[0]), old[0], atol=2e-3)


@settings(max_examples=25, deadline=None)
@given(narrow=st.integers(2, 12), more=st.integers(1, 12), seed=st.integers(0, 2**32 - 1))
def test_a_wider_new_space_maps_back_exactly_and_its_rotation_keeps_lengths(
    narrow: int, more: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    old = off_centre(rng, 20 * narrow, narrow)
    new = (old @ orthogonal(rng, narrow, narrow + more)).astype(np.float32)
    adapter = DriftAdapter.train(old, new)
    assert (adapter.dims_from, adapter.dims_to) == (narrow + more, narrow)
    np.testing.assert_allclose(adapter.adapt_queries(new), old, atol=3e-3)
    kept = adapter.rotation @ adapter.rotation.T
    np.testing.assert_allclose(kept, np.eye(narrow), atol=1e-3)


def test_a_narrower_new_space_gives_the_nearest_vectors_of_the_wider_old_one() -> None:
    rng = np.random.default_rng(3)
    new = off_centre(rng, 400, 6)
    old = (new @ orthogonal(rng, 6, 10)).astype(np.float32)
    adapter = DriftAdapter.train(old, new)
    assert adapter.adapt_query(new[0]).shape == (10,)
    np.testing.assert_allclose(adapter.adapt_queries(new), old, atol=3e-3)


def test_without_centring_vectors_that_lean_to_one_side_would_not_be_recovered() -> None:
    rng = np.random.default_rng(5)
    old = off_centre(rng, 600, 16)
    new = (old @ orthogonal(rng, 16, 16) + rng.normal(size=16)).astype(np.float32)
    held = slice(500, None)
    adapter = DriftAdapter.train(old[:500], new[:500])
    mapped = adapter.adapt_queries(new[held])
    raw = DriftAdapter.train(
        np.concatenate([old[:500], -old[:500]]), np.concatenate([new[:500], -new[:500]])
    )
    similarity = np.einsum("nd,nd->n", mapped, old[held]).mean()
    uncentred = np.einsum("nd,nd->n", raw.adapt_queries(new[held]), old[held]).mean()
    assert similarity > 0.99
    assert similarity > uncentred + 0.05


def test_scaling_makes_up_for_dimensions_of_different_weight() -> None:
    rng = np.random.default_rng(7)
    weights = np.linspace(0.2, 2.0, 12)
    new = off_centre(rng, 800, 12)
    old = ((new - new.mean(axis=0)) * weights).astype(np.float32)
    plain, scaled = DriftAdapter.train(old, new), DriftAdapter.train(old, new, scaling=True)
    directions = old / np.linalg.norm(old, axis=1, keepdims=True)

    def similarity(adapter: DriftAdapter) -> float:
        return float(np.einsum("nd,nd->n", adapter.adapt_queries(new), directions).mean())

    assert similarity(scaled) > similarity(plain) + 0.01


@pytest.mark.parametrize(("wide", "narrow"), [(12, 8), (8, 12), (8, 8)])
def test_ridge_recovers_what_no_rotation_can(wide: int, narrow: int) -> None:
    rng = np.random.default_rng(11)
    old = off_centre(rng, 900, wide)
    new = unit(old @ rng.normal(size=(wide, narrow)) + 0.3)
    train, held = slice(0, 700), slice(700, None)
    mapped = ForwardMap.train(old[train], new[train]).apply(old[held])
    assert np.einsum("nd,nd->n", mapped, new[held]).mean() > 0.95


def test_what_is_mapped_is_float32_of_unit_length() -> None:
    rng = np.random.default_rng(13)
    old, new = off_centre(rng, 50, 8), off_centre(rng, 50, 5)
    for mapped in (
        DriftAdapter.train(old, new).adapt_queries(new),
        ForwardMap.train(old, new).apply(old),
    ):
        assert mapped.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(mapped, axis=1), 1.0, atol=1e-5)


def test_an_adapter_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(17)
    old, new = off_centre(rng, 60, 8), off_centre(rng, 60, 5)
    adapter, forward = DriftAdapter.train(old, new, scaling=True), ForwardMap.train(old, new)
    adapter.save(tmp_path / "a")
    forward.save(tmp_path / "f")
    loaded = DriftAdapter.load(tmp_path / "a")
    np.testing.assert_array_equal(loaded.adapt_queries(new), adapter.adapt_queries(new))
    np.testing.assert_array_equal(ForwardMap.load(tmp_path / "f").apply(old), forward.apply(old))
    with pytest.raises(AdapterUnreadable, match="this adapter is a"):
        DriftAdapter.load(tmp_path / "f")
    with pytest.raises(AdapterUnreadable, match="cannot be read"):
        DriftAdapter.load(tmp_path / "nothing")


def test_stored_bytes_that_are_cut_off_or_of_something_else_are_refused() -> None:
    rng = np.random.default_rng(19)
    data = DriftAdapter.train(off_centre(rng, 20, 4), off_centre(rng, 20, 4)).to_bytes()
    for broken in (b"", b"no adapter", data[: len(data) // 2], data[:-1]):
        with pytest.raises(AdapterUnreadable):
            DriftAdapter.from_bytes(broken)


@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        ((4, 3), (5, 3), ShapesDiffer, "4 x 3 and 5 x 3"),
        ((4,), (4, 3), ShapesDiffer, "4 and 4 x 3"),
        ((1, 3), (1, 3), TooFewPairs, "1 pairs"),
        ((4, 0), (4, 3), ShapesDiffer, "without dimensions"),
    ],
)
def test_pairs_that_do_not_fit_are_refused_by_their_shapes(
    old: tuple[int, ...], new: tuple[int, ...], error: type[Invalid], words: str
) -> None:
    for train in (DriftAdapter.train, ForwardMap.train):
        with pytest.raises(error, match=words):
            train(np.zeros(old, np.float32), np.zeros(new, np.float32))


def test_vectors_of_another_width_and_what_is_not_finite_are_refused() -> None:
    rng = np.random.default_rng(23)
    adapter = DriftAdapter.train(off_centre(rng, 20, 4), off_centre(rng, 20, 6))
    for wrong in (np.zeros(4), np.zeros((2, 6)), np.float32(1)):
        with pytest.raises(ShapesDiffer):
            adapter.adapt_query(wrong)
    with pytest.raises(Invalid, match="not finite"):
        adapter.adapt_query(np.full(6, np.nan))
    with pytest.raises(Invalid, match="not finite"):
        DriftAdapter.train(np.full((4, 4), np.inf), np.zeros((4, 4)))


def test_a_query_does_not_scale_the_matrix_again() -> None:
    rng = np.random.default_rng(29)
    dims = 128
    pairs = off_centre(rng, 300, dims), off_centre(rng, 300, dims)
    adapter = DriftAdapter.train(*pairs, scaling=True)
    query = pairs[1][0]
    adapter.adapt_query(query)
    tracemalloc.start()
    try:
        adapter.adapt_query(query)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < adapter.matrix.nbytes / 4


@pytest.mark.parametrize(
    ("kind", "step"), [(DriftAdapter, "_rotation"), (ForwardMap, "_ridge_maps")]
)
def test_training_uses_one_thread_and_leaves_the_others_as_they_were(
    kind: type[DriftAdapter | ForwardMap], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    during: set[int] = set()
    original = getattr(drift, step)

    def observed(*args: object) -> object:
        during.update(one["num_threads"] for one in blas())
        return original(*args)

    def blas() -> list[dict[str, int]]:
        return [one for one in threadpool_info() if one["user_api"] == "blas"]

    rng = np.random.default_rng(31)
    pairs = off_centre(rng, 40, 4), off_centre(rng, 40, 4)
    kind.train(*pairs)  # loads every library
    with threadpool_limits(limits=2, user_api="blas"):
        monkeypatch.setattr(drift, step, observed)
        kind.train(*pairs)
        after = {one["num_threads"] for one in blas()}
    assert during == {1}
    assert after == {2}
