"""What doctor says: differences between the stores, what is worth knowing beside them, and what repairs each."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from pydantic import BaseModel


class Remedy(StrEnum):
    """What ``latent doctor --repair`` does about a difference."""

    REINGEST = "reingest"
    """A job makes the document again from its stored original, or fetches its web page again."""
    REBUILD = "rebuild"
    """What the container's rows derive is written again: its keyword index from the stored term vectors, or its
    live space, dimensions, etag and languages."""
    DROP = "drop"
    """What nothing refers to is removed: points and rows of dead generations, blobs, collections, exports without a
    file, a document of which nothing was ever stored."""
    NONE = "none"
    """Only a person can repair it: the message says how."""


class StoreDifference(BaseModel):
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
    differences: list[StoreDifference] = []
    notes: list[StoreDifference] = []
    """Not between the stores, and worth knowing: dead letters, a manifest file that differs."""


class RepairResult(BaseModel):
    """What became of one difference."""

    kind: str
    object: str
    repair: Remedy
    done: bool
    message: str


class DoctorReport(BaseModel):
    clean: bool = True
    containers: dict[str, ContainerReport] = {}
    stores: list[StoreDifference] = []
    """Differences that belong to no container."""
    notes: list[StoreDifference] = []
    """No differences of ours, and worth knowing: collections that somebody else may have made."""
    checks: dict[str, str | bool] = {}
    """What else a person should know of this installation."""
    repairs: list[RepairResult] = []
    """Of these differences, when that was asked for."""
