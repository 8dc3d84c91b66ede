"""Golden queries of a container: reading, replacing, and changes of single queries."""

from __future__ import annotations

from pydantic import ConfigDict

from latent_core.domain.golden import GoldenQuery, Thresholds
from latent_core.wire.base import Envelope, PagedEnvelope


class GoldenQueryView(GoldenQuery):
    """A golden query as stored."""

    etag: str
    """Send it as ``If-Match``: a query that has changed since is then not changed again."""


class GoldenList(PagedEnvelope):
    """One page of a container's golden queries, in their order."""

    container_id: str
    etag: str
    """Of the whole set: changes with every change of a query. ``0`` for a container that never had golden queries."""
    thresholds: Thresholds
    total: int
    """Queries of the whole set."""
    queries: list[GoldenQueryView]


class NewGoldenQuery(GoldenQuery):
    """Body of ``POST /v1/containers/{id}/golden``. Without ``id`` the query gets the next free one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    merge: bool = False
    """If a query with exactly this text exists, add the documents and strings to it instead."""


class GoldenQueryAnswer(Envelope):
    """The query after the change."""

    query: GoldenQueryView
    etag: str
    """Of the whole set."""
    created: bool = False
    """False: an existing query was changed."""


class GoldenSetAnswer(Envelope):
    """The set after the change."""

    etag: str
    total: int
