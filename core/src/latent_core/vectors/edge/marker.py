"""The marker of a collection, ``collection.json``: what is known of it without opening it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

import orjson

from latent_core.vectors.edge.durable import replace_synced
from latent_core.vectors.edge.protocol import Fault, RequestRefused

MARKER: Final = "collection.json"
LARGE_FROM_POINTS: Final = 5000
"""From this size on a scan of codes is quicker than one of the vectors."""
_FORMAT: Final = 2


class Layout(StrEnum):
    """How the points of a collection are stored."""

    FLAT = "flat"
    """One file, a log."""
    SHARD = "shard"
    """A shard of the engine: made by versions before docs/adr/0070."""


@dataclass(frozen=True, slots=True)
class CollectionMarker:
    dims: int
    layout: Layout

    @classmethod
    def read(cls, path: Path) -> Self:
        """Refuses the collection in ``path`` if its marker is missing, damaged or of another format."""
        try:
            marker: Any = orjson.loads((path / MARKER).read_bytes())
            if marker["format"] != _FORMAT:
                raise damaged(f"its format is {marker['format']}, this program knows {_FORMAT}")
            # Before there were flat ones, markers named no layout.
            return cls(int(marker["dims"]), Layout(marker.get("layout", Layout.SHARD)))
        except (OSError, ValueError, TypeError, KeyError) as exc:
            raise damaged(f"its {MARKER} cannot be read") from exc

    def write(self, path: Path) -> None:
        """Durable on return; a crash leaves the old marker or the new one."""
        content = {"format": _FORMAT, "dims": self.dims, "layout": self.layout}
        replace_synced(path / MARKER, [orjson.dumps(content)])


def damaged(why: str) -> RequestRefused:
    return RequestRefused(Fault.UNAVAILABLE, f"cannot be opened ({why}): run `latent doctor`")
