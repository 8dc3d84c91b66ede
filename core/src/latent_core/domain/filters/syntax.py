"""The filter language: parses the JSON of a request into nodes, and formats nodes as JSON.

``{"source_type": "pdf", "path": "docs/**/*.md", "meta.year": {"gte": 2020}, "not": {"language": "de"}}``: every
field and every operator must hold. A value alone means ``eq`` (of ``path`` a glob, of ``key_path`` a prefix), a
list any of its values. ``and`` and ``or`` take lists of such objects, ``not`` takes one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, assert_never
from uuid import UUID

from latent_core.domain.chunk import BlockType, Modality, SourceType
from latent_core.domain.errors import Invalid
from latent_core.domain.filters import values
from latent_core.domain.filters.model import (
    MAX_CHARS,
    MAX_DEPTH,
    MAX_NODES,
    MAX_PATTERNS,
    MAX_STEPS,
    MAX_VALUES,
    META,
    PARSED_META,
    SUMMARY_LISTS,
    SUMMARY_TEXTS,
    UNDECLARED,
    AllOf,
    AnyOf,
    Column,
    FilterOp,
    MetaField,
    MetaFields,
    Negation,
    Node,
    Test,
    Value,
    all_of,
    any_of,
)
from latent_core.domain.filters.values import Moment, format_value, visible
from latent_core.domain.manifest.custom_schema import FieldKind, FieldRule
from latent_core.domain.origin import Origin
from latent_core.domain.text import trouble

_CONNECTIVES: Final = ("and", "or", "not")
_MAX_SUGGESTED: Final = 500
_EQUAL: Final = (FilterOp.EQ, FilterOp.NE, FilterOp.IN)
_ORDER: Final = (FilterOp.GT, FilterOp.GTE, FilterOp.LT, FilterOp.LTE)

_Read = Callable[[FilterOp, Any], Value | Moment]


@dataclass(frozen=True, slots=True)
class _Field:
    """A field, with its operators and the reader of its values."""

    target: Column | MetaField
    ops: tuple[FilterOp, ...]
    read: _Read
    short: FilterOp = FilterOp.EQ
    """The operator of a value without one."""


def _column(target: Column, read: Callable[[Any], Value | Moment], *ops: FilterOp) -> _Field:
    return _Field(target, ops, lambda _, value: read(value))


def _path(op: FilterOp, value: Any) -> str:
    return values.pattern(value) if op is FilterOp.GLOB else values.path(value)


_COLUMNS: Final = {
    field.target: field
    for field in (
        _column(Column.SOURCE_TYPE, values.one_of(SourceType), *_EQUAL),
        _column(Column.MODALITY, values.one_of(Modality), *_EQUAL),
        _column(Column.DOC_ID, values.document_id, *_EQUAL),
        _column(Column.LANGUAGE, values.language, *_EQUAL, FilterOp.EXISTS),
        _Field(
            Column.PATH,
            (FilterOp.GLOB, FilterOp.PREFIX, FilterOp.CONTAINS, *_EQUAL),
            _path,
            FilterOp.GLOB,
        ),
        _column(Column.BLOCK_TYPE, values.one_of(BlockType), *_EQUAL),
        _column(
            Column.HEADING_PATH,
            values.text,
            *(*_EQUAL, FilterOp.PREFIX, FilterOp.CONTAINS, FilterOp.EXISTS),
        ),
        _column(Column.PARENT_SECTION, values.text, *_EQUAL, FilterOp.CONTAINS, FilterOp.EXISTS),
        _column(Column.TABLE_ID, values.text, *_EQUAL, FilterOp.EXISTS),
        _Field(
            Column.KEY_PATH,
            (FilterOp.PREFIX, FilterOp.CONTAINS, *_EQUAL, FilterOp.EXISTS),
            lambda _, value: values.text(value),
            FilterOp.PREFIX,
        ),
        _column(
            Column.SYMBOL,
            values.text,
            *(*_EQUAL, FilterOp.PREFIX, FilterOp.CONTAINS, FilterOp.EXISTS),
        ),
        _column(Column.PAGE, values.page, *_EQUAL, *_ORDER, FilterOp.EXISTS),
        _column(Column.ORIGIN, values.one_of(Origin), *_EQUAL),
        _column(Column.WRITTEN_BY, values.text, *_EQUAL, FilterOp.EXISTS),
        _column(Column.WRITTEN, values.moment, *_EQUAL, *_ORDER),
        _column(Column.SESSION, values.text, *_EQUAL, FilterOp.EXISTS),
        _column(Column.MODIFIED, values.moment, *_EQUAL, *_ORDER, FilterOp.EXISTS),
        _column(Column.INGESTED, values.moment, *_EQUAL, *_ORDER, FilterOp.EXISTS),
        _column(Column.GENERATED, values.generated, *_EQUAL),
        _Field(Column.MAX_AGE, (FilterOp.LTE,), lambda _, value: values.age(value), FilterOp.LTE),
        *(
            _column(
                name, values.text, *(*_EQUAL, FilterOp.PREFIX, FilterOp.CONTAINS, FilterOp.EXISTS)
            )
            for name in (*SUMMARY_TEXTS, *SUMMARY_LISTS)
        ),
        _column(Column.SUMMARY_LAST_UPDATED, values.moment, *_EQUAL, *_ORDER, FilterOp.EXISTS),
    )
}
_META_OPS: Final = (*_EQUAL, *_ORDER, FilterOp.EXISTS, FilterOp.CONTAINS)
_DECLARED_OPS: Final[Mapping[FieldKind | None, tuple[FilterOp, ...]]] = {
    None: _META_OPS,
    FieldKind.STRING: _META_OPS,
    FieldKind.NUMBER: (*_EQUAL, *_ORDER, FilterOp.EXISTS),
    FieldKind.INTEGER: (*_EQUAL, *_ORDER, FilterOp.EXISTS),
    FieldKind.BOOLEAN: (*_EQUAL, FilterOp.EXISTS),
    FieldKind.DATE: (*_EQUAL, *_ORDER, FilterOp.EXISTS),
    FieldKind.LIST: (FilterOp.CONTAINS, FilterOp.EXISTS),
}


def parse(written: Mapping[str, Any], meta: MetaFields = UNDECLARED) -> Node | None:
    """Parse a filter; None for an empty one. ``Invalid`` names the dotted place of the error and the allowed values."""
    return _FilterReader(meta).group(written, "filters", 1) if written else None


def field_named(name: str, at: str, meta: MetaFields = UNDECLARED) -> Column | MetaField:
    """The field of this name; ``Invalid`` for an unknown one, with the nearest known name. ``at``: its place."""
    return _FilterReader(meta).known(name, at).target


@dataclass(slots=True)
class _FilterReader:
    """Parses one filter and counts its parts."""

    meta: MetaFields
    nodes: int = 0
    values: int = 0
    patterns: int = 0

    def group(self, written: Any, at: str, depth: int) -> Node:
        """An object of fields and connectives."""
        if depth > MAX_DEPTH:
            raise _wrong(at, f"is nested too deeply: the limit is {MAX_DEPTH} levels")
        if not isinstance(written, dict | Mapping):
            raise _wrong(
                at,
                f'must be an object such as {{"source_type": "pdf"}}, not {format_value(written)}',
            )
        if not written:
            raise _wrong(at, "is empty: name at least one field")
        return all_of(self._entries(written, at, depth))

    def _entries(self, written: Mapping[str, Any], at: str, depth: int) -> Iterator[Node]:
        for key, value in written.items():
            place = f"{at}.{visible(key, 80)}"
            if key == "not":
                self._count(place)
                yield Negation(self.group(value, place, depth + 1))
            elif key in _CONNECTIVES:
                join = all_of if key == "and" else any_of
                yield join(self._groups(value, place, depth + 1))
            else:
                yield self._field(self.known(key, place), value, place)

    def _groups(self, written: Any, at: str, depth: int) -> Iterator[Node]:
        if not isinstance(written, list) or not written:
            raise _wrong(at, f"must be a list of at least one object, not {format_value(written)}")
        for n, part in enumerate(written):
            self._count(at)
            yield self.group(part, f"{at}[{n}]", depth)

    def known(self, name: str, at: str) -> _Field:
        for column in _COLUMNS.values():
            if column.target == name:
                return column
        if name.startswith(META):
            return self._meta_field(name.removeprefix(META), at)
        raise _wrong(at, f"is an unknown field; {self._nearest(name)}")

    def _meta_field(self, name: str, at: str) -> _Field:
        wrong = trouble(name)
        if wrong is not None:
            raise _wrong(at, f"the name {wrong}")
        if not name or len(name) > MAX_CHARS:
            raise _wrong(at, f"the name of a meta field has 1 to {MAX_CHARS} characters")
        rule = self.meta.rules.get(name)
        if rule is not None:
            return _declared(name, rule)
        if self.meta.known is not None and name not in self.meta.known | PARSED_META:
            raise _wrong(
                at,
                f"is not declared in the schema of these containers; {self._nearest(META + name)} "
                "(metadata.custom_schema declares fields)",
            )
        if name.count(".") >= MAX_STEPS:
            raise _wrong(at, f"has too many parts: the limit is {MAX_STEPS} names")
        return _OF_CONVERSATIONS.get(name) or _Field(MetaField(name), _META_OPS, _plain)

    def _nearest(self, name: str) -> str:
        """A suggestion: the nearest known name, or all known names."""
        declared = [META + known for known in sorted(self.meta.known or ())[:_MAX_SUGGESTED]]
        if META + name in declared:
            return f"did you mean '{META}{visible(name, 80)}'?"
        near = difflib.get_close_matches(name[:80], [*Column, *_CONNECTIVES, *declared], n=1)
        if near:
            return f"did you mean '{near[0]}'?"
        return f"known are {', '.join(Column)}, meta.<name>, {', '.join(_CONNECTIVES)}"

    def _field(self, field: _Field, written: Any, at: str) -> Node:
        return all_of(
            self._question(field, op, value, place)
            for op, value, place in _operations(field, written, at)
        )

    def _question(self, field: _Field, op: FilterOp, value: Any, at: str) -> Node:
        if op not in field.ops:
            raise _wrong(
                at, f"does not apply to this field; its operators are {', '.join(field.ops)}"
            )
        self._count(at)
        match op:
            case FilterOp.EXISTS:
                if not isinstance(value, bool):
                    raise _wrong(at, f"must be true or false, not {format_value(value)}")
                return (
                    Test(field.target, FilterOp.EXISTS)
                    if value
                    else Negation(Test(field.target, FilterOp.EXISTS))
                )
            case FilterOp.EQ:
                return self._equal(field, [self._value(field, FilterOp.IN, value, at)], at)
            case FilterOp.NE:
                return Negation(
                    self._equal(field, [self._value(field, FilterOp.IN, value, at)], at)
                )
            case FilterOp.IN:
                return self._equal(field, self._several(field, op, value, at), at)
            case FilterOp.PREFIX | FilterOp.GLOB:
                several = value if isinstance(value, list) else [value]
                read = self._several(field, op, several, at)
                self._count_patterns(len(read), at)
                return Test(field.target, op, _stored(read))
            case FilterOp.GT | FilterOp.GTE | FilterOp.LT | FilterOp.LTE:
                return _ordered(field, op, self._value(field, op, value, at))
            case FilterOp.CONTAINS:
                return Test(field.target, op, _stored([self._value(field, op, value, at)]))
        assert_never(op)

    def _equal(self, field: _Field, read: list[Value | Moment], at: str) -> Node:
        """Any of these values; for a day, any moment of it."""
        days = [value for value in read if isinstance(value, Moment) and value.end is not None]
        for _ in days:
            self._count(at)
        others = _stored([value for value in read if value not in days])
        parts: list[Node] = [Test(field.target, FilterOp.IN, others)] if others else []
        return any_of([*parts, *(_within(field, day) for day in days)])

    def _several(self, field: _Field, op: FilterOp, written: Any, at: str) -> list[Value | Moment]:
        if not isinstance(written, list) or not written:
            raise _wrong(at, f"must be a list of at least one value, not {format_value(written)}")
        if self.values + len(written) > MAX_VALUES:
            raise _wrong(at, f"exceeds the limit of {MAX_VALUES} values per filter")
        return [
            self._value(field, op, value, f"{at}[{n}]" if len(written) > 1 else at)
            for n, value in enumerate(written)
        ]

    def _value(self, field: _Field, op: FilterOp, value: Any, at: str) -> Value | Moment:
        self.values += 1
        if self.values > MAX_VALUES:
            raise _wrong(at, f"exceeds the limit of {MAX_VALUES} values per filter")
        try:
            return field.read(op, value)
        except ValueError as exc:
            raise _wrong(at, str(exc)) from exc

    def _count(self, at: str) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _wrong(at, f"exceeds the limit of {MAX_NODES} conditions per filter")

    def _count_patterns(self, more: int, at: str) -> None:
        self.patterns += more
        if self.patterns > MAX_PATTERNS:
            raise _wrong(at, f"exceeds the limit of {MAX_PATTERNS} globs and prefixes per filter")


def _declared(name: str, rule: FieldRule) -> _Field:
    return _Field(
        MetaField(name, dated=rule.kind is FieldKind.DATE),
        _DECLARED_OPS[rule.kind],
        lambda op, value: values.declared(rule, op, value),
        FilterOp.CONTAINS if rule.kind is FieldKind.LIST else FilterOp.EQ,
    )


_OF_CONVERSATIONS: Final = {
    "speaker": _Field(
        MetaField("speaker", listed=True), _META_OPS, lambda op, value: _plain(op, value)
    ),
    "time": _declared("time", FieldRule(FieldKind.DATE)),
}
"""Meta of the chunks of a conversation, unless the container's schema declares the name."""


