"""Blocks to chunks: packed to the token budget under one heading, cut only where it does no harm.

What always holds: offsets are exact, every line that is not blank is in some chunk, the same input
gives the same chunks, and ``embed_text`` keeps to the budget but for source code, and for a code fence,
which stays whole up to 32 budgets (the embedder reads both in windows).
"""

from __future__ import annotations

from typing import Final

from latent_core.domain.chunk import DraftChunk, SourceType
from latent_core.models.embedding.port import Tokenizer
from latent_workers.chunk.code import WindowLimits, chunk_code
from latent_workers.chunk.counting import WordCounter
from latent_workers.chunk.planning import ChunkLimits, ChunkPlanner
from latent_workers.chunk.structure import chunk_structure
from latent_workers.chunk.writing import ChunkWriter
from latent_workers.parse.parsed import ParsedDocument

_STRUCTURED: Final = (SourceType.YAML, SourceType.JSON)


def chunk(
    parsed: ParsedDocument,
    *,
    source_type: SourceType,
    budget_tokens: int,
    overlap: float,
    table_rows: int,
    tokenizer: Tokenizer,
    code_lines: int = 180,
    code_overlap: int = 30,
) -> list[DraftChunk]:
    """Chunks in the order of the text. ``overlap`` is a share of the budget, ``table_rows`` the most
    rows of one chunk, ``code_lines`` the most lines of a window of code, of which neighbours share
    ``code_overlap``.

    ``text`` is ``parsed.text[offset_start:offset_end]``, but for the later row groups of a table:
    theirs begins with the table's header, repeated, and ``meta["repeated_chars"]`` tells its length.
    Many documents are chunked faster with one ``WordCounter`` as their tokenizer.
    """
    counter = tokenizer if isinstance(tokenizer, WordCounter) else WordCounter(tokenizer)
    if source_type is SourceType.CODE:
        return chunk_code(parsed, WindowLimits(code_lines, code_overlap), budget_tokens, counter)
    if source_type in _STRUCTURED and "documents" in parsed.meta:
        return chunk_structure(parsed, source_type, budget_tokens, counter)
    limits = ChunkLimits(
        budget=budget_tokens,
        overlap=int(budget_tokens * overlap),
        table_rows=table_rows,
        whole_fences=source_type not in _STRUCTURED,
    )
    plans = ChunkPlanner(parsed, limits, counter).plans()
    return ChunkWriter(parsed, budget_tokens, counter).write(plans, source_type)
