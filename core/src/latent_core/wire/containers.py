"""Containers: list, describe, create, update, state."""

from __future__ import annotations

from typing import Any

from latent_core.domain.container import ContainerDescription, ContainerState, ContainerSummary
from latent_core.domain.envelope import Envelope
from latent_core.wire.base import PagedEnvelope, RequestBody


class ContainerList(PagedEnvelope):
    containers: list[ContainerSummary]
    next_cursor: str | None = None


class DescribedContainer(Envelope, ContainerDescription):
    pass


class ManifestBody(RequestBody):
    manifest: dict[str, Any]


class ContainerCreated(Envelope):
    container: ContainerSummary
    etag: str
    files: list[str]
    """Names of the files written into the manifest folder."""


class ContainerUpdated(Envelope):
    container: ContainerSummary
    etag: str
    changed: bool


class StateBody(RequestBody):
    state: ContainerState


class ContainerStateAnswer(Envelope):
    container: ContainerSummary
    changed: bool
