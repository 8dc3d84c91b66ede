"""The store of installed models: fetched from a hub by its real client, from a server that answers as the original."""

from __future__ import annotations

import io
import json
import os
import random
import resource
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from pydantic import SecretStr

from latent_core.domain.errors import (
    Conflict,
    Forbidden,
    Invalid,
    LatentError,
    NotFound,
    OutOfSpace,
    ServiceUnreachable,
    TimedOut,
    TooLarge,
    Unavailable,
)
from latent_core.models.embedding import minilm, multilingual
from latent_core.models.store import hub as hub_module
from latent_core.models.store.add import Adder, AddLimits, AddResult, FolderReader
from latent_core.models.store.archive import export_model, import_model
from latent_core.models.store.hub import HubAddress
from latent_core.models.store.layout import ModelStore
from latent_core.models.store.record import HubFile, parse_record, parse_reference
from tests.support import REPOSITORY
from tests.support.servers.model_hub import SIGNATURE, Fault, ModelHub

ID: Final = "Acme/Tiny-Embed-v1.5"
NAME: Final = "tiny-embed-v1.5"
ONNX: Final = "onnx/model.onnx"
WEIGHTS: Final = random.Random(21).randbytes(700_000)
FILES: Final = {
    "config.json": json.dumps({"hidden_size": 8}).encode(),
    "tokenizer.json": b'{"model": {}}',
    ONNX: WEIGHTS,
    "pytorch_model.bin": b"pickle",
    "modeling_tiny.py": b"raise SystemExit",
    "README.md": b"# Tiny",
}
STALL: Final = 0.4


@dataclass(frozen=True)
class Facts:
    """What a stand-in says of a folder; the real one reads the files."""

    dims: int
    kind: Literal["embedder", "image_embedder", "reranker"] = "embedder"
    window: int | None = 64
    precision: str = "fp32"
    prompts: dict[str, str] = field(default_factory=lambda: {"query": "search_query: "})


def needed(listing: Sequence[HubFile]) -> list[str]:
    return [one.path for one in listing if one.path.endswith((".json", ".onnx"))]


def describe(folder: Path, precision: str | None) -> Facts:
    return Facts(
        int(json.loads((folder / "config.json").read_bytes())["hidden_size"]),
        precision=precision or "fp32",
    )


READER: Final = FolderReader(needed, describe)
LIMITS: Final = AddLimits(max_bytes=10**9, min_free_bytes=0, wait_seconds=30)


@pytest.fixture
def hub() -> Iterator[ModelHub]:
    with ModelHub() as running:
        running.publish(ID, FILES)
        yield running


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "models")


def adder(hub: ModelHub, store: ModelStore, **changes: Any) -> Adder:
    address = HubAddress(hub.url, stall_seconds=STALL, pause_seconds=0)
    made = Adder(store, address, READER, LIMITS, on_progress=lambda _path, _done, _total: None)
    return replace(made, **changes)


def with_token(hub: ModelHub, token: str) -> HubAddress:
    return HubAddress(hub.url, SecretStr(token), stall_seconds=STALL, pause_seconds=0)


def left_in(store: ModelStore) -> list[str]:
    """Everything in the folder of models but the lock files."""
    return sorted(
        str(path.relative_to(store.root))
        for path in store.root.rglob("*")
        if not path.name.startswith(".lock-")
    )


def test_a_model_is_installed_at_the_commit_of_its_branch_with_the_hashes_of_its_files(
    hub: ModelHub, store: ModelStore
) -> None:
    progress: list[tuple[str, int, int]] = []
    result = adder(hub, store, on_progress=lambda *step: progress.append(step)).add(ID)
    commit = hub.repositories[ID].refs["main"]
    model = result.model
    assert (model.hub_id, model.revision, model.name) == (ID, commit, NAME)
    assert (model.kind, model.dims, model.window, model.precision) == ("embedder", 8, 64, "fp32")
    assert model.prompts == {"query": "search_query: "}
    assert model.version == f"{ID}@{commit[:12]}"
    folder = store.root / f"{NAME}@{commit[:12]}"
    assert {file.path for file in model.files} == {"config.json", "tokenizer.json", ONNX}
    assert (folder / ONNX).read_bytes() == WEIGHTS
    assert [m.reference for m in store.models()] == [folder.name]
    assert store.verify(model) == []
    assert progress[-1][1:] == (model.size, model.size)
    assert [step[1] for step in progress] == sorted(step[1] for step in progress)
    assert left_in(store) == sorted(
        f"{folder.name}{rest}"
        for rest in ("", "/config.json", "/model.json", "/onnx", f"/{ONNX}", "/tokenizer.json")
    )


