"""Near-duplicates: which chunk repeats which earlier one, kept beside the chunks.

Not in the chunks' own rows: a mark there would rewrite them, and the join that judges the candidates of a
search would have to visit rows instead of its index.

Revision ID: 0004
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

LIKENESSES = """
-- A chunk that was judged: a signature of its vector, and the ord of the chunk it repeats, if it does.
CREATE TABLE likenesses (
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    ord          bigint NOT NULL,
    signature    bytea NOT NULL,
    original     bigint CHECK (original < ord),
    PRIMARY KEY (container_id, ord)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX likenesses_original ON likenesses (container_id, original) WHERE original IS NOT NULL;

-- Ords that came into view or went out of it, and that nobody has judged since.
CREATE TABLE unjudged_ords (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    first_ord    bigint NOT NULL,
    last_ord     bigint NOT NULL CHECK (first_ord <= last_ord)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX unjudged_ords_first ON unjudged_ords (container_id, first_ord, id);
"""

# What is there already is judged like what comes.
BACKLOG = """
INSERT INTO unjudged_ords (container_id, first_ord, last_ord)
SELECT container_id, 0, next_ord - 1 FROM ord_counters WHERE next_ord > 0
"""

COLUMN = "ALTER TABLE chunks DROP COLUMN duplicate_of"


def upgrade() -> None:
    for statements in (LIKENESSES, BACKLOG, COLUMN):
        op.execute(statements)


def downgrade() -> None:
    op.execute("ALTER TABLE chunks ADD COLUMN duplicate_of uuid")
    op.execute("DROP TABLE unjudged_ords")
    op.execute("DROP TABLE likenesses")
