"""The local reranker: a cross-encoder of the user's own, here one that counts the words of the query in a text."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from hypothesis import given, settings, strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from typing_extensions import override

from latent_core.domain.errors import Invalid, TimedOut, Unavailable
from latent_core.models.embedding.onnx_format import ElementType, Graph
from latent_core.models.onnx.folder import ModelDescription
from latent_core.models.rerank.cross_encoder import (
    Pair,
    PairTokenizer,
    reranker_of,
)
from latent_core.models.rerank.local import GROUP, LocalReranker, plan_runs
from latent_core.models.rerank.resolve import Rerankers
from latent_core.models.store.hashes import hashes_of
from latent_core.models.store.layout import ModelStore
from latent_core.models.store.record import InstalledModel, ModelFile
from latent_core.settings import Settings
from tests.support.contracts.rerank import QUERY, TEXTS, RerankerContract, scores_of, soon

DEADLINE = 30.0
LENGTH = 32
SPECIAL = 3
CAPACITY = LENGTH - SPECIAL
PAD, UNKNOWN, FIRST, LAST, SPOILED = range(5)
WORDS = sorted({word for text in (QUERY, *TEXTS[:4]) for word in text.split()} | {"words", "z"})
ONE, TWO, FLAT, THREE, TOKENS = "one", "two", "flat", "three", "tokens"


def write_tokenizer(folder: Path) -> None:
    vocabulary = {"[PAD]": PAD, "[UNK]": UNKNOWN, "[CLS]": FIRST, "[SEP]": LAST, "nan": SPOILED}
    vocabulary |= {word: len(vocabulary) + n for n, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", LAST), ("[CLS]", FIRST))
    tokenizer.save(str(folder / "tokenizer.json"))


def write_model(folder: Path, answers: str = ONE) -> None:
    """Log-odds: how often words of the query and of the text are the same, by the root of the text's length.

    Padding, were it not masked, and words of the wrong side, were types mixed up, would count.
    """
    size = SPOILED + 1 + len(WORDS)
    table = np.eye(size, dtype=np.float32)
    table[[UNKNOWN, FIRST, LAST]] = 0.0
    table[PAD] = 100.0
    table[SPOILED] = np.nan
    graph = Graph("words in common")
    names = ("input_ids", "attention_mask", "token_type_ids")
    ids, mask, types = (graph.input(n, ElementType.INT64, ["texts", "tokens"]) for n in names)
    one = graph.constant("axis1", np.array([1], np.int64))
    two = graph.constant("axis2", np.array([2], np.int64))
    states = graph.node("Gather", [graph.constant("table", table), ids], "states")
    real = graph.node("Cast", [mask], "real", to=int(ElementType.FLOAT))
    second = graph.node("Cast", [types], "second", to=int(ElementType.FLOAT))
    text = graph.node("Mul", [real, second], "of_text")
    query = graph.node("Sub", [real, text], "of_query")

    def summed(weight: str, name: str) -> str:
        wide = graph.node("Unsqueeze", [weight, two], f"{name}_wide")
        kept = graph.node("Mul", [states, wide], f"{name}_kept")
        return graph.node("ReduceSum", [kept, one], name, keepdims=0)

    alike = graph.node("Mul", [summed(query, "query"), summed(text, "text")], "alike")
    common = graph.node("ReduceSum", [alike, one], "common", keepdims=1)
    count = graph.node("ReduceSum", [text, one], "count", keepdims=1)
    odds = graph.node("Div", [common, graph.node("Sqrt", [count], "root")], "odds")
    if answers == TOKENS:
        graph.output(states, ElementType.FLOAT, ["texts", "tokens", size])
    elif answers == FLAT:
        graph.output(graph.node("Squeeze", [odds, one], "logits"), ElementType.FLOAT, ["texts"])
    else:
        sides = {ONE: [1.0], TWO: [-0.25, 0.75], THREE: [1.0, 1.0, 1.0]}[answers]
        by = graph.constant("sides", np.array([sides], np.float32))
        graph.output(
            graph.node("Mul", [odds, by], "logits"), ElementType.FLOAT, ["texts", len(sides)]
        )
    (folder / "model.onnx").write_bytes(graph.model())


def expected(query: str, text: str) -> float:
    """What ``write_model`` computes, by hand."""
    query_words, words = query.split()[: CAPACITY // 2], text.split()
    words = words[: CAPACITY - len(query_words)]
    common = sum(query_words.count(word) for word in words if word in WORDS)
    return 1 / (1 + math.exp(-common / math.sqrt(len(words) + 1)))  # the last [SEP] is of the text


def model_folder(folder: Path, answers: str = ONE) -> Path:
    write_tokenizer(folder)
    write_model(folder, answers)
    config = {"max_position_embeddings": LENGTH}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return model_folder(tmp_path)


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def reranker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalReranker]:
    reranker = LocalReranker(model_folder(tmp_path_factory.mktemp("ranker")), threads=2)
    yield reranker
    await reranker.close()


@pytest.mark.asyncio(loop_scope="class")
class TestContract(RerankerContract):
    pass


async def scores_in(folder: Path, texts: list[str], query: str = QUERY) -> list[float]:
    reranker = LocalReranker(folder, threads=1)
    try:
        return await scores_of(reranker, texts, query)
    finally:
        await reranker.close()


class TestModel:
    @pytest.mark.parametrize("answers", [ONE, TWO, FLAT])
    async def test_one_number_or_two_a_pair_become_the_same_probability(
        self, folder: Path, answers: str
    ) -> None:
        write_model(folder, answers)
        scores = await scores_in(folder, TEXTS)
        assert scores == pytest.approx([expected(QUERY, text) for text in TEXTS], abs=1e-6)

    @pytest.mark.parametrize("answers", [THREE, TOKENS])
    async def test_a_model_that_answers_something_else_is_refused(
        self, folder: Path, answers: str
    ) -> None:
        write_model(folder, answers)
        with pytest.raises(Invalid, match="one or two numbers"):
            await scores_in(folder, TEXTS)

    async def test_a_score_that_is_no_number_is_refused(self, folder: Path) -> None:
        with pytest.raises(Invalid, match="not a finite number"):
            await scores_in(folder, [*TEXTS, "nan"], "nan")

    async def test_the_beginning_of_a_text_is_read_and_what_is_over_the_window_is_not(
        self, folder: Path
    ) -> None:
        left = CAPACITY - len(QUERY.split())
        within, over = ("words " * n + "bread" for n in (left - 1, left))
        found, missed = await scores_in(folder, [within, over])
        assert found == pytest.approx(expected(QUERY, within), abs=1e-6)
        assert missed == 0.5

    async def test_a_long_query_leaves_half_of_the_window_to_the_text(self, folder: Path) -> None:
        query = "z " * 100 + "bread"
        text = "words " * (CAPACITY // 2) + "z"
        assert await scores_in(folder, [text, text + " z"], query) == pytest.approx(
            [expected(query, text)] * 2, abs=1e-6
        )
        assert expected(query, text) > 0.5

    @pytest.mark.parametrize(
        ("file", "content", "given_message"),
        [
            ("model.onnx", None, "no model.onnx"),
            ("tokenizer.json", None, "no tokenizer.json"),
            ("model.onnx", b"no model", "model.onnx cannot be read"),
            ("tokenizer.json", b"{}", "tokenizer.json cannot be used"),
            ("config.json", b"{", "config.json cannot be read"),
            ("config.json", b"[]", "not an object"),
            ("config.json", b'{"max_position_embeddings": 4}', "4 tokens"),
        ],
    )
    async def test_a_folder_that_cannot_be_used_is_refused_by_the_file(
        self, folder: Path, file: str, content: bytes | None, given_message: str
    ) -> None:
        (folder / file).unlink() if content is None else (folder / file).write_bytes(content)
        with pytest.raises(Invalid, match=given_message) as caught:
            await scores_in(folder, TEXTS)
        assert str(folder) not in caught.value.message

    def test_the_smallest_configured_length_counts_and_absurd_ones_do_not(
        self, folder: Path
    ) -> None:
        def max_length_from(file: str, content: object) -> int:
            (folder / file).write_text(json.dumps(content), encoding="utf-8")
            return reranker_of(folder, "test").window or 0

        assert max_length_from("tokenizer_config.json", {"model_max_length": 1e30}) == LENGTH
        assert max_length_from("tokenizer_config.json", {"model_max_length": 16}) == 16
        assert max_length_from("tokenizer_config.json", {}) == LENGTH
        assert max_length_from("config.json", {}) == 512

    def test_a_model_with_other_inputs_is_refused(self, folder: Path) -> None:
        graph = Graph("other")
        graph.input("pixels", ElementType.FLOAT, ["texts", "tokens"])
        graph.node("Identity", ["pixels"], "logits")
        graph.output("logits", ElementType.FLOAT, ["texts", "tokens"])
        (folder / "model.onnx").write_bytes(graph.model())
        with pytest.raises(Invalid, match="pixels"):
            reranker_of(folder, "test")


class Stub:
    """A model whose runs end when they are let."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = PairTokenizer(folder / "tokenizer.json", 2000)
        self.runs = 0
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def probabilities(self, pairs: Sequence[Pair]) -> list[float]:
        self.runs += 1
        self.begun.set()
        assert self.may_end.wait(DEADLINE)
        return [0.5] * len(pairs)


