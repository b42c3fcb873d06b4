-- Enqueue of a call that creates all of its jobs, or none.

-- As `enqueue`, for jobs of one tenant. If it returns any row, nothing was created.
CREATE OR REPLACE FUNCTION holdfast.enqueue_whole(
    tenants text[], ids text[], queues text[], types text[], codecs text[], versions integer[],
    payloads bytea[], rules text[], priorities bigint[], delays bigint[], run_at_givens bigint[],
    ttls bigint[], keys text[], key_lengths bigint[], groups text[], tags text[], origins text[],
    attempts integer[], keeps bigint[], given_now bigint, events boolean, channel text, hint text,
    ids_unseen boolean, keys_unseen boolean, flow jsonb
) RETURNS SETOF holdfast.answer LANGUAGE plpgsql AS $$
DECLARE
    answers holdfast.answer[];
BEGIN
    answers := ARRAY(
        SELECT a FROM holdfast.enqueue(
            tenants, ids, queues, types, codecs, versions, payloads, rules, priorities, delays,
            run_at_givens, ttls, keys, key_lengths, groups, tags, origins, attempts, keeps,
            given_now, events, channel, hint, ids_unseen, keys_unseen, flow
        ) a
    );
    IF answers <> '{}' THEN
        RAISE SQLSTATE 'HFALL';
    END IF;
EXCEPTION WHEN SQLSTATE 'HFALL' THEN
    -- What the block has written is undone by now.
    RETURN QUERY SELECT * FROM unnest(answers);
END
$$;
