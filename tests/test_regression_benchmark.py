"""The benchmark against an earlier version: it calls out what costs more, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, strategies as st

from benchmarks.regression import BOUND, HERE, SOURCES, Ratio, check_out, compared

SECONDS = st.lists(st.floats(0.1, 10), min_size=4, max_size=30)
SEARCH = "mcp-server/src/latent_gateway/api/search.py"
ENTRY = "    async with shared.limiter.check():\n"
BUSY = "    _sum = sum(range(1_000_000))\n"


@given(SECONDS, st.floats(0.1, 10))
def test_the_same_factor_in_every_pair_is_the_ratio_and_its_whole_interval(
    base: list[float], factor: float
) -> None:
    found = Ratio.of([factor * one for one in base], base)
    assert found.median == pytest.approx(factor, abs=1e-3)
    assert found.low == pytest.approx(factor, abs=1e-3)
    assert found.high == pytest.approx(factor, abs=1e-3)
    assert found.is_worse == (found.low > BOUND)


@given(SECONDS, st.randoms(use_true_random=False))
def test_the_median_lies_in_its_interval(base: list[float], random: Random) -> None:
    here = list(base)
    random.shuffle(here)
    found = Ratio.of(here, base)
    assert found.low <= found.median <= found.high


def test_one_pair_that_was_disturbed_is_no_regression() -> None:
    assert not Ratio.of([1.0, 1.02, 3.0, 0.99, 1.01, 1.0, 1.0, 0.98], [1.0] * 8).is_worse
    assert Ratio.of([1.3, 1.28, 3.0, 1.31, 1.29, 1.3, 1.27, 0.9], [1.0] * 8).is_worse


@pytest.mark.skipif(not (HERE / ".git").exists(), reason="these sources are no git checkout")
def test_an_earlier_version_has_all_files_that_it_starts_with(tmp_path: Path) -> None:
    tree = check_out("HEAD", tmp_path)
    for folder in (*(f"{one}/src" for one in SOURCES), "migrations"):
        assert any((tree / folder).iterdir()), folder


@pytest.fixture
def slower(tmp_path: Path) -> Path:
    """These sources, with a loop in each search."""
    tmp_path.chmod(0o755)  # as root, Postgres runs as another user
    tree = tmp_path / "slower"
    for one in SOURCES:
        shutil.copytree(HERE / one / "src", tree / one / "src")
    shutil.copytree(HERE / "migrations", tree / "migrations")
    file = tree / SEARCH
    text = file.read_text("utf-8")
    assert text.count(ENTRY) == 1
    file.write_text(text.replace(ENTRY, BUSY + ENTRY), "utf-8")
    return tree


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_slower_search_is_called_out_and_what_is_unchanged_is_not(
    slower: Path, tmp_path: Path
) -> None:
    figures = {one.name: one for one in await compared(slower, HERE, tmp_path, pairs=4)}
    assert figures["words"].ratio.is_worse
    assert not figures["start"].ratio.is_worse
