"""What a listing asks for, and how much it deletes in how many transactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from latent_core.db.documents.folder_listings import LastJob, StoredFile
from latent_core.domain.versions import ending
from latent_core.wire.documents import ListedFile
from latent_gateway.api.listing import ListingComparison, compare
from latent_gateway.deletions import (
    DELETIONS_AT_ONCE,
    MAX_DELETIONS,
    VanishedDocument,
    deletions,
)

DOCUMENT = uuid4()
OLD, NEW = "0" * 64, "1" * 64
FILE = ListedFile(path="a.md", bytes=10, mtime_ns=1)
STORED = StoredFile(
    doc_id=DOCUMENT,
    live=True,
    sha256=OLD,
    bytes=10,
    mtime_ns=1,
    source_type="markdown",
    recipe="r",
    given_meta=None,
    has_original=True,
    job=None,
)
JOB = LastJob(
    job_id=7, open=True, refused=None, sha256=NEW, mtime_ns=2, recipe="r", given_meta=None
)


def compare_one(file: ListedFile, stored: StoredFile | None) -> ListingComparison:
    known: dict[UUID, StoredFile] = {DOCUMENT: stored} if stored else {}
    return compare({DOCUMENT: file}, known, "r")


def verdict(file: ListedFile, stored: StoredFile | None) -> str:
    found = compare_one(file, stored)
    summary = {
        "need": len(found.need),
        "hash": len(found.unsure),
        "refused": len(found.refused),
        "same": found.unchanged,
    }
    assert sum(summary.values()) == 1
    return next(name for name, count in summary.items() if count)


@pytest.mark.parametrize(
    ("file", "stored", "message"),
    [
        ({}, {}, "same"),
        ({"bytes": 11}, {}, "need"),
        ({"mtime_ns": 2}, {}, "hash"),
        ({"mtime_ns": 2, "sha256": OLD}, {}, "same"),
        ({"mtime_ns": 2, "sha256": NEW}, {}, "need"),
        ({"mtime_ns": 1, "sha256": OLD}, {}, "same"),
        ({"mtime_ns": 1, "sha256": NEW}, {}, "need"),
        ({}, {"recipe": "older"}, "need"),
        ({}, {"recipe": None}, "need"),
        ({}, {"source_type": "code", "recipe": "r"}, "need"),
        ({}, {"source_type": "code", "recipe": f"r{ending('code')}"}, "same"),
        ({"meta_sha256": NEW}, {}, "need"),
        ({}, {"given_meta": NEW}, "need"),
        ({"meta_sha256": NEW}, {"given_meta": NEW}, "same"),
        ({}, {"live": False}, "need"),
        ({}, {"mtime_ns": None}, "hash"),
        ({}, {"has_original": False}, "need"),
    ],
)
def test_two_gates_and_what_passes_them_by(
    file: dict[str, Any], stored: dict[str, Any], message: str
) -> None:
    assert verdict(FILE.model_copy(update=file), replace(STORED, **stored)) == message


def test_what_is_not_stored_is_needed() -> None:
    assert verdict(FILE, None) == "need"


@pytest.mark.parametrize(
    ("file", "job", "message"),
    [
        ({"mtime_ns": 2}, {}, "same"),
        ({"mtime_ns": 1}, {}, "hash"),
        ({"mtime_ns": 3, "sha256": NEW}, {}, "same"),
        ({"mtime_ns": 3, "sha256": OLD}, {}, "need"),
        ({"mtime_ns": 2, "sha256": OLD}, {}, "need"),
        ({"mtime_ns": 3}, {"sha256": None}, "need"),
        ({"mtime_ns": 2, "meta_sha256": NEW}, {}, "need"),
        ({"mtime_ns": 2}, {"open": False, "refused": "it is broken"}, "refused"),
        ({"mtime_ns": 2}, {"open": False, "refused": "it is broken", "recipe": "older"}, "need"),
        ({"mtime_ns": 3, "sha256": OLD}, {"open": False, "refused": "it is broken"}, "need"),
        ({"mtime_ns": 2}, {"open": False}, "hash"),
    ],
)
def test_the_last_request_counts_before_the_live_document(
    file: dict[str, Any], job: dict[str, Any], message: str
) -> None:
    stored = replace(STORED, job=replace(JOB, **job))
    assert verdict(FILE.model_copy(update=file), stored) == message


def test_a_job_that_is_open_is_named_so_that_it_can_be_waited_for() -> None:
    same = FILE.model_copy(update={"mtime_ns": 2})
    assert compare_one(same, replace(STORED, job=JOB)).open_jobs == [7]


@pytest.mark.parametrize("vanished", [0, 1, 500, 501, 5000, 5001, 200_000])
def test_a_listing_deletes_a_bounded_number_in_bounded_transactions(vanished: int) -> None:
    gone = [VanishedDocument(DOCUMENT, f"file:///many/{n}") for n in range(vanished)]
    batches = list(deletions(gone))
    assert [one for batch in batches for one in batch] == gone[:MAX_DELETIONS]
    assert all(0 < len(batch) <= DELETIONS_AT_ONCE for batch in batches)
    assert len(batches) <= MAX_DELETIONS // DELETIONS_AT_ONCE
