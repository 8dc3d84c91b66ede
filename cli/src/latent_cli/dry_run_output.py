"""Console output of a dry run."""

from __future__ import annotations

from rich.console import Console

from latent_cli.figures import DryRun, DryRunFigures
from latent_cli.output import amount, safe, table
from latent_cli.unread_output import unread_notes

BAR_CHARACTERS = 40


def show_dry_run(console: Console, report: DryRun) -> None:
    for one in report.skipped:
        console.print(safe(f"skipped: {one.path}: {one.reason}"))
    for note in unread_notes(report.unread, report.checkouts):
        console.print(safe(f"note: {note}"))
    for one in report.would_fail:
        console.print(safe(f"would fail: {one.path}: {one.reason}"))
    if report.would_fail_more:
        console.print(f"would fail: {report.would_fail_more} more")
    for kept in report.kept:
        console.print(safe(f"nothing would be deleted: {kept}"))
    columns = (
        "TYPE",
        ">FILES",
        ">DOCUMENTS",
        ">CHUNKS",
        ">TOKENS",
        "MIN/AVG/MAX",
        ">TABLES",
        ">PAGES",
    )
    rows = [_row(name, figures) for name, figures in report.types.items()]
    console.print(table(columns, [*rows, _row("total", report.total)]))
    for line in _histogram(report.total):
        console.print(safe(line))
    if report.total.scanned_pages:
        scanned = amount(report.total.scanned_pages, "scanned page")
        console.print(f"{scanned} or images need OCR; the table does not count their text")
    console.print(
        f"{amount(report.to_send, 'file')} would be sent, {report.unchanged} unchanged, "
        f"{report.would_delete} documents deleted, {report.ignored} ignored by the defaults, .gitignore or .latentignore"
    )
    console.print(
        safe(
            f"to embed: at most {report.embedding_texts} texts, {report.embedding_tokens} tokens "
            f"({report.embedder}; counted by {report.tokenizer})"
        )
    )
    console.print(safe(f"time: {_time(report)}"))
    if report.estimate.pages_seconds:
        console.print(
            f"page images: {report.estimate.pages_seconds:g} s to draw, most of it afterwards"
        )
    for note in report.estimate.notes:
        console.print(safe(f"measured: {note}"))
    if (cost := _cost(report)) is not None:
        console.print(f"cost: {cost}")


def _row(name: str, figures: DryRunFigures) -> tuple[object, ...]:
    spread = (
        f"{figures.tokens_min}/{figures.tokens_avg:g}/{figures.tokens_max}"
        if figures.tokens_avg is not None
        else ""
    )
    return (
        name,
        figures.files,
        figures.documents,
        figures.chunks,
        figures.tokens,
        spread,
        figures.tables,
        figures.pages,
    )


def _histogram(figures: DryRunFigures) -> list[str]:
    max_tokens = max((bar.chunks for bar in figures.histogram), default=0)
    lines = ["tokens per chunk:"] if max_tokens else []
    for bar in figures.histogram if max_tokens else ():
        span = (
            f"{bar.min_tokens}-{bar.max_tokens}"
            if bar.max_tokens is not None
            else f"{bar.min_tokens} and more"
        )
        drawn = "#" * -(-BAR_CHARACTERS * bar.chunks // max_tokens)
        lines.append(f"  {span:>13} {bar.chunks:>8} {drawn}".rstrip())
    return lines


def _time(report: DryRun) -> str:
    estimate = report.estimate
    parts = [f"{estimate.parse_seconds:g} s to parse (measured just now)"]
    if estimate.ocr_seconds:
        parts.append(f"{estimate.ocr_seconds:g} s of OCR")
    parts.append(f"{estimate.store_seconds:g} s to index and store")
    if estimate.embed_seconds is None:
        return f"{', '.join(parts)}; time to embed is unknown: {estimate.basis}"
    parts.append(f"{estimate.embed_seconds:g} s to embed ({estimate.basis})")
    return f"about {estimate.total_seconds:g} s: {', '.join(parts)}"


def _cost(report: DryRun) -> str | None:
    """None if embedding costs nothing."""
    estimate = report.estimate
    if estimate.cost is None:
        return "unknown; set LLC_EMBED_PRICE_PER_MILLION (or price of the provider) to the price of a million tokens"
    if not estimate.cost:
        return None
    return f"{estimate.cost:.4g} ({estimate.price_per_million:g} per million tokens)"
