"""Which source a folder is synced to: the one that this client knows, one that it was moved from, or a new one.

Names do not identify folders: two folders of one name are two sources, ``notes`` and ``notes~2``. A folder that this
client does not know yet is compared with the sources of the container. If it has the content of a source whose own
folder is gone, or is on a computer that this one cannot see, a person decides.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from uuid import UUID

from latent_client.files import sha256_of
from latent_client.folder_lock import folder_lock
from latent_client.source_registry import RegisteredSource, SourceRegistry
from latent_client.uploads import in_parallel
from latent_client.walk import FoundFile
from latent_core.domain.errors import Conflict, Invalid
from latent_core.domain.source import (
    NAMESAKE,
    is_same_folder,
    needs_consent,
    numbered,
    prefix_of,
)
from latent_core.wire.sources import MAX_SAMPLE, SourceMatch, SourceView

UNNAMED_HOST: Final = "unnamed"

Confirm = Callable[[str], Awaitable[bool]]
"""Asks a person a yes-or-no question."""


@dataclass(frozen=True, slots=True)
class SyncConsent:
    """What a sync may do that could destroy or mix up documents."""

    take_over: bool = False
    """Continue the source that the folder was moved from, else the one of its name."""
    allow_deletions: bool = False
    """Delete documents of vanished files, however many."""
    deleted_before: int = 0
    """Deletions of earlier syncs that count with those of this one: a watch sees a folder vanish file by file."""
    confirm: Confirm | None = None
    """Asks a person about what is not allowed here. None: no person is there, so it is not done."""

    def allows(self, vanished: int, documents: int) -> bool:
        """Whether ``vanished`` of ``documents`` may be deleted without a question."""
        before = self.deleted_before
        return self.allow_deletions or not needs_consent(vanished + before, documents + before)


class SourceClient(Protocol):
    """The part of ``AsyncClient`` that finds a folder's source."""

    @property
    def url(self) -> str: ...
    @property
    def data_dir(self) -> Path: ...

    async def match_sources(
        self, container_id: str, root: str, sha256: Sequence[str]
    ) -> list[SourceMatch]: ...

    async def create_source(
        self, container_id: str, root: str, *, host: str, folder: str, adopt: bool = False
    ) -> SourceView: ...

    async def take_over_source(
        self, container_id: str, source_id: UUID, *, host: str, folder: str
    ) -> SourceView: ...


