"""Pieces are packed in order until the budget is full; a new chunk begins with the end of the last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latent_core.domain.chunk import BlockType
from latent_workers.chunk.splitting import PackingPiece

_REPEATABLE = (BlockType.PARAGRAPH, BlockType.LIST)


def pack(
    pieces: Sequence[PackingPiece], max_tokens: int, overlap: int
) -> Iterator[list[PackingPiece]]:
    """Runs of pieces of at most ``max_tokens`` tokens; a piece over it stands alone but for its headings.

    Neighbours share whole pieces of prose up to ``overlap`` tokens.
    """
    current: list[PackingPiece] = []
    cost = 0
    for piece in pieces:
        if current and cost + piece.cost > max_tokens and not _only_headings(current, max_tokens):
            yield current
            current = _tail(current, min(overlap, max_tokens - piece.cost))
            cost = sum(kept.cost for kept in current)
        current.append(piece)
        cost += piece.cost
    if current:
        yield current


def _only_headings(pieces: Sequence[PackingPiece], max_tokens: int) -> bool:
    """Headings go with what they head, unless they fill a chunk themselves."""
    return all(piece.kind is BlockType.HEADING for piece in pieces) and (
        sum(piece.cost for piece in pieces) * 2 <= max_tokens
    )


def _tail(pieces: Sequence[PackingPiece], overlap: int) -> list[PackingPiece]:
    """The last pieces, never all, that may be shared with the next chunk."""
    kept: list[PackingPiece] = []
    for piece in reversed(pieces[1:]):
        if piece.kind not in _REPEATABLE or piece.cost > overlap:
            break
        kept.insert(0, piece)
        overlap -= piece.cost
    return kept
