"""How answers look to people."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import typer
from rich.console import Console

from latent_cli import jobs_output, progress
from latent_cli.commands import documents, export, import_
from latent_cli.hits_output import hit_lines, marked, others, rating
from latent_cli.jobs_output import about, named, read_by_models
from latent_cli.output import MAX_CAUSE, brief, can_link, moment, safe, size
from latent_cli.place_output import place_of
from latent_cli.progress import IngestBars, JobsBar
from latent_cli.styled import print_lines
from latent_client.folder import FolderProgress
from latent_core.domain.document import DocumentFailure, DocumentState, DocumentView
from latent_core.domain.errors import Issue, IssueCode
from latent_core.domain.generated import GeneratedBy, GeneratedKind
from latent_core.domain.job import JobKind, JobLanguageModels, JobState, JobView
from latent_core.wire.search import AlsoInDocument, PlaceView, SearchRequest
from latent_core.wire.transfers import ImportAnswer
from tests.support.clock import FakeClock
from tests.support.fake_gateway.fake_search import find
from tests.support.fake_gateway.gateway import FakeGateway
from tests.support.harness.cli import Latent


def ended_job(state: JobState, *, cancel_requested: bool = False, **more: Any) -> JobView:
    fields: dict[str, Any] = {"kind": JobKind.EXPORT, "container_id": "art"} | more
    return JobView(
        job_id=7,
        doc_id=None,
        state=state,
        progress_done=0,
        progress_total=None,
        progress_note=None,
        attempts=1,
        max_attempts=3,
        cancel_requested=cancel_requested,
        created_at=datetime.now(UTC),
        started_at=None,
        finished_at=None,
        **fields,
    )


def test_a_job_shows_what_language_models_used() -> None:
    usage = JobLanguageModels(calls=2, input_tokens=2_000_000, output_tokens=200_000, cost=6)
    shown = "2 calls, 2,000,000 tokens read, 200,000 written"
    assert read_by_models(usage) == f"{shown}, cost 6.0000"
    assert read_by_models(usage.model_copy(update={"cost": 0.0})) == shown


def test_the_words_of_the_query_stand_out_in_the_snippet(gateway: FakeGateway) -> None:
    gateway.put("notes", "file:///a.md", "The lamp\x1b,\nthe Lamp — and oil.".encode())
    [hit] = find(gateway, SearchRequest(containers=["notes"], query="lamp oil", top_k=1))
    lines = marked(hit)
    assert ["".join(text for text, _ in line) for line in lines] == [
        "   The lamp\ufffd,",
        "   the Lamp — and oil.",
    ]
    assert [text for line in lines for text, style in line if style] == ["lamp", "Lamp", "oil"]


def test_a_hit_shows_its_relevance_in_percent_and_a_weak_one_is_dim(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.put("notes", "file:///a.md", b"The lamp and oil.")
    [hit] = find(gateway, SearchRequest(containers=["notes"], query="lamp", top_k=1))
    assert rating(hit) == "score 1.0000"
    strong = hit.model_copy(update={"relevance": 0.874, "title": "Lamps"})
    assert rating(strong) == "87% relevant"
    weak = strong.model_copy(update={"relevance": 0.12, "weak": True})
    assert rating(weak) == "12% relevant (weak)"
    lines = [*hit_lines(1, strong, several=False), *hit_lines(2, weak, several=False)]
    print_lines(lines)
    plain = capsys.readouterr().out
    assert plain.startswith("1. Lamps  87% relevant\n   ")
    assert "\x1b" not in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    print_lines(lines)
    drawn = capsys.readouterr().out
    assert "\x1b[1mLamps" in drawn
    assert "\x1b[2mLamps" in drawn


def test_a_hit_that_a_model_wrote_says_so(
    gateway: FakeGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.put("notes", "file:///a.md", b"The lamp and oil.")
    [hit] = find(gateway, SearchRequest(containers=["notes"], query="lamp", top_k=1))
    print_lines(hit_lines(1, hit, several=False))
    assert "generated" not in capsys.readouterr().out
    by = GeneratedBy(
        kind=GeneratedKind.VISUAL,
        model="lab/reader",
        prompt_version="1",
        created_at=datetime(2026, 11, 24, tzinfo=UTC),
    )
    print_lines(hit_lines(1, hit.model_copy(update={"generated": by}), several=False))
    assert "generated: visual by lab/reader" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (PlaceView(), ""),
        (PlaceView(page=3, page_end=3), "page 3"),
        (PlaceView(page=3, page_end=4, heading_path="A > B"), "A > B, pages 3-4"),
        (PlaceView(line_start=7, line_end=7, key_path="a.b"), "a.b, line 7"),
        (PlaceView(line_start=7, line_end=9), "lines 7-9"),
    ],
)
def test_a_place_is_formatted_for_people(place: PlaceView, message: str) -> None:
    assert place_of(place) == message


def test_of_many_other_places_the_best_are_shown() -> None:
    found = [
        AlsoInDocument(chunk_id=uuid4(), score=1 / n, place=PlaceView(page=n)) for n in range(1, 6)
    ]
    assert others(found[:1]) == "page 1 (1.000)"
    assert others(found) == "page 1 (1.000); page 2 (0.500); page 3 (0.333) and 2 more"


@pytest.mark.parametrize(
    ("ids", "message"),
    [([7], "job 7"), ([3, 1, 2], "jobs 1-3"), ([1, 3, 4, 9], "jobs 1, 3-4, 9")],
)
def test_runs_of_jobs_are_joined(ids: list[int], message: str) -> None:
    assert named(ids) == message


@pytest.mark.parametrize(
    ("uri", "container", "message"),
    [("file:///a.md", "notes", "a.md"), (None, "notes", "notes"), (None, "", "import")],
)
def test_a_job_is_about_its_document_or_container_or_what_it_does(
    uri: str | None, container: str, message: str
) -> None:
    # An import has no container while it has not made it.
    job = ended_job(JobState.FAILED, kind=JobKind.IMPORT, container_id=container, source_uri=uri)
    assert about(job) == message


def test_figures_are_formatted_for_people() -> None:
    assert [size(n) for n in (None, 0, 999, 1000, 12_345_678)] == [
        "",
        "0 B",
        "999 B",
        "1.0 kB",
        "12.3 MB",
    ]
    assert moment(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == "2026-01-02 03:04:05Z"
    assert safe("a\tb\nc\x00\x7f\x9f", lines=True) == "a\tb\nc\ufffd\ufffd\ufffd"
    assert safe("a\tb\nc\x1b") == "a\ufffdb\ufffdc\ufffd"


def test_bars_are_drawn_on_a_terminal_and_leave_the_answer_alone(
    latent: Latent, museum: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    result = latent("ingest", museum, "-c", "notes", "--wait", "--json")
    assert "files sent" in result.err
    assert "jobs done" in result.err
    assert len(result.json["jobs"]) == 2


@pytest.mark.parametrize(
    ("state", "cancelled", "code", "message"),
    [
        (JobState.DONE, False, None, "done: job 7"),
        (JobState.FAILED, False, 4, "failed: "),
        (JobState.CANCELLED, True, 4, "cancelled: "),
        (JobState.CANCELLED, False, None, "cancelled: "),
    ],
    ids=["done", "failed", "cancelled by somebody", "superseded"],
)
def test_a_command_that_waits_says_done_of_what_was_done_only(
    state: JobState,
    cancelled: bool,
    code: int | None,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        jobs_output, "ask", lambda _: [ended_job(state, cancel_requested=cancelled)]
    )
    left = None
    try:
        jobs_output.finish_jobs([7], wait=True, as_json=False)
    except typer.Exit as end:
        left = end.exit_code
    assert left == code
    out = capsys.readouterr().out
    assert message in out
    assert ("done" in out) == (state is JobState.DONE)


def test_a_warning_of_many_documents_is_one_line_that_names_three_of_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing, empty = (
        Issue(code=IssueCode.INGEST_FAIL, message=text) for text in ("No OCR.", "Empty.")
    )
    jobs = [
        ended_job(
            JobState.DONE, source_uri=f"file:///scans/{n}.png", warnings=[missing, *[empty][n:]]
        )
        for n in range(5)
    ]
    monkeypatch.setattr(jobs_output, "ask", lambda _: jobs)
    jobs_output.finish_jobs([7], wait=True, as_json=False)
    warnings = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert warnings == [
        "warning: scans/0.png, scans/1.png, scans/2.png and 2 more: No OCR.",
        "warning: scans/0.png: Empty.",
    ]


@pytest.mark.parametrize(("state", "code"), [(JobState.CANCELLED, 4), (JobState.FAILED, 4)])
def test_an_export_or_import_that_did_not_come_to_its_end_is_no_success(
    state: JobState, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a cancelled export no file is there: a script must not go on and delete the container."""
    ended = ended_job(state, cancel_requested=True)
    monkeypatch.setattr(export, "ask", lambda _: (None, [ended]))
    with pytest.raises(typer.Exit) as left:
        export.export("art", tmp_path / "art.latent")
    assert left.value.exit_code == code
    monkeypatch.setattr(import_, "ask", lambda _: [ended])
    with pytest.raises(typer.Exit) as left:
        import_.follow_import(
            ImportAnswer(job_id=7, status="queued", container_id="art"), wait=True, as_json=False
        )
    assert left.value.exit_code == code


