"""What the files of a model's folder say, and which files of a repository are needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from latent_core.domain.errors import Invalid
from latent_core.models.embedding.onnx_format import (
    ElementType,
    Graph,
    StoredTensor,
    integer,
    message,
)
from latent_core.models.onnx.files import files_needed
from latent_core.models.onnx.folder import Activation, Pooling, describe
from latent_core.models.onnx.graph import ModelPrecision, read_graph


@dataclass(frozen=True)
class ListedPath:
    path: str
    size: int = 1


def listing(*paths: str) -> list[ListedPath]:
    return [ListedPath(path) for path in paths]


def graph_with(
    outputs: dict[str, Sequence[int | str]],
    inputs: Sequence[str] = ("input_ids", "attention_mask"),
    domain: str = "",
) -> Graph:
    graph = Graph("test")
    for name in inputs:
        graph.input(name, ElementType.INT64, ["texts", "tokens"])
    for name, shape in outputs.items():
        graph.node("Cast", [inputs[0]], name, domain=domain, to=1)
        graph.output(name, ElementType.FLOAT, shape)
    return graph


STATES = {"last_hidden_state": ["texts", "tokens", 8]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.onnx").write_bytes(graph_with(STATES).model())
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    return tmp_path


def write(folder: Path, name: str, content: object) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


class TestFilesNeeded:
    def test_one_graph_with_its_data_settings_and_tokenizer_are_needed(self) -> None:
        needed = files_needed(
            listing(
                "README.md",
                "modeling_x.py",
                "pytorch_model.bin",
                "model.safetensors",
                "config.json",
                "modules.json",
                "1_Pooling/config.json",
                "2_Dense/config.json",
                "2_Dense/model.safetensors",
                "2_Dense/pytorch_model.bin",
                "tokenizer.json",
                "vocab.txt",
                "onnx/model.onnx",
                "onnx/model.onnx_data",
                "onnx/model_fp16.onnx",
                "onnx/model_quantized.onnx",
            )
        )
        assert needed == [
            "1_Pooling/config.json",
            "2_Dense/config.json",
            "2_Dense/model.safetensors",
            "config.json",
            "modules.json",
            "onnx/model.onnx",
            "onnx/model.onnx_data",
            "tokenizer.json",
        ]

    def test_a_pair_of_texts_and_pictures_needs_both_graphs(self) -> None:
        paths = ("onnx/model.onnx", "onnx/text_model.onnx", "onnx/vision_model.onnx")
        needed = files_needed(listing(*paths, "tokenizer.json", "preprocessor_config.json"))
        assert needed == sorted([*paths[1:], "tokenizer.json", "preprocessor_config.json"])

    def test_a_picture_encoder_needs_no_tokenizer(self) -> None:
        needed = files_needed(listing("onnx/model.onnx", "preprocessor_config.json"))
        assert needed == ["onnx/model.onnx", "preprocessor_config.json"]

    @pytest.mark.parametrize(
        ("paths", "message"),
        [
            (["tokenizer.json", "model.safetensors"], "optimum-cli export onnx"),
            (["model.onnx"], r"no tokenizer\.json"),
            (["tokenizer.json", "onnx/model_int8.onnx"], "quantised weights only"),
            (["tokenizer.json", "a/b.onnx", "a/c.onnx"], "2 ONNX files"),
        ],
    )
    def test_a_repository_that_cannot_be_used_is_refused_with_the_remedy(
        self, paths: list[str], message: str
    ) -> None:
        with pytest.raises(Invalid, match=message):
            files_needed(listing(*paths))

    def test_quantised_weights_are_taken_if_named_and_fp16_if_there_are_no_others(self) -> None:
        files = listing("tokenizer.json", "onnx/model_fp16.onnx", "onnx/model_quantized.onnx")
        assert "onnx/model_fp16.onnx" in files_needed(files)
        assert "onnx/model_quantized.onnx" in files_needed(files, ModelPrecision.INT8)

    @pytest.mark.parametrize("precision", [ModelPrecision.FP16, ModelPrecision.INT8])
    def test_a_single_file_may_hold_any_precision_and_one_of_several_what_its_name_says(
        self, precision: ModelPrecision
    ) -> None:
        alone = listing("tokenizer.json", "onnx/model.onnx")
        assert "onnx/model.onnx" in files_needed(alone, precision)
        several = listing("tokenizer.json", "onnx/model.onnx", "onnx/model_q4.onnx")
        with pytest.raises(Invalid, match=f"no weights of precision {precision}; it has"):
            files_needed(several, precision)


class TestGraph:
    def test_a_custom_operator_is_refused_by_name(self, folder: Path) -> None:
        (folder / "model.onnx").write_bytes(graph_with(STATES, domain="evil.ops").model())
        with pytest.raises(Invalid, match=r"Cast of the domain 'evil\.ops'"):
            describe(folder)

    @pytest.mark.parametrize("place", ["../weights.bin", "/etc/passwd", "a\\b", "x/../../y"])
    def test_weights_outside_of_the_folder_are_refused(self, folder: Path, place: str) -> None:
        graph = graph_with(STATES)
        graph.stored(StoredTensor("w", ElementType.FLOAT, (2,), place, 0, 8))
        (folder / "model.onnx").write_bytes(graph.model())
        with pytest.raises(Invalid, match="outside of its folder"):
            describe(folder)

    def test_a_link_that_leaves_the_folder_is_refused(
        self, folder: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        other = tmp_path_factory.mktemp("other") / "weights"
        other.write_bytes(b"12345678")
        (folder / "weights.bin").symlink_to(other)
        graph = graph_with(STATES)
        graph.stored(StoredTensor("w", ElementType.FLOAT, (2,), "weights.bin", 0, 8))
        (folder / "model.onnx").write_bytes(graph.model())
        with pytest.raises(Invalid, match="link"):
            describe(folder)

    def test_missing_weights_are_named(self, folder: Path) -> None:
        graph = graph_with(STATES)
        graph.stored(StoredTensor("w", ElementType.FLOAT, (2,), "weights.bin", 0, 8))
        (folder / "model.onnx").write_bytes(graph.model())
        with pytest.raises(Invalid, match=r"no weights\.bin"):
            describe(folder)

    def test_the_precision_is_that_of_the_majority_of_weights(self, folder: Path) -> None:
        graph = graph_with(STATES)
        graph.constant("few", np.zeros(4, np.float32))
        graph.constant("most", np.zeros(64, np.int8))
        graph.constant("positions", np.zeros(640, np.int64))
        (folder / "model.onnx").write_bytes(graph.model())
        assert read_graph(folder / "model.onnx").precision is ModelPrecision.INT8

    @pytest.mark.parametrize(
        ("kind", "precision"),
        [
            (ElementType.INT8, ModelPrecision.INT8),
            (ElementType.UINT8, ModelPrecision.INT8),
            (22, ModelPrecision.INT4),
        ],
    )
    def test_a_quantised_graph_is_known_although_its_table_of_words_is_still_of_floats(
        self, folder: Path, kind: int, precision: ModelPrecision
    ) -> None:
        graph = graph_with(STATES)
        graph.constant("table", np.zeros(100_000, np.float32))
        graph.node("DequantizeLinear", ["weights", "scale"], "floats")
        graph._tensors.append(integer(1, 64) + integer(2, kind))
        (folder / "model.onnx").write_bytes(graph.model())
        assert read_graph(folder / "model.onnx").precision is precision

    def test_a_graph_of_countless_parts_is_refused_after_the_limit(self, folder: Path) -> None:
        graph = graph_with(STATES)
        graph._nodes += [b""] * 390_000
        (folder / "model.onnx").write_bytes(graph.model())
        assert read_graph(folder / "model.onnx").outputs
        graph._nodes += [b""] * 10_000
        (folder / "model.onnx").write_bytes(graph.model())
        with pytest.raises(Invalid, match=r"model\.onnx has more than 400000 fields"):
            read_graph(folder / "model.onnx")

    @pytest.mark.parametrize("packed", [True, False])
    def test_a_tensor_of_countless_dimensions_is_refused_at_once(
        self, folder: Path, packed: bool
    ) -> None:
        count = 2_000_000 if packed else 1000
        dims = message(1, b"\x01" * count) if packed else integer(1, 2**40) * count
        model = (folder / "model.onnx").read_bytes() + message(7, message(5, dims))
        (folder / "model.onnx").write_bytes(model)
        with pytest.raises(Invalid, match="more than 64 dimensions"):
            describe(folder)

    @pytest.mark.parametrize("cut", [1, 5, 20, -3])
    def test_a_damaged_graph_is_refused(self, folder: Path, cut: int) -> None:
        whole = (folder / "model.onnx").read_bytes()
        (folder / "model.onnx").write_bytes(whole[:cut])
        with pytest.raises(Invalid, match=r"model\.onnx"):
            describe(folder)


class TestDescription:
    def test_modules_decide_pooling_dense_layers_and_dims(self, folder: Path) -> None:
        kinds = ("Transformer", "Pooling", "Dense", "Normalize")
        write(
            folder,
            "modules.json",
            [
                {
                    "idx": n,
                    "path": f"{n}_{kind}" if n else "",
                    "type": f"sentence_transformers.models.{kind}",
                }
                for n, kind in enumerate(kinds)
            ],
        )
        write(folder, "1_Pooling/config.json", {"pooling_mode": "cls"})
        layer = {"out_features": 3, "activation_function": "torch.nn.modules.activation.Tanh"}
        write(folder, "2_Dense/config.json", layer)
        write(folder, "2_Dense/model.safetensors", {})
        stated = describe(folder)
        assert stated.text is not None
        assert (stated.kind, stated.dims, stated.text.pooling) == ("embedder", 3, Pooling.CLS)
        assert [layer.activation for layer in stated.text.dense] == [Activation.TANH]
        assert stated.normalised

    @pytest.mark.parametrize("kind", ["LSTM", "WordWeights"])
    def test_an_unknown_module_is_refused_by_name(self, folder: Path, kind: str) -> None:
        write(
            folder,
            "modules.json",
            [{"type": f"sentence_transformers.models.{kind}", "path": "1_X"}],
        )
        with pytest.raises(Invalid, match=kind):
            describe(folder)

    def test_an_output_of_the_whole_model_needs_no_modules(self, folder: Path) -> None:
        outputs = {**STATES, "sentence_embedding": ["texts", 4]}
        (folder / "model.onnx").write_bytes(graph_with(outputs).model())
        stated = describe(folder)
        assert stated.text is not None
        assert (stated.text.output, stated.text.pooling, stated.dims) == (
            "sentence_embedding",
            None,
            4,
        )

    def test_token_vectors_are_pooled_although_the_graph_has_a_pooler(self, folder: Path) -> None:
        outputs = {"pooler_output": ["texts", 8], **STATES}
        (folder / "model.onnx").write_bytes(graph_with(outputs).model())
        stated = describe(folder)
        assert stated.text is not None
        assert (stated.text.output, stated.text.pooling) == ("last_hidden_state", Pooling.MEAN)
        assert "mean" in stated.remarks[0]

    def test_one_number_a_pair_is_a_reranker_and_logits_of_tokens_are_refused(
        self, folder: Path
    ) -> None:
        (folder / "model.onnx").write_bytes(graph_with({"logits": ["texts", 1]}).model())
        assert describe(folder).kind == "reranker"
        wide = graph_with({"logits": ["texts", "tokens", 99]})
        (folder / "model.onnx").write_bytes(wide.model())
        with pytest.raises(Invalid, match="feature-extraction"):
            describe(folder)

    def test_other_inputs_are_refused_by_name(self, folder: Path) -> None:
        (folder / "model.onnx").write_bytes(graph_with(STATES, ("input_ids", "task_id")).model())
        with pytest.raises(Invalid, match="task_id"):
            describe(folder)

    @pytest.mark.parametrize(
        ("prompts", "expected"),
        [
            ({"prompts": {"query": "q: ", "passage": "p: "}}, {"document": "p: ", "query": "q: "}),
            (
                {"prompts": {"x": "x: ", "query": "q: "}, "default_prompt_name": "x"},
                {"document": "x: ", "query": "q: "},
            ),
            ({"prompts": {"query": "", "document": ""}}, {}),
            ({"prompts": {"clustering": "c: "}, "default_prompt_name": None}, {}),
        ],
    )
    def test_prompts_are_those_of_query_document_and_default(
        self, folder: Path, prompts: object, expected: dict[str, str]
    ) -> None:
        write(folder, "config_sentence_transformers.json", prompts)
        assert describe(folder).prompts == expected

    def test_positions_of_xlm_roberta_begin_after_its_padding(self, folder: Path) -> None:
        config = {"model_type": "xlm-roberta", "pad_token_id": 1, "max_position_embeddings": 514}
        write(folder, "config.json", config)
        stated = describe(folder)
        assert stated.text is not None
        assert (stated.window, stated.text.first_position, stated.text.pad_id) == (512, 2, 1)

    @pytest.mark.parametrize("place", ["../up", "/etc", "a/b"])
    def test_a_module_outside_of_the_folder_is_refused(self, folder: Path, place: str) -> None:
        write(
            folder,
            "modules.json",
            [{"type": "x.Transformer"}, {"type": "x.Pooling", "path": place}],
        )
        with pytest.raises(Invalid, match="directly below"):
            describe(folder)
