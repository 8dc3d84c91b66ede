"""The rounds of a container's search, as data: each follows from the one before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from latent_core.db.documents.chunks import AllowedChunks
from latent_core.search.channels import ChannelCandidates
from latent_core.search.constraints import Constraint
from latent_core.search.plan import DEPTH, MAX_DEPTH


@dataclass(frozen=True, slots=True)
class Scope:
    """The chunks a round looks for, as far as filter and constraints could name them."""

    allowed: AllowedChunks | None = None
    """These alone; None for all."""
    is_broad: bool = False
    """The filter lets more chunks through than could be named."""
    checked_after: tuple[Constraint, ...] = ()
    """Constraints that the candidates are checked against."""

    @property
    def is_empty(self) -> bool:
        return self.allowed is not None and not len(self.allowed.chunk_nos)


@dataclass(frozen=True, slots=True)
class Round:
    """One round over the channels: what it asked for and what is known after it."""

    number: int = 0
    """Of one ``run``, from 1; 0 before the first."""
    depth: int = DEPTH // 2
    scope: Scope | None = None
    """None: to be found out."""
    found: Mapping[str, ChannelCandidates] = field(default_factory=dict)
    """By channel, of this round or an earlier one."""
    failed: frozenset[str] = frozenset()
    judged: Mapping[int, UUID | None] = field(default_factory=dict)
    """Candidate to its document, or None when it is not visible."""
    stopped: bool = False
    """What is not known is out of reach."""
    exhausted: bool = False
    """All is known."""
    is_repeat: bool = False
    """Documents changed during an earlier round, and the channels were asked again."""

    @property
    def is_last(self) -> bool:
        return self.stopped or self.exhausted

    @property
    def live(self) -> dict[int, UUID]:
        return {chunk_no: doc_id for chunk_no, doc_id in self.judged.items() if doc_id is not None}

    def open_channels(self, channels: Sequence[str]) -> list[str]:
        """Channels that answered so far and did not give all they have."""
        if self.depth > MAX_DEPTH:
            return []
        return [
            name
            for name in channels
            if name not in self.failed and not (name in self.found and self.found[name].exhausted)
        ]

    def again(self) -> Round:
        """Before a round that asks every channel anew, as deep as this one. Its scope is found out again: other chunks
        pass now."""
        return Round(self.number, self.depth // 2, failed=self.failed, is_repeat=self.is_repeat)
