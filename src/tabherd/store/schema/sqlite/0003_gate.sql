-- What the gate and the control channel need: who sent a command, keys that must not run twice, and the audit trail.

ALTER TABLE commands ADD COLUMN controller_id TEXT NOT NULL DEFAULT '';

CREATE TABLE idempotency (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    command_id TEXT NOT NULL,
    body_hash TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    at INTEGER NOT NULL,
    agent_id TEXT NOT NULL,
    controller_id TEXT NOT NULL,
    verb TEXT NOT NULL,
    session_id TEXT NOT NULL,
    tab_id TEXT NOT NULL,
    command_id TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_by_agent_id ON audit (agent_id);
CREATE INDEX audit_by_session_id ON audit (session_id);
CREATE INDEX audit_by_tab_id ON audit (tab_id);
