"""Console output of chunks: a table, one whole chunk, and their sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import orjson
from rich.console import Console
from rich.text import Text

from latent_cli.output import moment, safe, table
from latent_cli.place_output import place_of
from latent_core.wire.chunks import ChunkSizes, ChunkView, Distribution, SizesAnswer

BEGINNING: Final = 60
"""Characters of a chunk's text in a list."""
BAR: Final = 40
"""Columns of the longest bar."""


def show_list(console: Console, chunks: Sequence[ChunkView]) -> None:
    columns = ("SOURCE", "PLACE", "TYPE", "BLOCK", ">TOKENS", ">CHARS", "TEXT", "ID")
    console.print(table(columns, (_row(chunk) for chunk in chunks)))


def _row(chunk: ChunkView) -> tuple[object, ...]:
    text = " ".join(chunk.text[: 4 * BEGINNING].split())
    return (
        chunk.source_uri.removeprefix("file:///"),
        place_of(chunk.place),
        chunk.source_type,
        _block(chunk),
        chunk.token_count,
        len(chunk.text),
        text[:BEGINNING] + ("…" if len(text) > BEGINNING else ""),
        chunk.chunk_id,
    )


def _block(chunk: ChunkView) -> str:
    if chunk.generated is not None:
        return f"generated {chunk.generated.value}"
    return chunk.block_type + (" (duplicate)" if chunk.duplicate_of else "")


def show_chunk(console: Console, chunk: ChunkView) -> None:
    """All stored facts of a chunk: place, lineage, raw text, embedded text."""
    for name, value in _facts(chunk):
        if value not in (None, ""):
            console.print(Text(f"{name:<15} {safe(str(value))}"), soft_wrap=True)
    _part(console, "raw text", chunk.text)
    same = chunk.embed_text == chunk.text
    _part(console, "embedded text", "same as the raw text" if same else chunk.embed_text)


def _facts(chunk: ChunkView) -> Iterator[tuple[str, object]]:
    yield "chunk", chunk.chunk_id
    yield "document", chunk.doc_id
    yield "source", chunk.source_uri
    yield "file sha256", chunk.file_hash
    yield "type", f"{chunk.source_type}, {chunk.block_type}, {chunk.modality}"
    yield "place", place_of(chunk.place)
    yield "section", chunk.parent_section
    yield "key path", chunk.key_path
    if chunk.table_id is not None:
        yield "table", f"{chunk.table_id}, row group {chunk.row_group}"
    yield "offsets", f"{chunk.offsets[0]} to {chunk.offsets[1]}"
    yield "number", f"{chunk.position} in its document, {chunk.chunk_no} in the container"
    yield "content sha256", chunk.content_hash
    yield (
        "size",
        f"{chunk.token_count} tokens, {len(chunk.text)} characters, {chunk.windows} vectors",
    )
    yield "duplicate of", chunk.duplicate_of
    for name, value in sorted(chunk.provenance.items()):
        yield name.replace("_", " "), value
    if chunk.meta:
        yield "meta", orjson.dumps(chunk.meta).decode()
    yield "indexed", moment(chunk.indexed_at)


def _part(console: Console, name: str, text: str) -> None:
    console.print(Text(f"--- {name}", style="bold"))
    console.print(Text(safe(text, lines=True)), soft_wrap=True)


def show_sizes(console: Console, found: SizesAnswer) -> None:
    if found.total is None:
        console.print("no chunks")
        return
    kinds = {"all": found.total, **found.by_source_type}
    columns = ("TYPE", ">CHUNKS", ">DUPLICATES", "OF", ">MIN", ">P50", ">P95", ">MAX")
    console.print(table(columns, (row for kind, one in kinds.items() for row in _sizes(kind, one))))
    for measure in ("tokens", "characters"):
        console.print()
        console.print(Text(f"{measure} per chunk", style="bold"))
        _bars(console, getattr(found.total, measure))


def _sizes(kind: str, one: ChunkSizes) -> Iterator[tuple[object, ...]]:
    for name, of in (("tokens", one.tokens), ("characters", one.characters)):
        first = name == "tokens"
        shown = (kind, one.chunks, one.duplicates) if first else ("", "", "")
        yield (*shown, name, of.min, of.p50, of.p95, of.max)


def _bars(console: Console, found: Distribution) -> None:
    largest = max(one.chunks for one in found.histogram)
    for one in found.histogram:
        bar = "#" * round(BAR * one.chunks / largest) if largest else ""
        to = "and more" if one.below is None else f"to {one.below - 1}"
        console.print(f"{one.lower_bound:>6} {to:<9} {one.chunks:>8} {bar}")
