"""The types that a sync skips are those without a parser."""

from __future__ import annotations

from latent_core.domain.unread import UNREAD_TYPES, unread_type
from latent_workers.parse.signatures import EXTENSIONS


def test_no_type_with_a_parser_is_skipped() -> None:
    assert set(UNREAD_TYPES) & set(EXTENSIONS) == set()


def test_a_type_is_known_by_the_suffix_alone() -> None:
    names = ["A.MP3", "a.b/c.zip", ".zip", "zip", "a.zip/b", "a.md", "a."]
    assert [unread_type(name) for name in names] == ["MP3", "ZIP", None, None, None, None, None]
