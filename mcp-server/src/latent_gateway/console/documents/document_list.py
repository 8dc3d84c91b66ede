"""The first tab of a container: its documents, sorted and filtered, failed ones first, and changes of selected ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Final, Literal
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Form, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from latent_core.db import containers, sources
from latent_core.db.connection import Connection
from latent_core.db.documents.document_listing import DocumentFilter
from latent_core.domain.chunk import SourceType
from latent_core.domain.document import DocumentState
from latent_core.domain.document_order import DocumentOrder
from latent_core.domain.errors import Invalid
from latent_core.domain.origin import Origin
from latent_core.domain.text import Text
from latent_core.search.readable import Readable
from latent_core.wire.containers import ContainerSizes
from latent_core.wire.documents import MAX_SELECTED, DocumentOutcome
from latent_core.wire.sources import ListedSource
from latent_gateway.api.document_selections import deleted, reingested
from latent_gateway.api.documents import listed_documents
from latent_gateway.api.originals_zip import zipped
from latent_gateway.auth import access
from latent_gateway.console.containers.overview import ContainerHealth, health, jobs_of
from latent_gateway.console.frame.console_session import SignedIn
from latent_gateway.console.frame.rights import rights_of
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import HEADERS, done, page, wants_part
from latent_gateway.context import Shared

router = pages()

ROWS: Final = 50
ORDERS: Final = (
    (DocumentOrder.FAILED, "failed first"),
    (DocumentOrder.NEWEST, "newest first"),
    (DocumentOrder.OLDEST, "oldest first"),
    (DocumentOrder.PATH, "path, A to Z"),
    (DocumentOrder.PATH_DOWN, "path, Z to A"),
    (DocumentOrder.LARGEST, "largest first"),
    (DocumentOrder.SMALLEST, "smallest first"),
    (DocumentOrder.TYPE, "type"),
)
STATES: Final = (("live", "live"), ("pending", "pending"), ("failed", "failed"))


class ListFilter(BaseModel):
    """The fields of the filter, as they are in the address; empty ones select everything."""

    model_config = ConfigDict(frozen=True)

    path: Annotated[Text, Field(max_length=1000)] = ""
    type: SourceType | Literal[""] = ""
    state: Literal["", "live", "pending", "failed"] = ""
    origin: Origin | Literal[""] = ""
    prefix: Annotated[Text, Field(max_length=4096)] = ""
    since: date | Literal[""] = ""
    until: date | Literal[""] = ""
    sort: DocumentOrder = DocumentOrder.FAILED
    cursor: Annotated[str, Field(max_length=128)] = ""

    def chosen(self) -> DocumentFilter:
        until = self.until + timedelta(days=1) if self.until else None
        return DocumentFilter(
            uri_prefix=self.prefix or None,
            path=self.path or None,
            source_types=[self.type] if self.type else None,
            state=DocumentState(self.state) if self.state else None,
            origins=[self.origin] if self.origin else None,
            since=_midnight(self.since) if self.since else None,
            until=_midnight(until) if until else None,
        )

    @property
    def selects(self) -> bool:
        """Whether it excludes any document."""
        return self.chosen() != DocumentFilter()

    def query(self, cursor: str = "") -> str:
        """As in an address, without what is empty."""
        fields = self.model_dump(mode="json", exclude={"cursor"}, exclude_defaults=True)
        return urlencode(fields | ({"cursor": cursor} if cursor else {}))


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


@dataclass(frozen=True, slots=True)
class ContainerSummary:
    """What the page says of a container besides its documents."""

    sizes: ContainerSizes
    last: datetime | None
    health: ContainerHealth
    folders: Sequence[ListedSource]


@router.get("/console/containers/{container_id}")
async def document_list(
    container_id: str,
    request: Request,
    shared: Shared,
    session: SignedIn,
    chosen: Annotated[ListFilter, Query()],
) -> Response:
    """A page of the list; a script asks for the list alone."""
    part = wants_part(request)
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, session.principal, container_id)
        rights = rights_of(session.principal, container)
        found = await listed_documents(
            conn,
            container.id,
            chosen.chosen(),
            chosen.sort,
            cursor=chosen.cursor or None,
            limit=ROWS,
        )
        summary = None if part else await _summary(conn, container, writes=rights.write)
    return page(
        "documents/rows.html" if part else "documents/list.html",
        session,
        container=container,
        rights=rights,
        tab="documents",
        documents=found.documents,
        following=chosen.query(found.next_cursor) if found.next_cursor else None,
        chosen=chosen,
        summary=summary,
        missing=shared.stack.embedders.lacking(container.space.embedder, container.space.version),
        orders=ORDERS,
        states=STATES,
        types=[one.value for one in SourceType],
        origins=[one.value for one in Origin],
    )


async def _summary(conn: Connection, container: Readable, *, writes: bool) -> ContainerSummary:
    sizes, last = await containers.sizes(conn, container.id)
    state = health(await jobs_of(conn, [container.id]), container.id, sizes)
    # They show paths of computers: for writers only, as in the API.
    folders = await sources.with_documents(conn, container.id) if writes else []
    return ContainerSummary(sizes, last, state, folders)


class SelectionForm(BaseModel):
    """The documents that are ticked, and the button that was pressed."""

    model_config = ConfigDict(frozen=True)

    change: Literal["reingest", "delete", "download"]
    doc: list[UUID] = []
    back: Annotated[str, Field(max_length=8000)] = ""
    csrf: str = ""


@router.post("/console/containers/{container_id}/documents")
async def change_selection(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    form: Annotated[SelectionForm, Form()],
) -> Response:
    """Ingest the ticked documents again, delete them, or download their originals, as the API does."""
    if not form.doc:
        raise Invalid("no document was selected: go back and tick some first")
    if len(form.doc) > MAX_SELECTED:
        raise Invalid(f"at most {MAX_SELECTED} documents are changed at once")
    if form.change == "download":
        answer = await zipped(shared, session.principal, container_id, form.doc)
        answer.headers.update({**HEADERS, "Content-Type": "application/zip"})
        return answer
    change = reingested if form.change == "reingest" else deleted
    found = await change(
        shared, session.principal, container_id, list(form.doc), session.request_id
    )
    verb = "read again by a job" if form.change == "reingest" else "deleted and can be restored"
    back = f"?{form.back}" if form.back else ""
    return done(f"/console/containers/{container_id}{back}", _notice(found, verb))


def _notice(found: Sequence[DocumentOutcome], verb: str) -> str:
    """One sentence for what was done, and one for what was not."""
    count = sum(one.cause is None for one in found)
    sentences = [f"{count} document{'' if count == 1 else 's'}: {verb}."]
    causes = Counter(one.cause for one in found if one.cause is not None)
    sentences += [f"{number} not changed: {cause}" for cause, number in causes.most_common(2)]
    return " ".join(sentences)
