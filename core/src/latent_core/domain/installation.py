"""The identity of an installation, and the marker by which a shared server names its holder.

Data on a server is below the installation's id, so two installations never see each other's. A copy of a database
has the same id but is another *holder*: only the holder that the marker names may write and remove.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from latent_core.domain.errors import MarkerMismatch

WRITE_CHECK_SECONDS: Final = 10.0
"""Writes rely on a marker that was read this long ago at most. Removals read it each time."""


class MarkerPolicy(StrEnum):
    """What opening a store does with its marker."""

    CREATE = "create"
    """Write it if it is missing: the database lists no data yet."""
    REQUIRE = "require"
    """Refuse the store if it is missing: the database lists data that would have to be there."""
    TAKE_OVER = "take_over"
    """Write it in any case (``latent adopt``)."""


@dataclass(frozen=True, slots=True)
class Installation:
    id: str
    """12 hexadecimal digits, random."""
    holder: str
    """``<system_identifier>/<oid>`` of the database: the Postgres cluster and the database in it."""

    def marker(self) -> bytes:
        return json.dumps({"installation": self.id, "holder": self.holder}).encode()

    def check(self, found: bytes | None, place: str) -> None:
        """``MarkerMismatch`` unless ``found``, the content of the marker in ``place``, names this holder."""
        if found is None:
            raise MarkerMismatch(
                f"{place} has no marker of installation {self.id} (database {self.holder}), but the database lists "
                "data. Check the address and the name. If they are right and the data there is lost, run "
                "`latent adopt`, then `latent doctor --repair`",
                installation=self.id,
            )
        holder = holder_of(found)
        if holder != self.holder:
            raise MarkerMismatch(
                f"{place} has data of installation {self.id} that belongs to database {holder}, not to this one "
                f"({self.holder}), which is a copy. To move the installation to this database, stop the other "
                "processes and run `latent adopt`",
                installation=self.id,
                holder=holder,
            )


def holder_of(marker: bytes) -> str:
    """The database that a marker names."""
    try:
        return str(json.loads(marker)["holder"])
    except (ValueError, KeyError, TypeError):
        return "unknown (the marker is damaged)"
