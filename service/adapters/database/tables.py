"""The tables. Times are microseconds since 1970 (UTC), sortable in every database; documents are JSON text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
ID = sa.String(36)


class Instant(sa.types.TypeDecorator[datetime]):
    """An aware datetime as a 64-bit count of microseconds."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> int | None:
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> datetime | None:
        return None if value is None else _EPOCH + timedelta(microseconds=int(value))


metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_COUNTED = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _number() -> sa.Column[int]:
    """A key that only grows, also after rows were pruned."""
    return sa.Column("id", _COUNTED, primary_key=True, autoincrement=True)


def _job(**extra: Any) -> sa.Column[str]:
    return sa.Column("job_id", ID, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, **extra)


jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", ID, primary_key=True),
    sa.Column("name", sa.String(63), index=True),
    sa.Column("state", sa.String(20), nullable=False, index=True),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("intent", sa.String(20), nullable=False),
    sa.Column("min_workers", sa.Integer, nullable=False),
    sa.Column("max_workers", sa.Integer, nullable=False),
    sa.Column("granted", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("attempt_id", ID),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("failed_at_step", sa.BigInteger, nullable=False),
    sa.Column("retry_at", Instant),
    sa.Column("step", sa.BigInteger, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("workers", sa.Integer, nullable=False),
    sa.Column("loss", sa.Double),
    sa.Column("tokens_per_s", sa.Double),
    sa.Column("memory", sa.Text, nullable=False),
    sa.Column("heard_at", Instant),
    sa.Column("stepped_at", Instant),
    sa.Column("told", sa.Integer, nullable=False, server_default="0"),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("since", Instant, nullable=False),
    sa.Column("started_at", Instant),
    sa.Column("ended_at", Instant),
    sa.Column("deleted_at", Instant),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("key_id", ID),
)

submissions = sa.Table(
    "submissions",
    metadata,
    sa.Column("key", sa.String(200), primary_key=True),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.Column("job_id", ID, nullable=False, index=True),
    sa.Column("at", Instant, nullable=False),
)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("id", ID, primary_key=True),
    _job(),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("launched_at", Instant),
    sa.Column("seen_at", Instant),
    sa.Column("ended_at", Instant),
    sa.Column("result", sa.String(20)),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("phase", sa.String(20), nullable=False),
    sa.Column("generation_before", sa.BigInteger, nullable=False),
    sa.Column("acknowledged", sa.BigInteger, nullable=False),
    sa.Column("workers", sa.Text, nullable=False),
    sa.Column("released", sa.Boolean, nullable=False, index=True),
    sa.UniqueConstraint("job_id", "number"),
)

attempt_tokens = sa.Table(
    "attempt_tokens",
    metadata,
    sa.Column("attempt_id", ID, sa.ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("token_hash", sa.String(64), primary_key=True),
)

events = sa.Table(
    "events",
    metadata,
    _number(),
    _job(),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("at", Instant, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer),
    sa.Column("generation", sa.BigInteger),
    sa.Column("step", sa.BigInteger),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Index(None, "job_id", "id"),
    sqlite_autoincrement=True,
)

# Narrow, clustered by its key where the database can; rank -1 is the whole group's. value NULL: not a finite number.
samples = sa.Table(
    "samples",
    metadata,
    _job(primary_key=True),
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("generation", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("step", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("value", sa.Double),
    sa.Column("at", Instant, nullable=False),
    sqlite_with_rowid=False,
)

# One row for a thousand steps of a series (`rollups.py`). The bucket comes before the name: what is taken away when a
# job goes back to a step is one range.
rollups = sa.Table(
    "rollups",
    metadata,
    _job(primary_key=True),
    sa.Column("bucket", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("rank", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("low", sa.Double),
    sa.Column("high", sa.Double),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("step", sa.BigInteger, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("value", sa.Double),
    sa.Column("at", Instant, nullable=False),
    sqlite_with_rowid=False,
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    _job(primary_key=True),
    sa.Column("step", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("uri", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("files", sa.Integer, nullable=False),
    sa.Column("duration_s", sa.Double, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("at", Instant, nullable=False),
    sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.false()),
)

checkpoint_requests = sa.Table(
    "checkpoint_requests",
    metadata,
    sa.Column("id", ID, primary_key=True),
    _job(index=True),
    sa.Column("at", Instant, nullable=False),
    sa.Column("met_at_step", sa.BigInteger),
)

log_lines = sa.Table(
    "log_lines",
    metadata,
    _number(),
    _job(),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("rank", sa.Integer),
    sa.Column("at", Instant, nullable=False),
    sa.Column("level", sa.String(10), nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Index(None, "job_id", "id"),
    sqlite_autoincrement=True,
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", ID, primary_key=True),
    sa.Column("name", sa.String(100), nullable=False),
    sa.Column("hint", sa.String(16), nullable=False),
    sa.Column("secret_hash", sa.String(64), nullable=False, unique=True),
    sa.Column("scopes", sa.String(100), nullable=False),
    sa.Column("quota_slots", sa.Integer),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("last_used_at", Instant),
    sa.Column("revoked_at", Instant),
)

# expires_at: seconds since 1970 on the database's own clock.
leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.String(50), primary_key=True),
    sa.Column("holder", sa.String(200), nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
)

webhooks = sa.Table(
    "webhooks",
    metadata,
    sa.Column("id", ID, primary_key=True),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("secret", sa.String(100), nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("delivered", sa.BigInteger, nullable=False),
    sa.Column("failed", sa.BigInteger, nullable=False),
    sa.Column("last_error", sa.Text, nullable=False),
    sa.Column("last_at", Instant),
)

deliveries = sa.Table(
    "deliveries",
    metadata,
    _number(),
    sa.Column("webhook_id", ID, sa.ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("due_at", Instant, nullable=False, index=True),
    sqlite_autoincrement=True,
)

# No foreign key: what a stream told stays told, also of a job that was removed.
notices = sa.Table(
    "notices",
    metadata,
    _number(),
    sa.Column("kind", sa.String(10), nullable=False),
    sa.Column("job_id", ID),
    sa.Column("data", sa.Text, nullable=False),
    sa.Index(None, "job_id", "id"),
    sqlite_autoincrement=True,
)
