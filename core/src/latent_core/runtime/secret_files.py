"""Secrets from files: ``<NAME>_FILE`` names a file with the value of ``<NAME>``, as container platforms provide them.

Users who may inspect a process or its configuration see its variables, but not a mounted file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import AliasChoices, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
)
from typing_extensions import override

from latent_core.domain.errors import Invalid

SUFFIX: Final = "_FILE"
MAX_BYTES: Final = 16 * 1024
MAY_BE_EMPTY: Final = frozenset({"LLC_EMBED_API_KEY", "LLC_RERANK_API_KEY", "LLC_OTEL_HEADERS"})
"""Secrets of services that may need none: an empty file means unset. An empty file for any other secret is an error,
since the process would then run unprotected or use another service than intended."""


class SecretFiles(PydanticBaseSettingsSource):
    """Reads the files that the environment or ``.env`` names; ``Invalid`` names one that cannot be read."""

    @override
    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError  # abstract in the base class; all fields are read at once

    @override
    def __call__(self) -> dict[str, Any]:
        given = _given(self.settings_cls)
        found: dict[str, Any] = {}
        for names in secrets_of(self.settings_cls):
            named = [name for name in names if given.get(name + SUFFIX)]
            if not named:
                continue
            both = [name for name in names if given.get(name)]
            if both or len(named) > 1:
                several = ", ".join([*both, *(name + SUFFIX for name in named)])
                raise Invalid(f"{several} set the same secret: keep one of them")
            secret = _content(named[0] + SUFFIX, Path(given[named[0] + SUFFIX]))
            if secret:
                found[names[0]] = secret
            elif names[0] not in MAY_BE_EMPTY:
                raise Invalid(f"{named[0]}{SUFFIX}: the file must contain one secret, but is empty")
        return found


def forget_secrets(settings: type[BaseSettings]) -> None:
    """Remove secrets from this process's environment after reading them, so that no child inherits them."""
    for names in secrets_of(settings):
        for name in names:
            os.environ.pop(name, None)  # noqa: TID251 - removed, not read


def secrets_of(settings: type[BaseSettings]) -> list[tuple[str, ...]]:
    """The variables of each secret of ``settings``, its main name first."""
    return [_names(field) for field in settings.model_fields.values() if is_secret(field)]


def secrets_in(settings: BaseSettings) -> list[SecretStr]:
    """The values of all secrets in ``settings``."""
    fields = type(settings).model_fields
    held = [getattr(settings, key) for key, field in fields.items() if is_secret(field)]
    return [secret for secret in held if secret is not None]


def file_variables(settings: type[BaseSettings]) -> set[str]:
    """Every variable that may name a file."""
    return {name + SUFFIX for names in secrets_of(settings) for name in names}


def is_secret(field: FieldInfo) -> bool:
    """Whether the value of a field must not be shown."""
    return field.annotation is SecretStr or SecretStr in get_args(field.annotation)


def _names(field: FieldInfo) -> tuple[str, ...]:
    choices = field.validation_alias
    return tuple(str(name) for name in choices.choices) if isinstance(choices, AliasChoices) else ()


def _given(settings: type[BaseSettings]) -> dict[str, str]:
    """Variables as the settings read them: the environment overrides ``.env``."""
    both = {**DotEnvSettingsSource(settings).env_vars, **EnvSettingsSource(settings).env_vars}
    return {name.upper(): value for name, value in both.items() if value}


def _content(variable: str, file: Path) -> str:
    try:
        with file.expanduser().open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        secret = content.decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise Invalid(f"{variable}: {file} cannot be read: {exc}") from exc
    if len(content) > MAX_BYTES:
        raise Invalid(f"{variable}: {file} must contain one secret, but has {len(content)} bytes")
    return secret
