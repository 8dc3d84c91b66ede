"""What was measured, as tables to read, and each figure against its bar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks import languages
from benchmarks.agents import BAR, Overhead
from benchmarks.chunking import BAR_MB, ChunkingFigures
from benchmarks.folders import FolderFigures
from benchmarks.ingest import PdfTimes, Throughput
from benchmarks.memory import MemoryUsage
from benchmarks.plot import at
from benchmarks.quality import SearchQuality
from benchmarks.search import CHANNELS, STAGES, Footprint, ModeLatency, Spread
from benchmarks.serving import ServingFigures
from benchmarks.size import LIMIT_MB, Size
from latent_core.models.embedding import multilingual

INGEST_RATIO: Final = 0.85
PDF_SECONDS: Final = 30.0
IDLE_MB: Final = 700.0
BAR_CHUNKS: Final = 100_000
MILLION: Final = 1_000_000
AGAIN_SECONDS: Final = 3.0
AGAIN_FILES: Final = 5_000
HYBRID_MS: Final = Spread(25.0, 50.0)
SERVER_MS: Final = Spread(12.0, 18.0)
KEYWORDS_P95_MS: Final = 10.0
TOLERANCE: Final = 0.01
CODE_SETS: Final = frozenset({"cosqa"})
"""Where one channel alone is expected to win."""


@dataclass
class BenchmarkResults:
    """Of one run; a part that was not run is empty."""

    machine: dict[str, str | float]
    load_before: dict[str, float] = field(default_factory=dict)
    """Part to the machine's load average (one minute) before it began."""
    size: Size | None = None
    memory: list[MemoryUsage] = field(default_factory=list)
    pdf: PdfTimes | None = None
    ingest: list[Throughput] = field(default_factory=list)
    chunking: list[ChunkingFigures] = field(default_factory=list)
    folders: list[FolderFigures] = field(default_factory=list)
    search: list[ModeLatency] = field(default_factory=list)
    footprints: list[Footprint] = field(default_factory=list)
    serving: ServingFigures | None = None
    agents: Overhead | None = None
    quality: list[SearchQuality] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ReportLimit:
    """A figure and what it has to be."""

    what: str
    value: float
    limit: float
    is_minimum: bool = False

    @property
    def held(self) -> bool:
        return self.value >= self.limit if self.is_minimum else self.value <= self.limit


def bars(results: BenchmarkResults) -> list[ReportLimit]:
    return [
        *_ingest_bars(results),
        *(bar for row in results.search if row.chunks == BAR_CHUNKS for bar in _search_bars(row)),
        *([ReportLimit("MCP over HTTP, p50", results.agents.ratio, BAR)] if results.agents else []),
        *(bar for row in results.quality for bar in _quality_bars(row)),
    ]


def _ingest_bars(results: BenchmarkResults) -> Iterator[ReportLimit]:
    if results.size:
        yield ReportLimit("installed size, MB", results.size.total_mb, LIMIT_MB)
        yield ReportLimit("packages of torch and CUDA", len(results.size.unwanted), 0)
    for usage in results.memory[:1]:
        yield ReportLimit(f"memory {usage.when}, MB", usage.total_mb, IDLE_MB)
    if results.pdf:
        yield ReportLimit(
            f"PDF of {results.pdf.pages} pages, s", results.pdf.rendered_seconds, PDF_SECONDS
        )
    for row in results.ingest:
        yield ReportLimit(f"ingest, {row.shape}", row.ratio, INGEST_RATIO, is_minimum=True)
    for made in results.chunking:
        yield ReportLimit(
            f"chunking, {made.source_type}, MB/s", made.mb_per_second, BAR_MB, is_minimum=True
        )
    for one in results.folders:
        if one.files == AGAIN_FILES:
            yield ReportLimit(f"{one.files} unchanged files, s", one.again_seconds, AGAIN_SECONDS)


def _search_bars(row: ModeLatency) -> Iterator[ReportLimit]:
    if row.mode == "hybrid":
        yield ReportLimit("hybrid p50, ms", row.total.p50_ms, HYBRID_MS.p50_ms)
        yield ReportLimit("hybrid p95, ms", row.total.p95_ms, HYBRID_MS.p95_ms)
        yield ReportLimit("server without embedding p50, ms", row.server.p50_ms, SERVER_MS.p50_ms)
        yield ReportLimit("server without embedding p95, ms", row.server.p95_ms, SERVER_MS.p95_ms)
    if row.mode == "lexical":
        yield ReportLimit("keyword channel p95, ms", row.channels["bm25"].p95_ms, KEYWORDS_P95_MS)


def _quality_bars(row: SearchQuality) -> Iterator[ReportLimit]:
    yield ReportLimit(
        f"{row.name}: lexical nDCG@10", row.lexical, row.bm25s - TOLERANCE, is_minimum=True
    )
    if row.name not in CODE_SETS:
        better = max(row.lexical, row.semantic)
        yield ReportLimit(
            f"{row.name}: hybrid nDCG@10", row.hybrid, better - TOLERANCE, is_minimum=True
        )

    if row.name.startswith(languages.SETS):
        yield from _language_bars(row)


