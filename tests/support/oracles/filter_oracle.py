"""What a filter should let through, judged naively in Python of what is written; and random rows and filters."""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID, uuid5

from hypothesis import strategies as st

from latent_core.domain.filters.values import Plain

_NAMESPACE: Final = UUID("6f1a0c57-51c2-4f7e-9d55-3a4d9d0c2b11")
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d\Z")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?\Z")
_ORDER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
_UNITS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}


@dataclass(frozen=True, slots=True)
class FilterRow:
    """What a filter may ask of a chunk."""

    chunk_no: int
    doc_id: UUID
    uri: str
    source_type: str = "text"
    modality: str = "text"
    language: str | None = None
    key_path: str | None = None
    block_type: str = "paragraph"
    headings: tuple[str, ...] = ()
    parent: str | None = None
    """As the parser wrote it."""
    table_id: str | None = None
    page: int | None = None
    page_end: int | None = None
    modified: datetime | None = None
    first_fetched: datetime | None = None
    fetched: datetime | None = None
    generated: str | None = None
    doc_meta: Mapping[str, Any] = field(default_factory=dict)
    chunk_meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return self.uri.removeprefix("file:///")

    @property
    def heading_path(self) -> str | None:
        return " > ".join(self.headings) if self.headings else None

    @property
    def parent_section(self) -> str | None:
        above = self.headings[-2] if len(self.headings) > 1 else None
        return above if self.parent is None else self.parent

    @property
    def max_age(self) -> list[str]:
        """The values of that facet."""
        since = self.modified or self.first_fetched
        days = (1, 7, 30, 365)
        now = datetime.now(UTC)
        return [f"{n}d" for n in days if since is not None and since >= now - timedelta(days=n)]


@dataclass(frozen=True, slots=True)
class FilterJudge:
    """Judges rows at one moment; ``dated`` are the fields of the meta that a schema declares as dates."""

    now: datetime
    dated: frozenset[str] = frozenset()

    def passes(self, written: Mapping[str, Any], row: FilterRow) -> bool:
        return all(self._entry(name, condition, row) for name, condition in written.items())

    def _entry(self, name: str, condition: Any, row: FilterRow) -> bool:
        match name:
            case "and":
                return all(self.passes(part, row) for part in condition)
            case "or":
                return any(self.passes(part, row) for part in condition)
            case "not":
                return not self.passes(condition, row)
            case "max_age":
                since = row.modified or row.first_fetched
                number, unit = re.fullmatch(r"(\d+)(\w+)", condition).groups()  # type: ignore[union-attr] # the strategies write it so
                return since is not None and self.now - since <= timedelta(
                    seconds=int(number) * _UNITS[unit]
                )
        if not isinstance(condition, dict):
            short = {"path": "glob", "key_path": "prefix"}.get(name, "eq")
            several = condition if isinstance(condition, list) else [condition]
            return any(self._asks(name, short, value, row) for value in several)
        return all(self._operator(name, op, value, row) for op, value in condition.items())

    def _operator(self, name: str, op: str, value: Any, row: FilterRow) -> bool:
        if op == "ne":
            return not self._asks(name, "eq", value, row)
        if isinstance(value, list):
            return any(self._asks(name, "eq" if op == "in" else op, one, row) for one in value)
        return self._asks(name, op, value, row)

    def _asks(self, name: str, op: str, value: Any, row: FilterRow) -> bool:
        if name == "page":
            first, last = row.page, row.page_end or row.page
            if op == "exists":
                return (first is not None) is value
            if first is None or last is None:
                return False
            pages = range(first, last + 1)
            return any(page == value if op == "eq" else _ORDER[op](page, value) for page in pages)
        if name in ("modified", "ingested"):
            return _moment(row.modified if name == "modified" else row.fetched, op, value)
        if name == "generated":
            return value == row.generated or value is (row.generated is not None)
        if name == "symbol":
            return _symbol(row.chunk_meta.get("symbols"), op, value)
        if name.startswith("meta."):
            return self._meta(name.removeprefix("meta."), op, value, row)
        stored = str(row.doc_id) if name == "doc_id" else getattr(row, name)
        if op == "exists":
            return (stored is not None) is value
        return stored is not None and _text(name, stored, op, value)

    def _meta(self, name: str, op: str, value: Any, row: FilterRow) -> bool:
        stored = _under(name, {**row.doc_meta, **row.chunk_meta})
        if op == "exists":
            return (stored is not None) is value
        if name in self.dated:
            return _moment(_read_date(stored), op, value)
        if op == "contains" and isinstance(stored, list):
            return any(_same(item, value) for item in stored)
        if op == "contains":
            return isinstance(stored, str) and isinstance(value, str) and value in stored
        if op == "eq":
            return _same(stored, value)
        if isinstance(stored, str) and isinstance(value, str):
            return _ORDER[op](stored.encode(), value.encode())
        if _is_number(stored) and _is_number(value):
            return _ORDER[op](Decimal(repr(stored)), Decimal(repr(value)))
        return False


