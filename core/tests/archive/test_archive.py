"""Archives: what was written is read again, and what is damaged or made by others is refused by its place."""

from __future__ import annotations

import hashlib
import io
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import orjson
import pytest
from hypothesis import example, given, settings, strategies as st

from latent_core.domain.errors import Conflict, Invalid
from latent_core.domain.ids import content_hash, document_id
from latent_core.domain.manifest.model import Manifest
from latent_core.transfer import reader, verify
from latent_core.transfer.batches import ArchiveBatch, BlobFile, read_batches
from latent_core.transfer.records import HEADER, LINEAGE, MANIFEST, VerifiedArchive
from latent_core.transfer.verify import Verification
from latent_core.transfer.writer import ArchiveWriter, seal
from latent_core.transfer.zstd import ZstdCompressor, ZstdDecompressor
from tests.support.archives import header_of

DIMS: Final = 4
ZSTD_FRAME: Final = b"\x28\xb5\x2f\xfd"
NOW: Final = datetime(2026, 3, 1, tzinfo=UTC)
MANY: Final = settings(max_examples=150, deadline=None)


def header(**changes: object) -> bytes:
    made = header_of(Manifest(id="notes", name="Notes"))
    return orjson.dumps(made.model_dump(mode="json") | changes)


def document(n: int) -> bytes:
    uri = f"file:///{n}.md"
    absent = dict.fromkeys(
        ("fingerprint", "source_modified_at", "source_mtime_ns", "first_fetched_at")
    )
    known = {
        "doc_id": document_id("notes", uri),
        "uri": uri,
        "mime": "text/markdown",
        "source_type": "markdown",
        "title": f"{n}.md",
        "sha256": content_hash(uri),
        "bytes": 40,
        "language": "english",
        "fetched_at": NOW,
        "meta": {"n": n},
        "live_chunks": 1,
        "created_at": NOW,
    }
    return orjson.dumps({**absent, **known})


def chunk(n: int, **changes: object) -> bytes:
    text = f"lamp number {n}"
    return orjson.dumps(
        {
            "doc_id": document_id("notes", f"file:///{n}.md"),
            "n": n,
            "ordinal": 0,
            "modality": "text",
            "source_type": "markdown",
            "block_type": "paragraph",
            "text": text,
            "embed_text": text,
            "offset_start": 0,
            "offset_end": len(text),
            "content_hash": content_hash(text),
            "token_count": 3,
            "windows": 1,
            "tsv": "'lamp':1 'number':2",
            "length": 3,
            "provenance": dict.fromkeys(LINEAGE, "1"),
            "created_at": NOW,
            **changes,
        }
    )


def archive(tmp_path: Path, batches: int = 2) -> bytes:
    """An archive of one document a batch, each with a blob."""
    out = io.BytesIO()
    writer = ArchiveWriter(out)
    writer.add(HEADER, header())
    writer.add(MANIFEST, Manifest(id="notes", name="Notes").model_dump_json().encode())
    for n in range(batches):
        folder = f"batches/{n:06d}"
        data = f"original {n}".encode() * 40
        source = tmp_path / f"{n}"
        source.write_bytes(data)
        sha256 = content_hash(data.decode())
        writer.add_file(f"{folder}/blobs/{sha256}", source, sha256, len(data))
        writer.count("blobs")
        writer.add_lines(f"{folder}/documents.jsonl", "documents", [document(n)])
        writer.add_lines(f"{folder}/chunks-0000.jsonl", "chunks", [chunk(n)])
        vectors = np.full((1, DIMS), n, "<f4").tobytes()
        writer.add(f"{folder}/vectors-0000.f32", vectors)
        writer.count("vectors")
        writer.count("batches")
        writer.end_frame()
    writer.close()
    return out.getvalue()


def unpacked(data: bytes) -> bytes:
    """By the library's own function, frame by frame, as other tools do it."""
    plain = []
    while data.startswith(ZSTD_FRAME):
        frame = ZstdDecompressor()
        plain.append(frame.decompress(data))
        assert frame.eof
        data = frame.unused_data
    return b"".join(plain)


def sealed(plain: bytes) -> bytes:
    """Packed by somebody who knows how a file must end."""
    packed = ZstdCompressor().compress(plain, ZstdCompressor.FLUSH_FRAME)
    return packed + seal(hashlib.sha256(packed).digest())


def read(data: bytes) -> VerifiedArchive:
    *_, last = Verification(io.BytesIO(data)).steps()
    assert last is not None
    return last


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return archive(tmp_path_factory.mktemp("archive"))


