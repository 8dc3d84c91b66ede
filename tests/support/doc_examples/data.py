"""Data of an example: manifests, settings, JSON and golden queries, read by the code that reads the user's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import yaml
from pydantic import ValidationError

from latent_core.domain.errors import Invalid
from latent_core.domain.golden import parse_golden
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.manifest.yaml_reader import read_manifest
from latent_core.models.providers.entry import ProvidersFile, read_providers
from latent_core.settings import Settings, setting_names, unknown_variables
from tests.support import REPOSITORY
from tests.support.doc_examples.pages import Example

VARIABLE: Final = re.compile(r"\bLLC_[A-Z0-9_]*[A-Z0-9]\b(?!_?…)")
ASSIGNMENT: Final = re.compile(r"(?:export )?([A-Z][A-Z0-9_]*)=(.*)")
OF_COMPOSE: Final = frozenset(
    re.findall(
        r"\b[A-Z][A-Z0-9_]+\b",
        (REPOSITORY / "docker-compose.yml").read_text("utf-8")
        + "".join(file.read_text("utf-8") for file in (REPOSITORY / "docker").glob("*.yml")),
    )
)


def variable_problems(text: str) -> list[str]:
    """Unknown settings that a text names."""
    named = set(VARIABLE.findall(text)) - OF_COMPOSE
    return [f"no setting {name}" for name in unknown_variables(sorted(named))]


def settings_of(text: str) -> dict[str, str]:
    """The variables of a block in the syntax of ``.env``."""
    lines = [line.partition(" #")[0].strip() for line in text.splitlines()]
    found = [ASSIGNMENT.fullmatch(line) for line in lines if line and not line.startswith("#")]
    if None in found:
        raise ValueError("a line is not NAME=value")
    return {match[1]: match[2].strip() for match in found if match is not None}


def read_settings(text: str) -> Settings:
    """Settings by a block alone; values of secret files are not read."""
    known = {name for names in setting_names().values() for name in names}
    given = {name: value for name, value in settings_of(text).items() if name in known}
    return Settings(_env_file=None, **given)  # type: ignore[arg-type]


def env_problems(text: str) -> list[str]:
    try:
        names = settings_of(text)
        read_settings(text)
    except ValidationError as error:
        return [f"{one['loc'][0]}: {one['msg']}" for one in error.errors()]
    except ValueError as error:
        return [str(error)]
    known = {name for several in setting_names().values() for name in several} | OF_COMPOSE
    others = [name for name in names if not name.startswith("LLC_") and name not in known]
    return [*variable_problems("\n".join(names)), *(f"no setting {name}" for name in others)]


def yaml_problems(text: str) -> list[str]:
    """A manifest, a part of one, or a file of compose."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return [f"not YAML: {error}"]
    if not isinstance(data, dict):
        return ["neither a manifest nor a file of compose"]
    if is_providers(text):
        try:
            ProvidersFile.model_validate(data)
        except ValidationError as error:
            return [f"{one['loc']}: {one['msg']}" for one in error.errors()]
        return []
    if "services" in data:
        return [f"there is no service {name}" for name in data["services"] if not _is_service(name)]
    whole = text if "id" in data else f"id: example\nname: Example\n{text}"
    try:
        read_manifest(whole)
    except Invalid as error:
        return [error.message]
    return []


def _is_service(name: str) -> bool:
    stack = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text("utf-8"))
    return name in stack["services"]


def json_problems(text: str) -> list[str]:
    try:
        data: Any = orjson.loads(text)
    except ValueError as error:
        return [f"not JSON: {error}"]
    if isinstance(data, dict) and "queries" in data:
        try:
            parse_golden(data)
        except Invalid as error:
            return [error.message]
    return []


@dataclass(frozen=True, slots=True)
class EmbedderExample:
    """A manifest with the settings or the file of providers before it."""

    manifest: Manifest
    settings: Settings
    providers: str | None = None

    def settings_in(self, folder: Path) -> Settings:
        """The settings, with the file in ``folder`` and a key in each file that it names."""
        if self.providers is None:
            return self.settings
        file = folder / "providers.yaml"
        file.write_text(self.providers, encoding="utf-8")
        for entry in read_providers(file):
            if entry.key_file is not None:
                entry.key_file.parent.mkdir(exist_ok=True)
                entry.key_file.write_text("a-key", encoding="utf-8")
        return self.settings.model_copy(update={"providers": file})


def embedders_in(blocks: Iterable[Example]) -> Iterator[EmbedderExample]:
    """Manifests with a model of a provider that follow settings or a file of providers."""
    return (one for one in manifests_in(blocks) if "/" in one.manifest.embedder)


def manifests_in(blocks: Iterable[Example]) -> Iterator[EmbedderExample]:
    """All manifests that follow settings or a file of providers."""
    settings: Settings | None = None
    providers: str | None = None
    for block in blocks:
        if block.language == "env":
            settings, providers = read_settings(block.text), None
        elif block.language == "yaml" and is_providers(block.text):
            settings, providers = Settings(_env_file=None), block.text
        elif block.language == "yaml" and settings is not None:
            yield EmbedderExample(read_manifest(block.text), settings, providers)


def is_providers(text: str) -> bool:
    return text.startswith("providers:")
