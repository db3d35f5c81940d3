-- Tasks that no node has yet: found in fair order, claimed by one statement. What a claim costs depends on how many it
-- takes and on how many are in flight, and neither on how many wait nor on how many agents they are of.
--
-- Nobody may have counted the rows yet when a plan is made, and it is kept. So the functions say how they want to be
-- planned: along the indexes, in their order.

-- The order within an agent, lower first; see core/task_rank.py.
ALTER TABLE tasks ADD COLUMN rank BIGINT NOT NULL DEFAULT 0;
ALTER TABLE archived_tasks ADD COLUMN rank BIGINT NOT NULL DEFAULT 0;

-- Those of nobody, by their place among those of their agent, and by when they must be over.
CREATE INDEX tasks_unclaimed ON tasks (pool, agent_id, rank, id) WHERE node_id = '' AND state = 'queued';
CREATE INDEX tasks_unclaimed_by_deadline ON tasks (deadline_at) WHERE node_id = '' AND state = 'queued';
-- Those of each node that are not over.
CREATE INDEX tasks_of_node ON tasks (node_id, agent_id, id) WHERE node_id <> '' AND state IN ('queued', 'running');
-- Those in flight: no more than all nodes have workers, and a few.
CREATE INDEX tasks_in_flight ON tasks (agent_id)
    WHERE node_id <> '' AND (state = 'running' OR (state = 'queued' AND tab_id = '' AND session_id = ''));

CREATE VIEW flying_agents AS
    SELECT agent_id, count(*) AS flying FROM tasks
    WHERE node_id <> '' AND (state = 'running' OR (state = 'queued' AND tab_id = '' AND session_id = ''))
    GROUP BY agent_id;

-- Agents that have tasks of nobody, by how long ago they were served. Every agent that has one is in here; one that has
-- none left may be, until a claim comes by. So who adds a task of nobody holds the agent's row, together with others;
-- and who removes a row does so only if nobody holds it, and looks once more when it is his alone.
CREATE SEQUENCE task_turn;
CREATE TABLE task_turns (
    pool TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    turn BIGINT NOT NULL,
    PRIMARY KEY (pool, agent_id)
) WITH (fillfactor = 50);
CREATE INDEX task_turns_by_turn ON task_turns (pool, turn);

CREATE FUNCTION hold_turns(pools TEXT[], agents TEXT[]) RETURNS void LANGUAGE plpgsql
    SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    held BIGINT;
BEGIN
    LOOP
        INSERT INTO task_turns (pool, agent_id, turn)
            SELECT wanted.pool, wanted.agent_id, nextval('task_turn')
            FROM unnest(pools, agents) AS wanted (pool, agent_id)
            WHERE (SELECT turn FROM task_turns t WHERE t.pool = wanted.pool AND t.agent_id = wanted.agent_id) IS NULL
            ON CONFLICT (pool, agent_id) DO NOTHING;
        PERFORM FROM unnest(pools, agents) AS wanted (pool, agent_id)
            JOIN task_turns t ON t.pool = wanted.pool AND t.agent_id = wanted.agent_id
            FOR KEY SHARE OF t;
        GET DIAGNOSTICS held = ROW_COUNT;
        -- One may have been removed in between; it will not be once it is held.
        EXIT WHEN held = cardinality(agents);
    END LOOP;
END $$;

CREATE FUNCTION tasks_were_inserted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    pools TEXT[];
    agents TEXT[];
BEGIN
    -- In one order, so that two nodes that bring the same new agents do not wait for each other crosswise.
    SELECT array_agg(w.pool ORDER BY w.pool, w.agent_id), array_agg(w.agent_id ORDER BY w.pool, w.agent_id)
        INTO pools, agents
        FROM (SELECT DISTINCT pool, agent_id FROM inserted WHERE node_id = '' AND state = 'queued') w;
    IF agents IS NOT NULL THEN
        PERFORM hold_turns(pools, agents);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER tasks_were_inserted AFTER INSERT ON tasks REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION tasks_were_inserted();

