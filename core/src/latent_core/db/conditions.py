"""Filters as SQL: fragments from one table, joined as the filter's nodes are; every value is a parameter.

In the fragments ``c`` is a row of ``chunks`` and ``d`` its document. A fragment may be NULL where a field
is missing: AND and OR treat that as "not true", and NOT is written as IS NOT TRUE, so that every chunk
matches either a condition or its ``Negation``. No content of a row makes a fragment fail.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString, assert_never

from psycopg.sql import SQL, Composable, Placeholder
from psycopg.types.json import Jsonb

from latent_core.domain.filters.model import (
    CHUNK_META,
    AllOf,
    AnyOf,
    Column,
    FilterOp,
    MetaField,
    Negation,
    Node,
    Test,
)


@dataclass(frozen=True, slots=True)
class FilterCondition:
    """The condition of a filter on a chunk; an empty one matches every chunk."""

    where: Composable | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of ``where``."""

    def __bool__(self) -> bool:
        return self.where is not None


def condition(node: Node | None) -> FilterCondition:
    """Translate a filter into a condition."""
    if node is None:
        return FilterCondition()
    compiler = _Compiler()
    return FilterCondition(compiler.node(node), compiler.values)


def both(one: FilterCondition, other: FilterCondition) -> FilterCondition:
    """Chunks that match both; their parameters have different names."""
    if one.where is None or other.where is None:
        return one if other.where is None else other
    where = SQL("({} AND {})").format(one.where, other.where)
    return FilterCondition(where, {**one.values, **other.values})


COUNTABLE: Final[Mapping[Column, LiteralString]] = {
    Column.SOURCE_TYPE: "d.source_type",
    Column.LANGUAGE: "d.language",
    Column.ORIGIN: "d.origin",
    Column.WRITTEN_BY: "d.written_by",
    Column.SESSION: "d.session",
    Column.SUMMARY_PRODUCT_TAGS: "(SELECT s.front_matter -> 'product_tags' "
    "FROM summaries s WHERE s.doc_id = d.id AND s.generation = d.live_generation AND s.state = 'done')",
    Column.SUMMARY_KEY_TOPICS: "(SELECT s.front_matter -> 'key_topics' "
    "FROM summaries s WHERE s.doc_id = d.id AND s.generation = d.live_generation AND s.state = 'done')",
    # One item for each of AGES that the document is not older than, so that the item is a filter for what it counts.
    Column.MAX_AGE: "(SELECT array_agg(age) FROM unnest(ARRAY['1d', '7d', '30d', '365d']) AS age "
    "WHERE coalesce(d.source_modified_at, d.first_fetched_at) >= now() - age::interval)",
}
"""Columns of documents whose values can be counted."""
AGES: Final = ("1d", "7d", "30d", "365d")
"""Values of the facet ``max_age``."""


@dataclass(frozen=True, slots=True)
class FieldValues:
    """The values of several fields, as jsonb expressions."""

    of: tuple[Composable, ...]
    parameters: Mapping[str, Any]


def field_values(fields: Sequence[Column | MetaField]) -> FieldValues:
    """Expressions for the values of ``fields`` (of ``COUNTABLE``, or of the meta)."""
    compiler = _Compiler("field")
    return FieldValues(tuple(map(compiler.value, fields)), compiler.values)


_PATH: Final[LiteralString] = (
    """(CASE WHEN d.uri ^@ 'file:///' THEN substr(d.uri, 9) ELSE d.uri END COLLATE "C")"""
)
_HEADINGS: Final[LiteralString] = "array_to_string(c.heading_path, ' > ')"
_PARENT: Final[LiteralString] = (
    "coalesce(c.parent_section, c.heading_path[cardinality(c.heading_path) - 1])"
)
_SYMBOLS: Final[LiteralString] = (
    "EXISTS (SELECT FROM jsonb_array_elements_text("
    "CASE jsonb_typeof(c.meta -> 'symbols') WHEN 'array' THEN c.meta -> 'symbols' END) AS symbol"
)
_LAST_PAGE: Final[LiteralString] = "coalesce(c.page_end, c.page)"