def _plain(op: FilterOp, value: Any) -> Value:
    if op is FilterOp.CONTAINS and value == "":
        raise ValueError("must not be empty")
    return values.sizeable(value) if op in _ORDER else values.plain(value)


def _operations(field: _Field, written: Any, at: str) -> Iterator[tuple[FilterOp, Any, str]]:
    """The operations on one field: operator, operand and place."""
    if written is None:
        raise _wrong(
            at, 'must not be null; to find chunks without the field, write {"exists": false}'
        )
    if isinstance(written, list):
        several = field.short if field.short in (FilterOp.PREFIX, FilterOp.GLOB) else FilterOp.IN
        yield several, written, at
    elif not isinstance(written, dict):
        yield field.short, written, at
    elif not written:
        raise _wrong(at, f"is empty; operators are {', '.join(field.ops)}")
    else:
        for name, value in written.items():
            place = f"{at}.{visible(name, 80)}"
            if name not in list(FilterOp):
                near = difflib.get_close_matches(name[:80], [str(op) for op in field.ops], n=1)
                hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(field.ops)}"
                raise _wrong(place, f"is an unknown operator; {hint}")
            yield FilterOp(name), value, place


def _ordered(field: _Field, op: FilterOp, value: Value | Moment) -> Node:
    """A day counts as a whole: ``gt`` begins with the next day, ``lte`` includes the day."""
    if not isinstance(value, Moment):
        return Test(field.target, op, (value,))
    if value.end is not None and op is FilterOp.GT:
        return Test(field.target, FilterOp.GTE, (value.end,))
    if value.end is not None and op is FilterOp.LTE:
        return Test(field.target, FilterOp.LT, (value.end,))
    return Test(field.target, op, (value.start,))


