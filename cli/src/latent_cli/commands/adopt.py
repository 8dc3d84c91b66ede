"""``latent adopt``"""

from __future__ import annotations

from typing import Annotated

import typer

from latent_cli.options import DataDir, Json, command_app
from latent_cli.output import answers, emit
from latent_cli.processes import overridden, run_adopt

app = command_app()
Bucket = Annotated[
    list[str] | None,
    typer.Option("--bucket", metavar="NAME", help="Also take over this bucket. May be repeated."),
]


@app.command()
def adopt(bucket: Bucket = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Make this database the one that may write to the installation's collections and bucket.

    Needed after a dump was restored into another database, or when a server lost the installation's marker. The
    database that held the data before stops writing and removing; stop its processes first. Buckets that manifests
    name are included, unless they belonged to another database than LLC_S3_BUCKET: name those with --bucket.
    """
    done = run_adopt(overridden(data_dir=data_dir), bucket or ())
    if as_json:
        emit(done)
        return
    answers().print(f"installation {done.installation} now belongs to database {done.holder}")