def _symbol(stored: Any, op: str, value: Any) -> bool:
    """Names are lists of texts; a parser writes no others, but an archive may."""
    items = stored if isinstance(stored, list) else []
    if op == "exists":
        return bool(items) is value
    for item in items:
        name = str(item).lower() if isinstance(item, bool | int) else item
        steps = name.split(".") if isinstance(name, str) else []
        given = value.split(".")
        size = len(given)
        ends = range(size, len(steps) + 1) if op == "prefix" else [len(steps)]
        if any(steps[max(0, end - size) : end] == given for end in ends):
            return True
    return False


def _text(name: str, stored: str, op: str, value: str) -> bool:
    match op:
        case "prefix" if name == "key_path":
            return stored.startswith(value) and stored[len(value) : len(value) + 1] in (
                "",
                ".",
                "[",
            )
        case "prefix" if name == "heading_path":
            return stored == value or stored.startswith(value + " > ")
        case "prefix":
            return stored.startswith(value)
        case "contains":
            return value in stored
        case "glob":
            return fits(value, stored)
    return stored == value


def fits(glob: str, path: str) -> bool:
    """Whether a path is one of those a glob means."""
    glob = glob.lstrip("/")
    if not glob or glob.endswith("/"):
        glob += "**"
    parts = glob.split("/")
    return _parts(["**", glob] if len(parts) == 1 and glob != "**" else parts, path.split("/"))


def _parts(globs: Sequence[str], names: Sequence[str]) -> bool:
    if not globs:
        return not names
    if globs[0] == "**" and len(globs) == 1:
        return bool(names)
    if globs[0] == "**":
        return any(_parts(globs[1:], names[n:]) for n in range(len(names) + 1))
    return bool(names) and _name(globs[0], names[0]) and _parts(globs[1:], names[1:])


def _name(glob: str, name: str) -> bool:
    if not glob:
        return not name
    if glob[0] == "*":
        return _name(glob[1:], name) or (bool(name) and _name(glob, name[1:]))
    return bool(name) and glob[0] in ("?", name[0]) and _name(glob[1:], name[1:])


def _moment(stored: datetime | None, op: str, value: Any) -> bool:
    if op == "exists":
        return (stored is not None) is value
    if stored is None:
        return False
    if _DAY.match(value) and op in ("eq", "gt", "lte"):
        day = datetime.fromisoformat(value).replace(tzinfo=UTC)
        next_day = day + timedelta(days=1)
        return {
            "eq": day <= stored < next_day,
            "gt": stored >= next_day,
            "lte": stored < next_day,
        }[op]
    condition = _read_date(value)
    assert condition is not None
    return stored == condition if op == "eq" else _ORDER[op](stored, condition)


def _read_date(stored: Any) -> datetime | None:
    if not isinstance(stored, str) or not _DATE.match(stored):
        return None
    try:
        read = datetime.fromisoformat(stored)
    except ValueError:
        return None
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


def value_of(name: str, row: FilterRow) -> Any:
    """The value of a field; None where it is missing."""
    if name.startswith("meta."):
        return _under(name.removeprefix("meta."), {**row.doc_meta, **row.chunk_meta})
    return getattr(row, name)


def _under(name: str, meta: Mapping[str, Any]) -> Any:
    if name in meta:
        return meta[name]
    value: Any = meta
    for step in name.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(stored: Any, value: Plain) -> bool:
    if _is_number(stored) and _is_number(value):
        return Decimal(repr(stored)) == Decimal(repr(value))
    return type(stored) is type(value) and bool(stored == value)


# --- random rows and filters over the same few words, so that they often meet

