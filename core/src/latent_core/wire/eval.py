"""Evaluations: the stored runs."""

from __future__ import annotations

from latent_core.domain.evaluation import KeptRun
from latent_core.wire.base import PagedEnvelope


class EvalRuns(PagedEnvelope):
    runs: list[KeptRun]
