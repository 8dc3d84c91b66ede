"""Signed links: what was signed is let in until it expires, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from latent_core.blobs.signing import MAX_SECONDS, Signer
from latent_core.domain.errors import Forbidden, Invalid

NOW = 1_700_000_000
SHA = "ab" * 32
KEY = b"a key of at least sixteen bytes"
FIELDS: dict[str, Any] = {"mime": "image/webp", "disposition": "inline", "filename": "page 1.webp"}


class Clock:
    def __init__(self) -> None:
        self.now: float = NOW

    def __call__(self) -> float:
        return self.now


def signer(clock: Clock | None = None, key: bytes = KEY) -> Signer:
    return Signer(key, clock=clock or Clock())


def check(signer: Signer, query: dict[str, str], sha256: str = SHA) -> None:
    """As the gateway does, from the query of a link."""
    signer.verify(
        sha256,
        exp=int(query["exp"]),
        sig=query["sig"],
        mime=query["type"],
        disposition=query["disposition"],
        filename=query["filename"],
        bucket=query.get("bucket", ""),
    )


def test_a_signed_link_is_let_in() -> None:
    check(signer(), signer().sign(SHA, expires_at=NOW + 60, **FIELDS))


def test_all_with_the_same_key_agree() -> None:
    check(signer(), signer().sign(SHA, expires_at=NOW + 60, **FIELDS))
    with pytest.raises(Forbidden):
        check(signer(key=KEY + b"!"), signer().sign(SHA, expires_at=NOW + 60, **FIELDS))


def test_a_link_leads_to_the_bucket_that_was_signed() -> None:
    query = signer().sign(SHA, expires_at=NOW + 60, bucket="theirs", **FIELDS)
    check(signer(), query)
    own = signer().sign(SHA, expires_at=NOW + 60, **FIELDS)
    assert "bucket" not in own
    for changed in (
        query | {"bucket": "others"},
        query | {"bucket": ""},
        own | {"bucket": "theirs"},
    ):
        with pytest.raises(Forbidden, match="not valid"):
            check(signer(), changed)


def test_a_link_expires() -> None:
    clock = Clock()
    query = signer(clock).sign(SHA, expires_at=NOW + 60, **FIELDS)
    clock.now = NOW + 60
    check(signer(clock), query)
    clock.now = NOW + 60.5
    with pytest.raises(Forbidden, match="expired"):
        check(signer(clock), query)


def test_no_link_lives_longer_than_five_minutes() -> None:
    query = signer().sign(SHA, expires_at=NOW + 86_400, **FIELDS)
    assert int(query["exp"]) == NOW + MAX_SECONDS == NOW + 300


@pytest.mark.parametrize("field", ["exp", "type", "disposition", "filename", "sig"])
def test_no_field_can_be_changed(field: str) -> None:
    query = signer().sign(SHA, expires_at=NOW + 60, **FIELDS)
    changed = query | {field: query[field] + ("0" if field == "exp" else "x")}
    with pytest.raises(Forbidden):
        check(signer(), changed)


def test_a_link_opens_its_own_blob_only() -> None:
    query = signer().sign(SHA, expires_at=NOW + 60, **FIELDS)
    with pytest.raises(Forbidden):
        check(signer(), query, "cd" * 32)


@pytest.mark.parametrize("sig", ["", "é", "\ud800", "0" * 64, "A" * 1000])
def test_a_signature_of_any_shape_is_judged_quietly(sig: str) -> None:
    query = signer().sign(SHA, expires_at=NOW + 60, **FIELDS) | {"sig": sig}
    with pytest.raises(Forbidden):
        check(signer(), query)


@settings(max_examples=200)
@given(
    st.lists(st.text(max_size=6), min_size=3, max_size=3), st.integers(0, 12), st.integers(0, 12)
)
def test_fields_cannot_run_into_each_other(fields: list[str], first: int, second: int) -> None:
    """The same characters with other borders between the fields are another link."""
    whole = "".join(fields)
    first, second = sorted((min(first, len(whole)), min(second, len(whole))))
    other = [whole[:first], whole[first:second], whole[second:]]
    query = signer().sign(
        SHA, expires_at=NOW + 60, mime=fields[0], disposition=fields[1], filename=fields[2]
    )
    moved = query | dict(zip(("type", "disposition", "filename"), other, strict=True))
    if other == fields:
        check(signer(), moved)
    else:
        with pytest.raises(Forbidden):
            check(signer(), moved)


def test_a_key_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(Invalid, match="LLC_SIGNING_KEY"):
        Signer(b"short")
