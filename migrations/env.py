"""Alembic's entry. The connection comes from `service/adapters/database/migrate.py`, which also holds the lock."""

from __future__ import annotations

from alembic import context

from service.adapters.database.tables import metadata


def run() -> None:
    connection = context.config.attributes["connection"]
    context.configure(
        connection=connection,
        target_metadata=metadata,
        # SQLite cannot alter most things in place: Alembic copies the table.
        render_as_batch=True,
        compare_type=True,
        user_module_prefix="tables.",
    )
    with context.begin_transaction():
        context.run_migrations()


run()
