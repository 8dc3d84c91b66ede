"""When a collection is large; and from a shard of the engine to a log, in the folder of the collection.

Collections that became large before docs/adr/0070 are shards. The new file is written beside the old ones, then the
marker names the new layout, then the old files go. So the layout that the marker names is whole at every moment; what
belongs to the other one is left by a crash.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from latent_core.runtime.failpoint import failpoint
from latent_core.vectors.edge.durable import DRAFT
from latent_core.vectors.edge.logged import BATCH_POINTS
from latent_core.vectors.edge.marker import MARKER, CollectionMarker, Layout
from latent_core.vectors.edge.point_log import PointLog
from latent_core.vectors.edge.protocol import CODES, POINT_LOG

if TYPE_CHECKING:
    from latent_core.vectors.edge.shard import Shard

_LARGE_FROM_FLOATS: Final = 2 << 20
"""8 MB of vectors, which take 5 ms to read."""
_CONVERTED_FLOATS: Final = 64 << 20
"""256 MB of vectors, which take some seconds to convert. Requests wait meanwhile."""


def is_large(points: int, dims: int, large_from: int) -> bool:
    """Whether codes of the vectors are kept in memory, and not the vectors."""
    return points >= large_from or points * dims >= _LARGE_FROM_FLOATS


def is_convertible(shard: Shard) -> bool:
    """Whether no request has to wait too long for ``to_log``."""
    return len(shard) * shard.dims <= _CONVERTED_FLOATS


def to_log(shard: Shard) -> None:
    """Write the points of a shard to a log, which replaces it. Closes it, also after an exception."""
    path, dims = shard.path, shard.dims
    try:
        failpoint("to_log.before_points")
        PointLog(path / POINT_LOG, dims).replace(shard.batches(BATCH_POINTS))
        failpoint("to_log.after_points")
    finally:
        shard.close()
    CollectionMarker(dims, Layout.FLAT).write(path)
    failpoint("to_log.after_marker")
    remove_remains(path, Layout.FLAT)


def remove_remains(path: Path, layout: Layout) -> None:
    """Remove what does not belong to ``layout``: of an unfinished conversion, or of the layout before a finished one."""
    for entry in path.iterdir():
        name = entry.name.removesuffix(DRAFT)
        if name != MARKER and (name in (POINT_LOG, CODES)) is (layout is Layout.SHARD):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