_GLOBS: Final[LiteralString] = (
    _PATH + " ^@ ANY({folders}::text[]) OR " + _PATH + " ~ ANY({patterns}::text[])"
)
_EXACT: Final[LiteralString] = " = ANY({value}::text[])"
_MOMENT: Final[LiteralString] = " {op} {value}::timestamptz"
_MOMENTS: Final[LiteralString] = " = ANY({value}::timestamptz[])"
_ORDERED: Final = {
    FilterOp.GT: SQL(">"),
    FilterOp.GTE: SQL(">="),
    FilterOp.LT: SQL("<"),
    FilterOp.LTE: SQL("<="),
}

# Of the live generation. An archive may hold anything: CASE fixes the order of evaluation.
_SUMMARY: Final[LiteralString] = (
    "FROM summaries s WHERE s.doc_id = d.id AND s.generation = d.live_generation AND s.state = 'done'"
)
_UPDATED: Final[LiteralString] = (
    "CASE WHEN pg_input_is_valid(s.front_matter ->> 'last_updated', 'timestamptz') "
    "THEN (s.front_matter ->> 'last_updated')::timestamptz "
)


def _of_summary(
    names: Mapping[Column, LiteralString], values: LiteralString
) -> dict[tuple[Column, FilterOp], LiteralString]:
    """Tests of the texts that ``values`` selects as ``item``; ``{{name}}`` in it is the field."""
    found: dict[tuple[Column, FilterOp], LiteralString] = {}
    for column, name in names.items():
        items = "EXISTS (SELECT FROM (" + values.replace("{{name}}", name) + ") AS items WHERE "
        found |= {
            (column, FilterOp.EXISTS): items + "true)",
            (column, FilterOp.IN): items + "item" + _EXACT + ")",
            (column, FilterOp.PREFIX): items + "item ^@ ANY({value}::text[]))",
            (column, FilterOp.CONTAINS): (
                items + """strpos(item COLLATE "C", {value}::text) > 0)"""
            ),
        }
    return found


_TEXT_OF_SUMMARY: Final[LiteralString] = (
    "SELECT s.front_matter ->> '{{name}}' AS item "
    + _SUMMARY
    + " AND s.front_matter ->> '{{name}}' IS NOT NULL"
)
_LIST_OF_SUMMARY: Final[LiteralString] = (
    "SELECT jsonb_array_elements_text(CASE jsonb_typeof(s.front_matter -> '{{name}}') "
    "WHEN 'array' THEN s.front_matter -> '{{name}}' ELSE '[]' END) AS item " + _SUMMARY
)

