"""Parsing and chunking of Markdown and source code, without embedding: as a worker does it, but all steps of a file
in one process, and as many such processes at a time as there are cores.

    python -m benchmarks.chunking                                 Python's own library as code
    python -m benchmarks.chunking --markdown FOLDER --code FOLDER

A file is parsed (the sandbox's child), packed for the way to the parent and checked there, and chunked with the
local model's own tokenizer. Megabytes a second of CPU time of the process that took longest, so that others on the
machine do not count; and against the raw baseline, the same texts decoded and their words counted, which another
load on the machine stretches as much.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

import orjson

from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed
from latent_core.domain.manifest.model import Chunker
from latent_core.models.embedding.minilm import WINDOW, wheel_folder
from latent_core.models.embedding.tokens import ModelTokenizer
from latent_core.runtime.process import cores
from latent_workers.chunk.counting import WordCounter
from latent_workers.chunk.writing import drafts_of
from latent_workers.parse import wire
from latent_workers.parse.code import parser as code
from latent_workers.parse.parsed import SourceFile
from latent_workers.parse.text import markdown
from latent_workers.sandbox.frames import FrameItem

MEGABYTE: Final = 1_000_000
MAX_BYTES: Final = 8 * MEGABYTE
BAR_MB: Final = 2.0
ROUNDS: Final = 3
READERS: Final = {SourceType.CODE: code.parse, SourceType.MARKDOWN: markdown.parse}
ENDINGS: Final = {SourceType.CODE: "*.py", SourceType.MARKDOWN: "*.md"}

File = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class ChunkingFigures:
    """One kind of source; CPU seconds of the best round, of all processes together."""

    source_type: str
    processes: int
    files: int
    megabytes: float
    chunks: int
    parse_seconds: float
    hand_over_seconds: float
    chunk_seconds: float
    raw_seconds: float
    longest_seconds: float
    """Of one process."""

    @property
    def seconds(self) -> float:
        return self.parse_seconds + self.hand_over_seconds + self.chunk_seconds

    @property
    def mb_per_second(self) -> float:
        return self.megabytes / self.longest_seconds

    @property
    def ratio(self) -> float:
        """Times the raw baseline."""
        return self.seconds / self.raw_seconds


def measure(source_type: SourceType, folder: Path, rounds: int = ROUNDS) -> ChunkingFigures:
    """A fresh counter each round: none knows the words already."""
    files = list(_spread(_files(folder, ENDINGS[source_type])))
    parts = _shared(files, cores())
    with ProcessPoolExecutor(len(parts), multiprocessing.get_context("spawn")) as processes:
        rounds_done = (
            list(processes.map(_round, [source_type] * len(parts), parts)) for _ in range(rounds)
        )
        return min(map(_together, rounds_done), key=lambda one: one.longest_seconds)


def _shared(files: Sequence[File], among: int) -> list[list[File]]:
    """The largest first, each to who has least so far."""
    parts: list[list[File]] = [[] for _ in range(among)]
    sizes = [0] * among
    for file in sorted(files, key=lambda file: -len(file[1])):
        smallest = sizes.index(min(sizes))
        parts[smallest].append(file)
        sizes[smallest] += len(file[1])
    return parts


def _together(parts: Sequence[ChunkingFigures]) -> ChunkingFigures:
    return ChunkingFigures(
        source_type=parts[0].source_type,
        processes=len(parts),
        files=sum(one.files for one in parts),
        megabytes=sum(one.megabytes for one in parts),
        chunks=sum(one.chunks for one in parts),
        parse_seconds=sum(one.parse_seconds for one in parts),
        hand_over_seconds=sum(one.hand_over_seconds for one in parts),
        chunk_seconds=sum(one.chunk_seconds for one in parts),
        raw_seconds=sum(one.raw_seconds for one in parts),
        longest_seconds=max(one.longest_seconds for one in parts),
    )


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted(path for path in folder.rglob(pattern) if path.is_file() and path.stat().st_size)


def _spread(paths: Sequence[Path]) -> Iterator[File]:
    """Files from all over the folder, up to ``MAX_BYTES``."""
    total = sum(path.stat().st_size for path in paths)
    step = max(1, total // MAX_BYTES)
    for path in paths[::step]:
        yield path.name, path.read_bytes()


def _round(source_type: SourceType, files: Sequence[File]) -> ChunkingFigures:
    counter = WordCounter(ModelTokenizer.open(wheel_folder() / "tokenizer.json"))
    settings, chunks = Chunker(), 0
    parsing = handing = chunking = 0.0
    for name, data in files:
        source = SourceFile(name, BytesIO(data), source_type, max_pages=1)
        began = time.process_time()
        try:
            parsed = READERS[source_type](source)
        except IngestFailed:  # nothing but white space
            continue
        read = time.process_time()
        packed = wire.pack(parsed)
        arrived = wire.unpack(FrameItem(orjson.dumps(packed.value), bytes(packed.attachment)))
        taken = time.process_time()
        _, drafts = drafts_of(arrived, source_type, settings, counter, WINDOW)
        chunking += time.process_time() - taken
        handing += taken - read
        parsing += read - began
        chunks += len(drafts)
    size = sum(len(data) for _, data in files) / MEGABYTE
    raw = _raw(files)
    spent = parsing + handing + chunking
    return ChunkingFigures(
        source_type.value, 1, len(files), size, chunks, parsing, handing, chunking, raw, spent
    )


def _raw(files: Sequence[File]) -> float:
    began = time.process_time()
    for _, data in files:
        Counter(data.decode("utf-8", "replace").split())
    return time.process_time() - began


def format_chunking(found: ChunkingFigures) -> str:
    return (
        f"{found.source_type}: {found.files} files, {found.megabytes:.1f} MB, {found.chunks} chunks: "
        f"{found.mb_per_second:.2f} MB/s on {found.processes} cores (bar {BAR_MB:g}), {found.ratio:.1f}x the raw "
        f"baseline; of all cores: parsing {found.parse_seconds:.2f} s, handing over {found.hand_over_seconds:.2f} s, "
        f"chunking {found.chunk_seconds:.2f} s"
    )


def stdlib() -> Path:
    """Python's own sources."""
    return Path(sysconfig.get_path("stdlib"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--code", type=Path, default=stdlib(), help="folder of Python files")
    parser.add_argument("--markdown", type=Path, help="folder of Markdown files")
    arguments = parser.parse_args()
    print(format_chunking(measure(SourceType.CODE, arguments.code)), flush=True)
    if arguments.markdown:
        print(format_chunking(measure(SourceType.MARKDOWN, arguments.markdown)), flush=True)


if __name__ == "__main__":
    main()