def test_code_and_pickles_of_a_repository_are_not_fetched(hub: ModelHub, store: ModelStore) -> None:
    adder(hub, store).add(ID)
    assert {one.path for one in hub.requests if ".py" in one.path or ".bin" in one.path} == set()
    greedy = FolderReader(lambda _listing: ["modeling_tiny.py"], describe)
    with pytest.raises(Invalid, match=r"modeling_tiny\.py.*no file that is fetched"):
        adder(hub, ModelStore(store.root.parent / "other"), reader=greedy).add(ID)


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub: ModelHub, store: ModelStore) -> None:
    tagged = hub.publish(ID, {**FILES, "config.json": b'{"hidden_size": 16}'}, ref="v2")
    by_tag = adder(hub, store).add(f"{ID}@v2").model
    assert (by_tag.revision, by_tag.dims) == (tagged, 16)
    for revision in (tagged, tagged[:12]):
        again = adder(hub, store).add(f"{ID}@{revision}")
        assert (again.model, again.fetched) == (by_tag, False)
    with pytest.raises(NotFound, match="has no revision 'abcdef0'"):
        adder(hub, store).add(f"{ID}@abcdef0")


def test_two_revisions_are_installed_side_by_side_and_the_newer_one_has_the_name(
    hub: ModelHub, store: ModelStore
) -> None:
    first = adder(hub, store).add(ID).model
    hub.publish(ID, {**FILES, "config.json": b'{"hidden_size": 16}'})
    second = adder(hub, store).add(ID).model
    assert store.newest(NAME) == second
    assert store.of_version(first.version) == first
    assert store.find(f"{NAME}@{first.revision[:7]}") == first
    with pytest.raises(Invalid, match="several times: write one of"):
        store.find(NAME)


def test_a_model_that_is_installed_is_not_fetched_again(hub: ModelHub, store: ModelStore) -> None:
    adder(hub, store).add(ID)
    before = len(hub.transfers(ONNX))
    assert adder(hub, store).add(ID).fetched is False
    assert len(hub.transfers(ONNX)) == before == 1


def test_large_files_come_from_another_server_which_does_not_get_the_token(
    hub: ModelHub, store: ModelStore
) -> None:
    hub.repositories[ID].private = True
    adder(hub, store, address=with_token(hub, hub.token)).add(ID)
    of_files = [one for one in hub.requests if one.server == "files"]
    assert of_files
    assert not any("authorization" in one.headers for one in of_files)
    assert all(
        one.headers.get("authorization") == f"Bearer {hub.token}"
        for one in hub.requests
        if one.server == "hub"
    )


def test_an_interrupted_transfer_continues_at_the_byte_that_the_next_command_finds(
    hub: ModelHub, store: ModelStore
) -> None:
    hub.faults[ONNX] = [Fault(cut_at=300_000), Fault(status=503, times=99)]
    with pytest.raises(
        TimedOut, match=r"stalled at 300000 of 700000 bytes.*run the command again"
    ) as caught:
        adder(hub, store).add(ID)
    assert SIGNATURE not in str(caught.value)
    assert [one.size for one in store.partial()] == [300_000 + len(FILES["config.json"])]
    hub.faults.clear()
    result = adder(hub, store).add(ID)
    assert hub.transfers(ONNX)[-1].headers["range"] == "bytes=300000-"
    assert store.verify(result.model) == []
    assert store.partial() == []
    assert len(hub.transfers("config.json")) == 1


