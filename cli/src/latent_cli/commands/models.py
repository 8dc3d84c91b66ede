"""``latent models``"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from latent_cli.exits import FOUND
from latent_cli.model_test_output import show_language_model_test, show_model_test
from latent_cli.options import Json, command_app
from latent_cli.output import answers, emit, moment, notes, safe, size, table
from latent_cli.progress import ModelBar
from latent_cli.session import ask
from latent_client.errors import GatewayUnreachable
from latent_core.domain.errors import Conflict, NotFound
from latent_core.models.onnx.graph import ModelPrecision
from latent_core.models.store.add import Adder, AddLimits, AddResult, FolderReader
from latent_core.models.store.archive import SUFFIX, export_model, import_model
from latent_core.models.store.hub import HubAddress
from latent_core.models.store.layout import ModelStore
from latent_core.models.store.record import HALF_PRECISION, InstalledModel, given_prompts
from latent_core.models.store.use_lock import unused
from latent_core.settings import Settings, load_settings
from latent_core.wire.models import LanguageModelTest, ModelTest

app = command_app()

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name, or name@revision if several are installed.")
]


@app.callback()
def models() -> None:
    """Install models of a hub on this machine, and test models before a container uses them."""


@app.command()
def add(
    model: Annotated[
        str,
        typer.Argument(metavar="HUB_ID", help="owner/model, or owner/model@revision."),
    ],
    pictures: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="HUB_ID",
            help="A model of pictures in the space of HUB_ID, a model of texts: both are one embedder then.",
        ),
    ] = None,
    precision: Annotated[
        ModelPrecision | None,
        typer.Option("--precision", help="Of the weights; default full precision."),
    ] = None,
    query_prompt: Annotated[
        str | None,
        typer.Option(
            "--query-prompt",
            metavar="TEXT",
            help="Put before each query; default as the files say.",
        ),
    ] = None,
    document_prompt: Annotated[
        str | None,
        typer.Option(
            "--document-prompt",
            metavar="TEXT",
            help="Put before each chunk; default as the files say.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch a model with ONNX weights from the hub and install it.

    The revision (default: the newest) is recorded, and every file is compared with the hub's hash. An interrupted
    command continues where it ended. Prompts are for models whose files name none; they are part of the version of
    the vectors. If only one is given, the other is empty.
    """
    given = given_prompts(query_prompt, document_prompt)
    settings = load_settings()
    with ModelBar() as bar:
        adder = Adder(
            _store(settings),
            HubAddress(
                settings.hub_url,
                settings.hub_token,
                settings.hub_offline,
                settings.hub_stall_seconds,
            ),
            _reader(precision, given),
            _limits(settings),
            bar.show,
            _tell_of_wait,
        )
        result = adder.add(model, pictures)
    _show_added(result, as_json=as_json)


@app.command("list")
def list_models(as_json: Json = False) -> None:
    """List installed models, those that are damaged and those that have not arrived completely."""
    from latent_core.models.onnx import device

    store = _store(load_settings())
    installed, unreadable, partial = store.models(), store.unreadable(), store.partial()
    if as_json:
        emit(
            {
                "models": [_as_json(model) for model in installed],
                "unreadable": [{"folder": k, "message": v} for k, v in unreadable.items()],
                "partial": [{"reference": p.reference, "bytes": p.size} for p in partial],
                "devices": [one.label for one in device.devices()],
            }
        )
        return
    columns = ("MODEL", "KIND", ">DIMS", ">TOKENS", "PRECISION", ">SIZE", "ADDED", "HUB ID")
    answers().print(table(columns, (_row(model) for model in installed)))
    for folder, message in unreadable.items():
        answers().print(safe(f"unreadable: {folder}: {message}"))
    for one in partial:
        answers().print(
            safe(
                f"incomplete: {one.reference}: {size(one.size)}; `latent models add` continues,"
                f" `latent models remove {one.reference}` removes it"
            )
        )

    answers().print(safe(f"local models run on: {device.described()}"))
    if (problem := device.clash()) is not None:
        answers().print(safe(f"warning: {problem}"))


