"""What the metrics are told of attempts at jobs, by whoever runs them."""

from __future__ import annotations

from collections.abc import Callable

from latent_core.queue.runner import AttemptEnd
from latent_core.telemetry.metrics import Metrics


def counting(metrics: Metrics) -> Callable[[AttemptEnd], None]:
    """Counts each attempt, its seconds and its error."""

    def on_end(ended: AttemptEnd) -> None:
        kind = ended.job.kind.value
        metrics.jobs.labels(kind, ended.outcome).inc()
        metrics.job_seconds.labels(kind).observe(ended.seconds)
        if ended.code is not None:
            metrics.failed("job", ended.code)

    return on_end