class TestRunning:
    LONG = "words " * 1500
    """A run of its own."""

    @pytest.fixture
    def stub(self, folder: Path) -> Stub:
        return Stub(folder)

    @pytest.fixture
    async def slow(self, folder: Path, stub: Stub) -> AsyncIterator[LocalReranker]:
        reranker = LocalReranker(folder, threads=1, load=lambda _: stub)
        yield reranker
        stub.may_end.set()
        await reranker.close()

    async def begun(self, stub: Stub) -> None:
        assert await asyncio.to_thread(stub.begun.wait, DEADLINE)

    async def test_who_comes_later_waits_and_gives_up_without_having_cost_anything(
        self, slow: LocalReranker, stub: Stub
    ) -> None:
        first = asyncio.ensure_future(slow.rerank(QUERY, [self.LONG] * 3, soon()))
        await self.begun(stub)
        with pytest.raises(TimedOut):
            await slow.rerank(QUERY, TEXTS, asyncio.get_running_loop().time() + 0.05)
        stub.may_end.set()
        assert await first == [0.5] * 3
        assert stub.runs == 3

    async def test_a_head_that_is_given_up_ends_with_the_run_under_way(
        self, slow: LocalReranker, stub: Stub
    ) -> None:
        head = asyncio.ensure_future(slow.rerank(QUERY, [self.LONG] * 9, soon()))
        await self.begun(stub)
        head.cancel()
        await asyncio.wait([head])
        stub.may_end.set()
        assert await slow.rerank(QUERY, ["bread"], soon()) == [0.5]
        assert stub.runs == 2

    async def test_a_late_head_returns_the_scores_of_its_first_texts(self, folder: Path) -> None:
        class Stuck(Stub):
            @override
            def probabilities(self, pairs: Sequence[Pair]) -> list[float]:
                self.runs += 1
                if self.runs > 2:
                    assert self.may_end.wait(DEADLINE)
                return [0.25] * len(pairs)

        stuck = Stuck(folder)
        reranker = LocalReranker(folder, threads=1, load=lambda _: stuck)
        await reranker.warm()
        scores = await reranker.rerank(
            QUERY, [self.LONG] * 20, asyncio.get_running_loop().time() + 2
        )
        stuck.may_end.set()
        await reranker.close()
        assert scores == [0.25, 0.25, *[None] * 18]

    async def test_short_texts_of_the_end_are_not_scored_before_long_ones_of_the_beginning(
        self, folder: Path
    ) -> None:
        class OneRun(Stub):
            @override
            def probabilities(self, pairs: Sequence[Pair]) -> list[float]:
                self.runs += 1
                if self.runs > GROUP:
                    assert self.may_end.wait(DEADLINE)
                return [0.25] * len(pairs)

        one = OneRun(folder)
        reranker = LocalReranker(folder, threads=1, load=lambda _: one)
        await reranker.warm()
        texts = [self.LONG] * GROUP + ["bread"] * GROUP
        scores = await reranker.rerank(QUERY, texts, asyncio.get_running_loop().time() + 2)
        one.may_end.set()
        await reranker.close()
        assert scores == [0.25] * GROUP + [None] * GROUP

    async def test_runs_of_a_head_go_side_by_side(self, folder: Path) -> None:
        meeting = threading.Barrier(2)

        class Meeting(Stub):
            @override
            def probabilities(self, pairs: Sequence[Pair]) -> list[float]:
                meeting.wait(DEADLINE)
                return [0.25] * len(pairs)

        reranker = LocalReranker(
            folder, threads=2, load=lambda described: Meeting(described.folder)
        )
        assert await reranker.rerank(QUERY, [self.LONG] * 4, soon()) == [0.25] * 4
        await reranker.close()

    async def test_a_run_that_fails_ends_the_head(self, folder: Path) -> None:
        class FailingModel(Stub):
            @override
            def probabilities(self, pairs: Sequence[Pair]) -> list[float]:
                self.runs += 1
                raise Unavailable("no memory")

        failing = FailingModel(folder)
        reranker = LocalReranker(folder, threads=1, load=lambda _: failing)
        with pytest.raises(Unavailable, match="no memory"):
            await reranker.rerank(QUERY, [self.LONG] * 9, soon())
        await reranker.close()
        assert failing.runs == 1

    async def test_a_failed_load_is_reported_retried_and_then_kept(
        self, folder: Path, stub: Stub
    ) -> None:
        loads: list[Callable[[], Stub]] = [lambda: stub]

        def load(_: ModelDescription) -> Stub:
            if len(loads) == 1:
                loads.append(loads[0])
                raise Unavailable("not now")
            return loads.pop()()

        stub.may_end.set()
        reranker = LocalReranker(folder, load=load)
        with pytest.raises(Unavailable, match="not now"):
            await reranker.warm()
        await reranker.warm()
        assert await reranker.rerank(QUERY, ["bread"], soon()) == [0.5]
        assert await reranker.rerank(QUERY, ["rye"], soon()) == [0.5]
        await reranker.close()

    async def test_a_closed_one_says_so(self, folder: Path) -> None:
        reranker = LocalReranker(folder)
        await reranker.close()
        with pytest.raises(Unavailable, match="closed"):
            await scores_of(reranker, TEXTS)

    def test_its_name_tells_no_path(self, folder: Path) -> None:
        assert LocalReranker(folder).name == f"the local reranker {folder.name}"