def test_what_was_written_is_verified_and_read_again_batch_by_batch(
    whole: bytes, tmp_path: Path
) -> None:
    contents = read(whole)
    assert contents.manifest.id == "notes"
    assert contents.totals.model_dump() == {
        "documents": 2,
        "chunks": 2,
        "pages": 0,
        "vectors": 2,
        "blobs": 2,
        "batches": 2,
    }
    events = list(read_batches(io.BytesIO(whole), DIMS, tmp_path, first=0))
    assert [type(e) for e in events] == [BlobFile, ArchiveBatch, BlobFile, ArchiveBatch]
    texts = [
        c.text for e in events if isinstance(e, ArchiveBatch) for p in e.parts for c in p.chunks
    ]
    assert texts == ["lamp number 0", "lamp number 1"]
    rest = list(read_batches(io.BytesIO(whole), DIMS, tmp_path, first=1))
    assert [e.number for e in rest if isinstance(e, ArchiveBatch)] == [1]
    blobs = [e.sha256 for e in rest if isinstance(e, BlobFile)]
    assert blobs == [e.sha256 for e in events if isinstance(e, BlobFile)]


def test_a_standard_tool_can_unpack_it(whole: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(unpacked(whole)), mode="r:") as tar:
        assert tar.getnames()[:2] == [HEADER, MANIFEST]
        assert tar.getnames()[-1] == "COMPLETE"


@MANY
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused_with_the_place(whole: bytes, share: float) -> None:
    with pytest.raises(Invalid, match=r"byte \d+ of its contents"):
        read(whole[: int(share * len(whole))])


@MANY
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@example(place=0.0, bit=0)
def test_a_flipped_bit_is_refused_wherever_it_is(whole: bytes, place: float, bit: int) -> None:
    damaged = bytearray(whole)
    damaged[int(place * len(whole))] ^= 1 << bit
    with pytest.raises(Invalid, match="cannot be imported"):
        read(bytes(damaged))


@MANY
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_change_that_the_compression_does_not_notice_is_found_by_the_hashes(
    whole: bytes, place: float, bit: int
) -> None:
    plain = bytearray(unpacked(whole))
    start = 512  # header fields of a tar may vary without a change of what they say
    end = len(plain) - 2 * 512
    at = start + int(place * (end - start))
    if not plain[at]:
        return  # padding
    plain[at] ^= 1 << bit
    packed = sealed(bytes(plain))
    try:
        contents = read(packed)
    except Invalid:
        return
    assert contents == read(whole)  # of a member's head: its mode, which nobody reads


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for info, data in members:
            info.size = len(data) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(data))
    return sealed(out.getvalue())


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "evil",
    [
        member("../../etc/cron.d/evil"),
        member("/etc/passwd"),
        member(MANIFEST, tarfile.SYMTYPE, "/etc/passwd"),
        member(MANIFEST, tarfile.LNKTYPE, HEADER),
        member("batches/000000/blobs/../../../x"),
        member("x" * 300),
        member("dev", tarfile.CHRTYPE),
    ],
    ids=lambda info: info.name[:20],
)
def test_names_and_kinds_that_an_archive_does_not_have_are_refused(evil: tarfile.TarInfo) -> None:
    with pytest.raises(Invalid, match=r"an archive cannot contain|header of a member is expected"):
        read(tar_of((member(HEADER), header()), (evil, b"evil")))


def test_a_member_larger_than_it_may_be_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verify, "MAX_SMALL", 100)
    with pytest.raises(Invalid, match="the limit is 100"):
        read(tar_of((member(HEADER), header())))


def test_a_file_that_unfolds_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FREE_OF_RATIO", 10_000)
    bomb = member(f"batches/000000/blobs/{'0' * 64}")
    manifest = Manifest(id="notes", name="Notes").model_dump_json().encode()
    data = tar_of(
        (member(HEADER), header()), (member(MANIFEST), manifest), (bomb, bytes(50_000_000))
    )
    with pytest.raises(Invalid, match="unpacks to more than"):
        read(data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 3}, "version is 3"),
        ({"format": "other"}, "not an exported container"),
        ({"space": None}, "header is invalid"),
    ],
)
def test_a_header_that_is_not_understood_is_refused_by_name(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(Invalid, match=message):
        read(tar_of((member(HEADER), header(**changes))))


def test_bytes_after_the_end_are_refused(whole: bytes) -> None:
    with pytest.raises(Invalid, match="follow"):
        read(sealed(unpacked(whole) + b"more"))


def test_a_blob_that_is_damaged_in_the_store_is_not_exported(tmp_path: Path) -> None:
    file = tmp_path / "blob"
    file.write_bytes(b"other")
    writer = ArchiveWriter(io.BytesIO())
    with pytest.raises(Conflict, match="damaged in the store"):
        writer.add_file("batches/000000/blobs/x", file, content_hash("lamps"), 5)


@pytest.mark.parametrize("lacking", LINEAGE)
def test_a_chunk_without_its_lineage_is_refused_with_its_line(lacking: str, tmp_path: Path) -> None:
    out = io.BytesIO()
    writer = ArchiveWriter(out)
    lineage = {key: "1" for key in LINEAGE if key != lacking}
    records = [chunk(0), chunk(1, provenance=lineage)]
    writer.add_lines("batches/000000/chunks-0000.jsonl", "chunks", records)
    writer.close()
    with pytest.raises(Invalid, match=f"line 2 .*provenance: .*{lacking}"):
        list(read_batches(out, DIMS, tmp_path, first=0))
