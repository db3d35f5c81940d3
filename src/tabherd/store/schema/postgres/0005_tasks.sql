-- The lease that a task was submitted under, if it names a tab or a session; 0: any, as for those that are there already.

ALTER TABLE tasks ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
ALTER TABLE archived_tasks ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
