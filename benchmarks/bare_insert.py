"""The peer of `service_http.py`: FastAPI and SQLAlchemy that insert one row per request into the same kind of database.

`python -m benchmarks.bare_insert URL PORT`. A body is validated, a row is committed with an id of its own, the row is
the answer; no rule, no event, no outbox.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncEngine
from uuid6 import uuid7

from service.adapters.database.session import SqlDatabase
from service.domain.spec import JobSpec

metadata = sa.MetaData()
rows = sa.Table(
    "rows",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("created_at", sa.String(40), nullable=False),
    sa.Column("spec", sa.Text, nullable=False),
)


def application(engine: AsyncEngine, turn: asyncio.Lock) -> FastAPI:
    app = FastAPI()

    @app.post("/rows", status_code=201)
    async def insert(spec: JobSpec) -> dict[str, Any]:
        row = {"id": str(uuid7()), "created_at": datetime.now(UTC).isoformat(), "spec": spec.model_dump_json()}
        async with turn, engine.begin() as connection:
            await connection.execute(rows.insert().values(**row))
        return {**row, "spec": json.loads(row["spec"])}

    return app


async def main(url: str, port: int) -> None:
    # The same engine as the service's own: WAL, synchronous, one writer.
    engine = SqlDatabase(url)._writer
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    config = uvicorn.Config(application(engine, asyncio.Lock()), port=port, log_level="warning", http="h11")
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