-- One that was given back; these are few.
CREATE FUNCTION task_was_given_back() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM hold_turns(ARRAY[NEW.pool], ARRAY[NEW.agent_id]);
    RETURN NULL;
END $$;

CREATE TRIGGER task_was_given_back AFTER UPDATE ON tasks FOR EACH ROW
    WHEN (NEW.node_id = '' AND NEW.state = 'queued' AND (OLD.node_id <> '' OR OLD.state <> 'queued'))
    EXECUTE FUNCTION task_was_given_back();

-- Give a node up to that many tasks: of the agent with the fewest in flight, ties to who was served longest ago; of one
-- agent by rank. Null if the node is over. Claims take turns, so that no agent has more than its limit, whoever asks;
-- and whoever has had such a turn after a node was declared dead knows that it will claim nothing any more.
CREATE FUNCTION claim_tasks(
    claimer TEXT, claimer_version BIGINT, wanted_pool TEXT, most INTEGER, workers INTEGER, max_per_agent INTEGER
) RETURNS JSON LANGUAGE plpgsql
    SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET enable_material = off SET jit = off AS $$
DECLARE
    flying_names TEXT[];
    flying_counts BIGINT[];
    waiting_agents BIGINT;
    active_agents BIGINT;
    agent_limit BIGINT;
    looked_at TEXT[];
    emptied TEXT[];
    chosen TEXT[];
    claimed JSON;
BEGIN
    PERFORM pg_advisory_xact_lock(x'7461626865726403'::BIGINT);
    PERFORM FROM nodes WHERE id = claimer AND version = claimer_version AND state = 'up';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF current_setting('synchronous_commit') = 'off' THEN
        -- A claim that a crash took back could be made again by another node, which would look the same.
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    SELECT coalesce(array_agg(agent_id), '{}'), coalesce(array_agg(flying), '{}')
        INTO flying_names, flying_counts FROM flying_agents;
    SELECT count(*), count(*) FILTER (WHERE t.agent_id <> ALL (flying_names)) INTO waiting_agents, active_agents
        FROM (SELECT agent_id FROM task_turns WHERE pool = wanted_pool ORDER BY turn LIMIT workers + 1) t;
    active_agents := active_agents + cardinality(flying_names);
    agent_limit := max_per_agent;
    IF waiting_agents > 1 THEN
        agent_limit := greatest(1, least(max_per_agent, (workers + active_agents - 1) / active_agents));
    END IF;

    WITH flying AS MATERIALIZED (
        SELECT * FROM unnest(flying_names, flying_counts) AS f (agent_id, flying)
    ), candidates AS MATERIALIZED (
        -- Of those with nothing in flight the first ones can be served, of the others all.
        SELECT agent_id, turn, coalesce((SELECT flying FROM flying WHERE flying.agent_id = c.agent_id), 0) AS flying
        FROM (
            (SELECT agent_id, turn FROM task_turns WHERE pool = wanted_pool
             ORDER BY turn LIMIT most + cardinality(flying_names))
            UNION
            SELECT t.agent_id, t.turn
            FROM flying f JOIN task_turns t ON t.pool = wanted_pool AND t.agent_id = f.agent_id
        ) c
    ), heads AS MATERIALIZED (
        SELECT c.agent_id, c.turn, c.flying, h.id,
            row_number() OVER (PARTITION BY c.agent_id ORDER BY h.rank, h.id) AS number
        FROM (SELECT * FROM candidates ORDER BY flying, turn LIMIT most) c CROSS JOIN LATERAL (
            SELECT id, rank FROM tasks
            WHERE node_id = '' AND state = 'queued' AND pool = wanted_pool AND agent_id = c.agent_id
            ORDER BY rank, id LIMIT greatest(0, least(most, agent_limit - c.flying))
        ) h
    ), turns AS MATERIALIZED (
        -- Who has been served in this very claim comes after those who have not.
        SELECT agent_id, id, row_number() OVER (ORDER BY flying + number - 1, number, turn) AS place
        FROM heads ORDER BY place LIMIT most
    ), served AS (
        UPDATE task_turns t SET turn = anew.turn
        FROM (
            SELECT agent_id, nextval('task_turn') AS turn
            FROM (SELECT agent_id FROM turns GROUP BY agent_id ORDER BY max(place)) o
        ) anew
        WHERE t.pool = wanted_pool AND t.agent_id = anew.agent_id
    )
    SELECT (SELECT array_agg(id ORDER BY place) FROM turns), (SELECT array_agg(agent_id) FROM candidates)
        INTO chosen, looked_at;

    -- Whoever cancels one in this moment has it. Which index it takes is not left to what the rows seem to be.
    WITH held AS MATERIALIZED (
        SELECT id, node_id, state FROM tasks WHERE id = ANY (chosen) FOR UPDATE SKIP LOCKED
    ), taken AS (
        UPDATE tasks t SET node_id = claimer, version = t.version + 1
        FROM held WHERE t.id = held.id AND held.node_id = '' AND held.state = 'queued' RETURNING t.*
    )
    SELECT coalesce(json_agg(taken ORDER BY array_position(chosen, taken.id)), '[]'::JSON) INTO claimed FROM taken;

    -- Who has nothing left has no turn any more.
    SELECT array_agg(a.agent_id) INTO emptied FROM unnest(looked_at) AS a (agent_id) WHERE (
        SELECT id FROM tasks
        WHERE node_id = '' AND state = 'queued' AND pool = wanted_pool AND agent_id = a.agent_id
        ORDER BY rank, id LIMIT 1
    ) IS NULL;
    IF emptied IS NOT NULL THEN
        SELECT array_agg(t.agent_id) INTO emptied FROM (
            SELECT agent_id FROM task_turns WHERE pool = wanted_pool AND agent_id = ANY (emptied)
            FOR UPDATE SKIP LOCKED
        ) t;
        DELETE FROM task_turns t WHERE t.pool = wanted_pool AND t.agent_id = ANY (emptied) AND (
            SELECT id FROM tasks
            WHERE node_id = '' AND state = 'queued' AND pool = wanted_pool AND agent_id = t.agent_id
            ORDER BY rank, id LIMIT 1
        ) IS NULL;
    END IF;
    RETURN claimed;
