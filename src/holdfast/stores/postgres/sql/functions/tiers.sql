-- Tiers and the platform's defaults: what tenants have unless their own settings say otherwise. It
-- is looked up when it is needed, so that a change of a tier is one write (core/tiers.py).

-- What a tenant has from its tier and from the platform's defaults, each value from the first of
-- them that has it. NULL where there never was a tier.
CREATE OR REPLACE FUNCTION holdfast.tier_of_tenant(of_tenant text) RETURNS holdfast.tiers
LANGUAGE plpgsql STABLE AS $$
DECLARE
    its holdfast.tiers;
BEGIN
    IF NOT EXISTS (SELECT FROM holdfast.tiers) THEN
        RETURN NULL;
    END IF;
    SELECT coalesce(t.tier, ''), d.known OR coalesce(t.known, false),
        coalesce(t.max_running, d.max_running), coalesce(t.price_us, d.price_us),
        coalesce(t.burst, d.burst), coalesce(t.weight, d.weight),
        coalesce(t.max_queued, d.max_queued), coalesce(t.max_bytes, d.max_bytes),
        coalesce(t.top_running, d.top_running), coalesce(t.top_price, d.top_price),
        coalesce(t.top_burst, d.top_burst), coalesce(t.queue_max, d.queue_max),
        coalesce(t.queue_price, d.queue_price), coalesce(t.queue_burst, d.queue_burst),
        coalesce(t.group_max, d.group_max), coalesce(t.group_price, d.group_price),
        coalesce(t.group_burst, d.group_burst), greatest(d.rated, t.rated, r.moved),
        greatest(d.rated_at, t.rated_at, r.moved_at)
    INTO its FROM holdfast.tiers d
        LEFT JOIN holdfast.tenants_with_settings r ON r.tenant = of_tenant
        LEFT JOIN holdfast.tiers t ON t.tier = r.tier
    WHERE d.tier = '';
    RETURN its;
END
$$;

-- The limits of a tenant or a queue that count: its own, what tiers fill in, and of a tenant at
-- most the ceilings.
CREATE OR REPLACE FUNCTION holdfast.limits_of(of_kind text, of_tenant text, of_part text)
RETURNS holdfast.limits LANGUAGE plpgsql STABLE AS $$
DECLARE
    own holdfast.scopes;
    its holdfast.tiers := holdfast.tier_of_tenant(of_tenant);
    found holdfast.limits;
BEGIN
    SELECT * INTO own FROM holdfast.scopes s
    WHERE s.kind = of_kind AND s.tenant = of_tenant AND s.part = of_part;
    found.paused := coalesce(own.paused, false);
    found.slots_count := coalesce(own.slots_count, false);
    found.rated := its.rated;
    found.rated_at := its.rated_at;
    IF of_kind = 'queue' THEN
        found.max_running := coalesce(own.max_running, its.queue_max);
        found.price_us := coalesce(own.price_us, its.queue_price);
        found.burst := coalesce(own.burst, its.queue_burst);
        RETURN found;
    END IF;
    found.max_running := coalesce(own.max_running, its.max_running);
    found.price_us := coalesce(own.price_us, its.price_us);
    found.burst := coalesce(own.burst, its.burst);
    IF its.known THEN
        found.max_running := least(found.max_running, coalesce(own.top_running, its.top_running));
        its.top_price := coalesce(own.top_price, its.top_price);
        its.top_burst := coalesce(own.top_burst, its.top_burst);
        IF its.top_price IS NOT NULL AND (
            found.price_us IS NULL OR found.price_us < its.top_price OR found.burst > its.top_burst
        ) THEN
            found.price_us := its.top_price;
            found.burst := its.top_burst;
        END IF;
    END IF;
    RETURN found;
END
$$;

-- Of these tenants: whether a limit of their groups may have to be checked, and the caps that
-- count, in the order of their names.
CREATE OR REPLACE FUNCTION holdfast.settings_of_tenants(tenants text[])
RETURNS TABLE (tenant text, grouped boolean, max_queued bigint, max_bytes bigint)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT u.name COLLATE "C", coalesce(r.grouped, false)
            OR coalesce(t.group_max, t.group_price, d.group_max, d.group_price) IS NOT NULL,
        coalesce(r.max_queued, t.max_queued, d.max_queued),
        coalesce(r.max_bytes, t.max_bytes, d.max_bytes)
    FROM (SELECT DISTINCT x.name FROM unnest(settings_of_tenants.tenants) x(name)) u
    LEFT JOIN LATERAL (
        SELECT * FROM holdfast.tenants_with_settings x WHERE x.tenant = u.name LIMIT 1
    ) r ON true
    LEFT JOIN holdfast.tiers t ON t.tier = r.tier
    LEFT JOIN holdfast.tiers d ON d.tier = ''
    ORDER BY u.name COLLATE "C";
