"""Webhooks and what they are still to be told"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from service.adapters.database import tables

revision = '0004'
down_revision = '0003'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('webhooks',
    sa.Column('id', sa.String(length=36), nullable=False),
    sa.Column('url', sa.Text(), nullable=False),
    sa.Column('secret', sa.String(length=100), nullable=False),
    sa.Column('created_at', tables.Instant(), nullable=False),
    sa.Column('delivered', sa.BigInteger(), nullable=False),
    sa.Column('failed', sa.BigInteger(), nullable=False),
    sa.Column('last_error', sa.Text(), nullable=False),
    sa.Column('last_at', tables.Instant(), nullable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_webhooks'))
    )
    op.create_table('deliveries',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), autoincrement=True, nullable=False),
    sa.Column('webhook_id', sa.String(length=36), nullable=False),
    sa.Column('body', sa.Text(), nullable=False),
    sa.Column('tries', sa.Integer(), nullable=False),
    sa.Column('due_at', tables.Instant(), nullable=False),
    sa.ForeignKeyConstraint(['webhook_id'], ['webhooks.id'], name=op.f('fk_deliveries_webhook_id'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_deliveries')),
    sqlite_autoincrement=True
    )
    with op.batch_alter_table('deliveries', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_deliveries_due_at'), ['due_at'], unique=False)
        batch_op.create_index(batch_op.f('ix_deliveries_webhook_id'), ['webhook_id'], unique=False)


def downgrade() -> None:
    op.drop_table('deliveries')
    op.drop_table('webhooks')
