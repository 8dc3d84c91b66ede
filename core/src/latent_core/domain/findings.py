"""The report of doctor: differences between the stores with their repairs, and notes."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from pydantic import BaseModel


class Remedy(StrEnum):
    """What ``latent doctor --repair`` does about a difference."""

    REINGEST = "reingest"
    """A job ingests the document again from its stored original or web page."""
    REBUILD = "rebuild"
    """Derived data of the container is written again: its keyword index from the stored term vectors, or its
    live space, dimensions, etag and languages."""
    DROP = "drop"
    """Data without a reference is removed: points and rows of dead generations, blobs, collections, exports without a
    file, documents without any stored data."""
    NONE = "none"
    """Only a person can repair it: the message says how."""


class StoreDifference(BaseModel):
    """A difference between a store and the rows."""

    kind: str
    object: str
    message: str
    repair: Remedy = Remedy.NONE
    doc_id: UUID | None = None
    generation: int | None = None


class ContainerReport(BaseModel):
    """Counts and differences of one container."""

    counts: dict[str, int] = {}
    differences: list[StoreDifference] = []
    notes: list[StoreDifference] = []
    """Other notes: dead letters, a manifest file that differs."""


class RepairResult(BaseModel):
    """The result of one repair."""

    kind: str
    object: str
    repair: Remedy
    done: bool
    message: str


class DoctorReport(BaseModel):
    clean: bool = True
    containers: dict[str, ContainerReport] = {}
    stores: list[StoreDifference] = []
    """Differences outside of all containers."""
    notes: list[StoreDifference] = []
    """Collections that another installation may have made; they are no differences."""
    checks: dict[str, str | bool] = {}
    """Other notes on this installation."""
    repairs: list[RepairResult] = []
    """Repairs of these differences, if requested."""