def test_a_transfer_that_stalls_continues_on_a_new_connection(
    hub: ModelHub, store: ModelStore
) -> None:
    hub.faults[ONNX] = [Fault(stall_at=200_000), Fault(stall_at=500_000)]
    model = adder(hub, store).add(ID).model
    ranges = [one.headers.get("range") for one in hub.transfers(ONNX)]
    assert ranges == [None, "bytes=200000-", "bytes=500000-"]
    assert store.verify(model) == []


def test_a_server_that_sends_a_few_bytes_now_and_then_counts_as_stalled() -> None:
    now = 0.0
    watch = hub_module._RateWatch(30, clock=lambda: now)
    watch.check(10)
    now = 31.0
    with pytest.raises(hub_module._Stalled, match="less than 1024 bytes a second"):
        watch.check(10)
    fast = hub_module._RateWatch(30, clock=lambda: now)
    now = 62.0
    fast.check(31 * 1024)


def test_a_server_that_ignores_ranges_sends_the_whole_file(
    hub: ModelHub, store: ModelStore
) -> None:
    hub.faults[ONNX] = [Fault(cut_at=300_000), Fault(whole=True)]
    model = adder(hub, store).add(ID).model
    assert (store.folder(model) / ONNX).read_bytes() == WEIGHTS


def test_a_file_with_another_hash_is_removed_and_names_itself(
    hub: ModelHub, store: ModelStore
) -> None:
    hub.faults[ONNX] = [Fault(altered=True)]
    with pytest.raises(Unavailable, match=r"onnx/model\.onnx .* has the SHA-256 .*alters files"):
        adder(hub, store).add(ID)
    assert store.models() == []
    assert not [path for path in left_in(store) if path.endswith(".onnx")]
    assert adder(hub, store).add(ID).fetched


def test_a_small_file_is_compared_by_its_git_hash(hub: ModelHub, store: ModelStore) -> None:
    hub.faults["tokenizer.json"] = [Fault(altered=True)]
    with pytest.raises(Unavailable, match=r"tokenizer\.json .* has the git hash"):
        adder(hub, store).add(ID)


def test_a_mirror_that_serves_another_commit_than_it_lists_is_refused(
    hub: ModelHub, store: ModelStore
) -> None:
    hub.other_commit = "0" * 40
    with pytest.raises(Unavailable, match="from another commit than it lists"):
        adder(hub, store).add(ID)
    assert hub.transfers(ONNX) == []


def test_a_gated_model_says_how_to_accept_its_terms_and_give_a_token(
    hub: ModelHub, store: ModelStore
) -> None:
    hub.repositories[ID].gated = True
    for address in (HubAddress(hub.url), with_token(hub, "hf_of_someone_else")):
        with pytest.raises(Forbidden) as caught:
            adder(hub, store, address=address).add(ID)
        message = caught.value.message
        assert f"accept its terms at {hub.url}/{ID}" in message
        assert "LLC_HUB_TOKEN_FILE" in message
        assert "hf_of_someone_else" not in message
    assert adder(hub, store, address=with_token(hub, hub.token)).add(ID).fetched


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (
            "acme/absent",
            "has no public model acme/absent: check the name; for a private one set LLC_HUB_TOKEN_FILE",
        ),
        (f"{ID}@absent", "has no revision 'absent': write a branch, tag or commit"),
    ],
)
def test_a_missing_repository_or_revision_is_named(
    hub: ModelHub, store: ModelStore, reference: str, message: str
) -> None:
    with pytest.raises(NotFound, match=message):
        adder(hub, store).add(reference)
    assert not store.root.exists()


def test_a_file_that_is_listed_and_not_there_is_named(hub: ModelHub, store: ModelStore) -> None:
    hub.missing_files.add(ONNX)
    with pytest.raises(NotFound, match=rf"lists {ONNX}, but .* does not have it"):
        adder(hub, store).add(ID)


