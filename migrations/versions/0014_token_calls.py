"""What each token calls, by day, and which token made a change.

Revision ID: 0014_token_calls
Revises: 0013_page_words
"""

from alembic import op

revision = "0014_token_calls"
down_revision = "0013_page_words"
branch_labels = None
depends_on = None

CHANGE = """
-- Gateways count in memory and add up here every few seconds.
CREATE TABLE token_calls (
    token_id  bigint NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
    day       date NOT NULL,              -- UTC
    api       text NOT NULL CHECK (api IN ('mcp', 'http', 'console')),
    operation text NOT NULL,              -- a tool, or method and path of a route: never what a caller wrote
    calls     bigint NOT NULL,
    failures  bigint NOT NULL,            -- of these calls
    PRIMARY KEY (token_id, day, api, operation)
);
CREATE INDEX token_calls_day ON token_calls (day);

ALTER TABLE audit ADD COLUMN token_id bigint;   -- NULL: the owner's own token, a job, or a line older than this column
CREATE INDEX audit_token ON audit (token_id, action, id DESC) WHERE token_id IS NOT NULL;
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
