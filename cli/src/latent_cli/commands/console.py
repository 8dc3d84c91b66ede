"""``latent console``"""

from __future__ import annotations

from latent_cli.options import Json, command_app
from latent_cli.output import answers, emit, notes
from latent_cli.session import ask

app = command_app()


@app.command()
def console(as_json: Json = False) -> None:
    """Print a new one-time link to the console.

    It signs a browser on this machine in as the owner, once and within 15 minutes, after a click on the page's button.
    It needs a gateway on this machine, and the owner's own token.
    """
    link = ask(lambda client: client.sign_in_link())
    if as_json:
        emit({"url": link.url, "valid_seconds": link.valid_seconds})
        return
    answers().print(link.url, soft_wrap=True)
    minutes = link.valid_seconds // 60
    notes().print(f"It signs you in once, within {minutes} minutes, in a browser on this machine.")
