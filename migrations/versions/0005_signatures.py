"""Trigram signatures: which chunks may hold a string, told without reading their text.

Revision ID: 0005
"""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

SIGNATURES = """
-- Two bits a trigram of the chunk's text, case folded: 4096, 16384 or 65536 bits by its length
-- (latent_core.keywords.signature). Narrow rows of their own: a search reads all of a container's.
CREATE TABLE signatures (
    container_id text NOT NULL,
    ord          bigint NOT NULL,
    bits         bit varying NOT NULL,
    PRIMARY KEY (container_id, ord),
    FOREIGN KEY (container_id, ord) REFERENCES chunks (container_id, ord) ON DELETE CASCADE
);
"""

# A signature of ones excludes nothing: chunks from before are found by reading them, until they are made anew.
BACKLOG = """
INSERT INTO signatures (container_id, ord, bits)
SELECT container_id, ord, repeat('1', 4096)::bit varying FROM chunks
"""


def upgrade() -> None:
    op.execute(SIGNATURES)
    op.execute(BACKLOG)


def downgrade() -> None:
    op.execute("DROP TABLE signatures")
