"""Metrics on a port of their own, without a token: for processes that only Prometheus should reach (LLC_METRICS_PORT)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import start_http_server

from latent_core.domain.errors import Conflict
from latent_core.settings import Settings
from latent_core.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

JOIN_SECONDS: Final = 5.0


@contextmanager
def metrics_served(settings: Settings, metrics: Metrics) -> Iterator[None]:
    """Serve ``metrics`` for the length of the block, if a port is set; ``Conflict`` when it is taken."""
    if settings.metrics_port is None:
        yield
        return
    try:
        server, thread = start_http_server(
            settings.metrics_port, addr=settings.bind, registry=metrics.registry
        )
    except OSError as exc:
        raise Conflict(
            f"metrics cannot be served on port {settings.metrics_port} of {settings.bind} ({exc.strerror}); "
            "choose another with LLC_METRICS_PORT"
        ) from exc
    logger.info("metrics_served", extra={"bind": settings.bind, "port": settings.metrics_port})
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(JOIN_SECONDS)