@pytest.mark.parametrize(
    "path",
    [
        "../outside.json",
        "/etc/outside.json",
        "a\\outside.json",
        "C:outside.json",
        "a/./b.json",
        "a//b.json",
    ],
)
def test_a_repository_that_names_files_outside_its_folder_is_refused(
    hub: ModelHub, store: ModelStore, path: str
) -> None:
    hub.extra_siblings = [{"rfilename": path, "size": 2, "blobId": "0" * 40}]
    with pytest.raises(Invalid, match="its listing is unsafe"):
        adder(hub, store).add(ID)
    assert not store.root.exists()


def test_a_link_of_a_repository_is_stored_as_a_small_file_and_never_followed(
    hub: ModelHub, store: ModelStore, tmp_path: Path
) -> None:
    """Git keeps a link as a file with its target; hubs serve that text."""
    (tmp_path / "secret.json").write_text('{"hidden_size": 3}')
    hub.publish(ID, {**FILES, "extra.json": b"../../secret.json"})
    model = adder(hub, store).add(ID).model
    stored = store.folder(model) / "extra.json"
    assert not stored.is_symlink()
    assert stored.read_bytes() == b"../../secret.json"


def test_sizes_are_limited_before_anything_is_fetched(hub: ModelHub, store: ModelStore) -> None:
    with pytest.raises(TooLarge, match="LLC_MAX_MODEL_BYTES is 1000"):
        adder(hub, store, limits=replace(LIMITS, max_bytes=1000)).add(ID)
    with pytest.raises(OutOfSpace, match="LLC_MIN_FREE_BYTES included"):
        adder(hub, store, limits=replace(LIMITS, min_free_bytes=2**60)).add(ID)
    assert left_in(store) == []
    assert hub.transfers(ONNX) == []


