"""Qdrant's strict mode, as far as the stand-in for a server has it.

It follows lib/collection/src/operations/verification/mod.rs of Qdrant's source: which limits a request must keep, in
which order they are checked, and what a refusal says. Limits that are not set (None) are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any, Final, TypeAlias
from uuid import UUID

from qdrant_client import models

from tests.support.servers.qdrant_refusals import rate_limited, strict_mode

Indexes: TypeAlias = Mapping[str, models.PayloadFieldSchema]
Use: TypeAlias = tuple[str, str]
"""The type of a payload index, and what a condition uses it for."""

_USES: Final[Mapping[str, tuple[str, ...]]] = {
    "bool": ("match",),
    "datetime": ("range",),
    "float": ("range",),
    "geo": ("geo",),
    "integer": ("match", "range"),
    "keyword": ("match",),
    "text": ("text",),
    "uuid": ("match", "range"),
}
_ANY: Final[frozenset[Use]] = frozenset((kind, use) for kind, uses in _USES.items() for use in uses)


def check_limit(given: float | None, limit: float | None, name: str) -> None:
    if given is not None and limit is not None and given > limit:
        raise strict_mode(
            f'Limit exceeded {given:g} > {limit:g} for "{name}"',
            f'Reduce the "{name}" parameter to or below {limit:g}.',
        )


def check_exact(exact: bool | None, allowed: bool | None) -> None:
    if exact and allowed is False:
        raise strict_mode("Exact search disabled!", "Set exact=false.")


def check_filter(
    chosen: models.Filter | None,
    config: models.StrictModeConfig,
    indexes: Indexes,
    *,
    unindexed: bool | None,
) -> None:
    """``unindexed``: whether filters may use fields without an index that fits."""
    if chosen is None:
        return
    found = list(conditions(chosen))
    if unindexed is False:
        for condition in found:
            _check_indexed(condition, indexes)
    limit = config.filter_max_conditions
    if limit is not None and len(found) > limit:
        raise strict_mode(
            f"Filter condition limit reached ({len(found)} > {limit})",
            "Reduce the amount of conditions of your filter.",
        )
    size, limit = max(map(_size, found), default=0), config.condition_max_size
    if limit is not None and size > limit:
        raise strict_mode(
            f"Condition size limit reached ({size} > {limit})", "Reduce the size of your condition."
        )


def check_search_params(
    params: models.SearchParams | None, config: models.StrictModeConfig
) -> None:
    if params is None:
        return
    if params.quantization is not None:
        check_limit(
            params.quantization.oversampling, config.search_max_oversampling, "oversampling"
        )
    check_limit(params.hnsw_ef, config.search_max_hnsw_ef, "hnsw_ef")
    check_exact(params.exact, config.search_allow_exact)


def check_index_count(indexes: Indexes, config: models.StrictModeConfig) -> None:
    """src/common/update.rs. Also for a field that is indexed already."""
    limit = config.max_payload_index_count
    if limit is not None and len(indexes) >= limit:
        raise strict_mode(
            f"Collection already has the maximum number of payload indices ({limit})",
            "Please delete an existing index before creating a new one.",
        )


def conditions(chosen: models.Filter | None) -> Iterator[Any]:
    """All conditions of a filter, with those of filters within it."""
    if chosen is None:
        return
    for part in (chosen.must, chosen.should, chosen.must_not):
        for condition in part if isinstance(part, list) else [part] if part else []:
            if isinstance(condition, models.Filter):
                yield from conditions(condition)
            else:
                yield condition


def _check_indexed(condition: Any, indexes: Indexes) -> None:
    """lib/collection/src/problems/unindexed_field.rs."""
    key, needed = _required(condition)
    if needed and not needed & _capabilities(indexes.get(key)):
        types = {kind for kind, _ in needed}
        if needed == _ANY:
            types.add("text (with phrase_matching: true)")
        raise strict_mode(
            f'Index required but not found for "{key}" of one of the following types: [{", ".join(sorted(types))}]',
            "Create an index for this key or use a different filter.",
        )


def _required(condition: Any) -> tuple[str, frozenset[Use]]:
    """The field of a condition, and the uses of an index of which one is needed."""
    match condition:
        case models.FieldCondition():
            return condition.key, _of_field(condition)
        case models.IsEmptyCondition():
            return condition.is_empty.key, _ANY
        case models.IsNullCondition():
            return condition.is_null.key, _ANY
    return "", frozenset()


def _of_field(condition: models.FieldCondition) -> frozenset[Use]:
    match condition.match:
        case models.MatchValue():
            return _of_values([condition.match.value])
        case models.MatchAny():
            return _of_values(list(condition.match.any))
        case models.MatchExcept():
            return _of_values(list(condition.match.except_))
        case None:
            pass
        case _:
            return frozenset({("text", "text")})
    match condition.range:
        case models.DatetimeRange():
            return frozenset({("datetime", "range")})
        case models.Range():
            return frozenset({("float", "range"), ("integer", "range")})
    return _ANY


def _of_values(values: list[Any]) -> frozenset[Use]:
    if not values:
        return frozenset()
    if isinstance(values[0], bool):
        return frozenset({("bool", "match")})
    if isinstance(values[0], int):
        return frozenset({("integer", "match")})
    uuids = {("uuid", "match")} if all(map(is_uuid, values)) else set()
    return frozenset({("keyword", "match")} | uuids)


def _capabilities(schema: models.PayloadFieldSchema | None) -> frozenset[Use]:
    if schema is None:
        return frozenset()
    kind = index_type(schema)
    absent = set()
    if isinstance(schema, models.IntegerIndexParams):
        absent = {"match"} if schema.lookup is False else set()
        absent |= {"range"} if schema.range is False else set()
    return frozenset((kind, use) for use in _USES[kind] if use not in absent)


def index_type(schema: models.PayloadFieldSchema) -> str:
    found = schema if isinstance(schema, models.PayloadSchemaType) else schema.type
    return str(found.value)


def _size(condition: Any) -> int:
    if isinstance(condition, models.HasIdCondition):
        return len(condition.has_id)
    match = condition.match if isinstance(condition, models.FieldCondition) else None
    if isinstance(match, models.MatchAny):
        return len(match.any)
    return len(match.except_) if isinstance(match, models.MatchExcept) else 0


def is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


class FakeRateLimiter:
    """lib/common/common/src/rate_limiting.rs: a token bucket that a minute fills."""

    def __init__(self, kind: str, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._kind = kind
        self._tokens = float(per_minute)
        self._checked_at = now

    def take(self, cost: int, now: float) -> None:
        if cost > self.per_minute:
            raise rate_limited(
                self._kind,
                ", request larger than rate limiter capacity, please try to split your request",
            )
        refilled = self._tokens + (now - self._checked_at) * self.per_minute / 60
        self._checked_at = now
        self._tokens = min(float(self.per_minute), refilled)
        if self._tokens >= cost:
            self._tokens -= cost
            return
        seconds = ceil((cost - self._tokens) * 60 / self.per_minute)
        raise rate_limited(
            self._kind,
            f": Operation requires {cost} tokens but only {self._tokens:.1f} were available. "
            f"Retry after {seconds}s",
            retry_after=seconds,
        )
