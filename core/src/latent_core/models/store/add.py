"""Installs a model from a hub: the files that are needed, hashes compared, described, then published at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, Protocol

from latent_core.domain.errors import Invalid, LatentError, OutOfSpace, TooLarge, Unavailable
from latent_core.models.store.hashes import FileHashes, hashes_of
from latent_core.models.store.hub import PART, Hub, HubAddress, RepositoryListing, offline
from latent_core.models.store.layout import (
    PRIVATE,
    ModelStore,
    OnWait,
    disk_errors,
    refuse_other_owner,
)
from latent_core.models.store.precision import compare_others, compared, other_precision
from latent_core.models.store.record import (
    FULL_PRECISION,
    MAX_FILES,
    PICTURES_FOLDER,
    HubFile,
    InstalledModel,
    ModelFile,
    Partner,
    ReferenceVectors,
    is_model_file,
    name_of,
    parse_reference,
    prompt_options,
    reference_of,
    suffix_of,
)

MAX_JSON_BYTES: Final = 128 * 1024 * 1024
"""Size of one file that is parsed: settings, tokenizers, vocabularies."""
_WEIGHTS: Final = (".onnx", ".safetensors", "data")

OnProgress = Callable[[str, int, int], None]
"""Called with the file and with the bytes of the model that have arrived, of all."""


class Description(Protocol):
    """What the files of a model say about it (``models.onnx.folder``)."""

    @property
    def kind(self) -> Literal["embedder", "image_embedder", "reranker"]: ...
    @property
    def dims(self) -> int | None: ...
    @property
    def window(self) -> int | None: ...
    @property
    def precision(self) -> str: ...
    @property
    def prompts(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class FolderReader:
    """How folders of models are read: which files are needed, and what they say. Both raise ``Invalid``.
    ``precision`` is the one that a person chose; by default the weights of full precision are meant."""

    files_needed: Callable[[Sequence[HubFile]], Sequence[str]]
    describe: Callable[[Path, str | None], Description]
    """Of the folder, with the precision of its weights if it is known."""
    precision: str | None = None
    prompts: Mapping[str, str] | None = None
    """For queries and documents, as a person gave them; by default those of the files."""
    picture_files_needed: Callable[[Sequence[HubFile]], Sequence[str]] | None = None
    """As ``files_needed``, for the second half of a pair."""
    vectors: Callable[[Path, str, str], ReferenceVectors | None] | None = None
    """What the model in a folder computes, of this name and precision. It raises ``LatentError`` if it cannot be run."""


@dataclass(frozen=True, slots=True)
class AddLimits:
    max_bytes: int
    min_free_bytes: int
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class AddResult:
    model: InstalledModel
    fetched: bool
    """False if it was installed already."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A repository whose files lie in ``folder`` of the model's."""

    listing: RepositoryListing
    needed: Callable[[Sequence[HubFile]], Sequence[str]]
    folder: str = ""

    def place(self, file: HubFile) -> str:
        return f"{self.folder}/{file.path}" if self.folder else file.path


@dataclass(frozen=True, slots=True)
class NeededFile:
    """A file of a repository, and where it lies in the model's folder."""

    source: _Source
    file: HubFile

    @property
    def path(self) -> str:
        return self.source.place(self.file)


