"""The facets beside the hits: choices with the number of documents that have each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from latent_core.db.conditions import AGES
from latent_core.domain.errors import Invalid
from latent_core.search.facets import facet_fields
from latent_core.search.readable import Readable
from latent_core.wire.search import Facet
from latent_gateway.console.searching.form import LISTS, TAGS, TYPES, SearchForm

MAX_SHOWN: Final = 8
"""Values of a facet that are not folded."""
MAX_CONTAINERS: Final = 50
CONTAINER: Final = "container"
AGE: Final = "max_age"
TOPICS: Final = "summary.product_tags"
AGE_WORDS: Final = {"1d": "Past day", "7d": "Past week", "30d": "Past month", "365d": "Past year"}
TITLES: Final = {"type": "Type", "lang": "Language", "tag": "Tag", "topic": "Product"}


@dataclass(frozen=True, slots=True)
class Choice:
    value: str
    label: str
    count: int | None
    """Documents; None if not counted."""
    chosen: bool


@dataclass(frozen=True, slots=True)
class FacetGroup:
    name: str
    """Parameter of the address."""
    title: str
    shown: Sequence[Choice]
    folded: Sequence[Choice] = ()
    one_of: bool = False
    """Only one may be chosen."""
    note: str = ""


def counted_fields(containers: Sequence[Readable]) -> tuple[str, ...]:
    """The fields that a search of these containers counts."""
    fields = ["source_type", "language", AGE]
    if len(containers) > 1:
        fields.append(CONTAINER)
    if _has_tags(containers):
        fields.append(TAGS)
    if any(c.has_summaries for c in containers):
        fields.append(TOPICS)
    return tuple(fields)


def _has_tags(containers: Sequence[Readable]) -> bool:
    """Whether the schemas of the containers allow this field."""
    try:
        facet_fields([TAGS], [c.manifest for c in containers])
    except Invalid:
        return False
    return bool(containers)


def groups(
    form: SearchForm, containers: Sequence[Readable], facets: Mapping[str, Facet]
) -> list[FacetGroup]:
    """The facets of an answer, or the bare choices without one. A group with one value that is not chosen tells
    nothing and is left away."""
    found = [_containers(form, containers, facets.get(CONTAINER))] if len(containers) > 1 else []
    for name, (field, counted) in LISTS.items():
        chosen: tuple[str, ...] = getattr(form, field)
        facet = facets.get(counted)
        if facet is None and name == "type":
            found.append(_group(name, dict.fromkeys(TYPES), chosen))
            continue
        counts = {str(one.value): one.count for one in facet.values} if facet else {}
        if len(counts) > 1 or chosen:
            note = _other(facet) if facet else ""
            found.append(_group(name, counts, chosen, note))
        if name == "lang":
            found += _ages(form, facets.get(AGE))
    return found


def _other(facet: Facet) -> str:
    return f"{facet.other_values:,} more not listed" if facet.other_values else ""


def _group(
    name: str,
    counts: Mapping[str, int | None],
    chosen: Sequence[str],
    note: str = "",
) -> FacetGroup:
    """The chosen values first, as far as the counts do not list them."""
    missing = {value: 0 for value in chosen if value not in counts}
    choices = [
        Choice(value, value, count, value in chosen)
        for value, count in {**missing, **counts}.items()
    ]
    first = [one for n, one in enumerate(choices) if n < MAX_SHOWN or one.chosen]
    rest = [one for n, one in enumerate(choices) if n >= MAX_SHOWN and not one.chosen]
    return FacetGroup(name, TITLES[name], first, rest, note=note)


def _containers(
    form: SearchForm, containers: Sequence[Readable], facet: Facet | None
) -> FacetGroup:
    counts = {str(one.value): one.count for one in facet.values} if facet else {}
    listed = sorted(containers, key=lambda c: -counts.get(c.id, 0)) if facet else containers
    choices = [
        Choice(
            c.id,
            c.manifest.name,
            counts.get(c.id, 0)
            if facet and (not form.containers or c.id in form.containers)
            else None,
            c.id in form.containers,
        )
        for c in listed
    ][:MAX_CONTAINERS]
    first = [one for n, one in enumerate(choices) if n < MAX_SHOWN or one.chosen]
    rest = [one for n, one in enumerate(choices) if n >= MAX_SHOWN and not one.chosen]
    return FacetGroup(
        "c",
        "Container",
        first,
        rest,
        note="" if form.containers else "None chosen: all are searched.",
    )


def _ages(form: SearchForm, facet: Facet | None) -> list[FacetGroup]:
    if facet is None or not (facet.documents or form.age):
        return []
    counts = {str(one.value): one.count for one in facet.values}
    ages = dict.fromkeys((*AGES, *([form.age] if form.age else [])))
    choices = [Choice("", "Any time", None, not form.age)]
    choices += [
        Choice(age, AGE_WORDS.get(age, age), counts.get(age, 0), age == form.age) for age in ages
    ]
    return [FacetGroup("age", "Changed", choices, one_of=True)]
