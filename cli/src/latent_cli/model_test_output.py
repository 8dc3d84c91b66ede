"""Shows what ``latent models test`` measured."""

from __future__ import annotations

from latent_cli.output import answers, notes, safe, table
from latent_core.wire.models import LanguageModelTest, ModelTest, WindowBasis


def show_model_test(measured: ModelTest) -> None:
    answers().print(table(("", ""), _rows(measured)))
    for warning in measured.warnings:
        notes().print(safe(f"warning: {warning}"))


def show_language_model_test(measured: LanguageModelTest) -> None:
    answers().print(table(("", ""), _rows_of_language(measured)))
    for warning in measured.warnings:
        notes().print(safe(f"warning: {warning}"))


def _rows_of_language(measured: LanguageModelTest) -> list[tuple[str, str]]:
    first, cost = measured.first_part_ms, measured.cost
    prices = measured.input_price, measured.output_price
    rows = [
        ("model", f"{measured.model}, a language model"),
        ("latency", f"{measured.latency_p50_ms:g} ms (p50 of a short answer)"),
        ("streams", "no" if first is None else f"yes, from {first:g} ms"),
        ("JSON schema", measured.json_schema.value),
        ("images", "read" if measured.reads_images else "not read"),
        ("long prompts", "read whole" if measured.reads_long else "not read whole"),
        ("PDFs", "read" if measured.reads_pdf else "not read"),
        (
            "price",
            "unknown"
            if prices == (None, None)
            else f"{prices[0] or 0:g} read, {prices[1] or 0:g} written, per million tokens",
        ),
        (
            "this test",
            f"{measured.tokens_read:,} tokens read, {measured.tokens_written:,} written"
            + ("" if cost is None else f", cost {cost:g}"),
        ),
    ]
    return [(name, safe(value)) for name, value in rows]


def _rows(measured: ModelTest) -> list[tuple[str, str]]:
    limits = ", ".join(f"{value} {name}" for name, value in measured.server_limits.items())
    rate = measured.rate_per_minute
    rows = [
        ("model", f"{measured.model}, version {measured.version}"),
        ("dims", str(measured.dims)),
        ("window", _window(measured)),
        ("longer texts", _longer(measured)),
        ("latency", f"{measured.latency_p50_ms:g} ms (p50 of a short query)"),
        (
            "speed",
            f"{measured.texts_per_second:g} texts/s, {measured.tokens_per_second:,} tokens/s (one request)",
        ),
    ]
    if measured.kind != "local":
        price = measured.price_per_million
        rows += [
            (
                "limit",
                "as the server's answers demand" if rate is None else f"{rate} texts per minute",
            ),
            ("server's limits", limits or "not reported"),
            ("price", "unknown" if price is None else f"{price:g} per million tokens"),
            (
                "this test",
                f"{measured.tokens_used:,} tokens"
                if measured.tokens_used
                else "tokens not reported",
            ),
        ]
    return [(name, safe(value)) for name, value in rows]


def _window(measured: ModelTest) -> str:
    match measured.window_basis:
        case WindowBasis.LOWER_BOUND:
            return f"at least {measured.window} tokens"
        case WindowBasis.PROBED:
            return f"about {measured.window} tokens (measured)"
        case WindowBasis.REPORTED:
            return f"{measured.window} tokens (reported by the server)"
    return f"{measured.window} tokens"


def _longer(measured: ModelTest) -> str:
    if measured.kind == "local":
        return "are split before they are embedded"
    if measured.truncates is None:
        return "not tested"
    return "are cut without an error" if measured.truncates else "are refused, and sent in parts"