def _within(field: _Field, day: Moment) -> Node:
    first = Test(field.target, FilterOp.GTE, (day.start,))
    return first if day.end is None else AllOf((first, Test(field.target, FilterOp.LT, (day.end,))))


def _stored(read: list[Value | Moment]) -> tuple[Value, ...]:
    """Each value once, in the given order. True differs from 1."""
    plain = [value.start if isinstance(value, Moment) else value for value in read]
    return tuple({(isinstance(value, bool), value): value for value in plain}.values())


def _wrong(at: str, why: str) -> Invalid:
    return Invalid(f"{at}: {why}", field=at.removeprefix("filters.")[:200])


def shown(node: Node) -> dict[str, Any]:
    """A node as JSON of the filter language; parsing it gives the same node."""
    match node:
        case Test():
            return {_name(node.field): _shown_question(node)}
        case Negation():
            return {"not": shown(node.part)}
        case AnyOf():
            return {"or": [shown(part) for part in node.parts]}
        case AllOf():
            parts = [shown(part) for part in node.parts]
            return _merged(parts) or {"and": parts}
    assert_never(node)


def _name(field: Column | MetaField) -> str:
    return field.value if isinstance(field, Column) else META + field.name


def _shown_question(test: Test) -> Any:
    shown_values = [_shown_value(value) for value in test.values]
    if test.field is Column.MAX_AGE:
        return shown_values[0]
    match test.op:
        case FilterOp.EXISTS:
            return {"exists": True}
        case FilterOp.IN:
            named = test.field in (Column.PATH, Column.KEY_PATH)
            return {"in": shown_values} if named else shown_values
        case _:
            return {test.op.value: shown_values[0] if len(shown_values) == 1 else shown_values}


def _shown_value(value: Value) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return values.shown_age(value)
        case UUID():
            return str(value)
    return value


def _merged(parts: list[dict[str, Any]]) -> dict[str, Any] | None:
    """All of ``parts`` as one object, if that keeps the meaning and the order."""
    whole: dict[str, Any] = {}
    for part in parts:
        if len(part) != 1:
            return None
        ((name, condition),) = part.items()
        if name in whole:
            last = next(reversed(whole))
            if name in _CONNECTIVES or name != last or not _disjoint(whole[name], condition):
                return None
            condition = {**whole[name], **condition}
        whole[name] = condition
    return whole


def _disjoint(one: Any, other: Any) -> bool:
    return isinstance(one, dict) and isinstance(other, dict) and not one.keys() & other.keys()
