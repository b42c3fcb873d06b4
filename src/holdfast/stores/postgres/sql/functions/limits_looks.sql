-- What claims look at again after a change of a tier: what rests in it, in portions, so that
-- neither the change nor a claim takes longer where many tenants are in it. A limit that was
-- lowered holds at once: claims check the room of what they meet. All of it runs under the lock of
-- claims.

-- Refreshes the next portion. A claim that names tenants looks at theirs first, and at one portion
-- of others, so that it is not the only kind of claim that does not move on.
CREATE OR REPLACE FUNCTION holdfast.look_again(
    in_tenants text[], now bigint, INOUT state holdfast.looking
) LANGUAGE plpgsql AS $$
DECLARE
    keys holdfast.resting[] := '{}';
    changes holdfast.tenant_change[];
BEGIN
    state.found := false;
    IF coalesce(state.room, 0) <= 0 OR NOT EXISTS (SELECT FROM holdfast.looks) THEN
        RETURN;
    END IF;
    IF in_tenants IS NOT NULL THEN
        keys := holdfast.rests_of_tenants(in_tenants, state.portion, state.named);
        IF keys <> '{}' THEN
            state.named := ARRAY[
                keys[cardinality(keys)].tenant, keys[cardinality(keys)].kind,
                keys[cardinality(keys)].part
            ];
        END IF;
    END IF;
    IF state.others THEN
        keys := keys || holdfast.next_rests(state.portion);
        state.others := in_tenants IS NULL;
    END IF;
    IF keys = '{}' THEN
        RETURN;
    END IF;
    state.found := true;
    state.room := state.room - cardinality(keys);
    SELECT array_agg((t.tenant, t.queues, t.groups)::holdfast.tenant_change) INTO changes FROM (
        SELECT k.tenant, array_agg(DISTINCT k.part) FILTER (WHERE k.kind = 'queue') AS queues,
            array_agg(DISTINCT k.part) FILTER (WHERE k.kind = 'group') AS groups
        FROM unnest(keys) k GROUP BY k.tenant
    ) t;
    PERFORM holdfast.announce();
    state.wakes := holdfast.refresh_tenants(changes, now) OR state.wakes;
END
$$;

-- The next of what rests of these tenants after `last`, in the order of tenants and from the tenant
-- to its groups, as far as claims look for it. A group may have many jobs to let in, so it counts
-- as ten others.
CREATE OR REPLACE FUNCTION holdfast.rests_of_tenants(
    in_tenants text[], most bigint, last text[]
) RETURNS holdfast.resting[] LANGUAGE plpgsql AS $$
DECLARE
    keys holdfast.resting[] := '{}';
    name text;
    kind_of text;
    found holdfast.resting[];
BEGIN
    FOR name IN
        SELECT DISTINCT u.t COLLATE "C" FROM unnest(in_tenants) u(t)
        WHERE last IS NULL OR u.t COLLATE "C" >= last[1] ORDER BY 1
    LOOP
        FOREACH kind_of IN ARRAY ARRAY['tenant', 'queue', 'group'] LOOP
            EXIT WHEN most <= 0;
            CONTINUE WHEN name = last[1] AND kind_of COLLATE "C" > last[2]
                OR NOT holdfast.looks_for(name, kind_of);
            found := ARRAY(
                SELECT x FROM holdfast.resting x
                WHERE x.tenant = name AND x.kind = kind_of AND (
                    last IS NULL OR x.part > last[3] OR name <> last[1] OR kind_of <> last[2]
                )
                ORDER BY x.part
                LIMIT CASE kind_of WHEN 'group' THEN greatest(1, most / 10) ELSE most END
            );
            keys := keys || found;
            most := most - cardinality(found) * CASE kind_of WHEN 'group' THEN 10 ELSE 1 END;
        END LOOP;
        EXIT WHEN most <= 0;
    END LOOP;
    RETURN keys;
END
$$;

-- Whether claims look at what of this kind rests of a tenant.
CREATE OR REPLACE FUNCTION holdfast.looks_for(of_tenant text, of_kind text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM holdfast.looks l WHERE l.kind = 'all' AND l.tier = '' AND l.tenant = of_tenant
    ) OR EXISTS (
        SELECT FROM holdfast.looks l
        WHERE l.kind = of_kind AND l.tenant = '' AND l.tier = coalesce((
            SELECT r.tier FROM holdfast.tenants_with_settings r WHERE r.tenant = of_tenant
        ), '')
    );
END
$$;

-- The next portion of what rests, shared among all that claims look for. Where there is less than
-- its share, nothing is left to look for.
CREATE OR REPLACE FUNCTION holdfast.next_rests(portion bigint) RETURNS holdfast.resting[]
LANGUAGE plpgsql AS $$
DECLARE
    keys holdfast.resting[] := '{}';
    look holdfast.looks;
    found holdfast.resting[];
    share bigint;
    most bigint;
BEGIN
    SELECT portion / greatest(1, count(*)) INTO share FROM (
        SELECT FROM holdfast.looks LIMIT portion
    ) l;
    FOR look IN
        SELECT * FROM holdfast.looks l ORDER BY l.kind DESC, l.tier DESC, l.tenant DESC
        LIMIT portion
    LOOP
        most := share;
        IF look.kind = 'all' THEN
            most := greatest(1, share / 10);
            found := ARRAY(
                SELECT x FROM holdfast.resting x
                WHERE x.tenant = look.tenant AND (x.kind, x.part) > (look.after_one, look.after_two)
                ORDER BY x.kind, x.part LIMIT most
            );
        ELSE
            IF look.kind = 'group' THEN
                most := greatest(1, share / 10);
            END IF;
            found := ARRAY(
                SELECT x FROM holdfast.resting x
                WHERE x.tier = look.tier AND x.kind = look.kind
                    AND (x.tenant, x.part) > (look.after_one, look.after_two)
                ORDER BY x.tenant, x.part LIMIT most
            );
        END IF;
        IF cardinality(found) < most THEN
            DELETE FROM holdfast.looks l
            WHERE l.kind = look.kind AND l.tier = look.tier AND l.tenant = look.tenant;
        ELSE
            UPDATE holdfast.looks l SET after_two = found[most].part, after_one =
                CASE look.kind WHEN 'all' THEN found[most].kind ELSE found[most].tenant END
            WHERE l.kind = look.kind AND l.tier = look.tier AND l.tenant = look.tenant;
        END IF;
        keys := keys || found;
    END LOOP;
    RETURN keys;
END
$$;
