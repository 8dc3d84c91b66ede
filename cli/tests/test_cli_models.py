"""``latent models``: against a server that answers as a model hub, and a fake gateway."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from latent_core.wire.models import InstalledModelView, ModelUse
from latent_core.wire.refresh import SpaceState
from tests.support.fake_gateway.gateway import FakeGateway
from tests.support.harness.cli import Latent
from tests.support.servers.model_hub import Fault, ModelHub
from tests.support.tiny_model import tiny_half, tiny_pictures, tiny_repository

ID: Final = "acme/Tiny-Embed"
NAME: Final = "tiny-embed"
ONNX: Final = "onnx/model.onnx"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, latent: Latent) -> Iterator[ModelHub]:
    with ModelHub() as running:
        running.publish(ID, tiny_repository())
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("LLC_HUB_STALL_SECONDS", "5")
        yield running


def test_a_model_is_added_listed_verified_and_removed(
    latent: Latent, hub: ModelHub, gateway: FakeGateway
) -> None:
    added = latent("models", "add", ID)
    reference = f"{NAME}@{hub.repositories[ID].refs['main'][:12]}"
    assert added.code == 0, added.err
    assert f"installed {reference} (embedder, 8 dimensions, 64 tokens, fp32" in added.out
    assert f"latent container create ID --embedder {NAME}" in added.out
    assert latent("models", "add", ID, "--json").json["fetched"] is False
    listed = latent("models", "list")
    assert f"{reference}  embedder     8      64  fp32" in listed.out
    (model,) = latent("models", "list", "--json").json["models"]
    assert (model["hub_id"], model["name"], model["dims"]) == (ID, NAME, 8)
    assert {file["path"] for file in model["files"]} == {
        "config.json",
        "tokenizer.json",
        ONNX,
        "1_Pooling/config.json",
    }
    assert latent("models", "verify").out == f"{reference}: ok\n"
    assert latent("models", "remove", NAME).out == f"removed {reference}\n"
    assert latent("models", "list", "--json").json == {
        "models": [],
        "unreadable": [],
        "partial": [],
        "devices": ["CPU"],
    }
    assert "local models run on: CPU" in listed.out


def test_prompts_are_given_at_installation_listed_and_kept_by_export_and_import(
    latent: Latent, hub: ModelHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = ("--query-prompt", "query: ", "--document-prompt", "passage: ")
    added = latent("models", "add", ID, *options, "--json").json["model"]
    (model,) = latent("models", "list", "--json").json["models"]
    assert model == added
    assert (model["prompts"], model["prompts_given"]) == (
        {"query": "query: ", "document": "passage: "},
        True,
    )
    assert model["version"].startswith(f"{ID}@{model['revision'][:12]}+prompts.")
    (tmp_path / "data" / "models" / model["reference"] / ONNX).unlink()
    (found,) = latent("models", "verify", "--json").json["models"]
    assert found["remedy"] == (
        f"latent models add {ID}@{model['revision']} --query-prompt 'query: ' --document-prompt 'passage: '"
    )
    assert latent(*shlex.split(found["remedy"])[1:]).code == 0
    exported = latent("models", "export", NAME, "--json").json
    monkeypatch.setenv("LLC_DATA_DIR", str(tmp_path / "other"))
    imported = latent("models", "import", exported["file"], "--json").json["model"]
    assert imported["version"] == model["version"]
    assert imported["prompts"] == model["prompts"]
    long = latent("models", "add", ID, "--query-prompt", "x" * 1001)
    assert (long.code, "has 1001 characters" in long.err) == (2, True)


def test_a_pair_of_two_repositories_is_added_listed_exported_imported_and_removed(
    latent: Latent,
    hub: ModelHub,
    gateway: FakeGateway,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    hub.publish("acme/eye", tiny_pictures())
    alone = latent("models", "add", "acme/eye")
    assert "latent models add HUB_ID_OF_TEXTS --with acme/eye" in alone.out
    added = latent("models", "add", ID, "--with", "acme/eye", "--json").json["model"]
    assert added["partner"] == {
        "hub_id": "acme/eye",
        "revision": hub.repositories["acme/eye"].refs["main"],
    }
    assert f"{ID} with acme/eye" in latent("models", "list").out
    assert latent("models", "verify", NAME).out == f"{added['reference']}: ok\n"
    exported = latent("models", "export", NAME, "--json").json
    monkeypatch.setenv("LLC_DATA_DIR", str(tmp_path / "other"))
    imported = latent("models", "import", exported["file"], "--json").json["model"]
    assert imported["version"] == added["version"]
    assert latent("models", "remove", NAME).out == f"removed {added['reference']}\n"


def test_the_list_and_the_answer_say_whether_half_precision_counts_as_fp32(
    latent: Latent, hub: ModelHub
) -> None:
    hub.publish(ID, {**tiny_repository(), "onnx/model_fp16.onnx": tiny_half()})
    alone = latent("models", "add", ID, "--precision", "fp16")
    assert "a version of their own, unless the fp32 weights are added, too" in alone.out
    assert latent("models", "add", ID).code == 0
    assert "fp16 as fp32" in latent("models", "list").out
    half, full = sorted(
        latent("models", "list", "--json").json["models"], key=lambda model: model["precision"]
    )
    assert (half["counts_as_fp32"], full["counts_as_fp32"]) == (True, False)
    assert "vectors" not in half


def test_a_damaged_file_is_named_with_the_command_that_mends_it(
    latent: Latent, hub: ModelHub, tmp_path: Path
) -> None:
    model = latent("models", "add", ID, "--json").json["model"]
    file = tmp_path / "data" / "models" / model["reference"] / ONNX
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    verified = latent("models", "verify", NAME)
    assert verified.code == 4
    command = f"latent models add {ID}@{model['revision']}"
    assert f"{model['reference']}: {ONNX} has the SHA-256" in verified.out
    assert f"damaged; mend it: {command}" in verified.out
    (found,) = latent("models", "verify", "--json").json["models"]
    assert (found["damaged"][0]["path"], found["remedy"]) == (ONNX, command)
    assert latent(*command.split()[1:]).code == 0
    assert latent("models", "verify").code == 0


def test_a_model_that_a_container_uses_is_not_removed(
    latent: Latent, hub: ModelHub, gateway: FakeGateway
) -> None:
    model = latent("models", "add", ID, "--json").json["model"]
    gateway.models.append(
        InstalledModelView(
            **{key: model[key] for key in ("reference", "name", "hub_id", "revision", "version")},
            kind="embedder",
            dims=8,
            window=64,
            precision="fp32",
            bytes=1,
            added_at=datetime.now(UTC),
            used_by=[
                ModelUse(container_id="notes", state=SpaceState.LIVE),
                ModelUse(container_id="art", state=SpaceState.BUILDING),
            ],
        )
    )
    refused = latent("models", "remove", NAME)
    assert refused.code == 1
    assert "makes the vectors of notes (live), art (building)" in refused.err
    assert "latent refresh" in refused.err
    assert latent("models", "verify").code == 0
    assert latent("models", "remove", NAME, "--force").code == 0


def test_without_a_gateway_a_model_is_removed_only_by_force(
    latent: Latent, hub: ModelHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    latent("models", "add", ID)
    monkeypatch.setenv("LLC_URL", "http://127.0.0.1:9")
    refused = latent("models", "remove", NAME, "--json")
    assert refused.code == 1
    assert "or add --force" in refused.json["issues"][0]["message"]
    assert latent("models", "remove", NAME, "--force", "--json").json["removed"].startswith(NAME)


def test_a_model_goes_to_a_machine_without_a_network_as_one_file(
    latent: Latent, hub: ModelHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = latent("models", "add", ID, "--json").json["model"]
    exported = latent("models", "export", NAME, "--json").json
    assert exported["file"] == f"{model['reference']}.model.tar"
    assert latent("models", "export", NAME, "--to", exported["file"]).code == 1
    monkeypatch.setenv("LLC_DATA_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    refused = latent("models", "add", ID)
    assert (refused.code, "HF_HUB_OFFLINE is set" in refused.err) == (1, True)
    imported = latent("models", "import", exported["file"], "--json").json
    assert (imported["fetched"], imported["model"]) == (True, model)
    assert latent("models", "verify").code == 0


def test_what_an_interrupted_command_left_is_listed_and_removed(
    latent: Latent, hub: ModelHub
) -> None:
    hub.faults[ONNX] = [Fault(status=404, times=99)]
    failed = latent("models", "add", ID)
    assert failed.code == 1
    assert failed.err.count("\n") == 1
    listed = latent("models", "list")
    assert f"incomplete: {NAME}@" in listed.out
    assert latent("models", "remove", NAME).code == 0
    assert latent("models", "list", "--json").json["partial"] == []


def test_weights_without_onnx_are_refused_with_the_way_to_export_them(
    latent: Latent, hub: ModelHub
) -> None:
    files = {path: data for path, data in tiny_repository().items() if path != ONNX}
    hub.publish("acme/no-onnx", files | {"model.safetensors": b"weights"})
    refused = latent("models", "add", "acme/no-onnx")
    assert refused.code == 2
    assert "optimum-cli export onnx" in refused.err


def test_names_that_are_not_there_are_answered_with_the_nearest_or_the_remedy(
    latent: Latent, hub: ModelHub
) -> None:
    for command in ("verify", "export", "remove"):
        absent = latent("models", command, "tiny")
        assert (absent.code, "latent models add <hub id>" in absent.err) == (1, True)
    latent("models", "add", ID)
    assert "did you mean 'tiny-embed'?" in latent("models", "verify", "tiny-embd").err
    assert latent("models", "add", "not a model").code == 2


def test_a_gated_model_needs_a_token_from_a_file_which_is_never_shown(
    latent: Latent, hub: ModelHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub.repositories[ID].gated = True
    refused = latent("models", "add", ID, "--json")
    assert refused.json["issues"][0]["code"] == "POLICY"
    assert "LLC_HUB_TOKEN_FILE" in refused.err
    (tmp_path / "token").write_text(hub.token)
    monkeypatch.setenv("LLC_HUB_TOKEN_FILE", str(tmp_path / "token"))
    added = latent("models", "add", ID)
    assert added.code == 0
    assert hub.token not in added.out + added.err + latent("config").out
