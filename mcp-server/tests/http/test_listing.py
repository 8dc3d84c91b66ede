"""What a listing asks for, and how much it deletes in how many transactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from latent_core.registry.listings import LastJob, Listed
from latent_core.wire.listing import ListedFile
from latent_gateway.api.listing import (
    DELETIONS_AT_ONCE,
    MOST_DELETIONS,
    Gone,
    Wanted,
    compare,
    deletions,
)

DOCUMENT = uuid4()
OLD, NEW = "0" * 64, "1" * 64
FILE = ListedFile(path="a.md", bytes=10, mtime_ns=1)
STORED = Listed(
    doc_id=DOCUMENT,
    live=True,
    sha256=OLD,
    bytes=10,
    mtime_ns=1,
    recipe="r",
    given_meta=None,
    has_original=True,
    job=None,
)
JOB = LastJob(
    job_id=7, open=True, refused=None, sha256=NEW, mtime_ns=2, recipe="r", given_meta=None
)


def wanted(file: ListedFile, stored: Listed | None) -> Wanted:
    known: dict[UUID, Listed] = {DOCUMENT: stored} if stored else {}
    return compare({DOCUMENT: file}, known, "r")


def verdict(file: ListedFile, stored: Listed | None) -> str:
    found = wanted(file, stored)
    told = {
        "need": len(found.need),
        "hash": len(found.unsure),
        "refused": len(found.refused),
        "same": found.unchanged,
    }
    assert sum(told.values()) == 1
    return next(name for name, count in told.items() if count)


@pytest.mark.parametrize(
    ("file", "stored", "said"),
    [
        ({}, {}, "same"),
        ({"bytes": 11}, {}, "need"),
        ({"mtime_ns": 2}, {}, "hash"),
        ({"mtime_ns": 2, "sha256": OLD}, {}, "same"),
        ({"mtime_ns": 2, "sha256": NEW}, {}, "need"),
        ({}, {"recipe": "older"}, "need"),
        ({}, {"recipe": None}, "need"),
        ({"meta_sha256": NEW}, {}, "need"),
        ({}, {"given_meta": NEW}, "need"),
        ({"meta_sha256": NEW}, {"given_meta": NEW}, "same"),
        ({}, {"live": False}, "need"),
        ({}, {"mtime_ns": None}, "hash"),
        ({}, {"has_original": False}, "need"),
    ],
)
def test_two_gates_and_what_passes_them_by(
    file: dict[str, Any], stored: dict[str, Any], said: str
) -> None:
    assert verdict(FILE.model_copy(update=file), replace(STORED, **stored)) == said


def test_what_is_not_stored_is_needed() -> None:
    assert verdict(FILE, None) == "need"


@pytest.mark.parametrize(
    ("file", "job", "said"),
    [
        ({"mtime_ns": 2}, {}, "same"),
        ({"mtime_ns": 1}, {}, "hash"),
        ({"mtime_ns": 3, "sha256": NEW}, {}, "same"),
        ({"mtime_ns": 3, "sha256": OLD}, {}, "need"),
        ({"mtime_ns": 3}, {"sha256": None}, "need"),
        ({"mtime_ns": 2, "meta_sha256": NEW}, {}, "need"),
        ({"mtime_ns": 2}, {"open": False, "refused": "it is broken"}, "refused"),
        ({"mtime_ns": 2}, {"open": False, "refused": "it is broken", "recipe": "older"}, "need"),
        ({"mtime_ns": 3, "sha256": OLD}, {"open": False, "refused": "it is broken"}, "need"),
        ({"mtime_ns": 2}, {"open": False}, "hash"),
    ],
)
def test_what_was_last_asked_for_counts_before_what_is_live(
    file: dict[str, Any], job: dict[str, Any], said: str
) -> None:
    stored = replace(STORED, job=replace(JOB, **job))
    assert verdict(FILE.model_copy(update=file), stored) == said


def test_a_job_that_is_open_is_named_so_that_it_can_be_waited_for() -> None:
    same = FILE.model_copy(update={"mtime_ns": 2})
    assert wanted(same, replace(STORED, job=JOB)).open_jobs == [7]


@pytest.mark.parametrize("vanished", [0, 1, 500, 501, 5000, 5001, 200_000])
def test_a_listing_deletes_a_bounded_number_in_bounded_transactions(vanished: int) -> None:
    gone = [Gone(DOCUMENT, f"file:///many/{n}") for n in range(vanished)]
    batches = list(deletions(gone))
    assert [one for batch in batches for one in batch] == gone[:MOST_DELETIONS]
    assert all(0 < len(batch) <= DELETIONS_AT_ONCE for batch in batches)
    assert len(batches) <= MOST_DELETIONS // DELETIONS_AT_ONCE
