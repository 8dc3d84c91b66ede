"""Embedding spaces side by side, drift adapters.

A space keeps its points in a collection, mostly its own; one that only reads another's vectors by way of an
adapter shares that one's. What is said of points is therefore said of collections (``stored_in``).

Revision ID: 0010
"""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

SPACES = """
ALTER TABLE spaces DROP CONSTRAINT spaces_state_check;
ALTER TABLE spaces
    ADD CONSTRAINT spaces_state_check CHECK (state IN ('building', 'live', 'retired', 'dropping')),
    ADD COLUMN stored_in     bigint,                              -- the space whose collection it shares; NULL: its own
    ADD COLUMN adapter_id    bigint,                              -- maps what the embedder gives into the collection
    ADD COLUMN embedder_dims integer CHECK (embedder_dims > 0),   -- of the embedder, where an adapter stands between
    ADD COLUMN retired_at    timestamptz,
    ADD COLUMN keep_until    timestamptz;                         -- a retired space is dropped after it
CREATE UNIQUE INDEX spaces_one_building ON spaces (container_id) WHERE state = 'building';
CREATE INDEX spaces_container ON spaces (container_id, id);
"""

ADAPTERS = """
CREATE TABLE drift_adapters (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    way          text NOT NULL CHECK (way IN ('query', 'forward')),
    old_embedder text NOT NULL,
    old_version  text NOT NULL,
    old_dims     integer NOT NULL CHECK (old_dims > 0),
    new_embedder text NOT NULL,
    new_version  text NOT NULL,
    new_dims     integer NOT NULL CHECK (new_dims > 0),
    pairs        integer NOT NULL CHECK (pairs > 0),
    adapter      bytea NOT NULL,          -- matrix and both means, as latent_core.embedding.drift packs them
    measured     jsonb NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE drift_adapters ALTER COLUMN adapter SET STORAGE EXTERNAL;
CREATE INDEX drift_adapters_container ON drift_adapters (container_id, id);
"""

LINEAGE = """
ALTER TABLE spaces ADD FOREIGN KEY (adapter_id) REFERENCES drift_adapters (id) DEFERRABLE INITIALLY DEFERRED
"""

POINTS = """
-- Which generation of a document has its points in a collection that was not, or is not, the live one.
CREATE TABLE embedded (
    doc_id     uuid NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    stored_in  bigint NOT NULL,
    generation integer NOT NULL,
    job_id     bigint,                           -- the refresh that wrote them; NULL: their publication
    mapped     boolean NOT NULL DEFAULT false,   -- vectors of another model, mapped; not embedded by this one
    PRIMARY KEY (doc_id, stored_in)
);
CREATE INDEX embedded_mapped ON embedded (stored_in, doc_id) WHERE mapped;

-- Points of a chunk in a collection, where they are not as many as chunks.windows says.
CREATE TABLE point_counts (
    container_id text NOT NULL,
    ord          bigint NOT NULL,
    stored_in    bigint NOT NULL,
    windows      integer NOT NULL CHECK (windows > 0),
    PRIMARY KEY (container_id, ord, stored_in),
    FOREIGN KEY (container_id, ord) REFERENCES chunks (container_id, ord) ON DELETE CASCADE
);
"""


def upgrade() -> None:
    for statements in (SPACES, ADAPTERS, LINEAGE, POINTS):
        op.execute(statements)


def downgrade() -> None:
    raise RuntimeError(
        "vectors of several spaces cannot be put back into one; restore a backup instead"
    )