NASTY: Final = (
    "'; DROP TABLE chunks; --",
    '"',
    "%(limit)s",
    "{value}",
    "100%",
    "a\\b",
    "$1",
    "Ä\u00df\U0001f4a1",
    "[^/]*",
)
PATHS: Final = (
    "file:///docs/guide/lamp.md",
    "file:///docs/guide/Lamp.md",
    "file:///docs/lamp.md",
    "file:///docs/deep/er/lamp_2.py",
    "file:///lamp.txt",
    "file:///src/[id].tsx",
    "file:///src/a+b (1).md",
    "file:///c.jsonl#r1",
    "https://example.com/docs/lamp.html?a=1",
    *(f"file:///odd/{name}" for name in NASTY if "/" not in name),
)
GLOBS: Final = (
    *("docs/**", "docs/", "docs/*", "docs/*/*.md", "**/*.md", "*.md", "lamp.*", "**", "*"),
    *("docs/**/lamp?2.py", "/docs/guide/?amp.md", "**/guide/**", "src/[id].tsx", "src/a+b (?).md"),
    *("https://example.com/**", "c.jsonl#*", "*%*", "**/*\\*", "d*s/*e*/*", "docs/**/**/*.md"),
)
KEY_PATHS: Final = (
    "services",
    "services.api",
    "services.api.ports[0]",
    "services[1]",
    "serv",
    'a."b c"',
)
HEADINGS: Final = (
    *((), ("Guide",), ("Guide", "Install"), ("Guide", "Install", "Linux"), ("Guidebook",)),
    *(("Install",), ("100%", "a\\b"), ("Ä_", "'; DROP TABLE chunks; --", "Install")),
)
PARENTS: Final = ("Guide", "Install", "services", "services.api", "%", "100%")
TABLES: Final = ("t1", "t2", "T1")
DATES: Final = (
    *(
        "2024-01-31",
        "2024-02-01",
        "2024-01-31T10:00:00Z",
        "2024-01-31 23:30",
        "2023-12-31T23:59:59.5+02:00",
    ),
    *("2026-01-01", "2026-06-30T12:00:00"),
)
NOT_DATES: Final = ("2024-02-30", "2024-13-01", "now", "infinity", "2024", "")
IN_CHUNKS: Final = ("symbols", "ocr")
"""Also in documents; the chunk's wins."""
NAMES: Final = (*IN_CHUNKS, "year", "title", "tags", "flag", "when", "a.b", "a.b.c", *NASTY[:4])
VALUES: Final[tuple[Plain, ...]] = (
    *(0, 1, -1, 2020, 2021, 2020.5, 0.1, 1e300, -0.0, 2**63, -(2**63), 9007199254740993, 1.0),
    *(True, False),
    *("", "a", "b", "ab", "Z", "ä", "2020", "true", *NASTY, *DATES, *NOT_DATES),
)
USUAL: Final[Mapping[str, Sequence[Plain]]] = {
    "year": (2019, 2020, 2020.5, 2021, "2020", True),
    "when": (*DATES, *NOT_DATES, 2024),
}
"""What some fields hold mostly."""
LANGUAGES: Final = ("german", "english", "simple", None)


def random_rows(count: int, now: datetime, seed: int) -> list[FilterRow]:
    """Chunks of documents of up to five each."""
    rng = random.Random(seed)
    rows: list[FilterRow] = []
    while len(rows) < count:
        rows += _document(rng, len(rows), now)
    return rows[:count]


def _document(rng: random.Random, first: int, now: datetime) -> list[FilterRow]:
    uri = rng.choice(PATHS)
    times = {
        name: _time(rng, now) if rng.random() < 0.8 else None
        for name in ("modified", "first_fetched", "fetched")
    }
    language, doc_meta = rng.choice(LANGUAGES), _meta(rng)
    rows = []
    for n in range(rng.randint(1, 5)):
        page = rng.choice([None, 1, 3, 4, 9])
        rows.append(
            FilterRow(
                chunk_no=first + n,
                doc_id=uuid5(_NAMESPACE, f"{uri}/{first}"),
                uri=uri,
                source_type=rng.choice(["pdf", "markdown", "code"]),
                modality=rng.choice(["text", "image"]),
                language=language,
                key_path=rng.choice([None, *KEY_PATHS]),
                block_type=rng.choice(["paragraph", "table", "list"]),
                headings=rng.choice(HEADINGS),
                parent=rng.choice([None, None, *PARENTS]),
                table_id=rng.choice([None, *TABLES]),
                page=page,
                page_end=None if page is None else rng.choice([None, page, page + 2]),
                generated=(None, None, "page", "summary", "visual")[(first + n) % 5],
                **times,
                doc_meta=doc_meta,
                chunk_meta=_meta(rng, IN_CHUNKS) if rng.random() < 0.3 else {},
            )
        )
    return rows


def _time(rng: random.Random, now: datetime) -> datetime:
    if rng.random() < 0.3:
        known = _read_date(rng.choice(DATES))
        assert known is not None
        return known
    return now - timedelta(days=rng.randint(-3, 400), hours=6)


def _meta(rng: random.Random, names: Sequence[str] = NAMES) -> dict[str, Any]:
    meta: dict[str, Any] = {}
    for name in rng.sample([n for n in names if n != "a.b.c"], rng.randint(0, min(6, len(names)))):
        kind = rng.random()
        if kind < 0.15:
            meta[name] = rng.sample(VALUES, rng.randint(0, 3))
        elif kind < 0.2:
            meta[name] = None
        else:
            meta[name] = rng.choice(USUAL.get(name, VALUES))
    if names is NAMES and rng.random() < 0.4:
        meta["a"] = rng.choice(
            [{"b": rng.choice(VALUES)}, {"b": {"c": rng.choice(VALUES)}}, 5, [{"b": 1}]]
        )
    return meta


