"""``latent models``"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from latent_cli.exits import FOUND
from latent_cli.options import Json, command_app
from latent_cli.output import answers, emit, notes, safe, table
from latent_core.domain.manifest.model import Manifest
from latent_core.settings import Settings, load_settings
from latent_core.wire.models import ModelTest, WindowBasis

app = command_app()


@app.callback()
def models() -> None:
    """Test embedders before anything is ingested."""


@app.command(name="test")
def measure(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="As in a manifest: local, or <provider>/<model>."),
    ],
    as_json: Json = False,
) -> None:
    """Measure an embedder: dims, window, latency, speed, limits, price, and whether it cuts long texts.

    It sends some short texts and, unless the server reports its window, texts of up to 8192 words. It runs on this
    machine with this machine's settings. Exit 4 if something should be changed before anything is ingested.
    """
    measured = asyncio.run(_measured(load_settings(), model))
    if as_json:
        emit(measured)
    else:
        answers().print(table(("", ""), _rows(measured)))
        for warning in measured.warnings:
            notes().print(safe(f"warning: {warning}"))
    if measured.warnings:
        raise typer.Exit(FOUND)


async def _measured(settings: Settings, name: str) -> ModelTest:
    from latent_core.models.embedding.measure import measure_local, measure_remote
    from latent_core.models.embedding.resolve import EmbedderRegistry

    with TemporaryDirectory(prefix="latent-models-") as scratch:
        kept = settings.data_dir / "models"
        folder = kept if await asyncio.to_thread(kept.is_dir) else Path(scratch)
        embedders = EmbedderRegistry(settings, folder)
        try:
            found = embedders.of_provider(name)
            if found is not None:
                return await measure_remote(name, found)
            model = embedders.model_of(Manifest(id="test", name="Test", embedder=name))
            return await measure_local(name, embedders.for_space(model))
        finally:
            await embedders.close()


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