def _language_bars(row: SearchQuality) -> Iterator[ReportLimit]:
    """Of sets in other languages, and in English for comparison."""
    if row.embedder == multilingual.VARIANT.embedder and row.name in languages.SEMANTIC:
        limit = languages.SEMANTIC[row.name]
        yield ReportLimit(f"{row.name}: semantic nDCG@10", row.semantic, limit, is_minimum=True)
    fusions = {"auto": row.hybrid_auto}
    if row.name in languages.SEMANTIC:
        fusions["rrf"] = row.hybrid
    for fusion, measured in fusions.items():
        what, limit = f"{row.name}: hybrid by {fusion}", row.lexical - languages.HYBRID_LOSS
        yield ReportLimit(what, measured, round(limit, 4), is_minimum=True)


def refusal(found: Sequence[ReportLimit]) -> str | None:
    """Why a gate does not pass: the bars that are missed, or that nothing was measured; None if it passes."""
    if not found:
        return "nothing was measured that has a bar: name the parts, and the folder of judged sets with --data"
    missed = [bar for bar in found if not bar.held]
    return "\n".join(_missed(bar) for bar in missed) or None


def _missed(bar: ReportLimit) -> str:
    sign = ">=" if bar.is_minimum else "<="
    return f"missed: {bar.what} is {bar.value:.4f}; it must be {sign} {bar.limit:.4f}"


def lines(results: BenchmarkResults) -> Iterator[str]:
    """Everything, ready to print."""
    for title, rows in (
        ("Ingest: texts a second", _ingest_rows(results.ingest)),
        ("PDF", _pdf_rows(results.pdf)),
        ("Parsing and chunking, CPU time", _chunking_rows(results.chunking)),
        ("Folders of small files", _folder_rows(results.folders)),
        ("Search: p50 / p95 ms over HTTP, one client", _search_rows(results.search)),
        ("Clients at once, hybrid", _load_rows(results.serving)),
        (
            "Kinds of queries, in turns with the usual one: p50 / p95 ms",
            _case_rows(results.serving),
        ),
        ("The same search by MCP and by HTTP, in turns: p50 / p95 ms", _agent_rows(results.agents)),
        ("Growth", _growth_rows(results)),
        ("Search by stage: p50 / p95 ms", _stage_rows(results.search)),
        ("Memory: PSS of all processes, MB", _memory_rows(results.memory)),
        ("Quality: nDCG@10", _quality_rows(results.quality)),
        ("Installed size, MB", _size_rows(results.size)),
        ("Bars", _bar_rows(bars(results))),
    ):
        if len(rows) > 1:
            yield ""
            yield title
            yield from _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The first row is the head; the first column stands left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, (first, *rest) in enumerate(rows):
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        yield "  " + "  ".join(cells).rstrip()
        if number == 0:
            yield "  " + "  ".join("-" * width for width in widths)


def _ingest_rows(ingest: Sequence[Throughput]) -> list[list[str]]:
    head = ["", "texts", "system", "embedder alone", "ratio", "ratio of CPU time"]
    return [head] + [
        [
            row.shape,
            str(row.texts),
            f"{row.per_second:.1f}",
            f"{row.alone_per_second:.1f}",
            f"{row.ratio:.3f}",
            f"{row.cpu_ratio:.3f}",
        ]
        for row in ingest
    ]


def _pdf_rows(pdf: PdfTimes | None) -> list[list[str]]:
    head = ["pages", "chunks", "found after, s", "drawn after, s"]
    if pdf is None:
        return [head]
    seconds = (f"{pdf.visible_seconds:.1f}", f"{pdf.rendered_seconds:.1f}")
    return [head, [str(pdf.pages), str(pdf.chunks), *seconds]]


def _chunking_rows(chunking: Sequence[ChunkingFigures]) -> list[list[str]]:
    head = ["", "files", "MB", "chunks", "MB/s", "times the raw baseline"]
    return [head] + [
        [
            row.source_type,
            str(row.files),
            f"{row.megabytes:.1f}",
            str(row.chunks),
            f"{row.mb_per_second:.2f}",
            f"{row.ratio:.1f}",
        ]
        for row in chunking
    ]


def _folder_rows(folders: Sequence[FolderFigures]) -> list[list[str]]:
    head = ["files", "searchable, s", "again, s", "idle MB", "peak MB", "others wait, s"]
    return [head] + [
        [
            str(row.files),
            f"{row.first_seconds:.0f}",
            f"{row.again_seconds:.2f}",
            f"{row.idle_mb:.0f}",
            f"{row.peak_mb:.0f}",
            f"{row.waited_p50:.1f} / {row.max_wait:.1f}",
        ]
        for row in folders
    ]


