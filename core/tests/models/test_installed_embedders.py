"""``embedder: <name>`` means an installed model: which one, and what is said if there is none."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from latent_core.domain.chunk import Modality
from latent_core.domain.errors import Invalid, Misconfigured, ModelMissing
from latent_core.domain.manifest.model import (
    Manifest,
    is_installable,
    is_local,
    reads_images,
)
from latent_core.models.embedding.folder_model import from_folder
from latent_core.models.embedding.installed import InstalledEmbedders, vectors_of
from latent_core.models.embedding.local import LocalEmbedder
from latent_core.models.embedding.onnx_format import ElementType, Graph
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.models.embedding.tokens import ModelTokenizer
from latent_core.models.onnx.files import picture_files_needed
from latent_core.models.onnx.folder import ModelPrecision, describe, files_needed
from latent_core.models.store.add import Adder, AddLimits, FolderReader
from latent_core.models.store.archive import export_model, import_model
from latent_core.models.store.hub import HubAddress
from latent_core.models.store.layout import ModelStore
from latent_core.models.store.record import (
    E5_PROMPTS,
    VERSION,
    HubFile,
    InstalledModel,
    Partner,
    add_command,
    suffix_of,
)
from latent_core.settings import Settings
from tests.support.colours import picture
from tests.support.servers.model_hub import ModelHub
from tests.support.tiny_model import (
    DIMS,
    SIDE,
    colour_vectors,
    looked_up,
    table_of,
    tiny_pictures,
    tiny_repository,
)

ID: Final = "acme/Tiny-Embed"
NAME: Final = "tiny-embed"
READER: Final = FolderReader(
    files_needed, lambda folder, found: describe(folder, ModelPrecision(found) if found else None)
)
LIMITS: Final = AddLimits(max_bytes=10**9, min_free_bytes=0, wait_seconds=30)


@pytest.fixture(scope="module")
def hub() -> Iterator[ModelHub]:
    with ModelHub() as running:
        running.publish(ID, tiny_repository(seed=1), ref="old")
        running.publish(ID, tiny_repository(seed=2))
        yield running


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path)


@pytest.fixture
def embedders(tmp_path: Path) -> EmbedderRegistry:
    return EmbedderRegistry(Settings(_env_file=None), tmp_path, threads=1)


def add(
    hub: ModelHub,
    store: ModelStore,
    reference: str = ID,
    precision: str | None = None,
    *,
    computed: bool = False,
) -> InstalledModel:
    """``computed``: with reference vectors, as the command makes them."""
    chosen = ModelPrecision(precision) if precision else None
    reader = replace(
        READER,
        files_needed=lambda files: files_needed(files, chosen),
        precision=precision,
        vectors=partial(vectors_of, prompts=None) if computed else None,
    )
    adder = Adder(store, HubAddress(hub.url), reader, LIMITS, lambda _path, _done, _total: None)
    return adder.add(reference).model


def manifest(**given: Any) -> Manifest:
    return Manifest(id="c", name="C", **{"embedder": NAME} | given)


async def test_a_new_container_gets_the_newest_revision_and_each_space_keeps_its_own(
    hub: ModelHub, embedders: EmbedderRegistry
) -> None:
    old = add(hub, embedders.store, f"{ID}@old")
    first = embedders.model_of(manifest())
    new = add(hub, embedders.store)
    second = embedders.model_of(manifest())
    assert (first.version, second.version) == (old.version, new.version)
    assert embedders.model_of(manifest(embedder_version=old.version)) == first
    vectors = [await embedders.for_space(model).embed_query("lamp") for model in (first, second)]
    assert [vector.shape for vector in vectors] == [(DIMS,), (DIMS,)]
    assert not np.allclose(*vectors)
    assert embedders.for_space(first) is embedders.for_space(first)
    await embedders.close()


async def test_the_files_of_a_model_are_read_once_per_process(
    hub: ModelHub, embedders: EmbedderRegistry
) -> None:
    folder = embedders.store.folder(add(hub, embedders.store))
    first = embedders.model_of(manifest())
    (folder / "tokenizer.json").write_bytes(b"{}")
    assert embedders.model_of(manifest(dims=DIMS)) == first
    assert embedders.for_space(first) is embedders.for_space(first)
    await embedders.close()


async def test_a_model_that_is_removed_is_missing_at_once_and_there_again_when_it_is_added(
    hub: ModelHub, embedders: EmbedderRegistry
) -> None:
    model = add(hub, embedders.store)
    space = embedders.model_of(manifest())
    await embedders.for_space(space).embed_query("lamp")
    embedders.store.remove(model)
    command = f"latent models add {model.version}"
    with pytest.raises(Misconfigured, match=f"{NAME} is not installed on this machine: {command}"):
        embedders.for_space(space)
    assert command in (embedders.lacking(NAME, space.version) or "")
    add(hub, embedders.store, model.version)
    assert embedders.lacking(NAME, space.version) is None
    assert (await embedders.for_space(space).embed_query("lamp")).shape == (DIMS,)
    await embedders.close()


PROMPTS: Final = {"query": "boat ", "document": "storm "}


def add_with(
    hub: ModelHub, store: ModelStore, prompts: dict[str, str], hub_id: str = ID
) -> InstalledModel:
    reader = replace(
        READER,
        describe=lambda folder, found: describe(
            folder, ModelPrecision(found) if found else None, prompts
        ),
        prompts=prompts,
    )
    address = HubAddress(hub.url)
    return (
        Adder(store, address, reader, LIMITS, lambda _path, _done, _total: None).add(hub_id).model
    )


async def test_given_prompts_are_put_before_texts_and_make_vectors_of_another_version(
    hub: ModelHub, embedders: EmbedderRegistry
) -> None:
    plain = add(hub, embedders.store)
    without = embedders.model_of(manifest())
    prompted = add_with(hub, embedders.store, PROMPTS)
    with_prompts = embedders.model_of(manifest())
    assert (without.version, with_prompts.version) == (plain.version, prompted.version)
    assert prompted.version.startswith(f"{plain.version}+prompts.")
    assert with_prompts.key != without.key
    old, new = embedders.for_space(without), embedders.for_space(with_prompts)
    assert np.allclose(await new.embed_query("lamp"), await old.embed_query("boat lamp"))
    assert not np.allclose(await new.embed_query("lamp"), await old.embed_query("lamp"))
    (given,), (same,) = [
        await one.embed_documents([text]) for one, text in ((new, "lamp"), (old, "storm lamp"))
    ]
    assert np.allclose(given, same)
    await embedders.close()


async def test_given_prompts_replace_all_prompts_of_the_files_also_by_empty_ones(
    embedders: EmbedderRegistry,
) -> None:
    settings = b'{"prompts": {"query": "boat ", "document": "storm "}}'
    files = {**tiny_repository(), "config_sentence_transformers.json": settings}
    with ModelHub() as hub:
        hub.publish(ID, files)
        own = add(hub, embedders.store)
        named = embedders.for_space(embedders.model_of(manifest()))
        add_with(hub, embedders.store, {"query": "", "document": ""})
        none = embedders.for_space(embedders.model_of(manifest()))
    assert (own.prompts, own.prompts_given) == (PROMPTS, False)
    assert np.allclose(await named.embed_query("lamp"), await none.embed_query("boat lamp"))
    await embedders.close()


def test_vectors_whose_prompts_are_not_installed_here_are_not_mixed_with_others(
    hub: ModelHub, embedders: EmbedderRegistry
) -> None:
    prompted = add_with(hub, embedders.store, E5_PROMPTS)
    space = embedders.model_of(manifest())
    embedders.store.remove(prompted)
    add(hub, embedders.store)
    with pytest.raises(Misconfigured, match="not installed") as missing:
        embedders.for_space(space)
    assert "--query-prompt 'query: ' --document-prompt 'passage: '" in missing.value.message
    unknown = f"{ID}@{prompted.revision[:12]}+int8+prompts.0123ab+images"
    message = embedders.lacking(NAME, unknown) or ""
    assert f"{ID}@{prompted.revision[:12]} --precision int8 --query-prompt TEXT" in message


def forced(files: dict[str, bytes], kind: type[np.generic]) -> dict[str, bytes]:
    """A repository whose weights are mainly of another type: only their declaration differs."""
    graph = Graph("forced")
    for name in ("input_ids", "attention_mask"):
        graph.input(name, ElementType.INT64, ["texts", "tokens"])
    graph.constant("large", np.zeros(100_000, kind))
    graph.node("Gather", [graph.constant("table", TABLE), "input_ids"], "last_hidden_state")
    graph.output("last_hidden_state", ElementType.FLOAT, ["texts", "tokens", DIMS])
    return {**files, "onnx/model_int8.onnx": graph.model()}


TABLE: Final = np.random.default_rng(9).normal(size=(40, DIMS)).astype(np.float32)


async def test_processes_of_two_precisions_never_mix_their_vectors_in_one_space(
    tmp_path: Path,
) -> None:
    with ModelHub() as hub:
        hub.publish(ID, forced(tiny_repository(), np.int8))
        full, quantised = (
            EmbedderRegistry(Settings(_env_file=None), tmp_path / name, threads=1)
            for name in ("full", "quantised")
        )
        add(hub, full.store)
        small = FolderReader(files_needed_int8, READER.describe, precision="int8")
        Adder(
            quantised.store, HubAddress(hub.url), small, LIMITS, lambda _path, _done, _total: None
        ).add(ID)
    one, other = full.model_of(manifest()), quantised.model_of(manifest())
    assert other.version == f"{one.version}+int8"
    assert one.key != other.key
    with pytest.raises(Misconfigured, match=f"latent models add {one.version}"):
        quantised.for_space(one)
    with pytest.raises(Misconfigured, match="--precision int8"):
        full.for_space(other)
    for embedders in (full, quantised):
        await embedders.close()


def files_needed_int8(listing: Sequence[HubFile]) -> list[str]:
    return files_needed(listing, ModelPrecision.INT8)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nomic-embed-text-v1.5", r"latent models add nomic-ai/nomic-embed-text-v1\.5$"),
        (
            "multilingual-e5-small",
            "multilingual-e5-small --query-prompt 'query: ' --document-prompt 'passage: '$",
        ),
        ("lokal", "latent models add <owner>/lokal; did you mean 'local'"),
        ("tiny-embd", "did you mean 'tiny-embed'"),
        ("word2vec", "latent models add <owner>/word2vec; known are local, local-int8"),
    ],
)
def test_a_container_with_a_model_that_is_not_installed_is_refused_with_the_command(
    hub: ModelHub, embedders: EmbedderRegistry, name: str, message: str
) -> None:
    add(hub, embedders.store)
    with pytest.raises(Invalid, match=message):
        embedders.model_of(manifest(embedder=name))


def test_a_pinned_revision_that_is_not_installed_is_refused_with_its_command(
    hub: ModelHub, embedders: EmbedderRegistry
) -> None:
    add(hub, embedders.store)
    pinned = f"{ID}@0123456789ab+int8"
    with pytest.raises(Invalid, match=f"latent models add {ID}@0123456789ab --precision int8"):
        embedders.model_of(manifest(embedder_version=pinned))


def test_a_version_from_elsewhere_opens_nothing_outside_of_the_folder_of_models(
    hub: ModelHub, embedders: EmbedderRegistry, tmp_path: Path
) -> None:
    """Archives bring versions with them."""
    add(hub, embedders.store)
    (tmp_path.parent / "model.json").write_text("{}")
    for version in ("a/..@../..", f"../{NAME}@x", f"{ID}@0123456789ab+../..", "", "@"):
        assert embedders.store.of_version(version) is None
        assert not embedders.store.has(version)
        assert embedders.lacking(NAME, version) is not None


@pytest.mark.parametrize(
    ("name", "installable", "local"),
    [
        ("tiny-embed", True, True),
        ("local", False, True),
        ("local-multilingual", False, True),
        ("local:/models/mine", False, True),
        ("nomic-embed-multimodal-7b", False, False),
        ("nomic/nomic-embed-text-v1.5", False, False),
        ("Tiny", False, False),
    ],
)
def test_only_a_bare_name_means_an_installed_model(
    name: str, installable: bool, local: bool
) -> None:
    assert (is_installable(name), is_local(name)) == (installable, local)


async def test_weights_open_in_their_own_precision_which_is_a_version_of_its_own(
    hub: ModelHub, embedders: EmbedderRegistry
) -> None:
    files = tiny_repository(seed=3)
    graph = Graph("half")
    graph.input("input_ids", ElementType.INT64, ["texts", "tokens"])
    table = graph.constant("table", np.ones((16, DIMS), np.float16))
    graph.node("Gather", [table, "input_ids"], "rows")
    graph.node("Cast", ["rows"], "last_hidden_state", to=ElementType.FLOAT.value)
    graph.output("last_hidden_state", ElementType.FLOAT, ["texts", "tokens", DIMS])
    hub.publish("acme/half", files | {"onnx/model.onnx": graph.model()})
    half = add(hub, embedders.store, "acme/half")
    assert (half.precision, half.suffix) == ("fp16", "+fp16")
    assert add(hub, embedders.store, "acme/half") == half
    assert add(hub, embedders.store, "acme/half", "fp16") == half
    model = embedders.model_of(manifest(embedder="half"))
    assert (await embedders.for_space(model).embed_query("lamp")).shape == (DIMS,)

    hub.publish("acme/both", files | {"onnx/model_fp16.onnx": graph.model()})
    full, half = (add(hub, embedders.store, "acme/both", own) for own in (None, "fp16"))
    spaces = [
        embedders.model_of(manifest(embedder="both", embedder_version=one.version))
        for one in (full, half)
    ]
    vectors = [await embedders.for_space(space).embed_query("lamp") for space in spaces]
    assert spaces[0].key != spaces[1].key
    assert not np.allclose(*vectors)
    await embedders.close()


async def test_a_vector_does_not_depend_on_other_texts_although_the_graph_has_no_mask(
    hub: ModelHub, embedders: EmbedderRegistry
) -> None:
    graph = Graph("unmasked")
    graph.input("input_ids", ElementType.INT64, ["texts", "tokens"])
    graph.node("Gather", [graph.constant("table", TABLE), "input_ids"], "rows")
    graph.node("ReduceMax", ["rows"], "text_embeds", axes=[1], keepdims=0)
    graph.output("text_embeds", ElementType.FLOAT, ["texts", DIMS])
    hub.publish("acme/unmasked", tiny_repository() | {"onnx/model.onnx": graph.model()})
    add(hub, embedders.store, "acme/unmasked")
    embedder = embedders.for_space(embedders.model_of(manifest(embedder="unmasked")))
    (alone,) = await embedder.embed_documents(["lamp"])
    among = await embedder.embed_documents(["oil lens brass", "lamp"])
    assert np.allclose(alone, among[1], atol=1e-6)
    await embedders.close()


def test_quantised_weights_embed_each_text_alone(hub: ModelHub, store: ModelStore) -> None:
    hub.publish("acme/int8", forced(tiny_repository(), np.int8))
    model = add(hub, store, "acme/int8", "int8")
    assert InstalledEmbedders(store).local_model(model, None).alone
    assert not InstalledEmbedders(store).local_model(add(hub, store), None).alone


PICTURES: Final = "acme/tiny-pictures"


def add_pair(
    hub: ModelHub,
    store: ModelStore,
    texts: str = ID,
    pictures: str = PICTURES,
    precision: ModelPrecision | None = None,
) -> InstalledModel:
    reader = replace(
        READER,
        files_needed=lambda files: files_needed(files, precision),
        picture_files_needed=lambda files: picture_files_needed(files, precision),
        precision=precision,
    )
    adder = Adder(store, HubAddress(hub.url), reader, LIMITS, lambda _path, _done, _total: None)
    return adder.add(texts, pictures).model


class TestPair:
    """Two repositories with one space."""

    @pytest.fixture
    def hub(self) -> Iterator[ModelHub]:
        with ModelHub() as running:
            running.publish(ID, tiny_repository())
            running.publish(PICTURES, tiny_pictures())
            yield running

    async def test_texts_and_pictures_of_two_repositories_are_one_embedder_in_one_space(
        self, hub: ModelHub, embedders: EmbedderRegistry
    ) -> None:
        pair = add_pair(hub, embedders.store)
        texts, pictures = (hub.repositories[one].refs["main"] for one in (ID, PICTURES))
        assert pair.partner == Partner(hub_id=PICTURES, revision=pictures)
        assert pair.version == f"{ID}@{texts[:12]}+images.{pictures[:12]}"
        model = embedders.model_of(manifest())
        assert (model.version, model.dims, model.reads_images) == (pair.version, DIMS, True)
        assert reads_images(model.embedder, model.version)
        embedder = embedders.for_space(model)
        seen = await embedder.embed_images([picture(colour) for colour in ("red", "green", "blue")])
        expected = colour_vectors() / np.linalg.norm(colour_vectors(), axis=1, keepdims=True)
        assert ((seen * expected).sum(axis=1) >= 0.9999).all()
        words = await embedder.embed_documents(["lamp", "oil", "boat"])
        assert np.allclose(words, seen, atol=1e-3)  # a word and the picture of its colour
        assert (await embedder.embed_query_image(picture("red")) @ words.T).argmax() == 0
        await embedders.close()

    async def test_vectors_of_a_pair_are_not_those_of_the_model_of_texts_alone(
        self, hub: ModelHub, embedders: EmbedderRegistry
    ) -> None:
        pair, alone = add_pair(hub, embedders.store), add(hub, embedders.store)
        assert embedders.model_of(manifest()).version == alone.version
        both = manifest(modalities=[Modality.TEXT, Modality.IMAGE])
        assert embedders.model_of(both).version == pair.version
        pinned = manifest(embedder_version=pair.version)
        assert embedders.model_of(pinned).version == pair.version
        space = embedders.model_of(pinned)
        embedders.store.remove(pair)
        command = (
            f"latent models add {ID}@{pair.revision[:12]} --with <hub id of the picture model>@"
        )
        with pytest.raises(Misconfigured, match=f"{command}{pair.version[-12:]}"):
            embedders.for_space(space)

    def test_files_that_are_installed_already_are_not_fetched_again(
        self, hub: ModelHub, store: ModelStore
    ) -> None:
        alone, seeing = add(hub, store), add(hub, store, PICTURES)
        before = len(hub.transfers("onnx/model.onnx"))
        pair = add_pair(hub, store)
        assert len(hub.transfers("onnx/model.onnx")) == before
        for one, path in ((alone, "onnx/model.onnx"), (seeing, "vision/onnx/model.onnx")):
            own = store.folder(one) / path.removeprefix("vision/")
            assert own.samefile(store.folder(pair) / path)
        assert store.verify(pair) == []
        store.remove(alone)
        store.remove(seeing)
        assert store.verify(pair) == []
        assert add(hub, store) != pair
        assert len(hub.transfers("onnx/model.onnx")) == before

    def test_a_damaged_picture_half_is_named_and_mended_by_its_command(
        self, hub: ModelHub, store: ModelStore
    ) -> None:
        pair = add_pair(hub, store)
        (store.folder(pair) / "vision" / "onnx" / "model.onnx").write_bytes(b"x")
        assert [damage.path for damage in store.verify(pair)] == ["vision/onnx/model.onnx"]
        assert pair.partner is not None
        own, other = f"{ID}@{pair.revision}", f"{PICTURES}@{pair.partner.revision}"
        assert pair.add_command == f"latent models add {own} --with {other}"
        mended = add_pair(hub, store, own, other)
        assert (mended.version, store.verify(mended)) == (pair.version, [])

    @pytest.mark.parametrize(
        ("texts", "pictures", "message"),
        [
            (ID, "acme/wide", "onnx/model.onnx gives 8 dimensions, but vision/onnx/model.onnx 12"),
            (PICTURES, ID, "no preprocessor_config.json.*the model of texts first"),
            (PICTURES, "acme/wide", "its own model is no embedder of texts alone"),
            (ID, ID, "makes no pair"),
        ],
    )
    def test_what_makes_no_pair_is_refused_and_leaves_nothing(
        self, hub: ModelHub, store: ModelStore, texts: str, pictures: str, message: str
    ) -> None:
        hub.publish("acme/wide", tiny_pictures(dims=12))
        with pytest.raises(Invalid, match=message):
            add_pair(hub, store, texts, pictures)
        assert store.models() == []
        assert store.partial() == []

    def test_the_halves_of_a_pair_have_one_precision(
        self, hub: ModelHub, store: ModelStore
    ) -> None:
        pictures = tiny_pictures()
        small = forced_pictures(pictures, np.int8)
        hub.publish("acme/small", {**small, "onnx/model_int8.onnx": small["onnx/model.onnx"]})
        hub.publish("acme/texts", forced(tiny_repository(), np.int8))
        pair = add_pair(hub, store, "acme/texts", "acme/small", ModelPrecision.INT8)
        assert pair.suffix.startswith("+int8+images.")
        hub.publish("acme/small", small)
        with pytest.raises(Invalid, match=r"fp32, but vision/onnx/model.onnx in int8.*--precision"):
            add_pair(hub, store, "acme/texts", "acme/small")

    def test_an_exported_pair_is_imported_without_a_hub_and_is_the_same(
        self, hub: ModelHub, store: ModelStore, tmp_path: Path
    ) -> None:
        pair = add_pair(hub, store)
        target = tmp_path / "pair.model.tar"
        export_model(store, pair, target, lambda _path, _done, _total: None)
        other = ModelStore(tmp_path / "other")
        result = import_model(other, target, READER, LIMITS, lambda _path, _done, _total: None)
        assert (result.model, other.verify(result.model)) == (pair, [])

    def test_a_model_of_pictures_alone_says_how_it_becomes_an_embedder(
        self, hub: ModelHub, embedders: EmbedderRegistry
    ) -> None:
        add(hub, embedders.store, PICTURES)
        with pytest.raises(Invalid, match=f"latent models add .* --with {PICTURES}"):
            embedders.model_of(manifest(embedder="tiny-pictures"))

    async def test_a_folder_of_ones_own_is_a_pair_with_a_folder_of_pictures_in_it(
        self, tmp_path: Path
    ) -> None:
        files = tiny_repository() | {f"vision/{n}": own for n, own in tiny_pictures().items()}
        for name, content in files.items():
            (tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "own" / name).write_bytes(content)
        local = from_folder(f"local:{tmp_path / 'own'}")
        assert local.model.reads_images
        assert local.model.version.endswith("+images")
        embedder = LocalEmbedder(local, threads=1)
        (word,), (seen,) = (
            await embedder.embed_documents(["lamp"]),
            await embedder.embed_images([picture("red")]),
        )
        await embedder.close()
        assert float(word @ seen) >= 0.999
        before = local.model.version
        (tmp_path / "own" / "vision" / "onnx" / "model.onnx").write_bytes(
            tiny_pictures(seed=8)["onnx/model.onnx"]
        )
        assert from_folder(f"local:{tmp_path / 'own'}").model.version != before

    def test_a_pair_with_given_prompts_and_precision_is_mended_by_one_command(self) -> None:
        version = f"{ID}@0123456789ab+int8{suffix_of(E5_PROMPTS)}+images.ba9876543210"
        command = f"latent models add {ID}@0123456789ab --with <hub id of the picture model>"
        assert VERSION.fullmatch(version)
        assert add_command(version).startswith(f"{command}@ba9876543210 --precision int8 --query")

    def test_a_missing_pair_of_known_repositories_is_mended_by_one_command(
        self, embedders: EmbedderRegistry
    ) -> None:
        texts = "nomic-ai/nomic-embed-text-v1.5"
        version = f"{texts}@0123456789ab+images.ba9876543210"
        lacking = embedders.lacking("nomic-embed-text-v1.5", version)
        command = f"add {texts}@0123456789ab --with nomic-ai/nomic-embed-vision-v1.5@ba9876543210"
        assert command in str(lacking)
        seeing = manifest(
            embedder="nomic-embed-text-v1.5", modalities=[Modality.TEXT, Modality.IMAGE]
        )
        with pytest.raises(Invalid, match=f"add {texts} --with nomic-ai/nomic-embed-vision-v1.5"):
            embedders.model_of(seeing)


def forced_pictures(files: dict[str, bytes], kind: type[np.generic]) -> dict[str, bytes]:
    """A repository of pictures whose weights are mainly of another type."""
    graph = Graph("forced")
    graph.input("pixel_values", ElementType.FLOAT, ["pictures", 3, SIDE, SIDE])
    graph.constant("large", np.zeros(100_000, kind))
    graph.node("ReduceMean", ["pixel_values"], "means", axes=[2, 3], keepdims=0)
    graph.node("MatMul", ["means", graph.constant("colours", colour_vectors())], "image_embeds")
    graph.output("image_embeds", ElementType.FLOAT, ["pictures", DIMS])
    return {**files, "onnx/model.onnx": graph.model()}


class TestReferenceVectors:
    """What a model computed when it was added is what it must compute later."""

    @pytest.fixture
    def hub(self) -> Iterator[ModelHub]:
        with ModelHub() as running:
            running.publish(ID, tiny_repository())
            yield running

    async def test_a_model_that_computes_the_same_is_used(
        self, hub: ModelHub, embedders: EmbedderRegistry
    ) -> None:
        model = add(hub, embedders.store, computed=True)
        assert model.vectors is not None
        assert model.vectors.width == DIMS
        embedder = embedders.for_space(embedders.model_of(manifest()))
        assert (await embedder.embed_documents(["lamp"])).shape == (1, DIMS)
        await embedders.close()

    @pytest.mark.parametrize(("noise", "answers"), [(0.05, True), (2.0, False)])
    async def test_a_model_that_computes_other_vectors_is_refused_by_name_for_writing(
        self, hub: ModelHub, embedders: EmbedderRegistry, noise: float, answers: bool
    ) -> None:
        """Queries are still answered if they are near: stored vectors are right."""
        model = add(hub, embedders.store, computed=True)
        altered(embedders.store, model, noise)
        embedder = embedders.for_space(embedders.model_of(manifest()))
        named = f"embedder {NAME} stores no vectors.*onnxruntime.*latent models verify {NAME}@"
        with pytest.raises(ModelMissing, match=named):
            await embedder.embed_documents(["lamp"])
        if answers:
            assert (await embedder.embed_query("lamp")).shape == (DIMS,)
        else:
            with pytest.raises(ModelMissing, match=f"embedder {NAME} answers no queries"):
                await embedder.embed_query("lamp")
        altered(embedders.store, model, 0)
        assert (await embedder.embed_documents(["lamp"])).shape == (1, DIMS)
        await embedders.close()

    async def test_pictures_of_a_pair_are_compared_by_a_drawn_one(
        self, hub: ModelHub, embedders: EmbedderRegistry
    ) -> None:
        hub.publish(PICTURES, tiny_pictures())
        reader = replace(
            READER,
            picture_files_needed=picture_files_needed,
            vectors=partial(vectors_of, prompts=None),
        )
        adder = Adder(
            embedders.store, HubAddress(hub.url), reader, LIMITS, lambda _path, _done, _total: None
        )
        pair = adder.add(ID, PICTURES).model
        graph = embedders.store.folder(pair) / "vision" / "onnx" / "model.onnx"
        graph.unlink()
        graph.write_bytes(tiny_pictures(seed=8)["onnx/model.onnx"])
        embedder = embedders.for_space(embedders.model_of(manifest()))
        assert (await embedder.embed_documents(["lamp"])).shape == (1, DIMS)
        with pytest.raises(ModelMissing, match=f"embedder {NAME} stores no vectors"):
            await embedder.embed_images([picture("red")])
        await embedders.close()

    def test_a_model_that_cannot_be_run_is_not_installed(
        self, hub: ModelHub, store: ModelStore
    ) -> None:
        files = tiny_repository()
        hub.publish("acme/wrong", {**files, "config.json": b'{"hidden_size": 9}'})
        graph = files["onnx/model.onnx"].replace(b"Gather", b"Gether")
        hub.publish("acme/wrong", {**files, "onnx/model.onnx": graph})
        with pytest.raises(Invalid, match=r"model.onnx of wrong cannot be loaded"):
            add(hub, store, "acme/wrong", computed=True)
        assert (store.models(), store.partial()) == ([], [])

    @pytest.mark.parametrize("order", [(None, "fp16"), ("fp16", None)])
    async def test_half_precision_that_reproduces_fp32_counts_as_it_also_on_a_machine_without_fp32(
        self,
        hub: ModelHub,
        store: ModelStore,
        tmp_path: Path,
        order: tuple[str | None, str | None],
    ) -> None:
        hub.publish(ID, in_two_precisions(noise=0))
        for precision in order:
            add(hub, store, precision=precision, computed=True)
        half = next(model for model in store.models() if model.precision == "fp16")
        full = next(model for model in store.models() if model.precision == "fp32")
        assert half.counts_as_fp32
        assert half.vectors == full.vectors
        assert (half.version, half.vector_version) == (f"{full.version}+fp16", full.version)

        target = tmp_path / "half.model.tar"
        export_model(store, half, target, lambda _path, _done, _total: None)
        elsewhere = EmbedderRegistry(Settings(_env_file=None), tmp_path / "elsewhere", threads=1)
        import_model(elsewhere.store, target, READER, LIMITS, lambda _path, _done, _total: None)
        here = EmbedderRegistry(Settings(_env_file=None), tmp_path, threads=1)
        space = here.model_of(manifest(embedder_version=full.version))
        assert elsewhere.lacking(NAME, space.version) is None
        vectors = [
            await registry.for_space(space).embed_documents(["lamp oil"])
            for registry in (here, elsewhere)
        ]
        assert float((vectors[0] * vectors[1]).sum()) >= 0.9999
        assert elsewhere.model_of(manifest()).version == full.version
        assert elsewhere.model_of(manifest(embedder_version=half.version)).version == half.version
        for registry in (here, elsewhere):
            await registry.close()

    def test_half_precision_that_computes_other_vectors_is_a_version_of_its_own(
        self, hub: ModelHub, embedders: EmbedderRegistry
    ) -> None:
        hub.publish(ID, in_two_precisions(noise=0.05))
        full = add(hub, embedders.store, computed=True)
        half = add(hub, embedders.store, precision="fp16", computed=True)
        assert (half.counts_as_fp32, half.vector_version) == (False, f"{full.version}+fp16")
        embedders.store.remove(full)
        assert full.version in str(embedders.lacking(NAME, full.version))

    def test_half_precision_without_fp32_to_compare_with_is_a_version_of_its_own(
        self, hub: ModelHub, store: ModelStore
    ) -> None:
        hub.publish(ID, in_two_precisions(noise=0))
        half = add(hub, store, precision="fp16", computed=True)
        assert (half.counts_as_fp32, half.vector_version) == (False, half.version)

    @pytest.mark.parametrize(
        "change",
        [
            {"counts_as_fp32": True},
            {"vectors": {"probes": 1, "texts": "AAAA", "runtime": "r"}},
            {"vectors": {"probes": 1, "texts": "AADAfw==", "runtime": "r"}},
        ],
    )
    def test_a_record_with_vectors_that_cannot_be_is_not_trusted(
        self, hub: ModelHub, store: ModelStore, change: dict[str, Any]
    ) -> None:
        model = add(hub, store)
        record = store.folder(model) / "model.json"
        record.write_text(json.dumps(json.loads(record.read_text()) | change))
        assert (store.models(), list(store.unreadable())) == ([], [model.reference])


def altered(store: ModelStore, model: InstalledModel, noise: float) -> None:
    """Other weights in the place of the installed ones."""
    graph = store.folder(model) / "onnx" / "model.onnx"
    graph.unlink()
    graph.write_bytes(looked_up(table_of(7) + wiggle(noise)))


def in_two_precisions(noise: float) -> dict[str, bytes]:
    """A repository whose fp16 weights are those of fp32, or differ."""
    small = looked_up((table_of(7) + wiggle(noise)).astype(np.float16))
    return {**tiny_repository(), "onnx/model_fp16.onnx": small}


def wiggle(noise: float) -> NDArray[np.float32]:
    shape = table_of(7).shape
    return np.random.default_rng(3).normal(0, noise, shape).astype(np.float32)


def repository_in(kind: type[np.generic]) -> dict[str, bytes]:
    """A repository whose only graph has the usual name and weights of ``kind``."""
    files = forced(tiny_repository(), kind)
    graph = files.pop("onnx/model_int8.onnx")
    return files | {"onnx/model.onnx": graph}


class TestPrecisionOfTheWeights:
    """The name of a file says little: what its graph holds decides."""

    def test_quantised_weights_named_model_onnx_are_refused_with_a_command_that_works(
        self, hub: ModelHub, store: ModelStore
    ) -> None:
        hub.publish("acme/quiet", repository_in(np.int8))
        with pytest.raises(Invalid, match=r"are int8, whatever.*never chosen by them") as refused:
            add(hub, store, "acme/quiet")
        assert store.models() == []
        revision = hub.repositories["acme/quiet"].refs["main"]
        command = f"latent models add acme/quiet@{revision} --precision int8"
        assert refused.value.message.endswith(f"To use them: {command}")

        before = len(hub.transfers("onnx/model.onnx"))
        model = add(hub, store, f"acme/quiet@{revision}", "int8")
        assert len(hub.transfers("onnx/model.onnx")) == before  # what had arrived is used
        assert model.version == f"acme/quiet@{revision[:12]}+int8"
        assert model.add_command == command
        assert (store.partial(), store.verify(model)) == ([], [])
        assert add(hub, store, "acme/quiet", "int8") == model
        assert InstalledEmbedders(store).local_model(model, None).alone

    def test_weights_of_another_precision_than_the_chosen_one_are_refused_by_name(
        self, hub: ModelHub, store: ModelStore
    ) -> None:
        with pytest.raises(Invalid, match=r"are fp32.*has none in int8") as refused:
            add(hub, store, ID, "int8")
        revision = hub.repositories[ID].refs["main"]
        assert refused.value.message.endswith(f"latent models add {ID}@{revision}")
        assert store.models() == []
        before = len(hub.transfers("onnx/model.onnx"))
        assert add(hub, store).precision == "fp32"
        assert len(hub.transfers("onnx/model.onnx")) == before

    def test_the_command_of_a_refusal_keeps_the_prompts_and_the_pictures_that_were_given(
        self, hub: ModelHub, store: ModelStore
    ) -> None:
        hub.publish("acme/quiet", repository_in(np.int8))
        small = forced_pictures(tiny_pictures(), np.int8)
        hub.publish("acme/seeing", small)
        reader = replace(
            READER,
            picture_files_needed=picture_files_needed,
            prompts={"query": "q: ", "document": ""},
        )
        adder = Adder(store, HubAddress(hub.url), reader, LIMITS, lambda _path, _done, _total: None)
        partner = hub.repositories["acme/seeing"].refs["main"]
        options = f"--precision int8 --query-prompt 'q: ' --document-prompt '' --with acme/seeing@{partner}"
        with pytest.raises(Invalid, match=f"{options}$"):
            adder.add("acme/quiet", "acme/seeing")


class TestOpened:
    """``opened`` is ``for_space`` for event loops."""

    async def test_a_tokenizer_is_read_once_in_a_thread_for_all_callers(
        self, hub: ModelHub, embedders: EmbedderRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        space = space_of(add(hub, embedders.store))
        threads: list[threading.Thread] = []
        real = ModelTokenizer.open

        def recorded(path: Path, **given: Any) -> ModelTokenizer:
            threads.append(threading.current_thread())
            return real(path, **given)

        monkeypatch.setattr(ModelTokenizer, "open", recorded)
        one, two = await asyncio.gather(embedders.opened(space), embedders.opened(space))
        assert one is two is await embedders.opened(space) is embedders.for_space(space)
        (reader,) = threads
        assert reader is not threading.main_thread()
        assert (await one.embed_query("lamp")).shape == (DIMS,)
        await embedders.close()

    async def test_a_model_that_is_removed_after_it_was_opened_is_missing(
        self, hub: ModelHub, embedders: EmbedderRegistry
    ) -> None:
        model = add(hub, embedders.store)
        await embedders.opened(space_of(model))
        embedders.store.remove(model)
        with pytest.raises(ModelMissing, match="is not installed"):
            await embedders.opened(space_of(model))
        await embedders.close()


def space_of(model: InstalledModel) -> EmbeddingModel:
    return EmbeddingModel(NAME, model.version, DIMS, 62)
