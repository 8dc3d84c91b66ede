"""Vectors of fixed texts and of a drawn picture: whether a model computes what it computed when it was added.

A changed runtime, another provider or a damaged file gives other vectors without any error. Such vectors must not be
stored next to those of before.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import numpy as np
import onnxruntime

from latent_core.domain.errors import ModelMissing
from latent_core.domain.vector_types import Matrix
from latent_core.models.store.record import TEXTS_OF_PROBES, ReferenceVectors

PROBES: Final = 1
"""Raised with every change of the texts or of the picture."""
TEXTS: Final = (
    "lamp",
    "How do I reset a forgotten password?",
    "The committee approved the budget for 2019 after a long debate, and the minutes were published in May.",
    "Der Leuchtturmw\u00e4rter \u00f6lte die Lampen; \u706f\u5854\u5728\u591c\u91cc\u53d1\u5149\u3002",
    "def area(radius: float) -> float:\n    return 3.14159 * radius**2",
    "Rain. " * 40 + "Then sun.",
)
assert TEXTS_OF_PROBES[PROBES] == len(TEXTS)
SEARCHABLE: Final = 0.99
"""Cosine from which queries are answered, although nothing is written."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The lowest cosine between the vectors of a loaded model and those that it must compute."""

    name: str
    lowest: float
    needed: float
    remedy: str

    @property
    def is_given(self) -> bool:
        return self.lowest >= self.needed

    @property
    def message(self) -> str:
        return self._message("stores no vectors", self.needed)

    @property
    def is_near(self) -> bool:
        """Whether queries find what is stored."""
        return self.lowest >= self._limit_of_queries

    @property
    def _limit_of_queries(self) -> float:
        return min(self.needed, SEARCHABLE)

    def refusal_of_writing(self) -> ModelMissing:
        return ModelMissing(self.message, embedder=self.name)

    def refusal_of_queries(self) -> ModelMissing:
        message = self._message("answers no queries", self._limit_of_queries)
        return ModelMissing(message, embedder=self.name)

    def _message(self, what: str, limit: float) -> str:
        return (
            f"the embedder {self.name} {what}: it computes other vectors than when it was added (cosine"
            f" {self.lowest:.5f}; {limit} is needed). {self.remedy}"
        )


@runtime_checkable
class ComparedModel(Protocol):
    """A loaded model that was compared with what it must compute; None without reference vectors."""

    @property
    def agreement(self) -> Agreement | None: ...


def agreement_of(loaded: object) -> Agreement | None:
    return loaded.agreement if isinstance(loaded, ComparedModel) else None


@dataclass(frozen=True, slots=True)
class Reference:
    """What a model must compute: a row per text of ``TEXTS``, and one of the drawn picture."""

    texts: Matrix
    picture: Matrix | None
    remedy: str

    @classmethod
    def of_record(cls, vectors: ReferenceVectors, remedy: str) -> Reference | None:
        """None if they are of the texts of another release."""
        width = vectors.width
        if vectors.probes != PROBES or width is None:
            return None
        how = f"It was added with {vectors.runtime}, and {runtime()} runs it here. {remedy}"
        picture = _rows(vectors.picture, width) if vectors.picture else None
        return cls(_rows(vectors.texts, width), picture, how)


def reference_vectors(texts: Matrix, picture: Matrix | None) -> ReferenceVectors:
    return ReferenceVectors(
        probes=PROBES,
        texts=_text(texts),
        picture=None if picture is None else _text(picture),
        runtime=runtime(),
    )


def runtime() -> str:
    return f"onnxruntime {onnxruntime.__version__}"


def lowest_cosine(rows: Matrix | None, expected: Matrix) -> float:
    """Of rows one by one; -1 if there are none, or of another shape. Of wider ones the first dimensions count."""
    if rows is None or len(rows) != len(expected) or rows.shape[1] > expected.shape[1]:
        return -1.0
    kept = expected[:, : rows.shape[1]]
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(kept, axis=1)
    return float(((rows * kept).sum(axis=1) / np.maximum(norms, 1e-12)).min())


def _text(rows: Matrix) -> str:
    return b64encode(np.ascontiguousarray(rows, "<f4").tobytes()).decode()


def _rows(text: str, width: int) -> Matrix:
    values = np.frombuffer(b64decode(text), "<f4").astype(np.float32)
    return values.reshape(-1, width)
