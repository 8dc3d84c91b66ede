"""How much of a full re-embed an adapter recovers, told from a sample that both models have embedded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.vector import Matrix
from latent_core.models.embedding.drift import ForwardMap

HELD_BACK: Final = 0.2
MAX_QUESTIONS: Final = 100
"""Held back, one a chunk; twice as many are trained with."""
WORDS_PER_QUESTION: Final = 10
DEPTH: Final = 10
FOLDS: Final = 5
_WORD: Final = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class DriftSample:
    """Rows of ``old`` and ``new`` are of the same chunks."""

    old: Matrix
    new: Matrix
    train: NDArray[np.int64]
    """Rows to learn from; the questions that are asked are of the others."""
    questions_old: Matrix | None
    """Held-back questions by the old model, None when it is not to be had."""
    questions_new: Matrix
    taught_old: Matrix | None
    """Questions of the rows to learn from: models place questions elsewhere than passages."""
    taught_new: Matrix | None

    def training_pairs(self) -> tuple[Matrix, Matrix]:
        old, new = self.old[self.train], self.new[self.train]
        if self.taught_old is None or self.taught_new is None:
            return old, new
        return np.concatenate([old, self.taught_old]), np.concatenate([new, self.taught_new])


def split(count: int) -> tuple[list[int], list[int]]:
    """Rows that are held back, and the others; evenly over the sample, always the same."""
    held = min(MAX_QUESTIONS, max(1, round(HELD_BACK * count)))
    places = {int(n) for n in np.linspace(0, count - 1, held).round()}
    return sorted(places), [n for n in range(count) if n not in places]


def questions_of(texts: Sequence[str]) -> list[str]:
    """What somebody might ask who looks for these passages: some words in a row from the midst of each."""
    questions = []
    for text in texts:
        words = _WORD.findall(text)
        begin = max(0, (len(words) - WORDS_PER_QUESTION) // 2)
        questions.append(" ".join(words[begin : begin + WORDS_PER_QUESTION]) or text)
    return questions


def recall_at_10(truth: Matrix, found: Matrix) -> float:
    """Mean share of the ten best of each row of ``truth`` that are among the ten best of ``found``."""
    depth = min(DEPTH, truth.shape[1])
    true_neighbours = np.argpartition(-truth, depth - 1, axis=1)[:, :depth]
    given = np.argpartition(-found, depth - 1, axis=1)[:, :depth]
    shared = sum(len(np.intersect1d(a, b)) for a, b in zip(true_neighbours, given, strict=True))
    return float(shared / (depth * len(truth)))


def crossfit(old: Matrix, new: Matrix) -> Matrix:
    """``old`` mapped forward, each row by a map that has never seen it."""
    mapped = np.empty_like(new)
    fold = np.arange(len(old)) % FOLDS
    for n in range(FOLDS):
        aside = fold == n
        mapped[aside] = ForwardMap.train(old[~aside], new[~aside]).apply(old[aside])
    return mapped
