"""Samples are rolled up"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from service.adapters.database import tables

revision = '0005'
down_revision = '0004'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('rollups',
    sa.Column('job_id', sa.String(length=36), nullable=False),
    sa.Column('bucket', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('name', sa.String(length=64), nullable=False),
    sa.Column('rank', sa.Integer(), autoincrement=False, nullable=False),
    sa.Column('low', sa.Double(), nullable=True),
    sa.Column('high', sa.Double(), nullable=True),
    sa.Column('count', sa.BigInteger(), nullable=False),
    sa.Column('step', sa.BigInteger(), nullable=False),
    sa.Column('generation', sa.BigInteger(), nullable=False),
    sa.Column('value', sa.Double(), nullable=True),
    sa.Column('at', tables.Instant(), nullable=False),
    sa.ForeignKeyConstraint(['job_id'], ['jobs.id'], name=op.f('fk_rollups_job_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('job_id', 'bucket', 'name', 'rank', name=op.f('pk_rollups')),
    sqlite_with_rowid=False
    )


def downgrade() -> None:
    op.drop_table('rollups')
