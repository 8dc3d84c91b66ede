"""A line of the audit trail: who changed what, by which request."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel


class AuditLine(BaseModel):
    id: int
    at: datetime
    principal: str
    action: str
    """Noun and verb: ``container.apply``, ``document.add``, ``token.revoke``."""
    container_id: str | None
    """None: the line concerns the installation, as with tokens."""
    object: str | None
    """What was changed: a source uri, a job's or token's id, a state, an etag."""
    request_id: str | None
    """None: the change did not come from an HTTP request."""
