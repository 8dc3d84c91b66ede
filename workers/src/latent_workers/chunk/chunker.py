"""Blocks to chunks: packed to the token budget under one heading, cut only where it does no harm.

What always holds: offsets are exact, every line that is not blank is in some chunk, the same input
gives the same chunks, and ``embed_text`` keeps to the budget but for a code fence, which stays whole
up to eight budgets (the embedder reads it in windows).
"""

from __future__ import annotations

from typing import Final

from latent_core.domain.chunk import DraftChunk, SourceType
from latent_core.embedding.port import Tokenizer
from latent_workers.chunk.counting import WordCounter
from latent_workers.chunk.planning import Limits, Planner
from latent_workers.chunk.writing import Writer
from latent_workers.parse.parsed import Parsed

_FILES_OF_CODE: Final = (SourceType.CODE, SourceType.YAML, SourceType.JSON)


def chunk(
    parsed: Parsed,
    *,
    source_type: SourceType,
    budget_tokens: int,
    overlap: float,
    table_rows: int,
    tokenizer: Tokenizer,
) -> list[DraftChunk]:
    """Chunks in the order of the text. ``overlap`` is a share of the budget, ``table_rows`` the most
    rows of one chunk.

    ``text`` is ``parsed.text[offset_start:offset_end]``, but for the later row groups of a table:
    theirs begins with the table's header, repeated, and ``meta["repeated_chars"]`` tells its length.
    Many documents are chunked faster with one ``WordCounter`` as their tokenizer.
    """
    counter = tokenizer if isinstance(tokenizer, WordCounter) else WordCounter(tokenizer)
    limits = Limits(
        budget=budget_tokens,
        overlap=int(budget_tokens * overlap),
        table_rows=table_rows,
        whole_fences=source_type not in _FILES_OF_CODE,
    )
    plans = Planner(parsed, limits, counter).plans()
    return Writer(parsed, budget_tokens, counter).write(plans, source_type)
