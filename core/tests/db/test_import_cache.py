"""Packages that are not installed are looked for once."""

from __future__ import annotations

import importlib
import sys

import pytest

from latent_core.runtime.imports import remember_absent


def test_what_is_absent_is_not_searched_for_again_and_what_is_there_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    remember_absent(("no_such_package", "orjson"))
    monkeypatch.setattr(sys, "meta_path", [])
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        importlib.import_module("no_such_package")
    assert importlib.import_module("orjson").dumps([]) == b"[]"


def test_it_may_be_called_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    for _ in range(2):
        remember_absent(("no_such_package",))
    assert sys.modules["no_such_package"] is None
