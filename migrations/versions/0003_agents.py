"""Agents that write: scopes of tokens, authors and versions of documents, deletions that can be undone.

Revision ID: 0003_agents
Revises: 0002_installation
"""

from alembic import op

revision = "0003_agents"
down_revision = "0002_installation"
branch_labels = None
depends_on = None

CHANGE = """
-- Who added what a document says, and when; versions of notes; documents that are out of search or can be restored.
ALTER TABLE documents
    ADD COLUMN origin text NOT NULL DEFAULT 'file' CHECK (origin IN ('person', 'agent', 'web', 'file')),
    ADD COLUMN written_by text,              -- the principal that added its newest content; NULL: not recorded
    ADD COLUMN token_name text,              -- the name of its token; NULL: the owner's own
    ADD COLUMN written_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN session text,                 -- as the sender named its session
    ADD COLUMN version integer NOT NULL DEFAULT 1,   -- of a note: how many texts were accepted under its name
    ADD COLUMN accepted_sha256 text,         -- bytes that are kept for it whatever becomes of its jobs: the newest
                                             -- text of a note, the original of a document that can be restored
    ADD COLUMN superseded_by uuid,           -- the document that says it better
    ADD COLUMN superseded_request bigint,    -- the request of that one, whose publication takes this one out of search
    ADD COLUMN superseded_at timestamptz,    -- since then only searches that ask for it find it
    ADD COLUMN expires_at timestamptz,
    ADD COLUMN restorable_until timestamptz; -- of a deleted one: its original is kept until then
ALTER TABLE uploaded_bytes ADD COLUMN notes integer NOT NULL DEFAULT 0;
UPDATE documents SET written_at = created_at, origin = CASE WHEN uri ~ '^https?://' THEN 'web' ELSE 'file' END;
CREATE INDEX documents_written ON documents (container_id, written_at DESC, id) WHERE deleted_at IS NULL;
CREATE INDEX documents_superseded ON documents (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX documents_accepted ON documents (accepted_sha256) WHERE accepted_sha256 IS NOT NULL;
CREATE INDEX documents_expiry ON documents (expires_at) WHERE expires_at IS NOT NULL;

-- A token that names containers has its scopes there without a role. Older tokens gain nothing by that: their
-- principal still needs the role, and each old scope becomes exactly what it allowed.
ALTER TABLE tokens ADD COLUMN needs_role boolean NOT NULL DEFAULT false;
UPDATE tokens SET needs_role = true;
ALTER TABLE tokens DROP CONSTRAINT tokens_scopes_check;
UPDATE tokens SET scopes = (
    SELECT array_agg(scope ORDER BY scope) FROM (
        SELECT unnest(CASE old WHEN 'ingest' THEN ARRAY['write', 'delete'] WHEN 'admin' THEN ARRAY['admin', 'create']
                      ELSE ARRAY[old] END) AS scope
        FROM unnest(tokens.scopes) AS old
    ) renamed
);
ALTER TABLE tokens ADD CONSTRAINT tokens_scopes_check CHECK (
    cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'write', 'delete', 'create', 'admin']
);
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