def test_a_full_disk_is_named_and_leaves_nothing_behind(hub: ModelHub, store: ModelStore) -> None:
    """A limit on the size of files stands for the disk: the same writes fail, with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    try:
        with pytest.raises(OutOfSpace, match=r"the disk of .* is full"):
            adder(hub, store).add(ID)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert left_in(store) == []
    assert adder(hub, store).add(ID).fetched


def test_of_two_processes_that_add_a_model_one_fetches_and_the_other_finds_it(
    hub: ModelHub, store: ModelStore
) -> None:
    """No file is sent before both have the listing, so both want to fetch it."""
    both = [threading.Event(), threading.Event()]
    hub.on_listing, hub.hold_files_until = both, both[1]
    script = (
        "import sys; from pathlib import Path; from core.tests.models.test_model_store import *;"
        "a = Adder(ModelStore(Path(sys.argv[2])), HubAddress(sys.argv[1]), READER, LIMITS, lambda *_: None);"
        f"print(a.add({ID!r}).fetched)"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, hub.url, str(store.root)],
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            text=True,
        )
        for _ in range(2)
    ]
    answers = sorted(process.communicate(timeout=60)[0].strip() for process in running)
    assert answers == ["False", "True"]
    assert len(hub.transfers(ONNX)) == 1


def test_who_waits_for_another_process_ends_at_the_deadline_with_its_number(
    hub: ModelHub, store: ModelStore
) -> None:
    waited: list[int] = []
    impatient = adder(hub, store, limits=replace(LIMITS, wait_seconds=0), on_wait=waited.append)
    with (
        store.locked(NAME, 1),
        pytest.raises(TimedOut, match=f"process {os.getpid()} still installs or removes {NAME}"),
    ):
        impatient.add(ID)
    assert waited == [os.getpid()]


def test_a_damaged_model_is_named_and_mended_by_fetching_only_what_differs(
    hub: ModelHub, store: ModelStore
) -> None:
    model = adder(hub, store).add(ID).model
    tokenizer = store.folder(model) / "tokenizer.json"
    tokenizer.write_bytes(b'{"model": []}')
    (damage,) = store.verify(model)
    assert damage.path == "tokenizer.json"
    assert "SHA-256" in damage.message
    result = adder(hub, store).add(ID)
    assert result.fetched
    assert store.verify(result.model) == []
    assert (len(hub.transfers("tokenizer.json")), len(hub.transfers(ONNX))) == (2, 1)


def test_verify_names_missing_files_links_and_strangers(
    hub: ModelHub, store: ModelStore, tmp_path: Path
) -> None:
    model = adder(hub, store).add(ID).model
    folder = store.folder(model)
    (tmp_path / "elsewhere.json").write_bytes(FILES["config.json"])
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(tmp_path / "elsewhere.json")
    (folder / "tokenizer.json").unlink()
    (folder / "custom_ops.so").write_bytes(b"")
    assert {damage.path: damage.message for damage in store.verify(model)} == {
        "config.json": f"cannot be read: {folder / 'config.json'} is a link",
        "tokenizer.json": "is missing",
        "custom_ops.so": "is not a file of this model",
    }


@pytest.mark.parametrize(
    "change",
    [
        {"files": [{"path": "../x.json", "size": 1, "sha256": "0" * 64}]},
        {"files": [{"path": "run.py", "size": 1, "sha256": "0" * 64}]},
        {"revision": "main"},
        {"name": "another"},
        {"format": 2},
    ],
)
def test_a_record_that_does_not_fit_its_folder_is_unreadable_and_not_trusted(
    hub: ModelHub, store: ModelStore, change: dict[str, Any]
) -> None:
    model = adder(hub, store).add(ID).model
    record = store.folder(model) / "model.json"
    record.write_text(json.dumps(json.loads(record.read_bytes()) | change))
    assert store.models() == []
    assert list(store.unreadable()) == [model.reference]


def test_the_folders_of_built_in_models_are_none_of_the_store(store: ModelStore) -> None:
    for variant in (minilm.FP32, minilm.INT8, multilingual.VARIANT):
        (store.root / f"{variant.version}-{variant.digest[:16]}").mkdir(parents=True)
    assert (store.models(), store.unreadable(), store.partial()) == ([], {}, [])


def test_a_removed_model_is_gone_and_an_unknown_one_is_named(
    hub: ModelHub, store: ModelStore
) -> None:
    model = adder(hub, store).add(ID).model
    with pytest.raises(NotFound, match=f"did you mean '{NAME}'"):
        store.find("tiny-embed-v1.6")
    store.remove(model)
    assert left_in(store) == []
    with pytest.raises(NotFound, match="latent models add <hub id> installs one"):
        store.find(NAME)


def test_what_an_interrupted_add_left_can_be_removed(hub: ModelHub, store: ModelStore) -> None:
    hub.faults[ONNX] = [Fault(status=503, times=99)]
    with pytest.raises(TimedOut):
        adder(hub, store).add(ID)
    (partial,) = store.partial()
    assert store.remove_partial(NAME)
    assert partial.reference.startswith(f"{NAME}@")
    assert left_in(store) == []


def test_a_name_belongs_to_one_repository(hub: ModelHub, store: ModelStore) -> None:
    hub.publish("other/tiny-embed-v1.5", FILES)
    adder(hub, store).add(ID)
    with pytest.raises(
        Conflict, match=f"{ID} is installed under the name {NAME}.*latent models remove"
    ):
        adder(hub, store).add("other/tiny-embed-v1.5")


def test_files_that_make_no_model_are_refused_and_leave_nothing(
    hub: ModelHub, store: ModelStore
) -> None:
    hub.publish(ID, {**FILES, "config.json": b'{"hidden_size": "many"}'})

    def refuse(_folder: Path, _precision: str | None) -> Facts:
        raise Invalid("config.json: hidden_size is no number")

    with pytest.raises(Invalid, match="hidden_size is no number"):
        adder(hub, store, reader=replace(READER, describe=refuse)).add(ID)
    assert left_in(store) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a/b/c",
        "../up",
        "a b",
        "acme/x@",
        "datasets--x",
        "acme/local",
        "acme/local-int8",
        "acme/nomic-embed-multimodal-7b",
        "acme/.x",
    ],
)
def test_what_names_no_model_of_a_hub_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_reference(text)


def test_offline_mode_contacts_no_hub(hub: ModelHub, store: ModelStore) -> None:
    with pytest.raises(Unavailable, match=r"HF_HUB_OFFLINE is set.*latent models export"):
        adder(hub, store, address=HubAddress(hub.url, offline=True)).add(ID)
    assert hub.requests == []


def test_a_hub_that_cannot_be_reached_and_one_that_is_none_are_named(
    store: ModelStore, hub: ModelHub
) -> None:
    with pytest.raises(
        ServiceUnreachable, match=r"cannot be reached \(ConnectError\).*HTTPS_PROXY"
    ):
        adder(hub, store, address=HubAddress("http://127.0.0.1:9")).add(ID)
    with pytest.raises(LatentError, match="check"):
        adder(hub, store, address=HubAddress(f"{hub.files_url}")).add(ID)


@pytest.mark.parametrize(
    "url", ["hub.example.com", "https://user:secret@hub.example.com", "file:///hub"]
)
def test_an_address_that_is_no_hub_is_named_without_its_credentials(
    store: ModelStore, url: str, hub: ModelHub
) -> None:
    with pytest.raises(Invalid, match="LLC_HUB_URL") as caught:
        adder(hub, store, address=HubAddress(url)).add(ID)
    assert "secret" not in str(caught.value)


def test_the_proxy_of_the_environment_is_used(
    hub: ModelHub, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that does not answer: nothing reaches the hub."""
    import huggingface_hub

    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    huggingface_hub.close_session()
    try:
        with pytest.raises(ServiceUnreachable, match="HTTPS_PROXY"):
            adder(hub, store).add(ID)
    finally:
        huggingface_hub.close_session()
    assert hub.requests == []