@settings(max_examples=100)
@given(st.lists(st.integers(1, 512), max_size=80), st.integers(16, 2048))
def test_runs_hold_each_pair_once_within_the_budget(lengths: list[int], budget: int) -> None:
    runs = plan_runs(lengths, budget)
    assert sorted(index for run in runs for index in run) == list(range(len(lengths)))
    for run in runs:
        assert len(run) == 1 or len(run) * max(lengths[index] for index in run) <= budget


async def test_an_installed_cross_encoder_reranks_as_soon_as_it_is_there(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models")
    rerankers = Rerankers.of(Settings(), store)
    with pytest.raises(Unavailable, match="latent models add"):
        rerankers.named("local")
    with store.locked("tiny-reranker", 1):
        adding = store.adding("tiny-reranker@000000000000")
        adding.mkdir()
        write_tokenizer(adding)
        write_model(adding)
        files = {name: hashes_of(adding / name) for name in ("model.onnx", "tokenizer.json")}
        model = InstalledModel(
            hub_id="acme/tiny-reranker",
            revision="0" * 40,
            name="tiny-reranker",
            kind="reranker",
            precision="fp32",
            files=tuple(
                ModelFile(path=path, size=own.size, sha256=own.sha256)
                for path, own in files.items()
            ),
            added_at=datetime.now(UTC),
        )
        store.publish(adding, model)
    found = rerankers.named()
    assert rerankers.named("local") is found
    assert "tiny-reranker" in found.name
    scores = await found.rerank(QUERY, TEXTS, soon())
    assert len(scores) == len(TEXTS)
    await Rerankers.of(Settings(rerank_provider="local"), store).close()
    store.remove(model)
    assert not rerankers.offered("local")
    await rerankers.close()
