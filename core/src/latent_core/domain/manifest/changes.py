"""How two manifests of a container differ, and what each difference does to what is stored."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel

from latent_core.domain.chunk import SourceType
from latent_core.domain.manifest.model import Manifest


class ChangeEffect(StrEnum):
    """From the weakest to the strongest."""

    IMMEDIATE = "immediate"
    """From the next request on; stored content stays as it is."""
    NEW_DOCUMENTS = "new_documents"
    """Documents that are added from now on."""
    RECHUNK = "rechunk"
    """Documents that are added from now on; stored ones when they are read again (``reparse``)."""
    REEMBED = "reembed"
    """All vectors are made again by a refresh; apply alone refuses it."""
    REFUSED = "refused"
    """Cannot change."""


ORDER: Final = tuple(ChangeEffect)


class ManifestChange(BaseModel):
    """A manifest key with different values."""

    key: str
    old: Any
    new: Any


EFFECTS: Final = {
    "id": ChangeEffect.REFUSED,
    "storage": ChangeEffect.REFUSED,
    "embedder": ChangeEffect.REEMBED,
    "embedder_version": ChangeEffect.REEMBED,
    "dims": ChangeEffect.REEMBED,
    "modalities": ChangeEffect.RECHUNK,
    "chunker": ChangeEffect.RECHUNK,
    "pdf": ChangeEffect.RECHUNK,
    "image": ChangeEffect.RECHUNK,
    "web.sanitize_rules": ChangeEffect.RECHUNK,
    "metadata": ChangeEffect.RECHUNK,
    "ingest.meta_from_path": ChangeEffect.RECHUNK,
    "ingest.transcripts": ChangeEffect.RECHUNK,
    "web.javascript": ChangeEffect.NEW_DOCUMENTS,
    "summaries.enabled": ChangeEffect.NEW_DOCUMENTS,
    "summaries.provider": ChangeEffect.NEW_DOCUMENTS,
    "extraction": ChangeEffect.NEW_DOCUMENTS,
    "captions": ChangeEffect.NEW_DOCUMENTS,
    "speech": ChangeEffect.NEW_DOCUMENTS,
}
"""By the beginning of a key; the longest one decides. All others are immediate."""

SCOPES: Final[dict[str, tuple[SourceType, ...]]] = {
    "modalities": (SourceType.PDF, SourceType.IMAGE),
    "pdf.max_pages": (SourceType.PDF,),
    "image.thumbnail_max_edge": (SourceType.IMAGE,),
    "web.sanitize_rules": (SourceType.WEB,),
    "chunker.code_lines": (SourceType.CODE,),
    "chunker.code_overlap": (SourceType.CODE,),
    "ingest.transcripts": (SourceType.CONVERSATION,),
}
"""Types of documents whose chunks or pages a key decides; all types for the others."""

SAME_TEXTS: Final = ("pdf.render_dpi", "pdf.image_format", "image", "metadata", "ingest")
"""Keys that decide how documents are read but not the texts of chunks: their vectors are reused."""


def differences(old: Manifest, new: Manifest) -> list[ManifestChange]:
    """Dotted keys whose values differ, in the order of the manifest."""
    before, after = (dict(_flat(m.model_dump(mode="json"))) for m in (old, new))
    return [
        ManifestChange(key=key, old=before.get(key), new=after.get(key))
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]


def rebased(base: Manifest, mine: Manifest, theirs: Manifest) -> dict[str, Any]:
    """``theirs`` with the changes from ``base`` to ``mine`` on top, as keys of a manifest."""
    merged = theirs.model_dump(mode="json")
    for change in differences(base, mine):
        if change.new == {}:  # its keys are removed one by one: others may have added some
            continue
        *above, last = change.key.split(".")
        target = merged
        for name in above:
            target = target.setdefault(name, {})
        if change.new is None and change.key not in _keys(mine):
            target.pop(last, None)
        else:
            target[last] = change.new
    return merged


def _keys(manifest: Manifest) -> set[str]:
    return {key for key, _ in _flat(manifest.model_dump(mode="json"))}


def effect_of(key: str) -> ChangeEffect:
    """What a change of a dotted key does."""
    found = longest_prefix(key, EFFECTS)
    return ChangeEffect.IMMEDIATE if found is None else EFFECTS[found]


def scope_of(key: str) -> tuple[SourceType, ...]:
    """Types of documents that a key of effect ``RECHUNK`` concerns."""
    found = longest_prefix(key, SCOPES)
    return tuple(SourceType) if found is None else SCOPES[found]


def keeps_texts(key: str) -> bool:
    """Whether the texts of chunks, and therefore their vectors, stay when documents are read again."""
    return longest_prefix(key, SAME_TEXTS) is not None and not key.startswith("ingest.transcripts")


def strongest(effects: list[ChangeEffect]) -> ChangeEffect | None:
    """None without any."""
    return max(effects, key=ORDER.index, default=None)


def longest_prefix(key: str, known: Any) -> str | None:
    """The longest of the ``known`` dotted keys that ``key`` is or is below."""
    while key and key not in known:
        key = key.rpartition(".")[0]
    return key or None


def _flat(value: dict[str, Any], path: str = "") -> list[tuple[str, Any]]:
    items: list[tuple[str, Any]] = []
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            items += _flat(inner, f"{path}{key}.")
        else:
            items.append((f"{path}{key}", inner))
    return items
