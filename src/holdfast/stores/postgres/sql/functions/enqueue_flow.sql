-- Jobs with edges or parents. `flow` is an array of objects: n, the place of the job; parents;
-- ends, 1 if it ends with them; edges, as arrays of target, join and what a failure does; number, how many these are; bytes, what
-- they take.

-- One number of each job by its place; NULL where no job has edges or parents.
CREATE OR REPLACE FUNCTION holdfast.flow_numbers(flow jsonb, field text, jobs integer)
RETURNS integer[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF flow IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(
        SELECT nullif((f.job ->> field)::integer, 0)
        FROM generate_series(1, jobs) n
        LEFT JOIN jsonb_array_elements(flow) f(job) ON (f.job ->> 'n')::integer = n
        ORDER BY n
    );
END
$$;

-- Inserts the joins and edges of those of these jobs that were created.
CREATE OR REPLACE FUNCTION holdfast.insert_flow(
    flow jsonb, tenants text[], ids text[], made bigint[], now bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH created AS MATERIALIZED (
        -- Of jobs with the same id the first was created.
        SELECT DISTINCT ON (j.seq) j.seq, j.edges, (f.job ->> 'parents')::integer AS parents,
            f.job -> 'edges' AS list
        FROM jsonb_array_elements(flow) f(job)
        CROSS JOIN LATERAL (SELECT (f.job ->> 'n')::integer AS n) place
        CROSS JOIN LATERAL (
            SELECT x.seq, x.edges FROM holdfast.jobs x
            WHERE x.tenant = tenants[place.n] AND x.id = ids[place.n] LIMIT 1
        ) j
        WHERE j.seq = ANY (made) ORDER BY j.seq, place.n
    ), joined AS (
        INSERT INTO holdfast.joins (seq, at, total, due, name)
        SELECT c.seq, now, c.parents, c.parents, '' FROM created c WHERE c.parents > 0
    )
    INSERT INTO holdfast.edges (seq, number, target, name, on_failure)
    SELECT c.seq, e.n - 1, e.edge ->> 0, e.edge ->> 1, e.edge ->> 2
    FROM created c CROSS JOIN LATERAL jsonb_array_elements(c.list) WITH ORDINALITY AS e(edge, n)
    WHERE c.edges IS NOT NULL;
END
$$;
