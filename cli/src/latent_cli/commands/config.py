"""``latent config``"""

from __future__ import annotations

from latent_cli.options import Json, command_app
from latent_cli.output import answers, emit, table
from latent_core.runtime.setting_sources import shown_value, variables_of
from latent_core.settings import Settings, load_settings

app = command_app()


@app.command()
def config(as_json: Json = False) -> None:
    """Print the settings, each with the place that it comes from; secrets are masked.

    They come from the environment, then from `.env` in the current folder, then from defaults.
    """
    settings = load_settings()
    names = {key: variables_of(field)[0] for key, field in Settings.model_fields.items()}
    values = {name: shown_value(getattr(settings, key)) for key, name in names.items()}
    sources = {name: settings.origin_of(key).source.value for key, name in names.items()}
    if as_json:
        emit({"settings": values, "sources": sources, "gateway": settings.gateway_url})
        return
    rows = ((name, value, sources[name].replace("_", " ")) for name, value in values.items())
    answers().print(table(("SETTING", "VALUE", "FROM"), rows))
