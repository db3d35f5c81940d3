-- What leases need to be pooled, taken over and recovered.

ALTER TABLE sessions ADD COLUMN viewport TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN pooled_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN taken_from TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN is_connection_bound INTEGER NOT NULL DEFAULT 0 CHECK (is_connection_bound IN (0, 1));

ALTER TABLE tabs ADD COLUMN opener_tab_id TEXT NOT NULL DEFAULT '';

-- With a rowid, like `commands`: what a page keeps in its localStorage can be long.
CREATE TABLE checkpoints (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    cookies TEXT NOT NULL,
    origins TEXT NOT NULL,
    taken_at INTEGER NOT NULL
) STRICT;

CREATE INDEX checkpoints_by_node_id ON checkpoints (node_id, id);

-- Sessions count their tabs from now on: those that are open have to be in the count, or they would end below zero.
INSERT INTO counters (name, value)
SELECT 'tabs:' || replace(replace(sessions.pool, '%', '%25'), ':', '%3A'), count(*)
FROM sessions LEFT JOIN tabs ON tabs.session_id = sessions.id
WHERE sessions.state IN ('reserved', 'active', 'recovering', 'pooled', 'closing')
GROUP BY sessions.pool;
