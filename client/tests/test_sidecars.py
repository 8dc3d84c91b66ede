"""Meta beside a file: read strictly, sent with its file, and noticed when it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from latent_client import AsyncClient, ingest_file, sync_folder
from latent_client.sidecars import read_meta
from latent_core.domain.errors import Invalid
from latent_core.domain.text import MAX_META_BYTES
from tests.support.fake_gateway.gateway import FakeGateway


@pytest.fixture
def museum(tmp_path: Path) -> Path:
    folder = tmp_path / "museum"
    folder.mkdir()
    (folder / "lamp.md").write_text("The lamp", encoding="utf-8")
    (folder / "lens.md").write_text("The lens", encoding="utf-8")
    (folder / "lamp.md.meta.yaml").write_text("city: Berlin\nsince: 2024-01-31\n", encoding="utf-8")
    return folder


def metas(gateway: FakeGateway) -> dict[str, dict[str, object]]:
    return {d.view.title or "": d.view.meta for d in gateway.documents.values()}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a: 1\nb: [\n", "m.yaml, line 3: while parsing a flow"),
        ("a: 1\n\tb: 2\n", "m.yaml, line 2: while scanning"),
        ("a: 1\nb: 2\na: 3\n", "m.yaml, line 3: duplicate key 'a'"),
        ("a:\n  b: 1\n  2: x\n", "m.yaml, line 3: a key must be text; put it in quotes"),
        ("a: &x [1]\nb: *x\n", "m.yaml, line 1: YAML aliases are not allowed in meta"),
        ("- a\n", "m.yaml, line 1: meta must be a mapping, not list"),
        ("a: !!python/object:os.system x\n", "m.yaml, line 1: could not determine"),
        (
            "a: 99999999999999999999999\n",
            "m.yaml: a: must not contain an integer of more than 64 bits",
        ),
        ("a: .nan\n", "m.yaml: a: must not contain a number that is not finite"),
        ("a: " + "[" * 5000, "m.yaml"),
        ("x" * (MAX_META_BYTES + 1), "m.yaml: meta is larger than 65536 bytes"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_line(
    tmp_path: Path, source: str, expected: str
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(source, encoding="utf-8")
    with pytest.raises(Invalid) as caught:
        read_meta(file, where="m.yaml")
    assert caught.value.message.startswith(expected)


def test_a_date_stays_text_and_an_empty_file_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text("since: 2024-01-31\nyear: 1905\ntags: [oil]\n", encoding="utf-8")
    assert read_meta(file) == {"since": "2024-01-31", "year": 1905, "tags": ["oil"]}
    file.write_text("# nothing\n", encoding="utf-8")
    assert read_meta(file) == {}


async def test_a_sidecar_is_sent_with_its_file_and_flags_win_over_it(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    await sync_folder(client, "notes", museum, meta={"city": "Dresden", "lang": "de"})
    assert metas(gateway) == {
        "lamp.md": {"city": "Dresden", "lang": "de", "since": "2024-01-31"},
        "lens.md": {"city": "Dresden", "lang": "de"},
    }


async def test_a_sidecar_that_changes_comes_or_goes_sends_its_file_again_and_no_other(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    await sync_folder(client, "notes", museum)
    assert (await sync_folder(client, "notes", museum)).added == []
    (museum / "lamp.md.meta.yaml").write_text("city: Potsdam\n", encoding="utf-8")
    changed = await sync_folder(client, "notes", museum)
    assert [a.source_uri for a in changed.added] == ["file:///museum/lamp.md"]
    assert metas(gateway)["lamp.md"] == {"city": "Potsdam"}
    (museum / "lamp.md.meta.yaml").rename(museum / "lens.md.meta.yaml")
    moved = await sync_folder(client, "notes", museum)
    assert len(moved.added) == 2
    assert metas(gateway) == {"lamp.md": {}, "lens.md": {"city": "Potsdam"}}


async def test_a_broken_sidecar_is_reported_and_the_stored_meta_stays(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    await sync_folder(client, "notes", museum)
    (museum / "lamp.md.meta.yaml").write_text("city: [\n", encoding="utf-8")
    (museum / "lamp.md").write_text("The lamp, changed", encoding="utf-8")
    report = await sync_folder(client, "notes", museum)
    assert (report.added, report.deleted) == ([], [])
    [skipped] = report.skipped
    assert skipped.path == "lamp.md"
    assert skipped.reason.startswith("lamp.md.meta.yaml, line 2: ")
    assert metas(gateway)["lamp.md"] == {"city": "Berlin", "since": "2024-01-31"}


async def test_a_single_file_brings_its_sidecar(
    client: AsyncClient, gateway: FakeGateway, museum: Path
) -> None:
    await ingest_file(client, "notes", museum / "lamp.md", meta={"lang": "de"})
    assert metas(gateway) == {"lamp.md": {"city": "Berlin", "since": "2024-01-31", "lang": "de"}}


@pytest.mark.parametrize("value", ["!!bool maybe", "!!int ''", "!!float ''", "!!timestamp x"])
def test_a_tag_that_does_not_fit_is_named_and_costs_nothing_else(
    tmp_path: Path, value: str
) -> None:
    file = tmp_path / "a.md.meta.yaml"
    file.write_text(f"a: {value}\n")
    with pytest.raises(Invalid, match=r"a\.md\.meta\.yaml"):
        read_meta(file)
