"""The commands, for people and for programs."""

from __future__ import annotations

import json
import re
import signal
from datetime import date
from pathlib import Path

import orjson
import pytest

from latent_cli.commands.extract import page_numbers
from latent_cli.progress import IngestBars, JobsBar
from latent_cli.session import API_REMEDY
from latent_client.waiting import WaitProgress
from latent_core.domain.errors import Invalid
from latent_core.domain.job import INTERNAL_KINDS, JobKind, JobState
from latent_core.domain.manifest.model import Fusion, Manifest
from latent_core.domain.manifest.templates import golden_queries
from latent_core.wire.container_sizes import StoreSizes
from latent_gateway.auth import access
from tests.support.fake_gateway.gateway import FakeGateway
from tests.support.harness.cli import Latent

MANIFEST = "id: notes\nname: Notes\ntheme: lighthouses\nretrieval:\n  fusion:\n    k: 30\n"


def test_a_container_is_created_listed_described_and_deleted(latent: Latent) -> None:
    created = latent("container", "create", "art", "--name", "Art", "--dims", "128")
    assert created.code == 0
    assert "created 'art' (128 dimensions)" in created.out
    assert "wrote art.yaml" in created.out
    assert [c["id"] for c in latent("container", "list", "--json").json["containers"]] == [
        "notes",
        "art",
    ]
    assert re.search(r"art +Art +text +128 +active", latent("container", "list").out)
    described = latent("container", "describe", "art").out
    assert "manifest  dims: 128" in described
    assert "manifest  retrieval.fusion.method: auto" in described
    assert "0 documents, 0 chunks" in described
    refused = latent("container", "delete", "art")
    assert (refused.code, "add --yes" in refused.err) == (2, True)
    assert latent("container", "delete", "art", "--yes", "--wait").code == 0
    assert [c["id"] for c in latent("container", "list", "--json").json["containers"]] == ["notes"]