@app.command()
def verify(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The model; default all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Hash the files of installed models again. Exit 4 if one differs."""
    store = _store(load_settings())
    chosen = store.models() if name is None else [store.find(name)]
    damage = [(model, store.verify(model)) for model in chosen]
    unreadable = store.unreadable() if name is None else {}
    if as_json:
        found = [
            {
                "model": model.reference,
                "damaged": [{"path": d.path, "message": d.message} for d in damaged],
                "remedy": model.add_command if damaged else None,
            }
            for model, damaged in damage
        ]
        emit({"models": found, "unreadable": unreadable})
    else:
        for model, damaged in damage:
            for one in damaged:
                answers().print(safe(f"{model.reference}: {one.path} {one.message}"))
            answers().print(
                safe(
                    f"damaged; mend it: {model.add_command}"
                    if damaged
                    else f"{model.reference}: ok"
                )
            )
        for folder, message in unreadable.items():
            answers().print(safe(f"{folder}: {message}"))
    if unreadable or any(damaged for _, damaged in damage):
        raise typer.Exit(FOUND)


@app.command()
def remove(
    name: Name,
    force: Annotated[
        bool, typer.Option("--force", help="Do not ask the gateway which containers use it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove an installed model, unless a container uses it."""
    settings = load_settings()
    store = _store(settings)
    try:
        model = store.find(name)
    except NotFound:
        if not store.remove_partial(name):
            raise
        removed = name
    else:
        seconds = settings.model_wait_seconds
        with (
            store.locked(model.name, seconds, _tell_of_wait),
            unused(store, model.name, seconds, _tell_of_use),
        ):
            if not force:
                _refuse_used(model)
            store.remove(model)
        removed = model.reference
    if as_json:
        emit({"removed": removed})
    else:
        answers().print(safe(f"removed {removed}"))


@app.command()
def export(
    name: Name,
    to: Annotated[
        Path | None, typer.Option("--to", help=f"File to write; default NAME@REVISION{SUFFIX}.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write an installed model to one file, for `latent models import` on a machine without a network."""
    store = _store(load_settings())
    model = store.find(name)
    target = to or Path(f"{model.reference}{SUFFIX}")
    with ModelBar() as bar:
        written = export_model(store, model, target, bar.show)
    if as_json:
        emit({"file": str(target), "bytes": written, "model": _as_json(model)})
    else:
        answers().print(safe(f"{target}: {model.reference}, {size(written)}"))


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `latent models export`.")],
    as_json: Json = False,
) -> None:
    """Install a model from an exported file, after comparing every file with its hash."""
    settings = load_settings()
    with ModelBar() as bar:
        result = import_model(
            _store(settings), file, _reader(None), _limits(settings), bar.show, _tell_of_wait
        )
    _show_added(result, as_json=as_json)


@app.command(name="test")
def measure(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="As in a manifest: local, <provider>/<model> or an installed model.",
        ),
    ],
    language_model: Annotated[
        bool,
        typer.Option(
            "--language-model", help="It writes: a model for summaries, extraction or questions."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure an embedder, or a language model, before a container uses it.

    An embedder: dims, window, latency, speed, limits, price, and whether it cuts long texts. It sends some short texts
    and, unless the server reports its window, texts of up to 8192 words. A language model: latency, streams, price, and
    whether it keeps JSON schemas and reads images and PDFs; it sends a few short requests. Both run on this machine with
    this machine's settings. Exit 4 if something should be changed first.
    """
    settings = load_settings()
    measured: ModelTest | LanguageModelTest
    if language_model or _writes_only(settings, model):
        measured = asyncio.run(_measured_language_model(settings, model))
    else:
        measured = asyncio.run(_measured(settings, model))
    if as_json:
        emit(measured)
    elif isinstance(measured, LanguageModelTest):
        show_language_model_test(measured)
    else:
        show_model_test(measured)
    if measured.warnings:
        raise typer.Exit(FOUND)


def _store(settings: Settings) -> ModelStore:
    return ModelStore(settings.data_dir / "models")


def _limits(settings: Settings) -> AddLimits:
    return AddLimits(settings.max_model_bytes, settings.min_free_bytes, settings.model_wait_seconds)


def _reader(
    precision: ModelPrecision | None, prompts: Mapping[str, str] | None = None
) -> FolderReader:
    from latent_core.models.embedding.installed import vectors_of
    from latent_core.models.onnx.files import picture_files_needed
    from latent_core.models.onnx.folder import describe, files_needed

    return FolderReader(
        lambda listing: files_needed(listing, precision),
        lambda folder, found: describe(folder, ModelPrecision(found) if found else None, prompts),
        precision,
        prompts,
        lambda listing: picture_files_needed(listing, precision),
        lambda folder, name, found: vectors_of(folder, name, found, prompts),
    )


def _refuse_used(model: InstalledModel) -> None:
    try:
        found = ask(lambda client: client.models())
    except GatewayUnreachable as exc:
        raise Conflict(
            f"{model.reference} is not removed, since the gateway that knows its containers is not reached:"
            f" {exc.message}; or add --force"
        ) from exc
    used = [use for one in found.models if one.version == model.version for use in one.used_by]
    if used:
        first = ", ".join(f"{use.container_id} ({use.state.value})" for use in used[:5])
        raise Conflict(
            f"{model.reference} makes the vectors of {first}{', …' if len(used) > 5 else ''}: change their embedder"
            " with latent refresh first, or add --force"
        )


def _tell_of_wait(process: int) -> None:
    notes().print(f"latent: waiting for process {process}, which installs or removes it")


def _tell_of_use(_process: int) -> None:
    notes().print("latent: waiting until a container that uses it is created")


def _show_added(result: AddResult, *, as_json: bool) -> None:
    model = result.model
    if as_json:
        emit({"model": _as_json(model), "fetched": result.fetched})
        return
    dims = f", {model.dims} dimensions" if model.dims else ""
    tokens = f", {model.window} tokens" if model.window else ""
    done = "installed" if result.fetched else "is installed already:"
    answers().print(
        safe(
            f"{done} {model.reference} ({model.kind}{dims}{tokens}, {model.precision}, {size(model.size)})"
        )
    )
    answers().print(safe(_next_step(model)))


def _next_step(model: InstalledModel) -> str:
    if model.kind == "reranker":
        return "searches with mode rerank use it, unless another one is configured"
    if model.window is None:
        return (
            "it embeds pictures alone; with the model of texts of its space it is an embedder:"
            f" latent models add HUB_ID_OF_TEXTS --with {model.hub_id}"
        )
    step = f"try: latent container create ID --embedder {model.name}"
    if model.counts_as_fp32:
        return f"its vectors count as those of fp32: containers of either use it; {step}"
    if model.precision in HALF_PRECISION:
        return (
            f"its vectors are a version of their own, unless the fp32 weights are added, too, and compute the same;"
            f" {step}"
        )
    return step


def _as_json(model: InstalledModel) -> dict[str, object]:
    shown = model.model_dump(mode="json", exclude={"vectors"})
    return {**shown, "reference": model.reference, "version": model.version}


def _row(model: InstalledModel) -> tuple[object, ...]:
    return (
        model.reference,
        model.kind,
        model.dims,
        model.window,
        f"{model.precision} as fp32" if model.counts_as_fp32 else model.precision,
        size(model.size),
        moment(model.added_at),
        model.hub_id if model.partner is None else f"{model.hub_id} with {model.partner.hub_id}",
    )


def _writes_only(settings: Settings, name: str) -> bool:
    """Whether the provider has language models only."""
    from latent_core.models.providers.entry import Kind
    from latent_core.models.providers.registry import Providers

    found = Providers.of(settings).find(name)
    return found is not None and found.provider.kind is Kind.ANTHROPIC


async def _measured_language_model(settings: Settings, name: str) -> LanguageModelTest:
    from latent_core.models.llm.measure import measure_language_model
    from latent_core.models.providers.registry import Providers

    return await measure_language_model(name, Providers.of(settings).language_model(name))


async def _measured(settings: Settings, name: str) -> ModelTest:
    from latent_core.models.embedding.measure import measure_embedder
    from latent_core.models.embedding.resolve import EmbedderRegistry

    with TemporaryDirectory(prefix="latent-models-") as scratch:
        kept = settings.data_dir / "models"
        folder = kept if await asyncio.to_thread(kept.is_dir) else Path(scratch)
        embedders = EmbedderRegistry(settings, folder)
        try:
            return await measure_embedder(embedders, name)
        finally:
            await embedders.close()