def _search_rows(search: Sequence[ModeLatency]) -> list[list[str]]:
    head = ["chunks", "mode", "total", "server less embedding", *CHANNELS]
    return [head] + [
        [
            str(row.chunks),
            row.mode,
            _shown(row.total),
            _shown(row.server),
            *(_shown(row.channels.get(name)) for name in CHANNELS),
        ]
        for row in search
    ]


def _stage_rows(search: Sequence[ModeLatency]) -> list[list[str]]:
    return [["chunks", "mode", *STAGES]] + [
        [str(row.chunks), row.mode, *(_shown(row.stages[stage]) for stage in STAGES)]
        for row in search
    ]


def _shown(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.p50_ms:.1f} / {spread.p95_ms:.1f}"


def _load_rows(serving: ServingFigures | None) -> list[list[str]]:
    head = ["clients", "chunks", "searches a second", "p50 / p95 ms"]
    return [head] + [
        [str(load.clients), str(load.chunks), f"{load.per_second:.1f}", _shown(load.spread)]
        for load in (serving.loads if serving else ())
    ]


def _case_rows(serving: ServingFigures | None) -> list[list[str]]:
    head = ["", "", "compared with", "ratio of medians"]
    return [head] + [
        [case.what, _shown(case.spread), _shown(case.compared), f"{case.ratio:.2f}"]
        for case in (serving.cases if serving else ())
    ]


def _agent_rows(overhead: Overhead | None) -> list[list[str]]:
    head = ["chunks", "MCP", "HTTP", "ratio of medians"]
    if overhead is None:
        return [head]
    shown = (_shown(overhead.mcp), _shown(overhead.http), f"{overhead.ratio:.2f}")
    return [head, [f"{overhead.chunks}", *shown]]


def _growth_rows(results: BenchmarkResults) -> list[list[str]]:
    """What the line through the two largest sizes says of a million chunks."""
    rows = [["", "largest", "at a million"]]
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in results.search:
        lines.setdefault(f"{row.mode} p95, ms", []).append((row.chunks, row.total.p95_ms))
    lines["memory, MB"] = [(one.chunks, one.megabytes) for one in results.footprints]
    return rows + [
        [name, f"{max(line)[1]:.0f}", f"{at(line, MILLION):.0f}"]
        for name, line in lines.items()
        if len(line) > 1
    ]


def _memory_rows(memory: Sequence[MemoryUsage]) -> list[list[str]]:
    names = sorted({name for usage in memory for name in usage.by_process})
    return [["", "together", *names]] + [
        [
            usage.when,
            f"{usage.total_mb:.0f}",
            *(f"{usage.by_process.get(name, 0.0):.0f}" for name in names),
        ]
        for usage in memory
    ]


def _quality_rows(quality: Sequence[SearchQuality]) -> list[list[str]]:
    head = ["", "documents", "queries", "bm25s", "lexical", "semantic", "hybrid"]
    head += [
        "DBSF",
        "auto",
        "best",
        "best fusion",
        "hybrid - better channel, 95 %",
        "auto - better channel, 95 %",
    ]
    rows = [
        [
            row.bm25s,
            row.lexical,
            row.semantic,
            row.hybrid,
            row.hybrid_dbsf,
            row.hybrid_auto,
            row.best,
        ]
        for row in quality
    ]
    shown = [
        [
            one.name,
            str(one.documents),
            str(one.queries),
            *("" if score is None else f"{score:.4f}" for score in row),
            one.best_fusion,
            *(
                f"{interval.low:+.3f} to {interval.high:+.3f}"
                for interval in (one.against_better, one.auto_against_better)
            ),
        ]
        for one, row in zip(quality, rows, strict=True)
    ]
    if len(rows) > 1:
        shown.append(["mean", "", "", *map(_mean_of, zip(*rows, strict=True)), "", "", ""])
    return [head, *shown]


def _mean_of(column: Sequence[float | None]) -> str:
    known = [score for score in column if score is not None]
    return f"{sum(known) / len(known):.4f}" if len(known) == len(column) else ""


def _size_rows(size: Size | None) -> list[list[str]]:
    if size is None:
        return [["", "MB"]]
    largest = list(size.packages.items())[:8]
    rest = size.total_mb - sum(megabytes for _, megabytes in largest)
    return [
        ["package", "MB"],
        *([name, f"{megabytes:.1f}"] for name, megabytes in largest),
        [f"{len(size.packages) - len(largest)} more", f"{rest:.1f}"],
        ["together", f"{size.total_mb:.1f}"],
    ]


def _bar_rows(found: Sequence[ReportLimit]) -> list[list[str]]:
    return [["", "measured", "bar", ""]] + [
        [
            bar.what,
            f"{bar.value:.4g}",
            f"{'>=' if bar.is_minimum else '<='} {bar.limit:.4g}",
            "held" if bar.held else "MISSED",
        ]
        for bar in found
    ]
