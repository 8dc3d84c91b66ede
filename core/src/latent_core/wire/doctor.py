"""The doctor: compare the stores, and repair what differs."""

from __future__ import annotations

from typing import Any

from latent_core.domain.envelope import Envelope
from latent_core.domain.text import Text
from latent_core.wire.base import RequestBody


class DoctorBody(RequestBody):
    container_id: Text | None = None
    repair: bool = False
    deep: bool = False
    """Read all bytes and compare their hashes."""


class DoctorAnswer(Envelope):
    report: dict[str, Any]
    """A ``DoctorReport``; an open object in the schema, so that findings can get new fields."""