_COLUMNS: Final[Mapping[tuple[Column, FilterOp], LiteralString]] = {
    (Column.SOURCE_TYPE, FilterOp.IN): "c.source_type" + _EXACT,
    (Column.MODALITY, FilterOp.IN): "c.modality" + _EXACT,
    (Column.DOC_ID, FilterOp.IN): "c.doc_id = ANY({value}::uuid[])",
    (Column.LANGUAGE, FilterOp.IN): "d.language" + _EXACT,
    (Column.LANGUAGE, FilterOp.EXISTS): "d.language IS NOT NULL",
    (Column.PATH, FilterOp.IN): _PATH + _EXACT,
    (Column.PATH, FilterOp.PREFIX): _PATH + " ^@ ANY({value}::text[])",
    (Column.PATH, FilterOp.CONTAINS): "strpos(" + _PATH + ", {value}::text) > 0",
    (Column.BLOCK_TYPE, FilterOp.IN): "c.block_type" + _EXACT,
    (Column.HEADING_PATH, FilterOp.IN): "cardinality(c.heading_path) > 0 AND " + _HEADINGS + _EXACT,
    (Column.HEADING_PATH, FilterOp.EXISTS): "cardinality(c.heading_path) > 0",
    (Column.HEADING_PATH, FilterOp.CONTAINS): (
        "strpos(" + _HEADINGS + ' COLLATE "C", {value}::text) > 0'
    ),
    # Whole headings.
    (Column.HEADING_PATH, FilterOp.PREFIX): (
        "EXISTS (SELECT FROM unnest({value}::text[]) AS prefix WHERE "
        + _HEADINGS
        + " = prefix OR "
        + _HEADINGS
        + " ^@ (prefix || ' > '))"
    ),
    (Column.PARENT_SECTION, FilterOp.IN): _PARENT + _EXACT,
    (Column.PARENT_SECTION, FilterOp.EXISTS): _PARENT + " IS NOT NULL",
    (Column.PARENT_SECTION, FilterOp.CONTAINS): (
        "strpos(" + _PARENT + ' COLLATE "C", {value}::text) > 0'
    ),
    (Column.TABLE_ID, FilterOp.IN): "c.table_id" + _EXACT,
    (Column.TABLE_ID, FilterOp.EXISTS): "c.table_id IS NOT NULL",
    (Column.KEY_PATH, FilterOp.IN): "c.key_path" + _EXACT,
    (Column.KEY_PATH, FilterOp.EXISTS): "c.key_path IS NOT NULL",
    (Column.KEY_PATH, FilterOp.CONTAINS): 'strpos(c.key_path COLLATE "C", {value}::text) > 0',
    # Whole steps: the next character ends the path, begins a name or an index.
    (Column.KEY_PATH, FilterOp.PREFIX): (
        """EXISTS (SELECT FROM unnest({value}::text[]) AS prefix WHERE c.key_path ^@ prefix
        AND substr(c.key_path, length(prefix) + 1, 1) IN ('', '.', '['))"""
    ),
    # Whole names, from any step on.
    (Column.SYMBOL, FilterOp.IN): (
        _SYMBOLS
        + ", unnest({value}::text[]) AS name WHERE symbol = name OR "
        + "right(symbol, length(name) + 1) = '.' || name)"
    ),
    (Column.SYMBOL, FilterOp.EXISTS): _SYMBOLS + ")",
    (Column.SYMBOL, FilterOp.CONTAINS): (
        _SYMBOLS + ' WHERE strpos(symbol COLLATE "C", {value}::text) > 0)'
    ),
    (Column.SYMBOL, FilterOp.PREFIX): (
        _SYMBOLS
        + ", unnest({value}::text[]) AS name WHERE "
        + "strpos('.' || symbol || '.', '.' || name || '.') > 0)"
    ),
    (Column.PAGE, FilterOp.IN): (
        "EXISTS (SELECT FROM unnest({value}::integer[]) AS page WHERE page BETWEEN c.page AND "
        + _LAST_PAGE
        + ")"
    ),
    (Column.PAGE, FilterOp.EXISTS): "c.page IS NOT NULL",
    (Column.PAGE, FilterOp.GT): _LAST_PAGE + " > {value}::integer",
    (Column.PAGE, FilterOp.GTE): _LAST_PAGE + " >= {value}::integer",
    (Column.PAGE, FilterOp.LT): "c.page < {value}::integer",
    (Column.PAGE, FilterOp.LTE): "c.page <= {value}::integer",
    (Column.ORIGIN, FilterOp.IN): "d.origin" + _EXACT,
    (Column.WRITTEN_BY, FilterOp.IN): "d.written_by" + _EXACT,
    (Column.WRITTEN_BY, FilterOp.EXISTS): "d.written_by IS NOT NULL",
    (Column.WRITTEN, FilterOp.IN): "d.written_at" + _MOMENTS,
    **{(Column.WRITTEN, op): "d.written_at" + _MOMENT for op in _ORDERED},
    (Column.SESSION, FilterOp.IN): "d.session" + _EXACT,
    (Column.SESSION, FilterOp.EXISTS): "d.session IS NOT NULL",
    (Column.MODIFIED, FilterOp.IN): "d.source_modified_at" + _MOMENTS,
    (Column.MODIFIED, FilterOp.EXISTS): "d.source_modified_at IS NOT NULL",
    **{(Column.MODIFIED, op): "d.source_modified_at" + _MOMENT for op in _ORDERED},
    (Column.INGESTED, FilterOp.IN): "d.fetched_at" + _MOMENTS,
    (Column.INGESTED, FilterOp.EXISTS): "d.fetched_at IS NOT NULL",
    **{(Column.INGESTED, op): "d.fetched_at" + _MOMENT for op in _ORDERED},
    (Column.GENERATED, FilterOp.IN): (
        "coalesce(c.generated, 'false') = ANY({value}::text[])"
        " OR c.generated IS NOT NULL AND 'true' = ANY({value}::text[])"
    ),
    (Column.MAX_AGE, FilterOp.LTE): (
        "coalesce(d.source_modified_at, d.first_fetched_at) >= now() - {value}::interval"
    ),
    **_of_summary(
        {
            Column.SUMMARY_DOC_ID: "doc_id",
            Column.SUMMARY_SOURCE_PATH: "source_path",
            Column.SUMMARY_LANGUAGE: "language",
        },
        _TEXT_OF_SUMMARY,
    ),
    **_of_summary(
        {
            Column.SUMMARY_PRODUCT_TAGS: "product_tags",
            Column.SUMMARY_KEY_TOPICS: "key_topics",
            Column.SUMMARY_API_SYMBOLS: "api_symbols",
            Column.SUMMARY_RELATED_FILES: "related_files",
            Column.SUMMARY_SUGGESTED_QUERIES: "suggested_queries",
        },
        _LIST_OF_SUMMARY,
    ),
    (Column.SUMMARY_LAST_UPDATED, FilterOp.IN): (
        "EXISTS (SELECT " + _SUMMARY + " AND " + _UPDATED + _MOMENTS + " END)"
    ),
    (Column.SUMMARY_LAST_UPDATED, FilterOp.EXISTS): (
        "EXISTS (SELECT " + _SUMMARY + " AND s.front_matter ->> 'last_updated' IS NOT NULL)"
    ),
    **{
        (Column.SUMMARY_LAST_UPDATED, op): (
            "EXISTS (SELECT " + _SUMMARY + " AND " + _UPDATED + _MOMENT + " END)"
        )
        for op in _ORDERED
    },
}

