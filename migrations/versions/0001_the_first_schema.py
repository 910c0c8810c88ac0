"""The first schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from service.adapters.database import tables

revision = '0001'
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('api_keys',
    sa.Column('id', sa.String(length=36), nullable=False),
    sa.Column('name', sa.String(length=100), nullable=False),
    sa.Column('hint', sa.String(length=16), nullable=False),
    sa.Column('secret_hash', sa.String(length=64), nullable=False),
    sa.Column('scopes', sa.String(length=100), nullable=False),
    sa.Column('created_at', tables.Instant(), nullable=False),
    sa.Column('last_used_at', tables.Instant(), nullable=True),
    sa.Column('revoked_at', tables.Instant(), nullable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_api_keys')),
    sa.UniqueConstraint('secret_hash', name=op.f('uq_api_keys_secret_hash'))
    )
    op.create_table('jobs',
    sa.Column('id', sa.String(length=36), nullable=False),
    sa.Column('name', sa.String(length=63), nullable=True),
    sa.Column('state', sa.String(length=20), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('intent', sa.String(length=20), nullable=False),
    sa.Column('min_workers', sa.Integer(), nullable=False),
    sa.Column('max_workers', sa.Integer(), nullable=False),
    sa.Column('granted', sa.Integer(), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=False),
    sa.Column('attempt_id', sa.String(length=36), nullable=True),
    sa.Column('failures', sa.Integer(), nullable=False),
    sa.Column('failed_at_step', sa.BigInteger(), nullable=False),
    sa.Column('retry_at', tables.Instant(), nullable=True),
    sa.Column('step', sa.BigInteger(), nullable=False),
    sa.Column('generation', sa.BigInteger(), nullable=False),
    sa.Column('workers', sa.Integer(), nullable=False),
    sa.Column('loss', sa.Double(), nullable=True),
    sa.Column('tokens_per_s', sa.Double(), nullable=True),
    sa.Column('memory', sa.Text(), nullable=False),
    sa.Column('heard_at', tables.Instant(), nullable=True),
    sa.Column('spec', sa.Text(), nullable=False),
    sa.Column('created_at', tables.Instant(), nullable=False),
    sa.Column('since', tables.Instant(), nullable=False),
    sa.Column('started_at', tables.Instant(), nullable=True),
    sa.Column('ended_at', tables.Instant(), nullable=True),
    sa.Column('deleted_at', tables.Instant(), nullable=True),
    sa.Column('version', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_jobs'))
    )
    with op.batch_alter_table('jobs', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_jobs_name'), ['name'], unique=False)
        batch_op.create_index(batch_op.f('ix_jobs_state'), ['state'], unique=False)

    op.create_table('leases',
    sa.Column('name', sa.String(length=50), nullable=False),
    sa.Column('holder', sa.String(length=200), nullable=False),
    sa.Column('token', sa.BigInteger(), nullable=False),
    sa.Column('expires_at', sa.Double(), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_leases'))
    )
    op.create_table('notices',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), autoincrement=True, nullable=False),
    sa.Column('kind', sa.String(length=10), nullable=False),
    sa.Column('job_id', sa.String(length=36), nullable=True),
    sa.Column('data', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_notices')),
    sqlite_autoincrement=True
    )
    with op.batch_alter_table('notices', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_notices_job_id_id'), ['job_id', 'id'], unique=False)

    op.create_table('submissions',
    sa.Column('key', sa.String(length=200), nullable=False),
    sa.Column('fingerprint', sa.String(length=64), nullable=False),
    sa.Column('job_id', sa.String(length=36), nullable=False),
    sa.Column('at', tables.Instant(), nullable=False),
    sa.PrimaryKeyConstraint('key', name=op.f('pk_submissions'))
    )
    with op.batch_alter_table('submissions', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_submissions_job_id'), ['job_id'], unique=False)

    op.create_table('attempts',
    sa.Column('id', sa.String(length=36), nullable=False),
    sa.Column('job_id', sa.String(length=36), nullable=False),
    sa.Column('number', sa.Integer(), nullable=False),
    sa.Column('state', sa.String(length=20), nullable=False),
    sa.Column('created_at', tables.Instant(), nullable=False),
    sa.Column('launched_at', tables.Instant(), nullable=True),
    sa.Column('seen_at', tables.Instant(), nullable=True),
    sa.Column('ended_at', tables.Instant(), nullable=True),
    sa.Column('result', sa.String(length=20), nullable=True),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('phase', sa.String(length=20), nullable=False),
    sa.Column('generation_before', sa.BigInteger(), nullable=False),
    sa.Column('acknowledged', sa.BigInteger(), nullable=False),
    sa.Column('workers', sa.Text(), nullable=False),
    sa.Column('released', sa.Boolean(), nullable=False),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_attempts_job_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_attempts')),
    sa.UniqueConstraint('job_id', 'number', name=op.f('uq_attempts_job_id_number'))
    )
    with op.batch_alter_table('attempts', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_attempts_released'), ['released'], unique=False)

    op.create_table('checkpoint_requests',
    sa.Column('id', sa.String(length=36), nullable=False),
    sa.Column('job_id', sa.String(length=36), nullable=False),
    sa.Column('at', tables.Instant(), nullable=False),
    sa.Column('met_at_step', sa.BigInteger(), nullable=True),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_checkpoint_requests_job_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_checkpoint_requests'))
    )
    with op.batch_alter_table('checkpoint_requests', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_checkpoint_requests_job_id'), ['job_id'], unique=False)

    op.create_table('checkpoints',
    sa.Column('job_id', sa.String(length=36), nullable=False),
    sa.Column('step', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('uri', sa.Text(), nullable=False),
    sa.Column('size_bytes', sa.BigInteger(), nullable=False),
    sa.Column('files', sa.Integer(), nullable=False),
    sa.Column('duration_s', sa.Double(), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=False),
    sa.Column('at', tables.Instant(), nullable=False),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_checkpoints_job_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('job_id', 'step', name=op.f('pk_checkpoints'))
    )
    op.create_table('events',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), autoincrement=True, nullable=False),
    sa.Column('job_id', sa.String(length=36), nullable=False),
    sa.Column('kind', sa.String(length=64), nullable=False),
    sa.Column('at', tables.Instant(), nullable=False),
    sa.Column('message', sa.Text(), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=True),
    sa.Column('generation', sa.BigInteger(), nullable=True),
    sa.Column('step', sa.BigInteger(), nullable=True),
    sa.Column('payload', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_events_job_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_events')),
    sqlite_autoincrement=True
    )
    with op.batch_alter_table('events', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_events_job_id_id'), ['job_id', 'id'], unique=False)

    op.create_table('log_lines',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), autoincrement=True, nullable=False),
    sa.Column('job_id', sa.String(length=36), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=False),
    sa.Column('rank', sa.Integer(), nullable=True),
    sa.Column('at', tables.Instant(), nullable=False),
    sa.Column('level', sa.String(length=10), nullable=False),
    sa.Column('text', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_log_lines_job_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_log_lines')),
    sqlite_autoincrement=True
    )
    with op.batch_alter_table('log_lines', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_log_lines_job_id_id'), ['job_id', 'id'], unique=False)

    op.create_table('samples',
    sa.Column('job_id', sa.String(length=36), nullable=False),
    sa.Column('name', sa.String(length=64), nullable=False),
    sa.Column('rank', sa.Integer(), autoincrement=False, nullable=False),
    sa.Column('generation', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('step', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('value', sa.Double(), nullable=True),
    sa.Column('at', tables.Instant(), nullable=False),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_samples_job_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('job_id', 'name', 'rank', 'generation', 'step', name=op.f('pk_samples')),
    sqlite_with_rowid=False
    )
    op.create_table('attempt_tokens',
    sa.Column('attempt_id', sa.String(length=36), nullable=False),
    sa.Column('token_hash', sa.String(length=64), nullable=False),
    sa.ForeignKeyConstraint(['attempt_id'], ['attempts.id'], name=op.f('fk_attempt_tokens_attempt_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('attempt_id', 'token_hash', name=op.f('pk_attempt_tokens'))
    )


def downgrade() -> None:
    op.drop_table('attempt_tokens')
    op.drop_table('samples')
    with op.batch_alter_table('log_lines', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_log_lines_job_id_id'))

    op.drop_table('log_lines')
    with op.batch_alter_table('events', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_events_job_id_id'))

    op.drop_table('events')
    op.drop_table('checkpoints')
    with op.batch_alter_table('checkpoint_requests', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_checkpoint_requests_job_id'))

    op.drop_table('checkpoint_requests')
    with op.batch_alter_table('attempts', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_attempts_released'))

    op.drop_table('attempts')
    with op.batch_alter_table('submissions', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_submissions_job_id'))

    op.drop_table('submissions')
    with op.batch_alter_table('notices', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_notices_job_id_id'))

    op.drop_table('notices')
    op.drop_table('leases')
    with op.batch_alter_table('jobs', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_jobs_state'))
        batch_op.drop_index(batch_op.f('ix_jobs_name'))

    op.drop_table('jobs')
    op.drop_table('api_keys')