def test_the_token_is_in_no_log_and_nothing_is_sent_or_written_but_for_the_model(
    hub: ModelHub, store: ModelStore, tmp_path: Path
) -> None:
    """In a process of its own, with the library's debug log, whose home must stay empty."""
    home = tmp_path / "home"
    home.mkdir()
    hub.repositories[ID].gated = True
    script = (
        "import sys; from pathlib import Path; from pydantic import SecretStr;"
        "from core.tests.models.test_model_store import *; import logging; logging.basicConfig(level=logging.DEBUG);"
        "a = Adder(ModelStore(Path(sys.argv[2])), HubAddress(sys.argv[1], SecretStr(sys.argv[3])), READER, LIMITS,"
        f" lambda *_: None); print(a.add({ID!r}).fetched)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, hub.url, str(store.root), hub.token],
        env={"HOME": str(home), "HF_DEBUG": "1", "PYTHONPATH": str(REPOSITORY), "PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=REPOSITORY,
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert hub.token not in done.stderr
    assert list(home.rglob("*")) == []
    places = {
        one.path.partition("?")[0].split("/")[1] for one in hub.requests if one.server == "hub"
    }
    assert places == {"api", "Acme"}
    assert not any("agent-harnesses" in one.path for one in hub.requests)


Change = Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]


@pytest.fixture
def exported(hub: ModelHub, store: ModelStore, tmp_path: Path) -> Path:
    model = adder(hub, store).add(ID).model
    target = tmp_path / "tiny.model.tar"
    export_model(store, model, target, lambda _path, _done, _total: None)
    return target


def imported(source: Path, store: ModelStore, **changes: Any) -> AddResult:
    given: dict[str, Any] = {"reader": READER, "limits": LIMITS} | changes
    return import_model(store, source, given["reader"], given["limits"], lambda _p, _d, _t: None)


def test_an_exported_model_is_imported_without_a_hub_and_is_the_same(
    exported: Path, store: ModelStore, tmp_path: Path
) -> None:
    other = ModelStore(tmp_path / "other")
    result = imported(exported, other)
    assert result.fetched
    assert other.models() == store.models()
    assert other.verify(result.model) == []
    with tarfile.open(exported) as archive:
        assert archive.getnames()[0] == "model.json"
    assert imported(exported, other).fetched is False
    again = tmp_path / "again.tar"
    export_model(other, result.model, again, lambda _path, _done, _total: None)
    assert again.read_bytes() == exported.read_bytes()


GIVEN: Final = {"query": "query: ", "document": "passage: "}


def test_the_same_model_with_given_prompts_is_another_one_whose_files_are_not_fetched_again(
    hub: ModelHub, store: ModelStore
) -> None:
    plain = adder(hub, store).add(ID).model
    prompted = adder(hub, store, reader=replace(READER, prompts=GIVEN))
    first = prompted.add(ID)
    assert (first.fetched, prompted.add(ID).fetched) == (True, False)
    assert len(hub.transfers(ONNX)) == 1
    assert first.model.version.startswith(f"{plain.version}+prompts.")
    assert (first.model.prompts, plain.prompts_given) == (GIVEN, False)
    assert store.newest(NAME) == first.model
    assert store.of_version(first.model.version) == first.model
    assert store.verify(plain) == store.verify(first.model) == []
    assert adder(hub, store).add(ID).model == plain
    store.remove(plain)
    assert store.verify(first.model) == []
    other = replace(READER, prompts=GIVEN | {"document": ""})
    assert adder(hub, store, reader=other).add(ID).model.version != first.model.version


def test_given_prompts_go_with_an_exported_file(
    hub: ModelHub, store: ModelStore, tmp_path: Path
) -> None:
    model = adder(hub, store, reader=replace(READER, prompts=GIVEN)).add(ID).model
    target, other = tmp_path / "prompted.model.tar", ModelStore(tmp_path / "other")
    export_model(store, model, target, lambda _path, _done, _total: None)
    assert imported(target, other).model == model
    assert other.of_version(model.version) == model


def test_prompts_for_a_model_that_embeds_no_texts_are_refused(
    hub: ModelHub, store: ModelStore
) -> None:
    for kind, window in (("reranker", 64), ("image_embedder", None)):
        facts = Facts(8, kind=kind, window=window)  # type: ignore[arg-type]
        reader = replace(READER, describe=lambda _folder, _p, facts=facts: facts, prompts=GIVEN)  # type: ignore[misc]
        with pytest.raises(Invalid, match=r"embeds no texts.*leave out --query-prompt"):
            adder(hub, store, reader=reader).add(ID)
    assert left_in(store) == []


@pytest.mark.parametrize(
    "change",
    [
        {"prompts": {"query": "query: "}},
        {"prompts": {"query": "x" * 1001, "document": ""}},
        {"kind": "reranker"},
    ],
)
def test_a_record_with_prompts_that_cannot_be_given_is_not_trusted(
    hub: ModelHub, store: ModelStore, change: dict[str, Any]
) -> None:
    model = adder(hub, store, reader=replace(READER, prompts=GIVEN)).add(ID).model
    changed = model.model_dump(mode="json") | change
    with pytest.raises(Invalid, match="prompts"):
        parse_record(json.dumps(changed).encode(), "model.json")


def test_an_export_replaces_no_file_and_refuses_a_damaged_model(
    exported: Path, store: ModelStore
) -> None:
    (model,) = store.models()
    with pytest.raises(Conflict, match="exists"):
        export_model(store, model, exported, lambda _path, _done, _total: None)
    (store.folder(model) / "config.json").write_bytes(b"{}")
    with pytest.raises(Conflict, match=r"config\.json.*latent models add Acme/Tiny-Embed-v1\.5@"):
        export_model(store, model, exported.with_name("new.tar"), lambda _path, _done, _total: None)
    assert sorted(path.name for path in exported.parent.iterdir()) == ["models", "tiny.model.tar"]


def _alter(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    info, content = members[1]
    members[1] = info, bytes(len(content))


def _escape(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members[1][0].name = "../escaped.json"


def _link(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    info, _ = members[1]
    info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0
    members[1] = info, b""


def _hard_link(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    info, _ = members[1]
    info.type, info.linkname, info.size = tarfile.LNKTYPE, "model.json", 0
    members[1] = info, b""


def _extra(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members.append((tarfile.TarInfo("extra.json"), b""))


def _twice(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members.append(members[1])


def _missing(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    del members[2]


def _longer(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    info, content = members[1]
    info.size += 1
    members[1] = info, content + b" "


def _record_last(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members.append(members.pop(0))


def _in_record(old: bytes, new: bytes) -> Change:
    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        info, content = members[0]
        assert old in content
        content = content.replace(old, new)
        info.size = len(content)
        members[0] = info, content

    return change


def _record_escapes(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    info, content = members[0]
    content = content.replace(b'"config.json"', b'"../fig.json"')
    members[0] = info, content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_alter, "has the SHA-256"),
        (_escape, r"does not name the file '\.\./escaped\.json'"),
        (_link, "is no regular file"),
        (_hard_link, "is no regular file"),
        (_extra, "does not name the file"),
        (_twice, "comes twice"),
        (_missing, "is missing"),
        (_longer, "bytes, expected"),
        (_record_last, "does not begin with model.json"),
        (_record_escapes, "leaves its folder"),
        (_in_record(b'"revision": "', b'"revision": "../../..////'), "revision"),
        (_in_record(b'"hub_id": "', b'"hub_id": "x; touch owned; '), "hub_id"),
        (_in_record(b'"precision": "', b'"precision": "../'), "precision"),
        (_in_record(b'"dims": 8', b'"dims": -8'), "dims"),
    ],
)
def test_a_file_that_differs_from_its_record_is_not_imported_and_leaves_nothing(
    exported: Path, tmp_path: Path, change: Change, message: str
) -> None:
    with tarfile.open(exported) as archive:
        members = [(info, archive.extractfile(info).read()) for info in archive]  # type: ignore[union-attr]
    change(members)
    forged = tmp_path / "forged.tar"
    with tarfile.open(forged, "w", format=tarfile.GNU_FORMAT) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    other = ModelStore(tmp_path / "other")
    with pytest.raises(Invalid, match=message):
        imported(forged, other)
    assert not other.root.exists() or left_in(other) == []
    assert not (tmp_path / "escaped.json").exists()


def test_what_is_no_exported_model_is_not_imported(exported: Path, tmp_path: Path) -> None:
    other = ModelStore(tmp_path / "other")
    cut = tmp_path / "cut.tar"
    cut.write_bytes(exported.read_bytes()[:200_000])
    text = tmp_path / "text.tar"
    text.write_bytes(b"no archive" * 100)
    for source, message in (
        (cut, "ends too early"),
        (text, "no file of latent models export"),
        (tmp_path / "absent.tar", "cannot be read"),
    ):
        with pytest.raises(Invalid, match=message):
            imported(source, other)
    with pytest.raises(TooLarge, match="LLC_MAX_MODEL_BYTES"):
        imported(exported, other, limits=replace(LIMITS, max_bytes=1000))
    with pytest.raises(OutOfSpace, match="LLC_MIN_FREE_BYTES"):
        imported(exported, other, limits=replace(LIMITS, min_free_bytes=2**60))
    assert left_in(other) == []


def test_the_record_of_an_imported_model_must_agree_with_its_files(
    exported: Path, tmp_path: Path
) -> None:
    other = ModelStore(tmp_path / "other")
    with pytest.raises(
        Invalid,
        match=r"embedder with 8 dimensions in fp32, but the files are embedder with 9 in fp32",
    ):
        imported(exported, other, reader=FolderReader(needed, lambda _folder, _precision: Facts(9)))
    quantised = FolderReader(needed, lambda _folder, _precision: Facts(8, precision="int8"))
    with pytest.raises(Invalid, match=r"in fp32, but the files are .* in int8"):
        imported(exported, other, reader=quantised)
    assert left_in(other) == []


def test_quantised_weights_are_another_model_and_never_meant_by_the_name_alone(
    hub: ModelHub, store: ModelStore
) -> None:
    full = adder(hub, store).add(ID).model
    quantised = FolderReader(
        needed, lambda _folder, _precision: Facts(8, precision="int8"), precision="int8"
    )
    small = adder(hub, store, reader=quantised).add(ID).model
    assert small.version == f"{full.version}+int8"
    assert store.newest(NAME) == full
    assert store.of_version(small.version) == small
    assert store.find(small.reference) == store.find(f"{NAME}@+int8") == small
    assert store.find(full.reference) == full
    assert small.add_command == f"latent models add {ID}@{small.revision} --precision int8"
    assert adder(hub, store, reader=quantised).add(ID).fetched is False