END $$;

-- Write down what has become of tasks of a node; the ids of those that still had the version that was read. Null if the
-- node is over. Whoever has had the lock alone after a node was declared dead knows that it writes nothing any more.
CREATE FUNCTION write_tasks(writer TEXT, writer_version BIGINT, changes JSON) RETURNS TEXT[] LANGUAGE plpgsql
    SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    written_ids TEXT[];
BEGIN
    PERFORM pg_advisory_xact_lock_shared(x'7461626865726404'::BIGINT);
    PERFORM FROM nodes WHERE id = writer AND version = writer_version AND state = 'up';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    WITH wanted AS MATERIALIZED (
        SELECT * FROM json_to_recordset(changes) AS w (
            id TEXT, version BIGINT, node_id TEXT, state TEXT, started_at BIGINT, completed_at BIGINT,
            attempts BIGINT, result TEXT, error TEXT, code TEXT
        )
    ), written AS (
        UPDATE tasks t SET version = t.version + 1, node_id = w.node_id, state = w.state, started_at = w.started_at,
            completed_at = w.completed_at, attempts = w.attempts, result = w.result, error = w.error, code = w.code
        FROM wanted w WHERE t.id = w.id AND t.version = w.version RETURNING t.id
    )
    SELECT coalesce(array_agg(id), '{}') INTO written_ids FROM written;
    RETURN written_ids;
END $$;

-- How many there are, none counted further than that: of nobody, of the nodes, in flight; when the next one of nobody
-- must be over; and of each of those agents, how many wait.
CREATE FUNCTION count_tasks(
    pools TEXT[], agents TEXT[], most INTEGER, most_per_agent INTEGER,
    OUT unclaimed BIGINT, OUT claimed BIGINT, OUT in_flight BIGINT, OUT deadline_at BIGINT, OUT of_agents TEXT[]
) LANGUAGE plpgsql STABLE
    SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET enable_material = off SET jit = off AS $$