_IN_CHUNK: Final[LiteralString] = "coalesce(c.meta -> {name}::text, d.meta -> {name}::text)"
_IN_DOCUMENT: Final[LiteralString] = "(d.meta -> {name}::text)"
# {meta} is the value of a field: jsonb or NULL. Casts are inside CASE, which fixes the order of evaluation.
_KNOWN: Final[LiteralString] = "jsonb_typeof({meta}) <> 'null'"
_EQUAL: Final[LiteralString] = "{meta} = ANY({value}::jsonb[])"
_EQUAL_OR_ITEM: Final[LiteralString] = (
    _EQUAL
    + """ OR jsonb_typeof({meta}) = 'array'
    AND EXISTS (SELECT FROM unnest({value}::jsonb[]) AS item WHERE {meta} @> item)"""
)
_NUMBER: Final[LiteralString] = "jsonb_typeof({meta}) = 'number' AND {meta} {op} {value}::jsonb"
_TEXT: Final[LiteralString] = (
    """jsonb_typeof({meta}) = 'string' AND ({meta} #>> '{{}}') COLLATE "C" {op} {value}::text"""
)
_HAS: Final[LiteralString] = "jsonb_typeof({meta}) = 'array' AND {meta} @> {value}::jsonb"
_HAS_TEXT: Final[
    LiteralString
] = """CASE jsonb_typeof({meta}) WHEN 'array' THEN {meta} @> {value}::jsonb
    WHEN 'string' THEN strpos(({meta} #>> '{{}}') COLLATE "C", {text}::text) > 0 END"""
_DATED: Final[
    LiteralString
] = r"""CASE WHEN jsonb_typeof({meta}) = 'string' AND ({meta} #>> '{{}}') ~
    '^\d{{4}}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$'
    AND pg_input_is_valid({meta} #>> '{{}}', 'timestamptz') THEN ({meta} #>> '{{}}')::timestamptz """


