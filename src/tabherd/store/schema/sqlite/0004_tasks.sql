-- Tasks: those that wait or have just ended, those that have ended a while ago, keys under which they were submitted,
-- and who is still to be told of their end. Requests and results can be long, so these keep a rowid, like `commands`.

CREATE TABLE tasks (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    state TEXT NOT NULL
        CHECK (state IN ('queued', 'assigned', 'running', 'done', 'failed', 'cancelled', 'rejected')),
    action TEXT NOT NULL,
    tab_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    pool TEXT NOT NULL,
    request TEXT NOT NULL,
    priority INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    deadline_at INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    completed_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    is_idempotent INTEGER NOT NULL CHECK (is_idempotent IN (0, 1)),
    scopes TEXT NOT NULL,
    key_id TEXT NOT NULL,
    result TEXT NOT NULL,
    error TEXT NOT NULL,
    code TEXT NOT NULL,
    callback_url TEXT NOT NULL,
    request_id TEXT NOT NULL,
    traceparent TEXT NOT NULL
) STRICT;

CREATE INDEX tasks_by_state ON tasks (state, id);
CREATE INDEX tasks_by_agent_id ON tasks (agent_id, id);

CREATE TABLE archived_tasks (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    state TEXT NOT NULL
        CHECK (state IN ('queued', 'assigned', 'running', 'done', 'failed', 'cancelled', 'rejected')),
    action TEXT NOT NULL,
    tab_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    pool TEXT NOT NULL,
    request TEXT NOT NULL,
    priority INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    deadline_at INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    completed_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    is_idempotent INTEGER NOT NULL CHECK (is_idempotent IN (0, 1)),
    scopes TEXT NOT NULL,
    key_id TEXT NOT NULL,
    result TEXT NOT NULL,
    error TEXT NOT NULL,
    code TEXT NOT NULL,
    callback_url TEXT NOT NULL,
    request_id TEXT NOT NULL,
    traceparent TEXT NOT NULL
) STRICT;

CREATE INDEX archived_tasks_by_state ON archived_tasks (state, id);
CREATE INDEX archived_tasks_by_agent_id ON archived_tasks (agent_id, id);

CREATE TABLE task_keys (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    task_id TEXT NOT NULL,
    body_hash TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE deliveries (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'failed')),
    url TEXT NOT NULL,
    event TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    error TEXT NOT NULL,
    request_id TEXT NOT NULL,
    traceparent TEXT NOT NULL
) STRICT;

CREATE INDEX deliveries_by_state ON deliveries (state, id);
