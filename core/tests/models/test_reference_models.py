"""The loader gives the vectors and scores of a plain forward pass, for small models that this test builds."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from latent_core.domain.errors import Invalid
from latent_core.domain.vector_types import Matrix
from latent_core.models.embedding.folder_model import from_folder
from latent_core.models.embedding.local import LocalEmbedder
from latent_core.models.rerank.local import LocalReranker
from tests.support.contracts.rerank import scores_of
from tests.support.onnx_encoders import (
    DIMS,
    LENGTH,
    PREPROCESSING,
    PROJECTED,
    SIDE,
    WORDS,
    EncoderWeights,
    Positions,
    write_clip,
    write_cross_encoder,
    write_json,
    write_siglip,
    write_text_encoder,
)

TEXTS = ["a b c d e f g h", "z", "q r s", "m n o p a z x y w v u t s r"]
Pool = Callable[[Matrix], NDArray[np.float32]]
POOLINGS: list[tuple[str, Pool]] = [
    ("pooling_mode_mean_tokens", lambda states: states.mean(axis=0)),
    ("pooling_mode_cls_token", lambda states: states[0]),
    ("pooling_mode_lasttoken", lambda states: states[-1]),
    ("pooling_mode_max_tokens", lambda states: states.max(axis=0)),
]


def ids_of(text: str) -> list[int]:
    return [2, *(WORDS[word] for word in text.split()), 3]


def cosine(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


async def vectors(
    folder: Path, texts: list[str], *, dims: int | None = None
) -> tuple[Matrix, Matrix]:
    """Of documents and of queries."""
    embedder = LocalEmbedder(from_folder(f"local:{folder}", dims), threads=2)
    try:
        queries = np.stack([await embedder.embed_query(text) for text in texts])
        return await embedder.embed_documents(texts), queries
    finally:
        await embedder.close()


@pytest.mark.parametrize("prompted", [False, True])
@pytest.mark.parametrize(("key", "pool"), POOLINGS)
@pytest.mark.parametrize("positions", Positions)
async def test_vectors_are_those_of_a_plain_forward_pass_whatever_pads_them(
    tmp_path: Path, positions: Positions, key: str, pool: Pool, prompted: bool
) -> None:
    weights = EncoderWeights(positions)
    write_text_encoder(tmp_path, weights)
    write_json(tmp_path, "1_Pooling/config.json", {key: True})
    before = {"document": "", "query": ""}
    if prompted:
        before = {"document": "text: ", "query": "query: "}
        write_json(tmp_path, "config_sentence_transformers.json", {"prompts": before})
    documents, queries = await vectors(tmp_path, TEXTS)
    for rows, prompt in ((documents, before["document"]), (queries, before["query"])):
        for text, row in zip(TEXTS, rows, strict=True):
            expected = pool(weights.states(ids_of(prompt + text)))
            assert cosine(row, expected) >= 0.9999
            assert math.isclose(np.linalg.norm(row), 1, abs_tol=1e-5)


async def test_dense_layers_follow_pooling(tmp_path: Path) -> None:
    weights = EncoderWeights(Positions.LEARNED)
    write_text_encoder(tmp_path, weights)
    kinds = ("Transformer", "Pooling", "Dense", "Normalize")
    modules = [
        {"path": f"{n}_{kind}" if n else "", "type": f"sentence_transformers.models.{kind}"}
        for n, kind in enumerate(kinds)
    ]
    write_json(tmp_path, "modules.json", modules)
    write_json(tmp_path, "1_Pooling/config.json", {"pooling_mode": "mean"})
    layer = {"out_features": 5, "activation_function": "torch.nn.modules.activation.Tanh"}
    write_json(tmp_path, "2_Dense/config.json", layer)
    rng = np.random.default_rng(3)
    matrix, bias = rng.normal(size=(5, DIMS)).astype("<f4"), rng.normal(size=5).astype("<f4")
    (tmp_path / "2_Dense" / "model.safetensors").write_bytes(
        safetensors({"linear.weight": matrix, "linear.bias": bias})
    )
    documents, _ = await vectors(tmp_path, TEXTS)
    for text, row in zip(TEXTS, documents, strict=True):
        mean = weights.states(ids_of(text)).mean(axis=0)
        assert cosine(row, np.tanh(matrix @ mean + bias)) >= 0.9999


def safetensors(tensors: dict[str, NDArray[np.float32]]) -> bytes:
    header, data = {}, b""
    for name, tensor in tensors.items():
        end = len(data) + tensor.nbytes
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [len(data), end]}
        data += tensor.tobytes()
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + data


async def test_fewer_dimensions_are_the_first_ones_normalised_again(tmp_path: Path) -> None:
    weights = EncoderWeights(Positions.ROTARY)
    write_text_encoder(tmp_path, weights)
    documents, _ = await vectors(tmp_path, TEXTS, dims=6)
    for text, row in zip(TEXTS, documents, strict=True):
        assert row.shape == (6,)
        assert cosine(row, weights.states(ids_of(text)).mean(axis=0)[:6]) >= 0.9999
    with pytest.raises(Invalid, match=f"dims is 99, but .* has {DIMS}"):
        from_folder(f"local:{tmp_path}", 99)


async def test_scores_of_a_cross_encoder_are_those_of_a_plain_forward_pass(tmp_path: Path) -> None:
    weights = EncoderWeights(Positions.LEARNED)
    write_cross_encoder(tmp_path, weights)
    reranker = LocalReranker(tmp_path, threads=2)
    scores = await scores_of(reranker, TEXTS, "a b")
    await reranker.close()
    for text, score in zip(TEXTS, scores, strict=True):
        query, document = ids_of("a b"), ids_of(text)[1:]
        states = weights.states(query + document, [0] * len(query) + [1] * len(document))
        odds = float(states[0] @ weights.tensors["score"][:, 0])
        assert score == pytest.approx(1 / (1 + math.exp(-odds)), abs=1e-4)


def picture(width: int, height: int, kind: str = "PNG") -> bytes:
    values = np.random.default_rng(5).integers(0, 255, (height, width, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(values).save(out, kind)
    return out.getvalue()


class TestPair:
    """Texts and pictures in one space."""

    @pytest.fixture
    def weights(self, tmp_path: Path) -> EncoderWeights:
        weights = EncoderWeights(Positions.LEARNED)
        write_clip(tmp_path, weights)
        return weights

    @pytest.mark.parametrize("size", [(8, 8), (20, 12), (9, 40)])
    async def test_pictures_are_scaled_cut_and_embedded_as_the_file_says(
        self, tmp_path: Path, weights: EncoderWeights, size: tuple[int, int]
    ) -> None:
        image = picture(*size)
        embedder = LocalEmbedder(from_folder(f"local:{tmp_path}"), threads=1)
        (row,) = await embedder.embed_images([image])
        query = await embedder.embed_query_image(image)
        await embedder.close()
        assert embedder.model.reads_images
        assert embedder.model.version.endswith("+images")
        opened = Image.open(io.BytesIO(image))
        shorter = min(size)
        scaled = opened.resize(
            (size[0] * SIDE // shorter, size[1] * SIDE // shorter), Image.Resampling.BICUBIC
        )
        values = np.asarray(scaled, np.float32)
        top, left = (values.shape[0] - SIDE) // 2, (values.shape[1] - SIDE) // 2
        values = values[top : top + SIDE, left : left + SIDE] / 255
        values = (values - PREPROCESSING["image_mean"]) / PREPROCESSING["image_std"]
        expected = weights.picture(values.transpose(2, 0, 1).astype(np.float32))
        assert cosine(row, expected) >= 0.9999
        assert np.allclose(row, query, atol=1e-6)

    async def test_texts_are_projected_into_the_same_space(
        self, tmp_path: Path, weights: EncoderWeights
    ) -> None:
        documents, _ = await vectors(tmp_path, TEXTS)
        for text, row in zip(TEXTS, documents, strict=True):
            expected = weights.states(ids_of(text))[0] @ weights.tensors["projection"]
            assert row.shape == (PROJECTED,)
            assert cosine(row, expected) >= 0.9999

    @pytest.mark.parametrize("content", [b"no picture", b"GIF89a", picture(8, 8)[:60]])
    async def test_what_is_no_picture_is_refused(
        self, tmp_path: Path, weights: EncoderWeights, content: bytes
    ) -> None:
        assert weights.tensors
        embedder = LocalEmbedder(from_folder(f"local:{tmp_path}"), threads=1)
        with pytest.raises(Invalid, match="picture"):
            await embedder.embed_images([content])
        await embedder.close()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"do_pad": True}, "do_pad"),
            ({"max_num_patches": 256}, "max_num_patches"),
            ({"resample": 9}, "resample"),
            ({"image_std": [1, 0, 1]}, "image_std"),
            ({"crop_size": 5000}, "at most 1024"),
        ],
    )
    def test_a_way_to_scale_that_is_not_supported_is_refused_by_name(
        self, tmp_path: Path, weights: EncoderWeights, change: dict[str, object], message: str
    ) -> None:
        assert weights.tensors
        write_json(tmp_path, "preprocessor_config.json", {**PREPROCESSING, **change})
        with pytest.raises(Invalid, match=message):
            from_folder(f"local:{tmp_path}")

    async def test_a_model_of_texts_alone_reads_no_pictures(self, tmp_path: Path) -> None:
        write_text_encoder(tmp_path, EncoderWeights(Positions.LEARNED))
        embedder = LocalEmbedder(from_folder(f"local:{tmp_path}"), threads=1)
        with pytest.raises(Invalid, match="reads no images"):
            await embedder.embed_images([picture(8, 8)])
        await embedder.close()


@pytest.mark.parametrize("second", [False, True])
class TestSiglip:
    """Texts of a fixed length whose padding is read, by the settings of both releases."""

    @pytest.fixture
    def weights(self, tmp_path: Path, second: bool) -> EncoderWeights:
        weights = EncoderWeights(Positions.ROTARY)
        write_siglip(tmp_path, weights, second=second)
        return weights

    async def test_texts_are_padded_with_its_token_in_lower_case(
        self, tmp_path: Path, weights: EncoderWeights, second: bool
    ) -> None:
        texts = ["A b C", "red", "a " * 80]
        documents, queries = await vectors(tmp_path, texts)
        for text, row, query in zip(texts, documents, queries, strict=True):
            ids = ids_of(" ".join(text.lower().split()[: LENGTH - 2]))
            ids += [WORDS["[PAD]" if second else "[SEP]"]] * (LENGTH - len(ids))
            expected = weights.states(ids)[-1] @ weights.tensors["projection"]
            assert cosine(row, expected) >= 0.9999
            assert cosine(query, expected) >= 0.9999

    async def test_pictures_are_squeezed_to_the_size_and_scaled_by_a_half(
        self, tmp_path: Path, weights: EncoderWeights, second: bool
    ) -> None:
        image = picture(20, 12)
        embedder = LocalEmbedder(from_folder(f"local:{tmp_path}"), threads=1)
        assert (embedder.model.reads_images, embedder.model.dims) == (True, PROJECTED)
        (row,) = await embedder.embed_images([image])
        await embedder.close()
        how = Image.Resampling.BILINEAR if second else Image.Resampling.BICUBIC
        scaled = Image.open(io.BytesIO(image)).resize((SIDE, SIDE), how)
        values = (np.asarray(scaled, np.float32) / 255 - 0.5) / 0.5
        expected = weights.picture(values.transpose(2, 0, 1).astype(np.float32))
        assert cosine(row, expected) >= 0.9999

    def test_an_output_outside_of_the_common_space_is_refused(
        self, tmp_path: Path, weights: EncoderWeights, second: bool
    ) -> None:
        assert weights.tensors
        onnx = tmp_path / "onnx"
        write_text_encoder(tmp_path, EncoderWeights(Positions.ROTARY))
        (onnx / "model.onnx").replace(onnx / "text_model.onnx")
        write_json(tmp_path, "config.json", {"model_type": "siglip", "hidden_size": DIMS})
        with pytest.raises(Invalid, match=r"last_hidden_state.*not in the space.*pooler_output"):
            from_folder(f"local:{tmp_path}")
