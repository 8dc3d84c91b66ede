"""Secrets by file: every secret may come so, none from two places, and what cannot be read is said by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from latent_core.domain.errors import Invalid
from latent_core.runtime.secret_files import MAY_BE_EMPTY, file_variables, secrets_of
from latent_core.settings import Settings, load_settings, setting_names, unknown_variables

SECRETS = secrets_of(Settings)


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for names in setting_names().values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(f"{name}_FILE", raising=False)


def test_every_token_key_and_dsn_is_a_secret() -> None:
    secret = {names[0] for names in SECRETS}
    assert {"LLC_MCP_TOKEN", "LLC_SIGNING_KEY", "LLC_POSTGRES_DSN", "LLC_EMBED_API_KEY"} <= secret
    for key, names in setting_names().items():
        if key.endswith(("_key", "_token", "_dsn", "_password")):
            assert names in SECRETS, f"{key} is printed by `latent config`"


@pytest.mark.parametrize("names", SECRETS, ids=lambda names: names[0])
def test_a_secret_comes_from_the_file_that_a_variable_names(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = next(key for key, given in setting_names().items() if given == names)
    for name in names:
        file = tmp_path / name
        file.write_text(f"from the file of {name}\n", encoding="utf-8")
        with monkeypatch.context() as patched:
            patched.setenv(f"{name}_FILE", str(file))
            value = getattr(load_settings(), key)
        assert isinstance(value, SecretStr)
        assert value.get_secret_value() == f"from the file of {name}"
    assert unknown_variables(f"{name}_FILE" for name in names) == []


def test_the_file_of_dotenv_counts_as_well(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("owner", encoding="utf-8")
    (tmp_path / ".env").write_text(f"LLC_MCP_TOKEN_FILE={tmp_path / 'token'}\n", encoding="utf-8")
    token = load_settings().mcp_token
    assert token is not None
    assert token.get_secret_value() == "owner"


def test_two_places_for_one_secret_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("owner", encoding="utf-8")
    monkeypatch.setenv("LLC_MCP_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("MCP_TOKEN", "another")
    with pytest.raises(Invalid, match=r"MCP_TOKEN, LLC_MCP_TOKEN_FILE"):
        load_settings()


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe", b"x" * 20_000])
def test_a_file_without_exactly_one_secret_is_refused_and_its_content_not_shown(
    content: bytes | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    monkeypatch.setenv("LLC_MCP_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(Invalid, match="LLC_MCP_TOKEN_FILE") as refused:
        load_settings()
    assert "xxxx" not in refused.value.message


@pytest.mark.parametrize("content", [b"", b" \n"])
def test_an_empty_file_for_the_key_of_a_service_that_may_want_none_is_none(
    content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_bytes(content)
    for name in MAY_BE_EMPTY:
        monkeypatch.setenv(f"{name}_FILE", str(tmp_path / "key"))
    settings = load_settings()
    assert (settings.embed_api_key, settings.rerank_api_key) == (None, None)


def test_what_is_no_secret_is_not_read_from_files() -> None:
    assert "LLC_PORT_FILE" not in file_variables(Settings)
    assert unknown_variables(["LLC_PORT_FILE"]) != []
