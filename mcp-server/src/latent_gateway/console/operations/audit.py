"""The audit trail: who changed what, filtered by actor, action, container and time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import Query, Response

from latent_core.domain.text import Text
from latent_core.wire.access import AuditPage
from latent_core.wire.base import Moment
from latent_gateway.api import audit as api
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.operations.sections import operations_page
from latent_gateway.context import Shared

router = pages()

LINES: Final = 50
ACTIONS: Final = (
    "container.",
    "document.",
    "upload.",
    "job.",
    "token.",
    "backup.",
    "doctor.",
    "model.",
)
"""Prefixes that the form offers; any other can be typed."""
Day = Annotated[str, Query(max_length=10, pattern=r"^(\d{4}-\d{2}-\d{2})?$")]


@router.get("/console/operations/audit")
async def audit_page(
    shared: Shared,
    session: SignedIn,
    container: Annotated[Text, Query(max_length=64)] = "",
    principal: Annotated[Text, Query(max_length=128)] = "",
    action: Annotated[Text, Query(max_length=64)] = "",
    since: Day = "",
    until: Day = "",
    cursor: Annotated[str, Query(max_length=128)] = "",
) -> Response:
    """Newest first. Days are those of UTC; ``until`` is the last one shown."""
    first, last = _day(since), _day(until)
    answer = await api.read(
        shared,
        session.principal,
        session.request_id,
        container or None,
        principal or None,
        action or None,
        first,
        None if last is None else last + timedelta(days=1),
        LINES,
        cursor or None,
    )
    found = AuditPage.model_validate_json(bytes(answer.body))
    async with shared.stack.db.reading() as conn:
        owned = [one.id for one in await access.all_owned(conn, session.principal)]
    params = {
        "container": container,
        "principal": principal,
        "action": action,
        "since": since,
        "until": until,
    }
    given = {name: value for name, value in params.items() if value}
    more = urlencode({**given, "cursor": found.next_cursor}) if found.next_cursor else None
    return operations_page(
        "audit.html",
        session,
        "audit",
        lines=found.audit,
        params=params,
        containers=owned,
        actions=ACTIONS,
        more=more,
    )


def _day(given: str) -> Moment | None:
    """``RequestValidationError`` has refused other shapes; a day that does not exist is none."""
    try:
        return datetime.fromisoformat(f"{given}T00:00:00+00:00") if given else None
    except ValueError:
        return None
