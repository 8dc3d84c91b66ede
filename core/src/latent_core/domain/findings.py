"""What doctor says: differences between the stores, what is worth knowing beside them, and what repairs each."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from pydantic import BaseModel


class Remedy(StrEnum):
    """What ``latent doctor --repair`` does about a difference."""

    PURGE = "purge"
    """A job removes the points, and the rows go at once."""
    REEMBED = "reembed"
    """The chunk's stored text is embedded again."""
    REBUILD = "rebuild"
    """The document is made again from its stored original; one that nobody would make live, too."""
    REDRAW = "redraw"
    """The reference goes, and what can be drawn again from the original is."""
    REINDEX = "reindex"
    """The container's keyword index is written again from its chunks."""
    RESTAMP = "restamp"
    """The container's rows say again what is: its live space and the dimensions of that, the etag of its manifest,
    the languages of its documents."""
    COLLECT = "collect"
    """The collection of garbage is asked for; bytes without a row get one, so that it knows of them."""
    DROP = "drop"
    """The collection is dropped."""
    DISCARD = "discard"
    """The export is forgotten, and made again when somebody asks for it; a file to be imported is to be sent again."""
    FORGET = "forget"
    """The document, of which nothing was ever stored, is taken back; one with an address is fetched again."""
    NONE = "none"
    """Only a person can: the message says how."""


class Difference(BaseModel):
    """One thing that is not as the rows say."""

    kind: str
    object: str
    message: str
    repair: Remedy = Remedy.NONE
    doc_id: UUID | None = None
    generation: int | None = None


class ContainerReport(BaseModel):
    """What was counted in one container, and every difference."""

    counts: dict[str, int] = {}
    differences: list[Difference] = []
    notes: list[Difference] = []
    """Not between the stores, and worth knowing: dead letters, a manifest file that differs."""


class Repair(BaseModel):
    """What became of one difference."""

    kind: str
    object: str
    repair: Remedy
    done: bool
    message: str


class DoctorReport(BaseModel):
    clean: bool = True
    containers: dict[str, ContainerReport] = {}
    stores: list[Difference] = []
    """Differences that belong to no container."""
    notes: list[Difference] = []
    """No differences of ours, and worth knowing: collections that somebody else may have made."""
    checks: dict[str, str | bool] = {}
    """What else a person should know of this installation."""
    repairs: list[Repair] = []
    """Of these differences, when that was asked for."""