END
$$;

-- Of these tenants, those whose groups may have limits, and whether any has a cap.
CREATE OR REPLACE FUNCTION holdfast.sum_settings(
    tenants text[], OUT grouped text[], OUT capped boolean
) LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT coalesce(array_agg(s.tenant) FILTER (WHERE s.grouped), '{}'),
        count(s.max_queued) + count(s.max_bytes) > 0
    INTO grouped, capped FROM holdfast.settings_of_tenants(tenants) s;
END
$$;

-- Whether limits of a tenant's groups may have to be checked.
CREATE OR REPLACE FUNCTION holdfast.limits_groups(of_tenant text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF EXISTS (
        SELECT FROM holdfast.tenants_with_settings r WHERE r.tenant = of_tenant AND r.grouped
    ) THEN
        RETURN true;
    END IF;
    RETURN EXISTS (SELECT FROM holdfast.tiers) AND EXISTS (
        SELECT FROM holdfast.settings_of_tenants(ARRAY[of_tenant]) s WHERE s.grouped
    );
END
$$;

-- What deltas that no refresh of scopes has read name, of tenants that limits concern: those with
-- settings, and all while the platform's defaults limit them. Jobs of groups may wait behind a gate
-- of defaults that are gone. A function that PostgreSQL can inline.
CREATE OR REPLACE FUNCTION holdfast.new_changes()
RETURNS TABLE (tenant text, queue text, group_name text) LANGUAGE sql STABLE AS $$
    SELECT d.tenant, d.queue, d.group_name FROM holdfast.deltas d
    CROSS JOIN holdfast.store_state h
    LEFT JOIN LATERAL (
        SELECT true AS has FROM holdfast.tenants_with_settings r WHERE r.tenant = d.tenant LIMIT 1
    ) r ON true
    WHERE d.id >= (SELECT deltas_floor FROM holdfast.store_state) AND d.tenant <> ''
        AND (r.has OR h.limits_all OR h.gates_all AND d.group_name IS NOT NULL)
        AND NOT pg_visible_in_snapshot(d.txid, (SELECT holdfast.last_refresh()))
$$;

-- Notes whether a scope has no room by now, so that a change of its tier can find it. The caller
-- has the lock of claims.
CREATE OR REPLACE FUNCTION holdfast.note_rest(
    of_kind text, of_tenant text, of_part text, rests boolean
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    its text;
BEGIN
    IF NOT (SELECT h.tiered FROM holdfast.store_state h) THEN
        RETURN;
    ELSIF NOT rests THEN
        DELETE FROM holdfast.resting x
        WHERE x.tenant = of_tenant AND x.kind = of_kind AND x.part = of_part;
        RETURN;
    END IF;
    its := coalesce((
        SELECT r.tier FROM holdfast.tenants_with_settings r WHERE r.tenant = of_tenant
    ), '');
    IF NOT EXISTS (
        SELECT FROM holdfast.resting x WHERE x.tenant = of_tenant AND x.kind = of_kind
            AND x.part = of_part AND x.tier = its
    ) THEN
        INSERT INTO holdfast.resting VALUES (of_tenant, of_kind, of_part, its)
        ON CONFLICT (tenant, kind, part) DO UPDATE SET tier = excluded.tier;
    END IF;
END
$$;

-- Puts a tenant into a tier: its rates count anew, and claims look at all of it that rests.
CREATE OR REPLACE FUNCTION holdfast.move_tenant(of_tenant text, to_tier text, now bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.tenants_with_settings r
    SET tier = to_tier, moved = nextval('holdfast.cursors'), moved_at = now
    WHERE r.tenant = of_tenant;
    IF EXISTS (SELECT FROM holdfast.resting x WHERE x.tenant = of_tenant) THEN
        PERFORM holdfast.look_for('all', '', of_tenant);
    END IF;
END
$$;

-- Has claims look again, from the first one on.
CREATE OR REPLACE FUNCTION holdfast.look_for(of_kind text, of_tier text, of_tenant text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.looks VALUES (of_kind, of_tier, of_tenant, '', '')
    ON CONFLICT (kind, tier, tenant) DO UPDATE SET after_one = '', after_two = '';
END
$$;
