"""Settings as they are in force, each with the place that it comes from; secrets are masked."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pydantic import AliasChoices, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, DotEnvSettingsSource, EnvSettingsSource
from typing_extensions import override

from latent_core.runtime.secret_files import SUFFIX

MASK: Final = "********"
_USERINFO: Final = re.compile(r"(?<=://)[^/@\s]+@")


class SettingSource(StrEnum):
    """Where the value of a setting comes from."""

    DEFAULT = "default"
    ENVIRONMENT = "environment"
    ENV_FILE = "env_file"
    """``.env`` in the folder where the process started."""
    SECRET_FILE = "secret_file"
    """The file that ``<NAME>_FILE`` names."""
    ARGUMENT = "argument"
    """An option of the command that started the process."""


class SettingOrigin(NamedTuple):
    source: SettingSource
    variable: str | None
    """The variable that was read; None for defaults and arguments."""


class SettingOrigins:
    """The origin of each field of some settings, read from this process's environment and ``.env``. Secrets leave the
    environment after the start, so it is read when the settings are."""

    def __init__(
        self, settings: type[BaseSettings] | None = None, given: Collection[str] = ()
    ) -> None:
        self._by_field: dict[str, SettingOrigin] = {}
        if settings is None or not given:
            return
        environment = _variables(EnvSettingsSource(settings).env_vars)
        env_file = _variables(DotEnvSettingsSource(settings).env_vars)
        self._by_field = {
            name: _origin(variables_of(field), environment, env_file)
            for name, field in settings.model_fields.items()
            if name in given
        }

    def of(self, field: str) -> SettingOrigin:
        return self._by_field.get(field, SettingOrigin(SettingSource.DEFAULT, None))

    def note_arguments(self, fields: Iterable[str]) -> None:
        """Arguments override the environment."""
        argument = SettingOrigin(SettingSource.ARGUMENT, None)
        self._by_field |= dict.fromkeys(fields, argument)

    @override
    def __eq__(self, other: object) -> bool:
        """Settings are equal if their values are, wherever these come from."""
        return isinstance(other, SettingOrigins)

    @override
    def __hash__(self) -> int:
        return hash(SettingOrigins)


def variables_of(field: FieldInfo) -> tuple[str, ...]:
    """The environment variables of a field, the main one first."""
    choices = field.validation_alias
    return tuple(str(name) for name in choices.choices) if isinstance(choices, AliasChoices) else ()


def shown_value(value: Any) -> str | int | float | bool | None:
    """A value as JSON, with secrets masked."""
    match value:
        case SecretStr():
            return MASK
        case tuple():
            return ":".join(str(part) for part in value)
        case None | bool() | int() | float():
            return value
    return _USERINFO.sub(f"{MASK}@", str(value))


def _variables(found: Mapping[str, str | None]) -> set[str]:
    return {name.upper() for name, value in found.items() if value}


def _origin(
    names: tuple[str, ...], environment: Collection[str], env_file: Collection[str]
) -> SettingOrigin:
    for source, present in (
        (SettingSource.ENVIRONMENT, environment),
        (SettingSource.ENV_FILE, env_file),
    ):
        for name in names:
            if name in present:
                return SettingOrigin(source, name)
    for name in names:
        if name + SUFFIX in environment or name + SUFFIX in env_file:
            return SettingOrigin(SettingSource.SECRET_FILE, name + SUFFIX)
    return SettingOrigin(SettingSource.ARGUMENT, None)