class _Compiler:
    """Composes one condition and collects its parameters."""

    def __init__(self, prefix: str = "asked") -> None:
        """``prefix``: of the names of its parameters."""
        self._prefix = prefix
        self.values: dict[str, Any] = {}

    def node(self, node: Node) -> Composable:
        match node:
            case AllOf():
                return self._joined(" AND ", node.parts)
            case AnyOf():
                return self._joined(" OR ", node.parts)
            case Negation():
                return SQL("({part} IS NOT TRUE)").format(part=self.node(node.part))
            case Test():
                return SQL("({})").format(self._test(node, node.field))
        assert_never(node)

    def _joined(self, word: LiteralString, parts: Sequence[Node]) -> Composable:
        return SQL("({})").format(SQL(word).join([self.node(part) for part in parts]))

    def _test(self, test: Test, field: Column | MetaField) -> Composable:
        return self._column(test, field) if isinstance(field, Column) else self._meta(test, field)

    def _column(self, test: Test, column: Column) -> Composable:
        if test.op is FilterOp.GLOB:
            return self._globs([str(value) for value in test.values])
        fragment = SQL(_COLUMNS[column, test.op])
        if test.op is FilterOp.EXISTS:
            return fragment
        given: Any = test.values[0]
        if test.op in (FilterOp.IN, FilterOp.PREFIX):
            given = list(test.values)
        if column is Column.GENERATED:
            given = [str(value).lower() for value in given]
        return fragment.format(value=self._bind(given), op=_ORDERED.get(test.op, SQL("")))

    def _globs(self, globs: Sequence[str]) -> Composable:
        """Folders use a plain comparison, which is cheaper than a pattern."""
        folders = [glob for glob in globs if _is_folder(glob)]
        patterns = [glob_pattern(glob) for glob in globs if glob not in folders]
        return SQL(_GLOBS).format(
            folders=self._bind([glob.removesuffix("**") for glob in folders]),
            patterns=self._bind(patterns),
        )

    def _meta(self, test: Test, field: MetaField) -> Composable:
        meta = self._field(field.name)
        if test.op is FilterOp.EXISTS:
            return SQL(_KNOWN).format(meta=meta)
        if field.dated:
            return self._dated(test, meta)
        if test.op is FilterOp.IN:
            values = [Jsonb(value) for value in test.values]
            equal = _EQUAL_OR_ITEM if field.listed else _EQUAL
            return SQL(equal).format(meta=meta, value=self._bind(values))
        (value,) = test.values
        if test.op is FilterOp.CONTAINS and isinstance(value, str):
            return SQL(_HAS_TEXT).format(
                meta=meta, value=self._bind(Jsonb(value)), text=self._bind(value)
            )
        if test.op is FilterOp.CONTAINS:
            return SQL(_HAS).format(meta=meta, value=self._bind(Jsonb(value)))
        compared = _TEXT if isinstance(value, str) else _NUMBER
        bound = self._bind(value if isinstance(value, str) else Jsonb(value))
        return SQL(compared).format(meta=meta, op=_ORDERED[test.op], value=bound)

    def _dated(self, test: Test, meta: Composable) -> Composable:
        if test.op is FilterOp.IN:
            return SQL(_DATED + _MOMENTS + " END").format(
                meta=meta, value=self._bind(list(test.values))
            )
        return SQL(_DATED + _MOMENT + " END").format(
            meta=meta, op=_ORDERED[test.op], value=self._bind(test.values[0])
        )

    def value(self, field: Column | MetaField) -> Composable:
        """The value of a field as jsonb; NULL where it is missing."""
        if isinstance(field, MetaField):
            return self._field(field.name)
        return SQL("to_jsonb(" + COUNTABLE[field] + ")")

    def _field(self, name: str) -> Composable:
        """The value of a field: the chunk's, else the document's; else the value at the dotted path."""
        whole = self._top(name)
        first, *steps = name.split(".")
        if not steps:
            return whole
        inner = self._top(first)
        for step in steps:
            inner = SQL("({} -> {}::text)").format(inner, self._bind(step))
        return SQL("coalesce({}, {})").format(whole, inner)

    def _top(self, name: str) -> Composable:
        top = _IN_CHUNK if name in CHUNK_META else _IN_DOCUMENT
        return SQL(top).format(name=self._bind(name))

    def _bind(self, value: Any) -> Placeholder:
        name = f"{self._prefix}_{len(self.values)}"
        self.values[name] = value
        return Placeholder(name)


def _is_folder(glob: str) -> bool:
    head = glob.removesuffix("/**")
    return head != glob and not set(head) & set("*?")


def glob_pattern(glob: str) -> str:
    """A glob as a regular expression of Postgres that matches in time linear in the path.

    ``*`` is any run of characters except slashes, ``?`` one such character, ``**`` any number of whole parts, at
    the end any rest. A glob without a slash matches the file name in any folder.
    """
    parts = glob.split("/")
    if len(parts) == 1 and glob != "**":
        parts = ["**", glob]
    *folders, last = parts
    head = "".join("(?:.*/)?" if part == "**" else f"{_part(part)}/" for part in folders)
    return f"^{head}{'.*' if last == '**' else _part(last)}$"


def _part(part: str) -> str:
    return "".join(_WILD.get(token, _escaped(token)) for token in _TOKEN.findall(part))


_TOKEN: Final = re.compile(r"\*+|\?|[^*?]+")
_WILD: Final[Mapping[str, str]] = {"?": "[^/]"}


def _escaped(literal: str) -> str:
    if literal.startswith("*"):
        return "[^/]*"
    return "".join(c if c.isalnum() or not c.isascii() else f"\\{c}" for c in literal)
