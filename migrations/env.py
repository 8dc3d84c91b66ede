"""Alembic's environment. ``latent_core.db.migrate`` brings the connection and the lock."""

from alembic import context
from alembic.util import CommandError


def run() -> None:
    connection = context.config.attributes.get("connection")
    if connection is None:
        raise CommandError(
            "revisions are applied by `latent migrate`; Alembic alone only makes new ones"
        )
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


run()
