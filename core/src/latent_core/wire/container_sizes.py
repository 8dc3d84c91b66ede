"""What a container takes in each store."""

from __future__ import annotations

from datetime import date, datetime
from typing import Final

from pydantic import BaseModel

from latent_core.wire.base import Envelope

MAX_DAYS: Final = 400
"""Measurements are kept for so long."""


class StoreSizes(BaseModel):
    """The last measurement of a day (UTC). A file that several documents have counts once."""

    day: date
    measured_at: datetime
    documents: int
    chunks: int
    postgres_rows: int
    postgres_bytes: int
    """Of the rows, with their share of the indexes; free space in tables does not count."""
    vectors: int
    """In all spaces, also of one that is kept for a rollback."""
    vector_bytes: int
    """Of the vectors as float32; the index of the vector engine adds to it."""
    originals: int
    original_bytes: int
    page_files: int
    """Page images, thumbnails and pages as PDF."""
    page_file_bytes: int
    archives: int
    """Exports and backups."""
    archive_bytes: int

    @property
    def bytes(self) -> int:
        """In all stores together."""
        stores = (self.postgres_bytes, self.vector_bytes, self.original_bytes)
        return sum(stores) + self.page_file_bytes + self.archive_bytes


class StoreSizesAnswer(Envelope):
    """Oldest first; empty before the first measurement."""

    sizes: list[StoreSizes]