@dataclass(frozen=True, slots=True)
class Adder:
    """Adds models of one hub to one store."""

    store: ModelStore
    address: HubAddress
    reader: FolderReader
    limits: AddLimits
    on_progress: OnProgress
    on_wait: OnWait | None = None

    def add(self, reference: str, pictures: str | None = None) -> AddResult:
        """Install the model; a partial one is continued and a damaged one mended. ``pictures`` is the repository that
        embeds pictures in its space, with or without a revision."""
        hub_id, revision = parse_reference(reference)
        other = parse_reference(pictures) if pictures is not None else None
        if self.address.offline:
            raise offline(hub_id)
        hub = Hub(self.address)
        listing = hub.listing(hub_id, revision)
        sources = [_Source(listing, self.reader.files_needed)]
        if other is not None:
            sources.append(self._second(listing, hub.listing(*other)))
        name = name_of(hub_id)
        with self.store.locked(name, self.limits.wait_seconds, self.on_wait):
            installed = self._installed(sources)
            if installed is not None and not self.store.verify(installed):
                return AddResult(installed, fetched=False)
            refuse_other_owner(self.store, name, hub_id)
            files = self._chosen(sources)
            adding = self._adding(sources)
            with cleanup_when_full(adding), disk_errors(adding):
                adding.mkdir(PRIVATE, parents=True, exist_ok=True)
                for source in sources:
                    self._link_installed(source, adding)
                hashes = self._fetched(hub, files, adding)
                model = self._described(sources, hashes, adding)
                model = compared(self.store, model)
                self.store.publish(adding, model)
                compare_others(self.store, model)
        return AddResult(model, fetched=True)

    def _second(self, texts: RepositoryListing, pictures: RepositoryListing) -> _Source:
        if self.reader.picture_files_needed is None or texts.hub_id == pictures.hub_id:
            raise Invalid(f"{texts.hub_id} makes no pair with {pictures.hub_id}")
        try:
            self.reader.picture_files_needed(pictures.files)
        except Invalid as exc:
            raise Invalid(f"{pictures.hub_id}: {exc.message}") from exc
        return _Source(pictures, self.reader.picture_files_needed, PICTURES_FOLDER)

    def _installed(self, sources: Sequence[_Source]) -> InstalledModel | None:
        listing, partner = sources[0].listing, _partner(sources)
        named = (m for m in self.store.models() if m.hub_id == listing.hub_id)
        of_commit = [m for m in named if m.revision == listing.revision and m.partner == partner]
        return next((m for m in of_commit if self._is_chosen(m, sources)), None)

    def _link_installed(self, source: _Source, adding: Path) -> None:
        """Files that another installation of this commit has need not be fetched again. They are hashed as all are."""
        for model in self.store.models():
            folder = self.store.folder(model)
            listing = source.listing
            if (model.hub_id, model.revision) == (listing.hub_id, listing.revision):
                _link_files(folder, adding / source.folder, without=PICTURES_FOLDER)
            if model.partner == Partner(hub_id=listing.hub_id, revision=listing.revision):
                _link_files(folder / PICTURES_FOLDER, adding / source.folder)

    def _is_chosen(self, model: InstalledModel, sources: Sequence[_Source]) -> bool:
        """Whether it has the prompts and the precision that a person chose, or else those of the files."""
        given, chosen = self.reader.prompts, self.reader.precision
        if model.prompts_given != (given is not None) or given not in (None, model.prompts):
            return False
        if chosen is not None:
            return model.precision == chosen
        needed = {needed_file.path for source in sources for needed_file in self._of_source(source)}
        return needed == {file.path for file in model.files}

    def _adding(self, sources: Sequence[_Source]) -> Path:
        return self._adding_of(sources, self.reader.precision)

    def _adding_of(self, sources: Sequence[_Source], chosen: str | None) -> Path:
        suffix = f"+{chosen}" if chosen else ""
        if self.reader.prompts is not None:
            suffix += suffix_of(self.reader.prompts)
        if (partner := _partner(sources)) is not None:
            suffix += partner.suffix
        listing = sources[0].listing
        return self.store.adding(reference_of(name_of(listing.hub_id), listing.revision) + suffix)

    def _chosen(self, sources: Sequence[_Source]) -> list[NeededFile]:
        """The files to fetch, within the limits and the free space."""
        files = [needed_file for source in sources for needed_file in self._of_source(source)]
        hub_id = sources[0].listing.hub_id
        if len(files) > MAX_FILES:
            raise TooLarge(f"{hub_id} needs {len(files)} files; the limit is {MAX_FILES}")
        total = sum(needed_file.file.size for needed_file in files)
        if total > self.limits.max_bytes:
            raise TooLarge(
                f"{hub_id} has {total} bytes; LLC_MAX_MODEL_BYTES is {self.limits.max_bytes}:"
                " raise it, or choose a smaller model"
            )
        self._check_space(sources, files, total)
        return files

    def _of_source(self, source: _Source) -> list[NeededFile]:
        listing = source.listing
        known = {file.path: file for file in listing.files}
        paths = sorted(set(source.needed(listing.files)))
        for path in paths:
            if path not in known or not is_model_file(source.place(known[path])):
                raise Invalid(
                    f"{listing.hub_id} needs {path!r}, which is no file that is fetched from a hub"
                )
            self._check_file(listing, known[path])
        return [NeededFile(source, known[path]) for path in paths]

    def _check_file(self, listing: RepositoryListing, file: HubFile) -> None:
        if file.size < 0 or (file.sha256 or file.git_hash) is None:
            raise Unavailable(
                f"{self.address.host} lists {file.path} of {listing.hub_id} without size and hash:"
                " it is a mirror that cannot be checked; set HF_ENDPOINT to another"
            )
        if file.size > MAX_JSON_BYTES and not file.path.endswith(_WEIGHTS):
            raise TooLarge(
                f"{file.path} of {listing.hub_id} has {file.size} bytes; the limit is {MAX_JSON_BYTES}"
            )

    def _check_space(
        self, sources: Sequence[_Source], files: Sequence[NeededFile], total: int
    ) -> None:
        adding = self._adding(sources)
        free = shutil.disk_usage(self.store.root).free
        arrived = sum(
            _arrived(adding / needed_file.path, needed_file.file.size) for needed_file in files
        )
        needed = total - arrived + self.limits.min_free_bytes
        if needed > free:
            shutil.rmtree(adding, ignore_errors=True)
            raise OutOfSpace(
                f"{sources[0].listing.hub_id} needs {needed} bytes on the disk of {self.store.root},"
                f" LLC_MIN_FREE_BYTES included, but {free} are free: free disk space, or set LLC_DATA_DIR to another"
                " disk"
            )

    def _fetched(
        self, hub: Hub, files: Sequence[NeededFile], adding: Path
    ) -> dict[str, FileHashes]:
        """Fetch what is missing; returns the hashes of all files, which are those of the hub."""
        total, done = sum(needed_file.file.size for needed_file in files), 0
        hashes: dict[str, FileHashes] = {}
        for needed_file in files:
            file, listing, before = needed_file.file, needed_file.source.listing, done
            target = adding / needed_file.path
            own = _kept(target, file)
            if own is None:
                hub.fetch(
                    listing,
                    file,
                    target,
                    lambda arrived, before=before, path=needed_file.path: self.on_progress(  # type: ignore[misc]
                        path, before + arrived, total
                    ),
                )
                own = hashes_of(target)
            if (problem := difference(own, file)) is not None:
                target.unlink()
                raise Unavailable(
                    f"{file.path} of {listing.hub_id} {problem}: it was removed. Run the command again; if it repeats,"
                    f" a proxy or {self.address.host} alters files"
                )
            hashes[needed_file.path] = own
            done += file.size
            self.on_progress(needed_file.path, done, total)
        return hashes

    def _described(
        self, sources: Sequence[_Source], hashes: Mapping[str, FileHashes], adding: Path
    ) -> InstalledModel:
        listing, partner = sources[0].listing, _partner(sources)
        for path in (p for p in adding.rglob("*") if not p.is_dir()):
            if str(path.relative_to(adding)) not in hashes:
                path.unlink()  # of a damaged folder, or of a release that needed other files
        name = name_of(listing.hub_id)
        try:
            described = self.reader.describe(adding, self.reader.precision)
            self._check_prompts(listing, described)
            vectors = None
            if self.reader.vectors is not None:
                vectors = self.reader.vectors(adding, name, described.precision)
        except LatentError:
            shutil.rmtree(adding)  # the same files would be refused again
            raise
        self._check_precision(sources, described.precision, adding)
        given = self.reader.prompts
        files = tuple(
            ModelFile(path=path, size=own.size, sha256=own.sha256) for path, own in hashes.items()
        )
        return InstalledModel(
            hub_id=listing.hub_id,
            revision=listing.revision,
            name=name,
            kind=described.kind,
            dims=described.dims,
            window=described.window,
            precision=described.precision,
            prompts=dict(given if given is not None else described.prompts),
            prompts_given=given is not None,
            partner=partner,
            vectors=vectors,
            files=files,
            added_at=datetime.now(UTC),
        )

    def _check_precision(self, sources: Sequence[_Source], found: str, adding: Path) -> None:
        """Refuse weights of another precision than the chosen one. The command of the message goes on with the files
        that are here."""
        chosen, partner = self.reader.precision, _partner(sources)
        options = prompt_options(self.reader.prompts) if self.reader.prompts is not None else ""
        options += f" --with {partner.hub_id}@{partner.revision}" if partner is not None else ""
        listing = sources[0].listing
        refusal = other_precision(f"{listing.hub_id}@{listing.revision}", chosen, found, options)
        if refusal is not None:
            target = self._adding_of(sources, None if found in FULL_PRECISION else found)
            shutil.rmtree(target, ignore_errors=True)
            adding.rename(target)
            raise Invalid(refusal)

    def _check_prompts(self, listing: RepositoryListing, described: Description) -> None:
        texts = described.kind != "reranker" and described.window is not None
        if self.reader.prompts is not None and not texts:
            kind = described.kind.replace("_", " ")
            raise Invalid(
                f"{listing.hub_id} is a {kind} that embeds no texts, so it has no prompts: leave out --query-prompt"
                " and --document-prompt"
            )