BEGIN
    SELECT count(*) INTO unclaimed
        FROM (SELECT FROM tasks t WHERE t.node_id = '' AND t.state = 'queued' LIMIT most) c;
    SELECT count(*) INTO claimed
        FROM (SELECT FROM tasks t WHERE t.node_id <> '' AND t.state IN ('queued', 'running') LIMIT most) c;
    SELECT coalesce(sum(flying), 0) INTO in_flight FROM flying_agents;
    SELECT t.deadline_at INTO deadline_at
        FROM tasks t WHERE t.node_id = '' AND t.state = 'queued' ORDER BY t.deadline_at LIMIT 1;
    SELECT array_agg((
        (SELECT count(*) FROM (
            SELECT FROM unnest(pools) AS p (pool) CROSS JOIN LATERAL (
                SELECT FROM tasks t
                WHERE t.node_id = '' AND t.state = 'queued' AND t.pool = p.pool AND t.agent_id = a.agent_id
                LIMIT most_per_agent
            ) one
        ) c)
        + (SELECT count(*) FROM (
            SELECT FROM nodes n CROSS JOIN LATERAL (
                SELECT FROM tasks t
                WHERE t.node_id <> '' AND t.state IN ('queued', 'running')
                    AND t.node_id = n.id AND t.agent_id = a.agent_id
                LIMIT most_per_agent
            ) one
        ) c)
        - coalesce((SELECT flying FROM flying_agents f WHERE f.agent_id = a.agent_id), 0)
    )::TEXT ORDER BY a.place) INTO of_agents FROM unnest(agents) WITH ORDINALITY AS a (agent_id, place);
END $$;

-- How many tasks of nobody are before one that waits, by the order of claims; null if that is too far to count.
CREATE FUNCTION tasks_before(
    wanted_pool TEXT, wanted_agent TEXT, wanted_rank BIGINT, wanted_id TEXT, own_max INTEGER, agents_max INTEGER
) RETURNS BIGINT LANGUAGE plpgsql STABLE
    SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
    SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET enable_material = off SET jit = off AS $$
DECLARE
    own BIGINT;
    own_turn BIGINT;
    level BIGINT;
    agents BIGINT;
    others BIGINT;
BEGIN
    SELECT count(*) INTO own FROM (
        SELECT FROM tasks t
        WHERE t.node_id = '' AND t.state = 'queued' AND t.pool = wanted_pool AND t.agent_id = wanted_agent
            AND (t.rank, t.id) < (wanted_rank, wanted_id) LIMIT own_max
    ) c;
    SELECT count(*) INTO agents FROM (SELECT FROM task_turns t WHERE t.pool = wanted_pool LIMIT agents_max) c;
    IF own = own_max OR agents = agents_max THEN
        RETURN NULL;
    END IF;
    SELECT t.turn INTO own_turn FROM task_turns t WHERE t.pool = wanted_pool AND t.agent_id = wanted_agent;
    level := own + coalesce((SELECT flying FROM flying_agents f WHERE f.agent_id = wanted_agent), 0);
    WITH flying AS MATERIALIZED (SELECT * FROM flying_agents), rivals AS MATERIALIZED (
        SELECT t.agent_id, t.turn,
            level - coalesce((SELECT f.flying FROM flying f WHERE f.agent_id = t.agent_id), 0) AS ahead
        FROM task_turns t WHERE t.pool = wanted_pool AND t.agent_id <> wanted_agent
    )
    -- Their tasks at a lower level; and the one at the same level, if they have been served less or longer ago.
    SELECT coalesce(sum((SELECT count(*) FROM (
        SELECT FROM tasks t
        WHERE t.node_id = '' AND t.state = 'queued' AND t.pool = wanted_pool AND t.agent_id = r.agent_id
        LIMIT greatest(0, r.ahead + CASE WHEN (r.ahead + 1, r.turn) < (own + 1, own_turn) THEN 1 ELSE 0 END)
    ) c)), 0) INTO others FROM rivals r;
    RETURN own + others;
END $$;
