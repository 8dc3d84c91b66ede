"""A parsed filter as data: which chunks may match. ``filters.syntax`` parses and formats it, ``db.conditions`` makes SQL of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias
from uuid import UUID

from latent_core.domain.chunk import FRONT_MATTER, TIMESTAMPS
from latent_core.domain.manifest.custom_schema import FieldRule

MAX_DEPTH: Final = 16
"""Of and, or, not within each other."""
MAX_NODES: Final = 256
MAX_VALUES: Final = 1000
"""Of the whole filter."""
MAX_PATTERNS: Final = 32
"""Globs and prefixes of the whole filter; Postgres caches no more compiled patterns."""
MAX_CHARS: Final = 1024
"""Of one value."""
MAX_STEPS: Final = 8
"""Names in ``meta.a.b.c``."""

META: Final = "meta."


class Column(StrEnum):
    """Fields that every chunk or its document has, by their names in the filter language."""

    SOURCE_TYPE = "source_type"
    MODALITY = "modality"
    DOC_ID = "doc_id"
    LANGUAGE = "language"
    PATH = "path"
    """The document's uri, a file's without ``file:///``."""
    BLOCK_TYPE = "block_type"
    HEADING_PATH = "heading_path"
    """Of the section, such as ``Guide > Install``."""
    PARENT_SECTION = "parent_section"
    """The heading above the chunk's own; in YAML and JSON the key path above."""
    TABLE_ID = "table_id"
    KEY_PATH = "key_path"
    SYMBOL = "symbol"
    """A definition in source code by its name, also below those around it: ``close``, ``Client.close``."""
    PAGE = "page"
    """Any of the pages the chunk stands on."""
    ORIGIN = "origin"
    """person, agent, web or file."""
    WRITTEN_BY = "written_by"
    """The principal that added the document."""
    WRITTEN = "written"
    """When its newest content was added."""
    SESSION = "session"
    MODIFIED = "modified"
    INGESTED = "ingested"
    MAX_AGE = "max_age"
    """Since the source was modified, else since it was first fetched."""
    GENERATED = "generated"
    """Whether a model wrote the text, or the kind of such a text: summary, page, visual, caption, transcript."""
    SUMMARY_DOC_ID = "summary.doc_id"
    SUMMARY_SOURCE_PATH = "summary.source_path"
    SUMMARY_LANGUAGE = "summary.language"
    SUMMARY_PRODUCT_TAGS = "summary.product_tags"
    SUMMARY_LAST_UPDATED = "summary.last_updated"
    SUMMARY_KEY_TOPICS = "summary.key_topics"
    SUMMARY_API_SYMBOLS = "summary.api_symbols"
    SUMMARY_RELATED_FILES = "summary.related_files"
    SUMMARY_SUGGESTED_QUERIES = "summary.suggested_queries"


SUMMARY_TEXTS: Final = (
    Column.SUMMARY_DOC_ID,
    Column.SUMMARY_SOURCE_PATH,
    Column.SUMMARY_LANGUAGE,
)
SUMMARY_LISTS: Final = (
    Column.SUMMARY_PRODUCT_TAGS,
    Column.SUMMARY_KEY_TOPICS,
    Column.SUMMARY_API_SYMBOLS,
    Column.SUMMARY_RELATED_FILES,
    Column.SUMMARY_SUGGESTED_QUERIES,
)
"""A test holds if it holds for any of the items."""


@dataclass(frozen=True, slots=True)
class MetaField:
    """A field of the meta as in hits: the document's meta, overridden by the chunk's.

    ``a.b`` is the field of that name, or else ``b`` within ``a``.
    """

    name: str
    dated: bool = False
    """The container's schema declares dates: they are compared as moments, not as texts."""
    listed: bool = False
    """A list of values: ``eq`` and ``in`` hold for any of its items, too."""


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
    """One test of one field. ``eq`` is ``in`` with one value, ``ne`` the ``Negation`` of that.

    ``in``, ``prefix`` and ``glob`` hold when any of ``values`` does; ``exists`` has none; the others have one.
    A chunk without the field matches no test: the test is false and its ``Negation`` is true.
    """

    __test__ = False  # tells pytest that this is no test class

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
    """All of ``parts`` (at least one); one part is returned without a wrapper."""
    flat = tuple(p for part in parts for p in (part.parts if isinstance(part, AllOf) else (part,)))
    return flat[0] if len(flat) == 1 else AllOf(flat)


def any_of(parts: Iterable[Node]) -> Node:
    """Any of ``parts`` (at least one); one part is returned without a wrapper."""
    flat = tuple(p for part in parts for p in (part.parts if isinstance(part, AnyOf) else (part,)))
    return flat[0] if len(flat) == 1 else AnyOf(flat)


@dataclass(frozen=True, slots=True)
class MetaFields:
    """The declared meta fields of containers."""

    rules: Mapping[str, FieldRule] = field(default_factory=dict)
    known: frozenset[str] | None = None
    """Names that a filter may use; None: nothing is declared, so any name."""


UNDECLARED: Final = MetaFields()

CHUNK_META: Final = frozenset(
    {
        *("code_language", "document", FRONT_MATTER, "ocr", "repeated_chars", "symbols"),
        *("symbol", "parents", "continued"),  # of source code
        *("speaker", "time", "turn"),  # of conversations
        TIMESTAMPS,
    }
)
"""Fields that the meta of chunks may contain. All others belong to documents, whose rows are few and narrow: a filter
on them costs a fraction of one that reads chunks."""
PARSED_META: Final = CHUNK_META | {
    *(
        "author",
        "canonical_url",
        "cells",
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
        "masked",
        "messages",
        "modified",
        "notebook_language",
        "pages",
        "producer",
        "rows",
        "seconds",
        "session",
        "sheets",
        "site",
        "slides",
        "subject",
        "to",
    ),
    "width",
}
"""Meta fields that parsers write; a schema need not declare them."""
