"""A job knows when its last step was done and what its controller was told"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from service.adapters.database import tables

revision = '0006'
down_revision = '0005'
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table('jobs', schema=None) as batch_op:
        batch_op.add_column(sa.Column('stepped_at', tables.Instant(), nullable=True))
        batch_op.add_column(sa.Column('told', sa.Integer(), nullable=False, server_default='0'))


def downgrade() -> None:
    with op.batch_alter_table('jobs', schema=None) as batch_op:
        batch_op.drop_column('told')
        batch_op.drop_column('stepped_at')