_operands: Final = st.sampled_from(VALUES)
_ordered: Final = st.sampled_from([v for v in VALUES if not isinstance(v, bool)])
_days: Final = st.sampled_from(DATES)
_page: Final = st.integers(0, 12)


def _operators(**operands: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    one = st.one_of(*(st.fixed_dictionaries({op: operand}) for op, operand in operands.items()))
    return st.lists(one, min_size=1, max_size=2).map(
        lambda dicts: {k: v for d in dicts for k, v in d.items()}
    )


def _comparable(
    equal: st.SearchStrategy[Any], ordered: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    return _operators(
        eq=equal, ne=equal, gt=ordered, gte=ordered, lt=ordered, lte=ordered, exists=st.booleans()
    ) | st.fixed_dictionaries({"in": st.lists(equal, min_size=1, max_size=4)})


def _closed(*names: Plain) -> st.SearchStrategy[Any]:
    one = st.sampled_from(names)
    several = st.lists(one, min_size=1, max_size=3)
    return one | several | _operators(eq=one, ne=one) | st.fixed_dictionaries({"in": several})


def fields(
    rows: Sequence[FilterRow], dated: frozenset[str] = frozenset()
) -> st.SearchStrategy[dict[str, Any]]:
    """Filters of one field."""
    paths = st.sampled_from([row.path for row in rows])
    keys = st.sampled_from(KEY_PATHS)
    parts = st.sampled_from(["lamp", "docs/", "%", ".", "_", "services"])
    globs = st.sampled_from(GLOBS)
    headings = st.sampled_from([" > ".join(path) for path in HEADINGS if path])
    parents = st.sampled_from(PARENTS)
    columns = {
        "source_type": _closed("pdf", "markdown", "code", "web"),
        "modality": _closed("text", "image"),
        "language": _closed("german", "english", "simple", "french")
        | _operators(exists=st.booleans()),
        "doc_id": _closed(*sorted({str(row.doc_id) for row in rows})),
        "path": globs
        | st.lists(globs, min_size=1, max_size=3)
        | _operators(
            eq=paths,
            ne=paths,
            glob=globs,
            prefix=st.sampled_from(["docs/", "docs/g", "l", "http"]),
            contains=parts,
        ),
        "key_path": keys
        | _operators(eq=keys, ne=keys, prefix=keys, contains=parts, exists=st.booleans()),
        "block_type": _closed("paragraph", "heading", "table", "list", "code"),
        "heading_path": headings
        | st.lists(headings, min_size=1, max_size=3)
        | _operators(
            eq=headings,
            ne=headings,
            prefix=headings,
            contains=st.sampled_from(["Install", " > ", "%", "_", "guide"]),
            exists=st.booleans(),
        ),
        "parent_section": parents
        | _operators(
            eq=parents,
            ne=parents,
            contains=st.sampled_from(["uid", "%", "."]),
            exists=st.booleans(),
        ),
        "table_id": _closed(*TABLES) | _operators(exists=st.booleans()),
        "page": _page | _comparable(_page, _page),
        "modified": _days | _comparable(_days, _days),
        "ingested": _days | _comparable(_days, _days),
        "generated": _closed(True, False, "page", "summary", "caption"),
        "max_age": st.sampled_from(["1d", "30d", "6w", "1y", "240h"]),
    }
    meta = {
        f"meta.{name}": _days | _comparable(_days, _days)
        if name in dated
        else _operands
        | _comparable(_operands, _ordered)
        | _operators(contains=_operands.filter(lambda v: v != ""))
        for name in NAMES
    }
    return st.one_of(
        *(
            st.fixed_dictionaries({name: condition})
            for name, condition in {**columns, **meta}.items()
        )
    )


def filters(
    rows: Sequence[FilterRow], dated: frozenset[str] = frozenset()
) -> st.SearchStrategy[dict[str, Any]]:
    """Filters of any shape that can be asked."""
    return st.recursive(
        fields(rows, dated),
        lambda inner: st.one_of(
            st.fixed_dictionaries({"and": st.lists(inner, min_size=1, max_size=3)}),
            st.fixed_dictionaries({"or": st.lists(inner, min_size=1, max_size=3)}),
            st.fixed_dictionaries({"not": inner}),
            st.tuples(inner, inner).map(lambda two: {**two[0], **two[1]}),
        ),
        max_leaves=6,
    )
