"""``latent config``"""

from __future__ import annotations

import re
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from latent_cli.options import Json, command_app
from latent_cli.output import answers, emit, table
from latent_core.settings import Settings, load_settings

app = command_app()

MASK = "********"
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")


@app.command()
def config(as_json: Json = False) -> None:
    """Print the settings, with secrets masked.

    They come from the environment, then from `.env` in the current folder, then from defaults.
    """
    settings = load_settings()
    values = {
        name_of(field): shown(getattr(settings, key))
        for key, field in Settings.model_fields.items()
    }
    if as_json:
        emit({"settings": values, "gateway": settings.gateway_url})
        return
    answers().print(table(("SETTING", "VALUE"), values.items()))


def name_of(field: FieldInfo) -> str:
    """The environment variable of a field: the first of its aliases."""
    choices: Any = field.validation_alias
    return str(choices.choices[0])


def shown(value: Any) -> Any:
    """A value as JSON, with secrets masked."""
    match value:
        case SecretStr():
            return MASK
        case tuple():
            return ":".join(str(part) for part in value)
        case None | bool() | int() | float():
            return value
    return _USERINFO.sub(f"{MASK}@", str(value))
