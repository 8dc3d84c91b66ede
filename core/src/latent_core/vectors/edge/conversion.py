"""From one layout of a collection to the other, in its folder.

The new files are written beside the old ones, then the marker names the new layout, then the old files go. So the
layout that the marker names is whole at every moment; what belongs to the other one is left by a crash.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from latent_core.runtime.failpoint import failpoint
from latent_core.vectors.edge.durable import DRAFT, sync_tree
from latent_core.vectors.edge.flat import FlatCollection, create_flat
from latent_core.vectors.edge.marker import MARKER, CollectionMarker, Layout
from latent_core.vectors.edge.protocol import POINT_LOG
from latent_core.vectors.edge.shard import Shard, create_shard

_LARGE_FROM_FLOATS: Final = 2 << 20
"""8 MB of vectors, which take 5 ms to read and 0.2 s to convert."""
_BATCH_POINTS: Final = 256


def is_large(points: int, dims: int, large_from: int) -> bool:
    """Whether a small collection has to become a large one."""
    return points >= large_from or points * dims >= _LARGE_FROM_FLOATS


def is_small(points: int, dims: int, large_from: int) -> bool:
    """Whether a large collection should become a small one: at half of the size, so that it stays one."""
    return points < large_from // 2 and points * dims < _LARGE_FROM_FLOATS // 2


def grow(flat: FlatCollection) -> None:
    """Make a small collection a large one. Close it afterwards, also after an exception."""
    path, dims = flat.path, flat.dims
    remove_remains(path, Layout.FLAT)
    failpoint("grow.before_points")
    create_shard(path, dims)
    shard = Shard(path, dims)
    for batch in flat.batches(_BATCH_POINTS):
        shard.upsert(batch)
    shard.close()
    sync_tree(path)
    failpoint("grow.after_points")
    CollectionMarker(dims, Layout.SHARD).write(path)
    failpoint("grow.after_marker")
    remove_remains(path, Layout.SHARD)


def shrink(shard: Shard) -> None:
    """Make a large collection a small one. Closes it, also after an exception."""
    path, dims = shard.path, shard.dims
    try:
        failpoint("shrink.before_points")
        create_flat(path, shard.all_points(), dims)
        failpoint("shrink.after_points")
    finally:
        shard.close()
    CollectionMarker(dims, Layout.FLAT).write(path)
    failpoint("shrink.after_marker")
    remove_remains(path, Layout.FLAT)


def remove_remains(path: Path, layout: Layout) -> None:
    """Remove what does not belong to ``layout``: of an unfinished conversion, or of the layout before a finished one."""
    for entry in path.iterdir():
        name = entry.name.removesuffix(DRAFT)
        if name != MARKER and (name == POINT_LOG) is (layout is Layout.SHARD):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
