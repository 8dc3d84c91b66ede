"""``latent ingest``: meta, dry runs, rebuilds and watches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from latent_cli.unread_output import unread_line
from latent_cli.watch_output import format_event
from latent_client.folder import FolderReport
from latent_client.folder_watch import WatchChange, WatchEvent
from latent_core.domain.manifest.model import Manifest
from latent_workers.ocr.engine import OcrEngine
from latent_workers.ocr.reader import PageReader
from latent_workers.ocr.words import OcrText
from tests.support.fake_gateway.gateway import FakeGateway
from tests.support.harness.cli import Latent
from tests.support.locked_files import PASSWORD, locked_pdf


def metas(gateway: FakeGateway) -> dict[str, dict[str, object]]:
    return {d.view.title or "": d.view.meta for d in gateway.documents.values()}


def test_meta_comes_by_flags_over_a_file_over_sidecars(
    latent: Latent, gateway: FakeGateway, museum: Path, tmp_path: Path
) -> None:
    (museum / "lamp.md.meta.yaml").write_text("city: Kiel\nroom: 7\n", encoding="utf-8")
    common = tmp_path / "common.yaml"
    common.write_text("city: Berlin\nlang: de\n", encoding="utf-8")
    result = latent(
        *("ingest", museum, "-c", "notes", "--meta-file", common),
        *("--meta", "lang=en", "--meta", "tag=a", "--meta", "tag=b=c"),
    )
    assert result.code == 0
    flags = {"city": "Berlin", "lang": "en", "tag": ["a", "b=c"]}
    assert metas(gateway) == {"lamp.md": {"room": 7, **flags}, "lens.txt": flags}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--meta", "city"], "--meta 'city' must be key=value"),
        (["--meta", "=x"], "--meta '=x' must be key=value"),
        (["--meta-file", "m.yaml"], "m.yaml, line 2: "),
        (["--watch", "--rebuild"], "--watch cannot be combined with"),
        (["--watch", "other"], "--watch syncs one folder"),
    ],
)
def test_flags_that_cannot_be_obeyed_are_refused_before_anything_is_sent(
    arguments: list[str], expected: str, latent: Latent, gateway: FakeGateway, museum: Path
) -> None:
    Path("m.yaml").write_text("a: [\n", encoding="utf-8")
    Path("other").mkdir()
    result = latent("ingest", museum, *arguments, "-c", "notes")
    assert result.code == 2
    assert expected in result.err
    assert not gateway.requests


def test_files_named_with_their_sidecars_are_sent_without_them(
    latent: Latent, gateway: FakeGateway, museum: Path
) -> None:
    (museum / "lamp.md.meta.yaml").write_text("city: Kiel\n", encoding="utf-8")
    assert latent("ingest", *sorted(museum.iterdir()), "-c", "notes").code == 0
    assert metas(gateway) == {"lamp.md": {"city": "Kiel"}, "lens.txt": {}}


def test_a_rebuild_sends_everything_again(
    latent: Latent, gateway: FakeGateway, museum: Path
) -> None:
    latent("ingest", museum, "-c", "notes")
    result = latent("ingest", museum, "-c", "notes", "--rebuild")
    assert "museum: 2 files, 2 sent, 0 unchanged" in result.out
    assert [r.json().get("rebuild") for r in gateway.requests_to("POST .*/add")] == [
        None,
        None,
        True,
        True,
    ]


def test_a_dry_run_counts_by_the_local_embedders_own_tokens_and_measures_its_rate(
    latent: Latent, gateway: FakeGateway, museum: Path
) -> None:
    (museum / "image.md").write_bytes(b"\x7fELF\x00\x01\x02binary")
    (museum / "empty.md").touch()
    result = latent("ingest", museum, "-c", "notes", "--dry-run", "--json")
    assert result.code == 0, result.err
    report = result.json
    assert report["tokenizer"] == "local's own"
    assert re.fullmatch(
        r"measured on this machine: [\d,]+ tokens a second, over 2 chunks",
        report["estimate"]["basis"],
    )
    assert {name: f["chunks"] for name, f in report["types"].items()} == {"markdown": 1, "text": 1}
    assert report["embedding_tokens"] == report["total"]["tokens"] > 8
    assert [one["path"] for one in report["would_fail"]] == ["museum/image.md"]
    assert [one["path"] for one in report["skipped"]] == ["empty.md"]
    assert not gateway.documents


def test_a_dry_run_is_shown_as_a_table_with_what_is_left_out(latent: Latent, museum: Path) -> None:
    (museum / "empty.md").touch()
    out = latent("ingest", museum, "https://a.example", "-c", "notes", "--dry-run").out
    assert "skipped: empty.md: empty" in out
    assert "skipped: https://a.example: the server fetches web addresses" in out
    assert re.search(r"TYPE +FILES +DOCUMENTS +CHUNKS +TOKENS +MIN/AVG/MAX +TABLES +PAGES", out)
    assert re.search(r"total +2 +2 +2 +\d+ +\d+/[\d.]+/\d+ +0 +0", out)
    assert re.search(r"time: about [\d.]+ s: [\d.]+ s to parse \(measured just now\)", out)


def test_a_dry_run_names_the_schema_field_of_an_unusable_document(
    latent: Latent, gateway: FakeGateway, museum: Path
) -> None:
    manifest = gateway.manifests["notes"].model_dump(exclude_unset=True)
    schema = {"custom_schema": {"room": {"type": "integer", "required": True}}}
    gateway.create(type(gateway.manifests["notes"])(**manifest, metadata=schema))
    report = latent("ingest", museum, "-c", "notes", "--dry-run", "--json").json
    reasons = [one["reason"] for one in report["would_fail"]]
    assert len(reasons) == 2
    assert all(reason.startswith("meta.room is required") for reason in reasons)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (WatchEvent(change=WatchChange.SENT, path="a.md", job_id=7), "sent a.md (job 7)"),
        (WatchEvent(change=WatchChange.DELETED, path="a.md"), "deleted a.md"),
        (
            WatchEvent(change=WatchChange.SKIPPED, path="a.md", message="empty"),
            "skipped a.md: empty",
        ),
        (WatchEvent(change=WatchChange.INDEXED, count=1), "searchable: 1 document"),
        (
            WatchEvent(change=WatchChange.UNREACHABLE, message="gone"),
            "waiting for the gateway: gone",
        ),
        (WatchEvent(change=WatchChange.BACK), "the gateway answers again"),
        (
            WatchEvent(
                change=WatchChange.SYNCED, report=FolderReport(root="r", files=2, ignored=0)
            ),
            "in step: 2 files, 0 sent, 0 unchanged, 0 deleted",
        ),
    ],
)
def test_each_change_is_one_line(event: WatchEvent, expected: str) -> None:
    assert format_event(event) == expected


def test_a_dry_run_counts_the_cost_of_a_remote_embedder_by_the_price_of_its_tokens(
    latent: Latent, gateway: FakeGateway, museum: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.create(Manifest(id="remote", name="Remote", embedder="openai/wide@96", dims=96))
    unknown = latent("ingest", museum, "-c", "remote", "--dry-run").out
    assert "cost: unknown; set LLC_EMBED_PRICE_PER_MILLION" in unknown
    monkeypatch.setenv("LLC_EMBED_PRICE_PER_MILLION", "1000000")
    monkeypatch.setenv("LLC_EMBED_RATE_LIMIT_PER_MIN", "6")
    report = latent("ingest", museum, "-c", "remote", "--dry-run", "--json").json
    assert report["estimate"]["cost"] == report["embedding_tokens"]
    assert report["estimate"]["embed_seconds"] == 10.0 * report["embedding_texts"]
    assert "per million tokens)" in latent("ingest", museum, "-c", "remote", "--dry-run").out


def test_a_dry_run_of_local_embedding_is_free_and_measures_every_part(
    latent: Latent, museum: Path
) -> None:
    report = latent("ingest", museum, "-c", "notes", "--dry-run", "--json").json
    estimate = report["estimate"]
    parts = ("parse_seconds", "ocr_seconds", "embed_seconds", "store_seconds")
    whole = sum(estimate[name] for name in parts)
    assert whole - 0.2 <= estimate["total_seconds"] <= whole + estimate["pages_seconds"] + 0.2
    assert estimate["cost"] == estimate["ocr_seconds"] == 0.0
    assert estimate["pages_seconds"] > 0
    assert "a request to the gateway takes" in estimate["notes"][0]
    assert "cost:" not in latent("ingest", museum, "-c", "notes", "--dry-run").out


def test_ocr_of_a_dry_run_is_measured_on_some_pages_and_its_tokens_are_embedded(
    latent: Latent, gateway: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "scans"
    folder.mkdir()
    for n in range(5):
        Image.new("RGB", (40, 40 + n), "white").save(folder / f"scan{n}.png")
    read: list[str] = []

    async def engine(_self: PageReader) -> OcrEngine:
        return OcrEngine("tesseract", "5.0")

    async def page(_self: PageReader, _engine: OcrEngine, file: Path, **_of: object) -> OcrText:
        read.append(file.name)
        return OcrText(paragraphs=("seven words of a page that was scanned",))

    monkeypatch.setattr(PageReader, "engine", engine)
    monkeypatch.setattr(PageReader, "read", page)
    report = latent("ingest", folder, "-c", "notes", "--dry-run", "--json").json
    assert len(read) == 3
    assert report["total"]["scanned_pages"] == 5
    assert report["embedding_tokens"] > report["total"]["tokens"]
    assert "measured on 3 of 5 pages" in report["estimate"]["notes"][0]


def test_withheld_deletions_end_with_4_until_they_are_allowed(
    latent: Latent, gateway: FakeGateway, museum: Path
) -> None:
    for n in range(30):
        (museum / f"{n}.md").write_text(f"buoy {n}", encoding="utf-8")
    latent("ingest", museum, "-c", "notes")
    for n in range(30):
        (museum / f"{n}.md").unlink()
    withheld = latent("ingest", museum, "-c", "notes")
    assert withheld.code == 4
    assert "nothing deleted because 30 of 32 documents would be deleted" in withheld.out
    assert "--allow-deletions" in withheld.out
    allowed = latent("ingest", museum, "-c", "notes", "--allow-deletions")
    assert (allowed.code, len(gateway.documents)) == (0, 2)


def test_a_second_folder_of_a_name_and_a_moved_one_are_named(
    latent: Latent, gateway: FakeGateway, museum: Path, tmp_path: Path
) -> None:
    latent("ingest", museum, "-c", "notes")
    other = tmp_path / "other" / museum.name
    other.mkdir(parents=True)
    (other / "a.md").write_text("another", encoding="utf-8")
    second = latent("ingest", other, "-c", "notes")
    assert f"note: file:///{museum.name}/ belongs to the folder {museum.resolve()}" in second.out
    moved = tmp_path / "moved"
    museum.rename(moved)
    refused = latent("ingest", moved, "-c", "notes")
    assert (refused.code, len(gateway.documents)) == (1, 3)
    assert "use --take-over" in refused.err
    taken = latent("ingest", moved, "-c", "notes", "--take-over")
    assert f"note: continues file:///{museum.name}/" in taken.out
    assert len(gateway.documents) == 3


@pytest.mark.parametrize(
    ("unread", "expected"),
    [
        ({"Keynote": 3}, "3 Keynote files are not read"),
        ({"ZIP": 1}, "1 ZIP file is not read"),
        ({"MP3": 2, "ZIP": 1}, "2 MP3 files and 1 ZIP file are not read"),
        (
            {"a": 9, "b": 8, "c": 7, "d": 6, "e": 5, "f": 4, "g": 3},
            "9 a files, 8 b files, 7 c files, 6 d files, 5 e files and 7 of other types are not read",
        ),
    ],
)
def test_types_that_are_not_read_are_one_line(unread: dict[str, int], expected: str) -> None:
    assert unread_line(unread) == expected


@pytest.mark.parametrize("way", [(), ("--dry-run",)], ids=["real", "dry"])
def test_an_ingest_and_its_dry_run_count_what_they_do_not_read(
    latent: Latent, museum: Path, way: tuple[str, ...]
) -> None:
    for n in range(3):
        (museum / f"{n}.key").write_bytes(b"PK\x03\x04")
    (museum / "fork" / ".git").mkdir(parents=True)
    out = latent("ingest", museum, "-c", "notes", *way).out
    assert "note: 3 Keynote files are not read" in out
    assert "note: nested checkouts are not read: fork/" in out
    shown = latent("ingest", museum, "-c", "notes", *way, "--json").json
    (report,) = shown["folders"] if not way else [shown]
    assert (report["unread"], report["checkouts"]) == ({"Keynote": 3}, ["fork/"])


def test_a_password_file_must_be_readable_and_have_a_first_line(
    latent: Latent, museum: Path, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    for data, words in (
        (None, "cannot be read: No such file"),
        (b"\nsecond", "its first line is empty"),
        (b"\xff\xfe", "must be UTF-8"),
        (b"x" * 256, "more than 255 characters"),
    ):
        if data is not None:
            file.write_bytes(data)
        refused = latent("ingest", museum, "-c", "notes", "--password-file", file)
        assert refused.code == 2
        assert f"--password-file {file}" in refused.err.replace("\n", " ")
        assert words in " ".join(refused.err.split())
    file.write_text("quiet-heron")
    refused = latent("ingest", museum, "-c", "notes", "--watch", "--password-file", file)
    assert "--password-file is for one read" in refused.err
    file.chmod(0o644)
    noted = latent("ingest", museum, "-c", "notes", "--password-file", file).err
    assert "run chmod 600 on it" in " ".join(noted.split())
    file.chmod(0o600)
    assert "chmod" not in latent("ingest", museum, "-c", "notes", "--password-file", file).err


def test_a_dry_run_opens_files_with_the_password(
    latent: Latent, museum: Path, tmp_path: Path
) -> None:
    (museum / "heron.pdf").write_bytes(locked_pdf("The heron is quiet."))
    dry = ("ingest", museum, "-c", "notes", "--dry-run", "--json")
    (failure,) = latent(*dry).json["would_fail"]
    assert "--password-file" in failure["reason"]
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    report = latent(*dry, "--password-file", file).json
    assert (report["would_fail"], report["types"]["pdf"]["documents"]) == ([], 1)
