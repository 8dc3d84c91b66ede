"""A filter, read: which chunks may answer, as pure data. ``filter_syntax`` reads and shows it, Postgres judges by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias
from uuid import UUID

from latent_core.domain.manifest.custom_schema import FieldRule

MAX_DEPTH: Final = 16
"""Of and, or, not within each other."""
MAX_NODES: Final = 256
MAX_VALUES: Final = 1000
"""Of the whole filter."""
MAX_PATTERNS: Final = 32
"""Globs and prefixes of the whole filter; Postgres keeps no more compiled patterns than these."""
MAX_CHARS: Final = 1024
"""Of one value."""
MAX_STEPS: Final = 8
"""Names in ``meta.a.b.c``."""

META: Final = "meta."


class Column(StrEnum):
    """Fields that every chunk or its document has; their names are those of the filter language."""

    SOURCE_TYPE = "source_type"
    MODALITY = "modality"
    DOC_ID = "doc_id"
    LANGUAGE = "language"
    PATH = "path"
    """The document's uri, a file's without ``file:///``."""
    KEY_PATH = "key_path"
    PAGE = "page"
    """Any of the pages the chunk stands on."""
    MODIFIED = "modified"
    INGESTED = "ingested"
    MAX_AGE = "max_age"
    """Since the source was modified, else since it was first fetched."""


@dataclass(frozen=True, slots=True)
class MetaField:
    """A field of the meta as hits show it: the document's, overlaid by the chunk's.

    ``a.b`` is the field of that name, or else ``b`` within ``a``.
    """

    name: str
    dated: bool = False
    """The container's schema says that it holds dates: they are compared as moments, not as texts."""


class FilterOp(StrEnum):
    EQ = "eq"
    NE = "ne"
    IN = "in"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    EXISTS = "exists"
    CONTAINS = "contains"
    PREFIX = "prefix"
    GLOB = "glob"


Value: TypeAlias = str | int | float | bool | UUID | datetime | timedelta


@dataclass(frozen=True, slots=True)
class Test:
    """One field, one question. ``eq`` is ``in`` of one value, ``ne`` the ``Negation`` of that.

    ``in``, ``prefix`` and ``glob`` hold when any of ``values`` does; ``exists`` has none; the others have one.
    What a chunk lacks answers no question: the test is false, and its ``Negation`` is true.
    """

    __test__ = False  # not one of pytest's

    field: Column | MetaField
    op: FilterOp
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    part: Node


Node: TypeAlias = Test | AllOf | AnyOf | Negation


def all_of(parts: Iterable[Node]) -> Node:
    """All of ``parts``, of which there is at least one; without a layer that says nothing."""
    flat = tuple(p for part in parts for p in (part.parts if isinstance(part, AllOf) else (part,)))
    return flat[0] if len(flat) == 1 else AllOf(flat)


def any_of(parts: Iterable[Node]) -> Node:
    """Any of ``parts``, of which there is at least one; without a layer that says nothing."""
    flat = tuple(p for part in parts for p in (part.parts if isinstance(part, AnyOf) else (part,)))
    return flat[0] if len(flat) == 1 else AnyOf(flat)


@dataclass(frozen=True, slots=True)
class MetaFields:
    """What is declared of a container's meta."""

    rules: Mapping[str, FieldRule] = field(default_factory=dict)
    known: frozenset[str] | None = None
    """Names that may be asked for; None: nothing is declared, any may."""


UNDECLARED: Final = MetaFields()

CHUNK_META: Final = frozenset({"code_language", "document", "ocr", "repeated_chars", "symbols"})
"""What the meta of chunks may hold. All else is the documents': their rows are few and narrow, so that a filter
on them costs a fraction of one that has to read the chunks."""
PARSED_META: Final = CHUNK_META | {
    *(
        "author",
        "canonical_url",
        "created",
        "creator",
        "date",
        "description",
        "documents",
        "encoding",
    ),
    *(
        "extractor",
        "format",
        "height",
        "keywords",
        "modified",
        "pages",
        "producer",
        "site",
        "subject",
    ),
    "width",
}
"""Meta that parsers write of their own accord; no schema has to declare it."""