def test_a_container_is_created_from_a_manifest(
    latent: Latent, gateway: FakeGateway, tmp_path: Path
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(MANIFEST.replace("notes", "lights"), encoding="utf-8")
    assert latent("container", "create", "--file", file).code == 0
    assert gateway.manifests["lights"].retrieval.fusion == Fusion(k=30)
    both = latent("container", "create", "lights", "--file", file)
    assert (both.code, "--file cannot be combined with ID" in both.err) == (2, True)
    assert latent("container", "create").code == 2


def test_a_manifest_that_is_wrong_is_named_by_file_line_and_key(
    latent: Latent, tmp_path: Path
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text("id: a\nname: b\nchunkr:\n  size: 3\n", encoding="utf-8")
    result = latent("container", "apply", file)
    assert result.code == 2
    assert result.err == f"latent: {file}, line 3: unknown key 'chunkr'; did you mean 'chunker'?\n"


def test_applying_a_manifest_prints_what_changes(
    latent: Latent, gateway: FakeGateway, tmp_path: Path
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(MANIFEST, encoding="utf-8")
    result = latent("container", "apply", file)
    assert result.code == 0
    assert "theme: '' → 'lighthouses'\n" in result.out
    assert "retrieval.fusion.k: 60 → 30\n" in result.out
    assert gateway.manifests["notes"].theme == "lighthouses"
    again = latent("container", "apply", file, "--json")
    assert again.json["changed"] is False
    assert len(gateway.requests_to("PUT .*")) == 1


def test_sizes_are_listed_by_day_and_a_missing_measurement_is_explained(
    latent: Latent, gateway: FakeGateway
) -> None:
    assert "not measured yet" in latent("container", "sizes", "notes").out
    gateway.store_sizes["notes"] = [measured_on(date(2026, 1, 2), postgres_bytes=3_000_000)]
    assert re.search(r"2026-01-02 +8 +40 +3\.0 MB", latent("container", "sizes", "notes").out)
    listed = latent("container", "sizes", "notes", "--json").json["sizes"]
    assert [one["postgres_bytes"] for one in listed] == [3_000_000]


def measured_on(day: date, *, postgres_bytes: int) -> StoreSizes:
    values = dict.fromkeys(StoreSizes.model_fields, 1)
    values |= {"documents": 8, "chunks": 40, "postgres_bytes": postgres_bytes}
    return StoreSizes.model_validate({**values, "day": day, "measured_at": f"{day}T12:00:00Z"})


def test_applying_to_a_container_that_is_not_there_names_the_remedy(
    latent: Latent, tmp_path: Path
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text("id: other\nname: Other\n", encoding="utf-8")
    result = latent("container", "apply", file)
    assert result.code == 1
    assert f"`latent container create --file {file}`" in result.err


def test_a_folder_is_ingested_and_waited_for(latent: Latent, museum: Path) -> None:
    (museum / "empty.md").touch()
    result = latent("ingest", museum, "-c", "notes", "--wait")
    assert result.code == 0
    assert "skipped: empty.md: empty" in result.out
    assert "museum: 2 files, 2 sent, 0 unchanged, 1 skipped" in result.out
    again = latent("ingest", museum, "-c", "notes", "--wait", "--json")
    assert again.json["folders"][0]["unchanged"] == 2
    assert again.json["jobs"] == []


def test_outcomes_are_listed_by_source_type(latent: Latent, museum: Path) -> None:
    (museum / "broken.pdf").write_text("%BROKEN", encoding="utf-8")
    result = latent("ingest", museum, "--container", "notes", "--wait")
    assert result.code == 4
    assert re.search(
        r"failed: museum/broken\.pdf: the file is damaged; save it again \(job \d\)", result.out
    )
    assert "pdf: 1 failed\ntext: 2 done\n" in result.out


def test_without_waiting_the_jobs_are_named(latent: Latent, museum: Path) -> None:
    result = latent("ingest", museum, "-c", "notes")
    assert "queued: jobs 1-2;" in result.out


def test_a_job_that_does_not_end_in_time_is_reported(
    latent: Latent, gateway: FakeGateway, museum: Path
) -> None:
    gateway.hold_jobs = True
    result = latent("ingest", museum, "-c", "notes", "--wait", "--timeout", "0.1")
    assert result.code == 1
    assert "2 of 2 jobs did not end within 0.1 s" in result.err


def test_what_vanished_is_deleted_or_kept(
    latent: Latent, gateway: FakeGateway, museum: Path
) -> None:
    latent("ingest", museum, "-c", "notes", "--root", "haus")
    (museum / "lens.txt").unlink()
    latent("ingest", museum, "-c", "notes", "--root", "haus", "--keep-vanished")
    assert len(gateway.documents) == 2
    result = latent("ingest", museum, "-c", "notes", "--root", "haus")
    assert "1 deleted (their files vanished)" in result.out
    assert [d.view.source_uri for d in gateway.documents.values()] == ["file:///haus/lamp.md"]


def test_single_files_have_their_name_or_a_given_uri(
    latent: Latent, gateway: FakeGateway, museum: Path
) -> None:
    latent("ingest", museum / "lamp.md", museum / "lens.txt", "-c", "notes")
    latent("ingest", museum / "lamp.md", "-c", "notes", "--uri", "file:///light")
    uris = {d.view.source_uri for d in gateway.documents.values()}
    assert uris == {"file:///lamp.md", "file:///lens.txt", "file:///light"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "nothing does not exist"),
        (["a", "--uri", "file:///x"], "--uri sets the identity of one file"),
        (["a/x.md", "--root", "r"], "--root sets the root name of a folder"),
        (["a/x.md", "b/x.md"], "2 of the sources have the same identity file:///x.md"),
        (["a", "other/../a"], "2 of the sources have the same identity /"),
        (["empty"], "contains no readable document"),
    ],
)
def test_ambiguous_or_unreadable_sources_are_refused(
    arguments: list[str], message: str, latent: Latent, gateway: FakeGateway
) -> None:
    for name in ("a", "b", "other", "empty"):
        Path(name).mkdir()
    for name in ("a", "b"):
        (Path(name) / "x.md").write_text("text", encoding="utf-8")
    result = latent("ingest", *arguments, "-c", "notes")
    assert result.code == 2
    assert message in result.err
    assert not gateway.documents


def test_a_web_address_is_handed_to_the_gateway(latent: Latent, gateway: FakeGateway) -> None:
    result = latent("ingest", "https://a.example/page", "-c", "notes")
    assert gateway.requests[-1].json()["uri"] == "https://a.example/page"
    assert result.code == 2


def test_search_shows_place_page_and_reason(latent: Latent, museum: Path) -> None:
    latent("ingest", museum, "-c", "notes", "--wait")
    result = latent("search", "colza lamp", "-c", "notes", "--diagnostics")
    assert result.code == 0
    assert "1. lamp.md  score 1.0000" in result.out
    assert "   museum/lamp.md, page 1, line 1\n" in result.out
    assert "   The lamp burns colza oil.\n" in result.out
    assert "why: bm25 rank 1 (1.000) by colza, lamp" in result.out
    assert re.search(r"   open: latent open [0-9a-f-]{36}/1\n", result.out)
    assert (
        "http" not in result.out
    )  # signed links are for programs and for terminals that hide them
    assert "stages: embed 1.5 ms" in result.out


def test_search_in_json_is_the_answer_itself(
    latent: Latent, museum: Path, gateway: FakeGateway
) -> None:
    latent("ingest", museum, "-c", "notes", "--wait")
    result = latent(
        "search", "lamp", "-c", "notes", "--json", "--no-dedup", "--mode", "lexical", "-k", "3"
    )
    assert result.json["hits"][0]["source_path"] == "museum/lamp.md"
    assert gateway.requests[-1].json() == {
        "containers": ["notes"], "query": "lamp", "top_k": 3, "dedup": False, "mode": "lexical",
    }  # fmt: skip


def test_a_filter_by_symbol_is_sent_as_it_is(latent: Latent, gateway: FakeGateway) -> None:
    symbol = '{"symbol": "Client.close"}'
    latent("search", "close", "-c", "notes", "--filter", symbol)
    assert gateway.requests[-1].json()["filters"] == {"symbol": "Client.close"}


def test_facets_of_a_search_are_counted_below_the_hits(
    latent: Latent, museum: Path, gateway: FakeGateway
) -> None:
    latent("ingest", museum, "-c", "notes", "--wait")
    result = latent("search", "lamp", "-c", "notes", "--facet", "source_type", "--facet", "meta.x")
    assert gateway.requests[-1].json()["facets"] == ["source_type", "meta.x"]
    line = "source_type of 1 document: text 1, 2 other values 4, without it 1\n"
    assert result.out.endswith(line)


def test_half_words_and_what_is_like_a_document_or_a_chunk_are_sent(
    latent: Latent, gateway: FakeGateway
) -> None:
    one = "6f1a0c57-51c2-4f7e-9d55-3a4d9d0c2b11"
    latent("search", "lam", "-c", "notes", "--as-you-type")
    assert gateway.requests[-1].json()["as_you_type"] is True
    latent("search", "-c", "notes", "--like", one)
    assert gateway.requests[-1].json()["like"] == {"doc_id": one}
    latent("search", "lamp", "-c", "notes", "--like", f"chunk:{one}")
    assert gateway.requests[-1].json()["like"] == {"chunk_id": one}
    refused = latent("search", "-c", "notes", "--like", "lamp.md")
    assert refused.code == 2
    assert "like.doc_id" in refused.err


def test_a_search_without_a_hit_is_noted_on_stderr(latent: Latent) -> None:
    result = latent("search", "walrus", "-c", "notes")
    assert (result.code, result.out) == (0, "")
    assert result.err == "NO_HITS: nothing matches the query\n"


def test_a_snippet_cannot_steer_the_terminal(latent: Latent, gateway: FakeGateway) -> None:
    gateway.put("notes", "file:///a.md", b"lamp \x1b]0;owned\x07 [bold]lamp[/bold]")
    out = latent("search", "lamp", "-c", "notes").out
    assert "lamp \ufffd]0;owned\ufffd [bold]lamp[/bold]" in out


def test_a_name_with_a_line_break_stays_on_its_line(
    latent: Latent, gateway: FakeGateway, museum: Path
) -> None:
    (museum / "odd\nname.md").touch()
    latent("ingest", museum, "-c", "notes", "--root", "a\tb")
    gateway.put("notes", "file:///x\ny.md", b"lamp")
    assert "skipped: odd\ufffdname.md: empty\n" in latent("ingest", museum, "-c", "notes").out
    assert "x\ufffdy.md" in latent("documents", "list", "-c", "notes").out
    assert "x\ufffdy.md" in latent("search", "lamp", "-c", "notes").out


def test_jobs_are_listed_shown_cancelled_and_requeued(latent: Latent, gateway: FakeGateway) -> None:
    gateway.hold_jobs = True
    for name in ("a", "b", "c"):
        gateway.put("notes", f"file:///{name}.md", b"text")
    assert re.search(r"3 +ingest +queued .* c\.md", latent("jobs", "list").out)
    cancelled = latent("jobs", "cancel", "1", "2", "--json").json["jobs"]
    assert [job["state"] for job in cancelled] == ["cancelled", "cancelled"]
    listed = latent("jobs", "list", "--status", "cancelled", "-c", "notes", "--json").json["jobs"]
    assert [job["job_id"] for job in listed] == ["2", "1"]
    assert len(latent("jobs", "list", "--limit", "2", "--json").json["jobs"]) == 2
    assert latent("jobs", "requeue", "1").code == 0
    assert "state      queued" in latent("jobs", "show", "1").out


def test_all_that_failed_in_a_container_is_requeued(latent: Latent, gateway: FakeGateway) -> None:
    for name in ("a", "b"):
        gateway.put("notes", f"file:///{name}.md", b"%BROKEN")
    gateway.put("notes", "file:///c.md", b"text")
    requeue_output = latent("jobs", "requeue", "--failed", "-c", "notes")
    assert (requeue_output.code, requeue_output.out.strip()) == (0, "2 jobs requeued")
    assert latent("jobs", "requeue", "--failed", "-c", "notes", "--json").json["job_ids"] == []
    for wrong in (["--failed"], [], ["1", "--failed", "-c", "notes"], ["1", "-c", "notes"]):
        assert latent("jobs", "requeue", *wrong).code == 2


def test_jobs_that_a_full_queue_does_not_take_are_counted(
    latent: Latent, gateway: FakeGateway
) -> None:
    for name in ("a", "b", "c"):
        gateway.put("notes", f"file:///{name}.md", b"%BROKEN")
    gateway.requeue_limit = 2
    requeue_output = latent("jobs", "requeue", "--failed", "-c", "notes")
    assert (requeue_output.code, requeue_output.out.strip()) == (
        0,
        "2 jobs requeued; 1 remain (the queue is full); run the same command again later",
    )
    rest = latent("jobs", "requeue", "--failed", "-c", "notes", "--json").json
    assert (len(rest["job_ids"]), rest["remaining"]) == (1, 0)


def test_a_job_is_watched_to_its_end(latent: Latent, gateway: FakeGateway) -> None:
    job = gateway.put("notes", "file:///a.md", b"%BROKEN")
    result = latent("jobs", "watch", str(job.job_id))
    assert result.code == 4
    assert [line.split()[2] for line in result.out.splitlines()[:2]] == ["queued", "failed"]
    assert "failed: a.md: the file is damaged" in result.out
    lines = latent("jobs", "watch", str(job.job_id), "--json").out.splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["queued", "failed", "end"]


def test_documents_are_listed_and_deleted_by_id_uri_or_path(
    latent: Latent, gateway: FakeGateway
) -> None:
    for name in ("a", "b", "c", "d"):
        gateway.put("notes", f"file:///{name}.md", b"text")
    listed = latent("documents", "list", "-c", "notes", "--json").json["documents"]
    assert len(listed) == 4
    assert (
        len(latent("documents", "list", "-c", "notes", "--limit", "3", "--json").json["documents"])
        == 3
    )
    found = latent("documents", "list", "-c", "notes", "--prefix", "file:///b")
    assert re.search(r"b\.md +text +live +1 +0 +4 B", found.out)
    by_id = next(d["doc_id"] for d in listed if d["source_uri"] == "file:///a.md")
    assert latent("documents", "delete", "-c", "notes", by_id).code == 2
    gone = latent(
        "documents", "delete", "-c", "notes", by_id, "file:///b.md", "c.md", "--yes", "--json"
    )
    assert len(gone.json["job_ids"]) == 3
    assert [d.view.source_uri for d in gateway.documents.values()] == ["file:///d.md"]


def test_synced_folders_are_listed_by_place_and_forgotten(
    latent: Latent, gateway: FakeGateway, museum: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for root in ("museum", "gone"):
        latent("ingest", museum, "-c", "notes", "--root", root)
    moved = museum.rename(museum.with_name("moved"))
    listed = latent("sources", "list", "-c", "notes", "--json").json["sources"]
    assert [(s["root"], s["place"], s["documents"]) for s in listed] == [
        ("gone", "missing", 2),
        ("museum", "missing", 2),
    ]
    moved.rename(museum)
    shown = latent("sources", "list", "-c", "notes")
    assert re.search(rf"museum +file:///museum/ +here +{museum} +2 +never", shown.out)
    forgotten = latent("sources", "forget", "-c", "notes", "museum")
    assert (
        forgotten.out == "museum is forgotten; 2 documents below file:///museum/ stay searchable\n"
    )
    registered = json.loads((museum.parent / "data" / "sources.json").read_text("utf-8"))
    assert [one["root"] for one in registered["sources"]] == ["gone"]
    refused = latent("sources", "forget", "-c", "notes", "gone", "--delete-documents")
    assert (refused.code, len(gateway.documents)) == (2, 4)
    assert "add --yes" in refused.err
    # Another data directory stands for another computer.
    monkeypatch.setenv("LLC_DATA_DIR", str(museum.parent / "other"))
    [elsewhere] = latent("sources", "list", "-c", "notes", "--json").json["sources"]
    assert elsewhere["place"] == "elsewhere"
    gateway.max_deletions = 1
    gone = latent(
        "sources", "forget", "-c", "notes", "file:///gone/", "--delete-documents", "--yes"
    )
    assert gone.out == "gone is forgotten; 2 documents below file:///gone/ deleted\n"
    assert len(gateway.documents) == 2
    unknown = latent("sources", "forget", "-c", "notes", "gone")
    assert (unknown.code, "latent sources list -c notes" in unknown.err) == (1, True)


def test_doctor_tells_differences_by_exit_code_4(latent: Latent, gateway: FakeGateway) -> None:
    clean = latent("doctor")
    assert clean.code == 0
    assert "notes: 0 documents\neverything agrees\n" in clean.out
    gateway.differences = [{"kind": "point", "object": "p-1", "message": "no row expects it"}]
    found = latent("doctor", "-c", "notes")
    assert found.code == 4
    assert "  point p-1: no row expects it\n1 difference\n" in found.out
    assert latent("doctor", "--json").json["clean"] is False


def test_a_job_of_a_write_that_failed_is_exit_code_4(latent: Latent, gateway: FakeGateway) -> None:
    gateway.hold_jobs = True
    gateway.failures = []
    job = gateway.enqueue(JobKind.PURGE, "notes")
    gateway.finish(job.job_id, JobState.FAILED)
    assert latent("jobs", "watch", str(job.job_id)).code == 4


def test_settings_are_printed_with_secrets_masked(
    latent: Latent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLC_POSTGRES_DSN", "postgresql://me:hunter2@host/db")
    monkeypatch.setenv("LLC_QDRANT_URL", "https://key:hunter3@cluster:6333")
    monkeypatch.setenv("LLC_INGEST_ROOTS", "/a:/b")
    settings = latent("config", "--json").json["settings"]
    assert settings["LLC_POSTGRES_DSN"] == settings["LLC_MCP_TOKEN"] == "********"
    assert settings["LLC_QDRANT_URL"] == "https://********@cluster:6333"
    assert settings["LLC_INGEST_ROOTS"] == "/a:/b"
    assert settings["LLC_SIGNING_KEY"] is None
    shown = latent("config").out
    assert "hunter" not in shown
    assert re.search(r"LLC_PORT +7801", shown)


@pytest.mark.parametrize("command", ["gateway", "worker"])
def test_split_processes_refuse_to_start_without_all_addresses(
    command: str, latent: Latent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLC_QDRANT_URL", "http://127.0.0.1:6333")
    result = latent(command)
    assert result.code == 2
    assert "not set: LLC_POSTGRES_DSN, LLC_S3_ENDPOINT" in result.err
    assert "latent up" in result.err


def test_chunks_are_listed_by_what_they_hold_shown_whole_and_measured(
    latent: Latent, museum: Path
) -> None:
    latent("ingest", museum, "-c", "notes", "--wait")
    listed = latent("inspect", "-c", "notes", "--contains", "FRESNEL", "--json").json["chunks"]
    assert [chunk["source_uri"] for chunk in listed] == ["file:///museum/lens.txt"]
    assert "museum/lamp.md" in latent("inspect", "-c", "notes", "--source", "museum/").out
    whole = latent("inspect", "-c", "notes", "--chunk", listed[0]["chunk_id"])
    assert whole.code == 0
    assert "--- raw text\nA Fresnel lens of the first order.\n" in whole.out
    assert "--- embedded text\nsame as the raw text\n" in whole.out
    sizes = latent("inspect", "-c", "notes", "--sizes")
    assert re.search(r"all +2 +0 +tokens +25 +34 +34 +34", sizes.out)
    assert latent("inspect", "-c", "notes", "--sizes", "--json").json["total"]["chunks"] == 2
    wrong = latent("inspect", "-c", "notes", "--meta", "author")
    assert (wrong.code, "FIELD=VALUE" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--sizes", "--block-type", "table"),
        ("--sizes", "--meta", "author=Ada"),
        ("--chunk", "0" * 32, "--page", "1"),
        ("--chunk", "0" * 32, "-d", "museum/lamp.md"),
    ],
)
def test_inspect_refuses_a_selection_that_it_would_ignore(
    latent: Latent, arguments: tuple[str, ...]
) -> None:
    refused = latent("inspect", "-c", "notes", *arguments)
    assert refused.code == 2
    assert arguments[0] in refused.err


@pytest.mark.parametrize("more", [(), ("--sizes",), ("--json",)])
def test_inspect_of_a_document_that_does_not_exist_fails(
    latent: Latent, museum: Path, more: tuple[str, ...]
) -> None:
    latent("ingest", museum, "-c", "notes", "--wait")
    assert latent("inspect", "-c", "notes", "-d", "museum/lamp.md", *more).code == 0
    missing = latent("inspect", "-c", "notes", "-d", "missing", *more)
    assert missing.code == 1
    assert "container 'notes' has no document 'missing'" in missing.err + missing.out
    assert "latent documents list -c notes" in missing.err + missing.out


def test_chunks_are_listed_by_block_and_section(latent: Latent, gateway: FakeGateway) -> None:
    places = ("--heading-path", "A > B", "--parent-section", "A", "--table-id", "t1")
    assert latent("inspect", "-c", "notes", "--block-type", "table", *places).code == 0
    query = gateway.requests[-1].query
    assert {name: query[name] for name in ("block_type", "heading_path")} == {
        "block_type": "table",
        "heading_path": "A > B",
    }
    assert (query["parent_section"], query["table_id"]) == ("A", "t1")


def test_pages_are_exported_once_and_missing_images_are_reported(
    latent: Latent, museum: Path, tmp_path: Path, gateway: FakeGateway
) -> None:
    latent("ingest", museum, "-c", "notes", "--wait")
    out = tmp_path / "out"
    first = latent("pages", "export", "-c", "notes", "--out", out)
    assert first.code == 0
    assert "2 pages of 2 documents" in first.out
    assert "2 written, 0 kept" in first.out
    listings = {file: file.read_bytes() for file in sorted(out.glob("*/pages.jsonl"))}
    assert len(listings) == 2
    line = json.loads(next(iter(listings.values())))
    assert line["uri"] == "pages/0001.webp"
    assert (out / line["doc_id"] / line["uri"]).stat().st_size == line["bytes"]
    (out / line["doc_id"] / line["uri"]).write_bytes(b"half")
    again = latent("pages", "export", "-c", "notes", "--out", out, "--json")
    assert (again.json["written"], again.json["kept"]) == (1, 1)
    assert {file: file.read_bytes() for file in listings} == listings
    gateway.put("notes", "file:///tide.late", b"high")
    late = latent("pages", "export", "-c", "notes", "--out", out, "-d", "tide.late")
    assert late.code == 4
    assert "tide.late: images are missing: still being rendered" in late.err


@pytest.mark.parametrize("command", [("import", "a.zst"), ("backup", "restore", "7")])
def test_a_policy_without_a_merge_is_refused_before_anything_is_sent(
    latent: Latent, gateway: FakeGateway, command: tuple[str, ...]
) -> None:
    result = latent(*command, "--policy", "newest")
    assert (result.code, "add --merge" in result.err) == (2, True)
    assert gateway.requests_to("POST .*") == []


def test_an_evaluation_by_a_mode_that_is_not_offered_is_refused_at_once(
    latent: Latent, gateway: FakeGateway
) -> None:
    result = latent("eval", "notes", "--modes", "hybrid,multivector")
    assert (result.code, "unknown mode 'multivector'; choose from " in result.err) == (2, True)
    assert gateway.requests_to("POST .*") == []


def test_shipped_manifests_are_templates(latent: Latent, gateway: FakeGateway) -> None:
    listed = latent("container", "templates", "--json").json["templates"]
    kinds = ["notes", "code", "papers", "web", "pictures"]
    assert [one["id"] for one in listed] == [*kinds, "expressionist-art", "samples"]
    assert re.search(r"samples +Skerry Point", latent("container", "templates").out)
    assert latent("container", "templates", "papers").out.startswith("# Papers and reports: PDFs")
    assert latent("container", "create", "--from", "expressionist-art").code == 0
    whole = gateway.manifests["expressionist-art"]
    assert (whole.name, whole.dims, whole.pdf.max_pages) == ("Expressionist Art", 1408, 1000)
    made = latent(
        "container", "create", "bauhaus", "--from", "expressionist-art", "--theme", "1919"
    )
    assert made.code == 0
    another = gateway.manifests["bauhaus"]
    assert (another.name, another.theme, another.pdf.max_pages) == ("bauhaus", "1919", 1000)


def test_a_template_of_another_embedder_forgets_version_and_dimensions(
    latent: Latent, gateway: FakeGateway
) -> None:
    given = ("--from", "expressionist-art", "--embedder", "local")
    assert latent("container", "create", "art", *given).code == 0
    made = gateway.manifests["art"]
    assert (made.embedder, made.embedder_version) == ("local", None)
    assert made.dims != 1408


def test_an_unknown_template_is_refused_with_the_nearest_one(
    latent: Latent, tmp_path: Path
) -> None:
    result = latent("container", "create", "--from", "expresionist-art")
    assert result.code == 1
    assert "no template 'expresionist-art'; did you mean 'expressionist-art'?" in result.err
    file = tmp_path / "m.yaml"
    file.write_text(MANIFEST, encoding="utf-8")
    both = latent("container", "create", "--from", "samples", "--file", file)
    assert (both.code, "--file cannot be combined with --from" in both.err) == (2, True)


def test_the_sample_container_is_created_and_filled_once(
    latent: Latent, gateway: FakeGateway
) -> None:
    first = latent("samples")
    assert first.code == 0
    assert "created 'samples'" in first.out
    assert "lighthouse: 8 files, 8 sent" in first.out
    assert "; latent eval samples" in first.out
    assert gateway.golden["samples"] == golden_queries("samples")
    question = re.search(r"try: latent search '(.*)' -c samples", first.out)
    assert question is not None
    again = latent("samples", "--json").json
    assert (again["jobs"], again["folders"][0]["unchanged"]) == ([], 8)


def test_a_search_without_containers_covers_all_and_names_them(
    latent: Latent, gateway: FakeGateway, museum: Path
) -> None:
    gateway.create(Manifest(id="art", name="Art"))
    latent("ingest", museum, "-c", "art", "--wait")
    result = latent("search", "colza")
    assert result.code == 0
    assert "   art: museum/lamp.md, page 1, line 1\n" in result.out
    sent = orjson.loads(gateway.requests_to("POST /v1/containers/search")[-1].body)
    assert "containers" not in sent


def test_an_unknown_container_is_answered_with_the_nearest_name(
    latent: Latent, gateway: FakeGateway, museum: Path
) -> None:
    assert API_REMEDY in access.unknown("x").message  # what the command line replaces
    for arguments in (
        ("search", "lamp", "-c", "nots"),
        ("container", "describe", "nots"),
        ("ingest", museum, "-c", "nots"),
    ):
        result = latent(*arguments)
        assert result.code == 1
        assert result.err == (
            "latent: container 'nots' does not exist, or you may not read it; did you mean 'notes'?\n"
        )
    assert "; there are: notes\n" in latent("search", "lamp", "-c", "vault").err
    gateway.manifests.clear()
    assert "none yet: latent container create ID" in latent("search", "lamp", "-c", "vault").err


def test_internal_jobs_are_listed_on_request(latent: Latent, gateway: FakeGateway) -> None:
    gateway.hold_jobs = True
    for kind in JobKind:
        gateway.enqueue(kind, "notes")
    shown = {job["kind"] for job in latent("jobs", "list", "--json").json["jobs"]}
    assert shown == {kind.value for kind in frozenset(JobKind) - INTERNAL_KINDS}
    assert {"purge", "dedup", "render"}.isdisjoint(shown)
    every = latent("jobs", "list", "--internal", "--json").json["jobs"]
    assert len(every) == len(JobKind)
    listed = latent("jobs", "list", "-c", "notes").out
    assert "ingest" in listed
    assert "purge" not in listed


def test_a_list_names_the_failed_jobs_that_it_hides(latent: Latent, gateway: FakeGateway) -> None:
    gateway.hold_jobs = True
    job = gateway.enqueue(JobKind.PURGE, "notes")
    gateway.finish(job.job_id, JobState.FAILED)
    assert "1 internal job failed; --internal lists them" in latent("jobs", "list").err


@pytest.mark.parametrize("moment", ["show_folder", "show"])
def test_an_interrupted_ingest_says_that_jobs_continue(
    moment: str, latent: Latent, gateway: FakeGateway, museum: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.hold_jobs = True

    def interrupt(_bars: IngestBars, _progress: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(IngestBars, moment, interrupt)
    result = latent("ingest", museum, "-c", "notes", "--wait")
    assert (result.code, result.out) == (1, "")
    assert "interrupted; " in result.err
    assert "jobs continue" in result.err or "jobs of files that were sent continue" in result.err
    assert "`latent jobs list -c notes` shows them" in result.err
    assert ("run the same command again" in result.err) is (moment == "show_folder")


@pytest.mark.parametrize("command", ["ingest", "samples"])
def test_bars_do_not_draw_over_what_an_interrupted_command_says(
    command: str,
    latent: Latent,
    gateway: FakeGateway,
    museum: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    gateway.hold_jobs = True
    show = JobsBar.show

    def interrupt(bars: IngestBars, progress: WaitProgress) -> None:
        show(bars, progress)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(IngestBars, "show", interrupt)
    arguments = (
        ("samples",) if command == "samples" else ("ingest", museum, "-c", "notes", "--wait")
    )
    shown = latent(*arguments).err
    before, _, after = shown.partition("latent: interrupted; ")
    assert "jobs done" in before
    assert "jobs done" not in after
    assert "\x1b[1A" not in after


def test_an_interrupted_wait_names_the_job(
    latent: Latent, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.hold_jobs = True

    def interrupt(_bars: JobsBar, _progress: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(JobsBar, "show", interrupt)
    result = latent("container", "delete", "notes", "--yes", "--wait")
    assert result.code == 1
    assert re.search(r"interrupted; job (\d+) continues; `latent jobs watch \1`", result.err)


def test_console_prints_a_fresh_link_alone_on_stdout(latent: Latent, gateway: FakeGateway) -> None:
    result = latent("console")
    link = f"{gateway.url}/login/link?code=abc"
    assert (result.code, result.out) == (0, f"{link}\n")
    assert "once, within 15 minutes, in a browser on this machine" in result.err
    assert latent("console", "--json").json == {"url": link, "valid_seconds": 900}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("search",), "no query: give words, or one of --like, --must, --regex and --path"),
        (("ingest", "notes"), "'--container' / '-c'; see `latent ingest --help`"),
        (("export", "notes", "--out", "x"), "see `latent export --help`"),
        (("restore",), "Missing command, one of all; see `latent restore --help`"),
        (
            ("jobs",),
            "one of list, groups, queue, show, watch, cancel, requeue; see `latent jobs --help`",
        ),
    ],
)
def test_a_call_that_lacks_something_names_it_and_the_help_of_its_command(
    latent: Latent, gateway: FakeGateway, call: tuple[str, ...], message: str
) -> None:
    result = latent(*call)
    assert (result.code, message in result.err) == (2, True), result.err
    assert gateway.requests_to(".*") == []


@pytest.mark.parametrize(
    ("given", "numbers"),
    [("3-7", [3, 4, 5, 6, 7]), ("4", [4]), ("9-10, 1,4", [1, 4, 9, 10]), ("2,1-3", [1, 2, 3])],
)
def test_pages_to_extract_are_numbers_and_ranges(given: str, numbers: list[int]) -> None:
    assert page_numbers(given) == numbers


@pytest.mark.parametrize(
    "given", ["", "a", "3-", "-3", "7-3", "0-2", "1-99999999", "1,,2", "1-2-3"]
)
def test_what_is_no_range_of_pages_is_refused(given: str) -> None:
    with pytest.raises(Invalid, match="--pages"):
        page_numbers(given)
