"""One text of an archive with its vector: does the model of its name, here, make the same?"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from latent_core.domain.chunk import Modality
from latent_core.domain.vector_types import Matrix, Vector
from latent_core.transfer.reader import MAX_PART, ArchiveReader
from latent_core.transfer.records import BATCH, ChunkRecord

MAX_PARTS: Final = 20
"""Read at the longest: an archive of pictures alone has no such text."""


class ArchiveSample(NamedTuple):
    text: str
    """As it was embedded."""
    vector: Vector


def read_sample(path: Path, dims: int) -> ArchiveSample | None:
    """The shortest text of the first chunks that have exactly one vector each; None without any."""
    with path.open("rb") as file:
        reader = ArchiveReader(file)
        chunks: list[ChunkRecord] = []
        parts = 0
        for member in reader:
            matched = BATCH.fullmatch(member.name)
            kind = matched[3] if matched else None
            if kind == "chunks":
                lines = reader.whole(MAX_PART).split(b"\n")[:-1]
                chunks = [ChunkRecord.model_validate_json(line) for line in lines]
                parts += 1
            elif kind == "vectors":
                rows = np.frombuffer(reader.whole(MAX_PART), "<f4").reshape(-1, dims)
                if (sample := _shortest(chunks, rows)) is not None or parts >= MAX_PARTS:
                    return sample
    return None


def _shortest(chunks: list[ChunkRecord], rows: Matrix) -> ArchiveSample | None:
    ends = accumulate(chunk.windows for chunk in chunks)
    usable = [
        ArchiveSample(chunk.embed_text, rows[end - 1])
        for chunk, end in zip(chunks, ends, strict=True)
        if chunk.windows == 1 and chunk.modality is Modality.TEXT
    ]
    return min(usable, key=lambda sample: len(sample.text), default=None)