def test_a_title_is_a_link_to_its_page_only_on_terminals_that_can_show_one(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    gateway.put("notes", "file:///a.md", b"The lamp and oil.")
    [hit] = find(gateway, SearchRequest(containers=["notes"], query="lamp", top_k=1))
    link = "http://127.0.0.1:7801/v1/blobs/ab?sig=x"
    for uri, links, expected in (
        (link, True, True),
        (link, False, False),
        (f"javascript:{link}", True, False),
        (None, True, False),
    ):
        linked = hit.model_copy(update={"page_uri": uri})
        print_lines(hit_lines(1, linked, several=False, links=links))
        shown = capsys.readouterr().out
        assert ("\x1b]8;" in shown) is expected
        assert shown.count(link) == expected


@pytest.mark.parametrize(
    ("terminal", "variables", "expected"),
    [
        (True, {"TERM": "xterm-256color"}, True),
        (True, {"TERM": "xterm-256color", "VTE_VERSION": "6003"}, True),
        (True, {"TERM": "xterm-256color", "VTE_VERSION": "4601"}, False),
        (True, {"TERM": "xterm-256color", "TERM_PROGRAM": "Apple_Terminal"}, False),
        (True, {"TERM": "screen-256color"}, False),
        (True, {"TERM": "dumb"}, False),
        (True, {}, False),
        (False, {"TERM": "xterm-256color"}, False),
    ],
)
def test_links_are_shown_by_terminals_that_are_known_to_hide_them(
    terminal: bool, variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "VTE_VERSION", "TERM_PROGRAM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal, raising=False)
    assert can_link() is expected


def test_bars_show_the_rate_and_the_last_file() -> None:
    console = Console(width=160, color_system=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "notes", lambda: console)
        bars = IngestBars()
        clock = FakeClock()
        bars._progress.get_time = clock.clock
        long = "deep/" * 20 + "lamp.md"
        for done in (1, 2, 3):
            clock.now += 0.5
            bars.show_folder(FolderProgress(stage="upload", done=done, total=8, path=long))
        with console.capture() as shown:
            console.print(bars._progress)
    (last,) = shown.get().splitlines()
    assert "files sent" in last
    assert "3/8" in last
    assert "2/s" in last
    assert "…" in last
    assert last.rstrip().endswith("deep/deep/lamp.md")


def test_an_import_shows_the_bytes_that_are_sent(
    latent: Latent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "art.zst"
    file.write_bytes(b"x" * 600_000)
    seen: list[tuple[object, ...]] = []
    monkeypatch.setattr(JobsBar, "set", lambda _bar, *shown: seen.append(shown))
    latent("import", file)  # the fake gateway imports nothing, but it reads the body
    assert seen[-1] == ("bytes sent", 600_000, 600_000, "art.zst")
    assert [done for _, done, *_ in seen] == sorted({done for _, done, *_ in seen})
    assert len(seen) > 1


def test_bars_of_bytes_show_megabytes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "150")
    with JobsBar() as bar:
        bar.set("bytes sent", 1_500_000, 3_100_000)
        bar.set("documents", 2, 9)
    shown = capsys.readouterr().err
    assert "1.5 MB of 3.1 MB" in shown
    assert "2/9" in shown


def test_lists_show_causes_without_their_remedies() -> None:
    whole = "'a.zip' is a ZIP archive; supported are PDF files, images, texts"
    cause = Issue(code=IssueCode.INVALID, message=whole)
    assert jobs_output._row(ended_job(JobState.FAILED, cause=cause))[-1] == brief(whole)
    refused = DocumentView.model_construct(
        doc_id=uuid4(),
        source_uri="file:///a.zip",
        source_type=None,
        state=DocumentState.FAILED,
        chunks=0,
        bytes=1,
        fetched_at=None,
        failure=DocumentFailure.model_construct(cause=whole),
    )
    assert documents._row(refused)[-1] == brief(whole)
    assert brief("'a.zip' is a ZIP archive; supported are PDF files, images, texts") == (
        "'a.zip' is a ZIP archive"
    )
    assert brief("it is empty") == "it is empty"
    assert len(brief("x" * 400)) == MAX_CAUSE
