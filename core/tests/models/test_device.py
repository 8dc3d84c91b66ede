"""Where local models run. This machine may have no GPU: a stand-in opens the same model, or another one, in its place."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latent_core.domain.errors import Invalid
from latent_core.models.embedding import encoder as encoders, loader
from latent_core.models.embedding.folder_model import from_folder
from latent_core.models.embedding.local import LocalEmbedder
from latent_core.models.onnx import session
from latent_core.models.onnx.device import Device, clash, devices
from latent_core.models.onnx.session import open_session
from latent_core.models.rerank.local import LocalReranker
from tests.support.contracts.rerank import scores_of
from tests.support.onnx_encoders import (
    EncoderWeights,
    Positions,
    write_cross_encoder,
    write_text_encoder,
)

CUDA_FIRST = [Device.CUDA, Device.CPU]


def test_gpus_are_tried_in_a_fixed_order_and_the_cpu_last() -> None:
    there = ["CPUExecutionProvider", "DmlExecutionProvider", "CUDAExecutionProvider"]
    assert devices([*there, "TensorrtExecutionProvider", "CoreMLExecutionProvider"]) == [
        Device.CUDA,
        Device.DIRECTML,
        Device.CPU,
    ]
    assert devices([]) == [Device.CPU]


def test_packages_that_are_installed_over_each_other_are_named_with_the_remedy() -> None:
    both = clash(["onnxruntime 1.22.0", "onnxruntime-gpu 1.22.0"])
    assert both is not None
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in both
    assert clash(["onnxruntime-gpu 1.22.0"]) is None
    assert clash() is None


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime says that it has CUDA."""
    for module in (loader, session):
        monkeypatch.setattr(module, "devices", lambda: CUDA_FIRST)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, cuda: None) -> list[Device]:
    """A GPU that computes what the CPU does: the devices of the sessions that were opened, in order."""
    order: list[Device] = []

    def stand_in(path: Path, *, name: str, threads: int, device: Device = Device.CPU) -> Any:
        order.append(device)
        return open_session(path, name=name, threads=threads)

    monkeypatch.setattr(encoders, "open_session", stand_in)
    return order


async def vector(folder: Path) -> np.ndarray[Any, Any]:
    embedder = LocalEmbedder(from_folder(f"local:{folder}"), threads=1)
    try:
        return (await embedder.embed_documents(["a b c"]))[0]
    finally:
        await embedder.close()


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.__dict__["reason"]
        for record in caplog.records
        if record.message == "device_not_used"
    ]


async def test_a_gpu_that_computes_what_the_cpu_does_is_used(
    tmp_path: Path, opened: list[Device], caplog: pytest.LogCaptureFixture
) -> None:
    write_text_encoder(tmp_path, EncoderWeights(Positions.LEARNED))
    load = from_folder(f"local:{tmp_path}").load
    assert load(1).device is Device.CUDA  # type: ignore[attr-defined]
    assert opened == [Device.CUDA, Device.CPU]  # what to compare with is not in a record here
    assert reasons(caplog) == []


async def test_a_gpu_that_computes_other_vectors_is_not_used_and_the_log_says_why(
    tmp_path: Path,
    cuda: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    for folder, seed in ((right, 7), (wrong, 8)):
        folder.mkdir()
        write_text_encoder(folder, EncoderWeights(Positions.LEARNED, seed))

    def stand_in(path: Path, *, name: str, threads: int, device: Device = Device.CPU) -> Any:
        own = wrong / path.relative_to(right) if device is Device.CUDA else path
        return open_session(own, name=name, threads=threads)

    monkeypatch.setattr(encoders, "open_session", stand_in)
    with caplog.at_level(logging.WARNING):
        found = await vector(right)
    (reason,) = reasons(caplog)
    assert "differ from those of the CPU (cosine" in reason
    monkeypatch.setattr(loader, "devices", lambda: [Device.CPU])
    expected = await vector(right)
    assert np.allclose(found, expected, atol=1e-6)


@pytest.mark.usefixtures("cuda")
@pytest.mark.filterwarnings("ignore:Specified provider")
async def test_a_gpu_that_cannot_be_opened_leaves_the_cpu_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By the real runtime, which has no such provider here."""
    write_text_encoder(tmp_path, EncoderWeights(Positions.LEARNED))
    with caplog.at_level(logging.WARNING):
        assert (await vector(tmp_path)).any()
    assert ["CUDA cannot be opened" in reason for reason in reasons(caplog)] == [True]
    with pytest.raises(Invalid, match="CUDA cannot be opened for x"):
        open_session(tmp_path / "onnx" / "model.onnx", name="x", threads=1, device=Device.CUDA)


@pytest.mark.usefixtures("cuda")
@pytest.mark.filterwarnings("ignore:Specified provider")
async def test_a_reranker_falls_back_to_the_cpu_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_cross_encoder(tmp_path, EncoderWeights(Positions.LEARNED))
    reranker = LocalReranker(tmp_path, threads=1)
    with caplog.at_level(logging.WARNING):
        scores = await scores_of(reranker, ["a b", "c"], "a")
    await reranker.close()
    assert len(scores) == 2
    assert ["CUDA cannot be opened" in reason for reason in reasons(caplog)] == [True]