def _partner(sources: Sequence[_Source]) -> Partner | None:
    others = [source.listing for source in sources if source.folder]
    return Partner(hub_id=others[0].hub_id, revision=others[0].revision) if others else None


@contextmanager
def cleanup_when_full(adding: Path) -> Iterator[None]:
    """Remove ``adding`` if the disk is full: what it holds is what fills the disk."""
    try:
        yield
    except OutOfSpace:
        shutil.rmtree(adding, ignore_errors=True)
        raise


def difference(own: FileHashes, file: HubFile) -> str | None:
    """How a file differs from what the hub lists."""
    if own.size != file.size:
        return f"has {own.size} bytes, expected {file.size}"
    if file.sha256 is not None and own.sha256 != file.sha256:
        return f"has the SHA-256 {own.sha256}, expected {file.sha256}"
    if file.sha256 is None and own.git_hash != file.git_hash:
        return f"has the git hash {own.git_hash}, expected {file.git_hash}"
    return None


def _kept(target: Path, file: HubFile) -> FileHashes | None:
    """Hashes of a file of an earlier attempt; None if it must be fetched."""
    try:
        own = hashes_of(target)
    except FileNotFoundError:
        return None
    except OSError:
        own = None
    if own is None or difference(own, file) is not None:
        target.unlink()
        return None
    return own


def _arrived(target: Path, size: int) -> int:
    for path in (target, target.with_name(target.name + PART)):
        with suppress(OSError):
            return min(size, path.lstat().st_size)
    return 0


def _link_files(source: Path, target: Path, without: str | None = None) -> None:
    """The files below ``source``, without those of one folder in it."""
    for place, folders, names in os.walk(source):
        if without in folders and Path(place) == source:
            folders.remove(without)
        for name in names:
            own = Path(place) / name
            copy = target / own.relative_to(source)
            if own.is_symlink() or copy.exists():
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            os.link(own, copy, follow_symlinks=False)
