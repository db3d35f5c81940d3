-- The order of tasks within an agent, which nodes that share a store go by; see core/task_rank.py.

ALTER TABLE tasks ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;
ALTER TABLE archived_tasks ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;
