"""Passwords of files while their jobs wait."""

from __future__ import annotations

import pytest
from cryptography import fernet

from latent_core.domain.errors import IngestFailed
from latent_core.ingest.password_seal import VALID_SECONDS, PasswordSeal, without_password

KEY = b"a signing key of the tests"
PASSWORD = "quiet-heron-päss"


def test_a_sealed_password_opens_with_the_same_key_and_shows_nothing() -> None:
    seal = PasswordSeal(KEY)
    sealed = seal.seal(PASSWORD)
    assert seal.open(sealed, "a.pdf") == PASSWORD
    assert PASSWORD not in sealed
    assert sealed != seal.seal(PASSWORD)


def test_another_key_or_a_changed_value_opens_nothing() -> None:
    sealed = PasswordSeal(KEY).seal(PASSWORD)
    for seal, value in ((PasswordSeal(b"another key of them"), sealed), (PasswordSeal(KEY), "x")):
        with pytest.raises(IngestFailed, match=r"password of 'a\.pdf' is no longer valid.*add"):
            seal.open(value, "a.pdf")


def test_a_password_is_valid_for_a_day_and_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    seal = PasswordSeal(KEY)
    sealed = seal.seal(PASSWORD)
    now = fernet.time.time()
    monkeypatch.setattr(fernet.time, "time", lambda: now + VALID_SECONDS - 60)
    assert seal.open(sealed, "a.pdf") == PASSWORD
    monkeypatch.setattr(fernet.time, "time", lambda: now + VALID_SECONDS + 60)
    with pytest.raises(IngestFailed, match="more than a day old"):
        seal.open(sealed, "a.pdf")


def test_only_the_password_leaves_a_payload() -> None:
    assert without_password({"sealed_password": "x", "uri": "u"}) == {"uri": "u"}