@dataclass(frozen=True, slots=True)
class FolderSource:
    """The source of a folder."""

    root: str
    source_id: UUID | None
    """None: it does not exist yet, in a plan."""
    notice: str | None = None
    """Why the root is not the folder's name, or what was decided."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """One of: a source to continue, or documents to adopt, or neither, for a new source."""

    source: SourceView | None = None
    take_over: bool = False
    adopt: bool = False
    facts: str | None = None
    """Why a person must decide whether the source is continued."""


class SourceFinder:
    """Finds or creates the source of one folder."""

    def __init__(
        self,
        client: SourceClient,
        container_id: str,
        folder: Path,
        name: str,
        *,
        is_name_given: bool,
        consent: SyncConsent,
    ) -> None:
        """``is_name_given``: the root name was chosen by the user, and is not just the folder's name."""
        self._client = client
        self._container_id = container_id
        self._folder = Path(os.path.realpath(folder))
        self._name = name
        self._is_name_given = is_name_given
        self._consent = consent
        self._host = platform.node() or UNNAMED_HOST
        self._registry = SourceRegistry(client.data_dir)

    def registered(self) -> FolderSource | None:
        """The source that this client has for the folder. The gateway may no longer know it."""
        for one in self._known():
            if one.gateway == self._client.url:
                return FolderSource(one.root, one.source_id)
        return None

    async def claim(
        self, files: Sequence[FoundFile], refused: FolderSource | None = None
    ) -> FolderSource:
        """The source of the folder; not the ``refused`` one, which this client had registered before. Raises
        ``Conflict`` if a person must decide and none can be asked, and ``TimedOut`` if another process still decides.
        """
        async with folder_lock(self._client.data_dir, self._container_id, self._folder):
            meanwhile = self.registered()
            if meanwhile is not None and meanwhile != refused:
                return meanwhile
            return await self._claimed(files)

    async def _claimed(self, files: Sequence[FoundFile]) -> FolderSource:
        matches = await self._matches(files)
        choice = await self._decided(self._choose(matches))
        place = {"host": self._host, "folder": str(self._folder)}
        notice = None
        if choice.source is None:
            source = await self._client.create_source(
                self._container_id, self._name, **place, adopt=choice.adopt
            )
            if source.root != self._name:
                notice = self._name_taken(matches, source.root)
        elif choice.take_over:
            source = await self._client.take_over_source(
                self._container_id, choice.source.source_id, **place
            )
            notice = (
                f"continues {prefix_of(source.root)}, synced from {_place(choice.source)} before"
            )
        else:
            source = choice.source
        self._registry.put(
            RegisteredSource(
                source_id=source.source_id,
                gateway=self._client.url,
                container_id=self._container_id,
                folder=str(self._folder),
                name=self._name,
                root=source.root,
            )
        )
        return FolderSource(source.root, source.source_id, notice)

    async def preview(self, files: Sequence[FoundFile]) -> FolderSource:
        """What ``claim`` would give, without changing anything."""
        matches = await self._matches(files)
        choice = self._choose(matches)
        if choice.source is not None:
            return FolderSource(choice.source.root, choice.source.source_id, choice.facts)
        return FolderSource(self._name if choice.adopt else self._free_root(matches), None)

    async def _matches(self, files: Sequence[FoundFile]) -> list[_Candidate]:
        """The sources of the container; files are hashed only if there are any documents to compare."""
        found = await self._client.match_sources(self._container_id, self._name, [])
        sample: list[str] = []
        if any(one.documents for one in found):
            sample = await _sample(files)
            found = await self._client.match_sources(self._container_id, self._name, sample)
        return [
            _Candidate(one, is_same_folder(one.same, len(sample), len(files), one.documents))
            for one in found
        ]

    def _choose(self, candidates: Sequence[_Candidate]) -> _Choice:
        own = self._own(candidates)
        if own is not None:
            return own
        named = next((one for one in candidates if one.match.root == self._name), None)
        similar = sorted(
            (one for one in candidates if one.is_same and one.match.source is not None),
            key=lambda one: (one is not named, -one.match.same),
        )
        moved = [one for one in similar if not self._is_copy(one)]
        if self._consent.take_over:
            return self._taken_over(named, moved)
        if self._is_name_given and named is None:
            return _Choice()
        former = [*moved, *(one for one in candidates if self._is_here(one))]
        if former:
            return self._question(former[0])
        adopt = named is not None and named.match.source is None and named.is_same
        return _Choice(adopt=adopt)

    def _own(self, candidates: Sequence[_Candidate]) -> _Choice | None:
        """A source that this client registered under another address of the gateway, or created and did not register."""
        known = {one.source_id for one in self._known()}
        for one in candidates:
            source = one.match.source
            if source is not None and source.source_id in known:
                return _Choice(source)
        for one in candidates:
            is_named = one.match.root.partition(NAMESAKE)[0] == self._name.partition(NAMESAKE)[0]
            if self._is_here(one) and not one.match.documents and is_named:
                return _Choice(one.match.source, take_over=True)
        return None

    def _known(self) -> list[RegisteredSource]:
        """Registered sources of the folder: those of its name first, only those if the user chose the name."""
        known = self._registry.find(self._container_id, self._folder)
        named = [one for one in known if self._name in (one.name, one.root)]
        return named if self._is_name_given else [*named, *known]

    def _taken_over(self, named: _Candidate | None, moved: Sequence[_Candidate]) -> _Choice:
        if moved and not (self._is_name_given and named is not None):
            return _Choice(moved[0].match.source, take_over=True)
        if named is None:
            return _Choice()
        if named.match.source is None:
            return _Choice(adopt=True)
        return _Choice(named.match.source, take_over=True)

    def _question(self, candidate: _Candidate) -> _Choice:
        source = candidate.match.source
        if source is None:
            return _Choice()
        when = f", last on {source.synced_at:%Y-%m-%d}" if source.synced_at else ""
        facts = (
            f"{self._folder} looks like the folder of {prefix_of(source.root)}, which was synced from "
            f"{_place(source)}{when}."
        )
        return _Choice(source, take_over=True, facts=facts)

    async def _decided(self, choice: _Choice) -> _Choice:
        """Without an open question. Raises ``Conflict`` without a person to decide."""
        if choice.facts is None:
            return choice
        if self._consent.confirm is None:
            raise Conflict(
                f"{choice.facts} To continue it from here, use --take-over. To sync a separate folder, choose another "
                "root name (--root NAME). Nothing was changed."
            )
        question = f"{choice.facts} Continue it from here? (No: sync a separate folder.)"
        return choice if await self._consent.confirm(question) else _Choice()

    def _is_copy(self, candidate: _Candidate) -> bool:
        """Whether the folder of a source with the same content still exists on this computer."""
        source = candidate.match.source
        if source is None or source.host != self._host or self._is_here(candidate):
            return False
        try:
            with os.scandir(source.folder) as entries:
                return next(entries, None) is not None
        except OSError:
            return False

    def _is_here(self, candidate: _Candidate) -> bool:
        source = candidate.match.source
        return source is not None and (source.host, source.folder) == (
            self._host,
            str(self._folder),
        )

    def _free_root(self, candidates: Sequence[_Candidate]) -> str:
        taken = {one.match.root for one in candidates}
        numbers = range(1, len(taken) + 2)
        return next(r for r in (numbered(self._name, n) for n in numbers) if r not in taken)

    def _name_taken(self, candidates: Sequence[_Candidate], root: str) -> str:
        named = next((one.match for one in candidates if one.match.root == self._name), None)
        owner = "documents that no synced folder owns; --take-over continues them"
        if named is not None and named.source is not None:
            owner = f"the folder {_place(named.source)}"
        return f"{prefix_of(self._name)} belongs to {owner}; this folder is {prefix_of(root)}"


@dataclass(frozen=True, slots=True)
class _Candidate:
    match: SourceMatch
    is_same: bool
    """Whether the folder has its content."""


def _place(source: SourceView) -> str:
    return f"{source.folder} on {source.host}"


async def _sample(files: Sequence[FoundFile]) -> list[str]:
    """Hashes of at most ``MAX_SAMPLE`` files, evenly spread over the folder."""
    readable = [file for file in files if file.readable]
    step = -(-len(readable) // MAX_SAMPLE) or 1

    async def one(file: FoundFile) -> str | None:
        try:
            return await sha256_of(file.file)
        except Invalid:
            return None

    hashes = await in_parallel(readable[::step], one)
    return sorted({sha256 for sha256 in hashes if sha256 is not None})
