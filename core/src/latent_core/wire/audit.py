"""The audit trail."""

from __future__ import annotations

from latent_core.domain.audit import AuditLine
from latent_core.wire.base import PagedEnvelope


class AuditPage(PagedEnvelope):
    audit: list[AuditLine]
