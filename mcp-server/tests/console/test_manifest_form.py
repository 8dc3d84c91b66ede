"""A manifest as a form: what its fields show and how they are read; the changes of two people; the drawing of sizes."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.changes import rebased
from latent_core.domain.manifest.model import Manifest, known_keys, parse_manifest
from latent_core.domain.manifest.templates import KINDS, template
from latent_core.domain.manifest.yaml_reader import read_manifest
from latent_core.wire.container_sizes import StoreSizes
from latent_gateway.console.containers.manifest_form import (
    FIELDS,
    WHERE,
    FieldKind,
    manifest_from,
    problems_of,
    read_values,
    values_of,
)
from latent_gateway.console.containers.sizes_chart import (
    HEIGHT,
    LEFT,
    WIDTH,
    scale_end,
    sizes_chart,
)


def test_every_field_is_a_key_of_manifests() -> None:
    for key in FIELDS:
        *above, last = key.split(".")
        assert last in known_keys(above), key


@pytest.mark.parametrize("name", KINDS)
def test_a_form_that_is_sent_as_it_was_shown_changes_nothing(name: str) -> None:
    manifest = template(name).manifest
    shown = values_of(manifest)
    sent = {key: value for key, value in shown.items() if value is not False}
    assert read_values(sent) == shown
    assert manifest_from(manifest, read_values(sent)) == manifest


def test_each_kind_of_field_is_read_as_its_key_needs_it() -> None:
    base = Manifest(id="a", name="A", dims=384)
    values = values_of(base) | {
        "theme": "tides",
        "acl.roles.reader": "agent:one, , agent:two ",
        "chunker.size": "200",
        "chunker.overlap": "0.3",
        "retrieval.mark_weak": True,
        "retrieval.mode_default": "lexical",
        "backup.cron": "0 3 * * *",
    }
    made = manifest_from(base, values)
    assert made.acl.roles.reader == ["agent:one", "agent:two"]
    assert (made.chunker.size, made.chunker.overlap, made.theme) == (200, 0.3, "tides")
    assert (made.retrieval.mark_weak, made.retrieval.mode_default.value) == (True, "lexical")
    assert (made.backup.cron, made.dims) == ("0 3 * * *", 384)
    other = manifest_from(base, values_of(base) | {"embedder": "local-int8"})
    assert (other.embedder, other.embedder_version, other.dims) == ("local-int8", None, None)
    cleared = manifest_from(made, values_of(made) | {"chunker.size": "", "backup.cron": ""})
    assert (cleared.chunker.size, cleared.backup.cron) == (None, None)


def test_what_is_wrong_is_shown_at_its_field() -> None:
    base = Manifest(id="a", name="A")
    with pytest.raises(Invalid) as found:
        manifest_from(base, values_of(base) | {"chunker.size": "many", "pdf.max_pages": "1.5"})
    assert [(one.field, one.line) for one in problems_of(found.value)] == [
        ("chunker.size", None),
        ("pdf.max_pages", None),
    ]
    with pytest.raises(Invalid) as found:
        manifest_from(base, values_of(base) | {"web.sanitize_rules": "strip_nav, strip_all"})
    (problem,) = problems_of(found.value)
    assert problem.field == "web.sanitize_rules"
    assert "'strip_all' is no rule; there are strip_nav" in problem.message
    with pytest.raises(Invalid) as found:
        read_manifest("id: a\nname: A\nchunker:\n  sice: 3\n", where=WHERE)
    (problem,) = problems_of(found.value)
    assert (problem.line, problem.key, problem.field) == (4, "chunker.sice", "")
    with pytest.raises(Invalid) as found:
        read_manifest("id: a\nid: b\n", where=WHERE)
    assert [one.line for one in problems_of(found.value)] == [2]


def test_changes_of_two_people_are_joined_and_the_later_one_wins_a_key() -> None:
    base = parse_manifest(
        {"id": "a", "name": "A", "theme": "t", "metadata": {"custom_schema": {"y": "integer"}}}
    )
    mine = parse_manifest({"id": "a", "name": "Mine", "theme": "t", "chunker": {"size": 64}})
    theirs = parse_manifest(
        {
            "id": "a",
            "name": "Theirs",
            "theme": "new",
            "metadata": {"custom_schema": {"y": "integer", "z": "list"}},
        }
    )
    joined = parse_manifest(rebased(base, mine, theirs))
    assert (joined.name, joined.theme, joined.chunker.size) == ("Mine", "new", 64)
    assert joined.metadata.custom_schema == {"z": "list"}


def sizes(day: date, **more: int) -> StoreSizes:
    values = dict.fromkeys(StoreSizes.model_fields, 0) | more
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return StoreSizes.model_validate({**values, "day": day, "measured_at": moment})


def test_the_drawing_of_sizes_stacks_stores_and_leaves_gaps_for_days_without_a_measurement() -> (
    None
):
    assert sizes_chart([]) is None
    chart = sizes_chart(
        [
            sizes(date(2026, 1, 1), original_bytes=50, postgres_bytes=50),
            sizes(date(2026, 1, 11), original_bytes=100, vector_bytes=100),
        ]
    )
    assert chart is not None
    early, late = [box for box in chart.boxes if box.store == 0]
    assert (early.x, chart.first, chart.last) == (LEFT, "2026-01-01", "2026-01-11")
    assert late.x == pytest.approx(LEFT + (WIDTH - LEFT) * 10 / 11, abs=0.1)
    assert late.height == pytest.approx(2 * early.height, abs=0.1)
    above = next(box for box in chart.boxes if box.store == 2)
    assert above.y + above.height == pytest.approx(early.y, abs=0.1)
    assert all(box.y >= 0 and box.y + box.height <= HEIGHT for box in chart.boxes)
    assert all(box.x + box.width <= WIDTH + 0.1 for box in chart.boxes)


def test_a_drawing_of_an_empty_container_has_no_boxes_and_the_scale_ends_at_a_round_number() -> (
    None
):
    chart = sizes_chart([sizes(date(2026, 1, 1))])
    assert chart is not None
    assert chart.boxes == []
    assert [scale_end(largest) for largest in (0, 1, 3, 99, 101, 4_000)] == [
        1,
        1,
        5,
        100,
        200,
        5_000,
    ]


def test_kinds_of_fields_are_all_in_use() -> None:
    assert {field.kind for field in FIELDS.values()} == set(FieldKind)
