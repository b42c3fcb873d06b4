BEGIN TRANSACTION;
CREATE TABLE aside (
    kind   TEXT    NOT NULL,
    part   TEXT    NOT NULL,
    tenant TEXT    NOT NULL,
    queue  TEXT    NOT NULL,
    turn   INTEGER NOT NULL,
    seen   INTEGER NOT NULL,
    PRIMARY KEY (kind, part, tenant, queue)
) WITHOUT ROWID;
CREATE TABLE bodies (
    seq     INTEGER PRIMARY KEY,
    payload BLOB NOT NULL
);
CREATE TABLE buckets (
    kind    TEXT    NOT NULL,
    tenant  TEXT    NOT NULL,
    part    TEXT    NOT NULL,
    full_at INTEGER NOT NULL,
    rated   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, tenant, part)
) WITHOUT ROWID;
CREATE TABLE claims (
    nonce TEXT PRIMARY KEY,
    until INTEGER NOT NULL,
    seqs  TEXT    NOT NULL
) WITHOUT ROWID;
INSERT INTO "claims" VALUES('f',1767225660000000,'[102]');
INSERT INTO "claims" VALUES('n',1767225660000000,'[1]');
CREATE TABLE counters (
    one          INTEGER PRIMARY KEY CHECK (one = 1),
    seq          INTEGER NOT NULL,
    cursor       INTEGER NOT NULL,
    events_floor INTEGER NOT NULL,
    scopes       INTEGER NOT NULL,
    turn         INTEGER NOT NULL
);
INSERT INTO "counters" VALUES(1,205,206,0,1,202);
CREATE TABLE counts (
    kind        TEXT    NOT NULL,
    tenant      TEXT    NOT NULL,
    part        TEXT    NOT NULL,
    waiting     INTEGER NOT NULL DEFAULT 0,
    scheduled   INTEGER NOT NULL DEFAULT 0,
    enqueued    INTEGER NOT NULL DEFAULT 0,
    processing  INTEGER NOT NULL DEFAULT 0,
    retrying    INTEGER NOT NULL DEFAULT 0,
    completed   INTEGER NOT NULL DEFAULT 0,
    failed      INTEGER NOT NULL DEFAULT 0,
    canceled    INTEGER NOT NULL DEFAULT 0,
    bytes       INTEGER NOT NULL DEFAULT 0,
    blocked     INTEGER NOT NULL DEFAULT 0,
    slots       INTEGER NOT NULL DEFAULT 0,
    open        INTEGER NOT NULL DEFAULT 1,
    turn        INTEGER NOT NULL DEFAULT 0,
    ring        INTEGER NOT NULL DEFAULT 0,
    line_count  INTEGER NOT NULL DEFAULT 0,
    queue_count INTEGER NOT NULL DEFAULT 0,
    group_count INTEGER NOT NULL DEFAULT 0,
    slot_count  INTEGER NOT NULL DEFAULT 0,
    ready       INTEGER NOT NULL DEFAULT 0,
    next_turn   INTEGER NOT NULL DEFAULT 0,
    aside       INTEGER NOT NULL DEFAULT 0,
    resting     TEXT,
    looked      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, tenant, part)
) WITHOUT ROWID;
INSERT INTO "counts" VALUES('queue','acme','audio',0,0,1,0,0,0,0,0,0,0,0,1,4,2,0,0,0,0,1,0,0,NULL,0);
INSERT INTO "counts" VALUES('queue','acme','mail',0,0,1,1,0,0,0,0,0,0,0,0,11,8,0,0,0,0,0,11,0,NULL,1);
INSERT INTO "counts" VALUES('queue','flows','mail',3,0,1,0,0,1,0,0,0,0,0,1,102,102,0,0,0,0,1,107,0,NULL,0);
INSERT INTO "counts" VALUES('queue','globex','mail',0,0,1,0,0,0,0,0,0,0,0,1,6,6,0,0,0,0,1,0,0,NULL,0);
INSERT INTO "counts" VALUES('tenant','acme','',0,0,2,1,0,0,0,0,6,0,0,1,8,0,1,2,0,0,0,10,0,NULL,0);
INSERT INTO "counts" VALUES('tenant','flows','',3,0,1,0,0,1,0,0,1397,0,0,1,103,0,1,1,0,0,0,106,0,NULL,0);
INSERT INTO "counts" VALUES('tenant','globex','',0,0,1,0,0,0,0,0,2,0,0,1,6,0,1,1,0,0,0,0,0,NULL,0);
CREATE TABLE edges (
    seq        INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    target     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    on_failure TEXT    NOT NULL,
    PRIMARY KEY (seq, number)
) WITHOUT ROWID;
INSERT INTO "edges" VALUES(102,0,'end','','fail');
INSERT INTO "edges" VALUES(103,0,'child0','','fail');
INSERT INTO "edges" VALUES(103,1,'child1','','fail');
INSERT INTO "edges" VALUES(103,2,'child2','','fail');
INSERT INTO "edges" VALUES(103,3,'child3','','fail');
INSERT INTO "edges" VALUES(103,4,'child4','','fail');
INSERT INTO "edges" VALUES(103,5,'child5','','fail');
INSERT INTO "edges" VALUES(103,6,'child6','','fail');
INSERT INTO "edges" VALUES(103,7,'child7','','fail');
INSERT INTO "edges" VALUES(103,8,'child8','','fail');
INSERT INTO "edges" VALUES(103,9,'child9','','fail');
INSERT INTO "edges" VALUES(103,10,'child10','','fail');
INSERT INTO "edges" VALUES(103,11,'child11','','fail');
INSERT INTO "edges" VALUES(103,12,'child12','','fail');
INSERT INTO "edges" VALUES(103,13,'child13','','fail');
INSERT INTO "edges" VALUES(103,14,'child14','','fail');
INSERT INTO "edges" VALUES(103,15,'child15','','fail');
INSERT INTO "edges" VALUES(103,16,'child16','','fail');
INSERT INTO "edges" VALUES(103,17,'child17','','fail');
INSERT INTO "edges" VALUES(103,18,'child18','','fail');
INSERT INTO "edges" VALUES(103,19,'child19','','fail');
INSERT INTO "edges" VALUES(103,20,'child20','','fail');
INSERT INTO "edges" VALUES(103,21,'child21','','fail');
INSERT INTO "edges" VALUES(103,22,'child22','','fail');
INSERT INTO "edges" VALUES(103,23,'child23','','fail');
INSERT INTO "edges" VALUES(103,24,'child24','','fail');
INSERT INTO "edges" VALUES(103,25,'child25','','fail');
INSERT INTO "edges" VALUES(103,26,'child26','','fail');
INSERT INTO "edges" VALUES(103,27,'child27','','fail');
INSERT INTO "edges" VALUES(103,28,'child28','','fail');
INSERT INTO "edges" VALUES(103,29,'child29','','fail');
INSERT INTO "edges" VALUES(103,30,'child30','','fail');
INSERT INTO "edges" VALUES(103,31,'child31','','fail');
INSERT INTO "edges" VALUES(103,32,'child32','','fail');
INSERT INTO "edges" VALUES(103,33,'child33','','fail');
INSERT INTO "edges" VALUES(103,34,'child34','','fail');
INSERT INTO "edges" VALUES(103,35,'child35','','fail');
INSERT INTO "edges" VALUES(103,36,'child36','','fail');
INSERT INTO "edges" VALUES(103,37,'child37','','fail');
INSERT INTO "edges" VALUES(103,38,'child38','','fail');
INSERT INTO "edges" VALUES(103,39,'child39','','fail');
INSERT INTO "edges" VALUES(103,40,'child40','','fail');
INSERT INTO "edges" VALUES(103,41,'child41','','fail');
INSERT INTO "edges" VALUES(103,42,'child42','','fail');
INSERT INTO "edges" VALUES(103,43,'child43','','fail');
INSERT INTO "edges" VALUES(103,44,'child44','','fail');
INSERT INTO "edges" VALUES(103,45,'child45','','fail');
INSERT INTO "edges" VALUES(103,46,'child46','','fail');
INSERT INTO "edges" VALUES(103,47,'child47','','fail');
INSERT INTO "edges" VALUES(103,48,'child48','','fail');
INSERT INTO "edges" VALUES(103,49,'child49','','fail');
INSERT INTO "edges" VALUES(103,50,'child50','','fail');
INSERT INTO "edges" VALUES(103,51,'child51','','fail');
INSERT INTO "edges" VALUES(103,52,'child52','','fail');
INSERT INTO "edges" VALUES(103,53,'child53','','fail');
INSERT INTO "edges" VALUES(103,54,'child54','','fail');
INSERT INTO "edges" VALUES(103,55,'child55','','fail');
INSERT INTO "edges" VALUES(103,56,'child56','','fail');
INSERT INTO "edges" VALUES(103,57,'child57','','fail');
INSERT INTO "edges" VALUES(103,58,'child58','','fail');
INSERT INTO "edges" VALUES(103,59,'child59','','fail');
INSERT INTO "edges" VALUES(103,60,'end','','fail');
CREATE TABLE entries (
    seq   INTEGER NOT NULL,
    kind  TEXT    NOT NULL,
    name  TEXT    NOT NULL,
    value BLOB    NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (seq, kind, name)
);
CREATE TABLE events (
    cursor  INTEGER PRIMARY KEY,
    number  INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    tenant  TEXT    NOT NULL,
    queue   TEXT    NOT NULL,
    type    TEXT    NOT NULL,
    attempt INTEGER NOT NULL,
    fence   INTEGER NOT NULL,
    until   INTEGER,
    note    TEXT,
    ids     TEXT    NOT NULL,
    signed  TEXT
);
INSERT INTO "events" VALUES(1,1,1767225600000000,'configured','acme','','',0,0,NULL,'{"max_running":1}','["scope/queue/4:acme/mail"]',NULL);
INSERT INTO "events" VALUES(3,2,1767225600000000,'enqueued','acme','mail','send',0,0,NULL,NULL,'["a","b"]',NULL);
INSERT INTO "events" VALUES(4,1,1767225600000000,'enqueued','acme','audio','send',0,0,NULL,NULL,'["c"]',NULL);
INSERT INTO "events" VALUES(5,1,1767225600000000,'enqueued','globex','mail','send',0,0,NULL,NULL,'["d"]',NULL);
INSERT INTO "events" VALUES(6,1,1767225600000000,'leased','acme','mail','send',1,1,1767225660000000,'w','["a"]',NULL);
INSERT INTO "events" VALUES(106,5,1767225600000000,'enqueued','flows','mail','send',0,0,NULL,NULL,'["end","first","second","child0","child59"]',NULL);
INSERT INTO "events" VALUES(107,1,1767225600000000,'leased','flows','mail','send',1,1,1767225660000000,'w','["first"]',NULL);
INSERT INTO "events" VALUES(108,1,1767225600000000,'completed','flows','mail','send',1,1,NULL,NULL,'["first"]',NULL);
CREATE TABLE holds (
    name   TEXT PRIMARY KEY,
    owner  TEXT    NOT NULL,
    until  INTEGER NOT NULL,
    note   TEXT    NOT NULL,
    scope  TEXT,               -- of a slot: what the names of its scope's slots start with
    tenant TEXT                -- of a slot: the tenant of its scope
) WITHOUT ROWID;
CREATE TABLE jobs (
    seq          INTEGER PRIMARY KEY,
    tenant       TEXT    NOT NULL,
    id           TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    type         TEXT    NOT NULL,
    codec        TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    state        TEXT    NOT NULL,
    late         INTEGER NOT NULL DEFAULT 0,
    gate         INTEGER NOT NULL DEFAULT 0,
    priority     INTEGER NOT NULL,
    run_at       INTEGER NOT NULL,
    attempt      INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL,
    fence        INTEGER NOT NULL DEFAULT 0,
    lapses       INTEGER NOT NULL DEFAULT 0,
    misses       INTEGER NOT NULL DEFAULT 0,
    token        TEXT,
    lease_until  INTEGER,
    worker       TEXT,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    finished_at  INTEGER,
    keep_us      INTEGER NOT NULL,
    keep_until   INTEGER,
    key          TEXT,
    group_name   TEXT,
    tags         TEXT,
    origin       TEXT,
    replayed_as  TEXT,
    rules        TEXT    NOT NULL,
    size         INTEGER NOT NULL,
    reason       TEXT,
    error        TEXT,
    progress     TEXT,
    result       BLOB,
    payload      BLOB
, awaits TEXT, journal TEXT, edges INTEGER);
INSERT INTO "jobs" VALUES(1,'acme','a','mail','send','bytes',1,'processing',0,0,0,1767225600000000,1,3,1,0,0,'n.1',1767225660000000,'w',1767225600000000,1767225600000000,NULL,NULL,3600000000,NULL,NULL,NULL,NULL,NULL,NULL,'{"retry":{"kind":"fixed","base_s":10,"jitter":"none"},"keep_us":3600000000,"keep_failed_us":7200000000}',2,NULL,NULL,NULL,NULL,X'7B7D',NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'acme','b','mail','send','bytes',1,'enqueued',0,0,0,1767225600000000,0,3,0,0,0,NULL,NULL,NULL,1767225600000000,1767225600000000,NULL,NULL,3600000000,NULL,NULL,NULL,NULL,NULL,NULL,'{"retry":{"kind":"fixed","base_s":10,"jitter":"none"},"keep_us":3600000000,"keep_failed_us":7200000000}',2,NULL,NULL,NULL,NULL,X'7B7D',NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'acme','c','audio','send','bytes',1,'enqueued',0,0,0,1767225600000000,0,3,0,0,0,NULL,NULL,NULL,1767225600000000,1767225600000000,NULL,NULL,3600000000,NULL,NULL,NULL,NULL,NULL,NULL,'{"retry":{"kind":"fixed","base_s":10,"jitter":"none"},"keep_us":3600000000,"keep_failed_us":7200000000}',2,NULL,NULL,NULL,NULL,X'7B7D',NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(4,'globex','d','mail','send','bytes',1,'enqueued',0,0,0,1767225600000000,0,3,0,0,0,NULL,NULL,NULL,1767225600000000,1767225600000000,NULL,NULL,3600000000,NULL,NULL,NULL,NULL,NULL,NULL,'{"retry":{"kind":"fixed","base_s":10,"jitter":"none"},"keep_us":3600000000,"keep_failed_us":7200000000}',2,NULL,NULL,NULL,NULL,X'7B7D',NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(101,'flows','end','mail','send','bytes',1,'waiting',0,0,0,1767225600000000,0,3,0,0,0,NULL,NULL,NULL,1767225600000000,1767225600000000,NULL,NULL,3600000000,NULL,NULL,NULL,NULL,NULL,NULL,'{"retry":{"kind":"fixed","base_s":10,"jitter":"none"},"keep_us":3600000000,"keep_failed_us":7200000000}',2,NULL,NULL,NULL,NULL,X'7B7D','join:','[1,0,1,0]',NULL);
INSERT INTO "jobs" VALUES(102,'flows','first','mail','send','bytes',1,'completed',0,0,0,1767225600000000,1,3,1,0,0,NULL,1767225660000000,'w',1767225600000000,1767225600000000,NULL,1767225600000000,3600000000,1767229200000000,NULL,NULL,NULL,NULL,NULL,'{"retry":{"kind":"fixed","base_s":10,"jitter":"none"},"keep_us":3600000000,"keep_failed_us":7200000000}',21,NULL,NULL,NULL,NULL,X'7B7D',NULL,NULL,1);
INSERT INTO "jobs" VALUES(103,'flows','second','mail','send','bytes',1,'enqueued',0,0,0,1767225600000000,0,3,0,0,0,NULL,NULL,NULL,1767225600000000,1767225600000000,NULL,NULL,3600000000,NULL,NULL,NULL,NULL,NULL,NULL,'{"retry":{"kind":"fixed","base_s":10,"jitter":"none"},"keep_us":3600000000,"keep_failed_us":7200000000}',1391,NULL,NULL,NULL,NULL,X'7B7D',NULL,NULL,61);
INSERT INTO "jobs" VALUES(104,'flows','child0','mail','send','bytes',1,'waiting',0,0,0,1767225600000000,0,3,0,0,0,NULL,NULL,NULL,1767225600000000,1767225600000000,NULL,NULL,3600000000,NULL,NULL,NULL,NULL,NULL,NULL,'{"retry":{"kind":"fixed","base_s":10,"jitter":"none"},"keep_us":3600000000,"keep_failed_us":7200000000}',2,NULL,NULL,NULL,NULL,X'7B7D','join:','[1,0,1,0]',NULL);
INSERT INTO "jobs" VALUES(105,'flows','child59','mail','send','bytes',1,'waiting',0,0,0,1767225600000000,0,3,0,0,0,NULL,NULL,NULL,1767225600000000,1767225600000000,NULL,NULL,3600000000,NULL,NULL,NULL,NULL,NULL,NULL,'{"retry":{"kind":"fixed","base_s":10,"jitter":"none"},"keep_us":3600000000,"keep_failed_us":7200000000}',2,NULL,NULL,NULL,NULL,X'7B7D','join:','[1,0,1,0]',NULL);
CREATE TABLE joins (
    seq    INTEGER NOT NULL,
    name   TEXT    NOT NULL,
    total  INTEGER NOT NULL,
    due    INTEGER NOT NULL,
    failed INTEGER NOT NULL DEFAULT 0,
    at     INTEGER NOT NULL,
    PRIMARY KEY (seq, name)
) WITHOUT ROWID;
INSERT INTO "joins" VALUES(101,'',2,1,0,1767225600000000);
INSERT INTO "joins" VALUES(104,'',1,1,0,1767225600000000);
INSERT INTO "joins" VALUES(105,'',1,1,0,1767225600000000);
CREATE TABLE keys (
    tenant TEXT NOT NULL,
    queue  TEXT NOT NULL,
    type   TEXT NOT NULL,
    key    TEXT NOT NULL,
    id     TEXT NOT NULL,
    until  INTEGER,
    PRIMARY KEY (tenant, queue, type, key)
) WITHOUT ROWID;
CREATE TABLE leftovers (
    seq    INTEGER PRIMARY KEY,
    weight INTEGER NOT NULL
);
CREATE TABLE releasing (
    tenant   TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    id       TEXT    NOT NULL,
    state    TEXT    NOT NULL,
    edges    INTEGER NOT NULL,
    followed INTEGER NOT NULL,
    gone     INTEGER NOT NULL,
    PRIMARY KEY (tenant, seq)
) WITHOUT ROWID;
CREATE TABLE reopen (
    kind   TEXT    NOT NULL,
    tenant TEXT    NOT NULL,
    part   TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (kind, tenant, part)
) WITHOUT ROWID;
CREATE TABLE settings (
    name    TEXT PRIMARY KEY,
    value   BLOB,              -- NULL: deleted; the row keeps its version from being used again
    version INTEGER NOT NULL,
    stamp   INTEGER,           -- of a scope or a tier: the value of counters.scopes when it was put
    tier    TEXT,              -- of a tenant: the tier that it is in
    changed INTEGER,           -- of a tier: the stamp when its rates changed; of a tenant: its tier
    at      INTEGER            -- the instant of that change
) WITHOUT ROWID;
INSERT INTO "settings" VALUES('scope/queue/4:acme/mail',X'7B226D61785F72756E6E696E67223A317D',1,1,NULL,NULL,NULL);
CREATE UNIQUE INDEX jobs_name ON jobs (tenant, id);
CREATE INDEX jobs_tenant ON jobs (tenant);
CREATE INDEX jobs_group ON jobs (tenant, group_name) WHERE group_name IS NOT NULL;
CREATE INDEX jobs_key ON jobs (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX jobs_ready ON jobs (queue, tenant, priority DESC, seq)
    WHERE state = 'enqueued' AND late = 0 AND gate = 0;
CREATE INDEX jobs_gated ON jobs (tenant, group_name, gate, queue, priority DESC, seq)
    WHERE group_name IS NOT NULL AND state = 'enqueued' AND late = 0;
CREATE INDEX jobs_aside ON jobs (queue, tenant, type, priority DESC, seq)
    WHERE state = 'enqueued' AND late = 0 AND gate = 2;
CREATE INDEX jobs_order ON jobs (tenant, group_name, seq)
    WHERE group_name IS NOT NULL
    AND state IN ('waiting', 'scheduled', 'enqueued', 'processing', 'retrying');
CREATE INDEX jobs_ages ON jobs (tenant, queue, run_at) WHERE state = 'enqueued';
CREATE INDEX jobs_due ON jobs (run_at, tenant, queue, state, group_name)
    WHERE state IN ('scheduled', 'retrying') AND late = 0;
CREATE INDEX jobs_held ON jobs (lease_until)
    WHERE state = 'processing' AND attempt < max_attempts;
CREATE INDEX jobs_spent ON jobs (lease_until)
    WHERE state = 'processing' AND attempt >= max_attempts;
CREATE INDEX jobs_ttl ON jobs (late, expires_at)
    WHERE expires_at IS NOT NULL AND state IN ('waiting', 'scheduled', 'enqueued', 'retrying');
CREATE INDEX jobs_dead ON jobs (tenant) WHERE state = 'failed';
CREATE INDEX jobs_done ON jobs (keep_until) WHERE keep_until IS NOT NULL;
CREATE INDEX tenants_turn ON counts (turn)
    WHERE kind = 'tenant' AND open = 1 AND line_count > 0;
CREATE INDEX counts_idle ON counts (tenant, kind)
    WHERE waiting + scheduled + enqueued + processing + retrying = 0
    AND completed + failed + canceled + slots + queue_count + group_count = 0;
CREATE INDEX counts_resting ON counts (resting, kind, looked) WHERE resting IS NOT NULL;
CREATE INDEX counts_looked ON counts (tenant, looked) WHERE resting IS NOT NULL;
CREATE INDEX aside_turn ON aside (kind, part, queue, turn);
CREATE INDEX aside_line ON aside (kind, part, tenant, seen) WHERE queue > '';
CREATE INDEX buckets_full ON buckets (full_at);
CREATE INDEX reopen_at ON reopen (at);
CREATE INDEX claims_until ON claims (until);
CREATE INDEX keys_until ON keys (until) WHERE until IS NOT NULL;
CREATE INDEX events_tenant ON events (tenant);
CREATE INDEX settings_stamp ON settings (stamp) WHERE stamp IS NOT NULL;
CREATE INDEX settings_tier ON settings (tier) WHERE tier IS NOT NULL;
CREATE INDEX holds_until ON holds (until);
CREATE INDEX holds_slots ON holds (scope, until) WHERE scope IS NOT NULL;
CREATE INDEX holds_tenant ON holds (tenant, until) WHERE tenant IS NOT NULL;
CREATE INDEX lines_turn ON counts (tenant, turn)
    WHERE kind = 'queue' AND ready = 1;
CREATE INDEX lines_ring ON counts (part, ring)
    WHERE kind = 'queue' AND ready = 1 AND ring > 0;
CREATE INDEX lines_out ON counts (tenant)
    WHERE kind = 'queue' AND ready = 1 AND ring = 0;
CREATE TRIGGER counts_insert AFTER INSERT ON counts
WHEN (NEW.kind <> 'tenant' OR NEW.slots <> 0) AND NEW.tenant <> ''
BEGIN
    INSERT INTO counts
        (kind, tenant, part, turn, queue_count, group_count, slot_count, line_count)
    VALUES (
        'tenant', NEW.tenant, '', NEW.turn, NEW.kind = 'queue', NEW.kind = 'group', NEW.slots,
        NEW.kind = 'queue' AND NEW.open = 1 AND NEW.enqueued > NEW.blocked
    )
    ON CONFLICT (kind, tenant, part) DO UPDATE SET
        turn = CASE WHEN line_count = 0 AND excluded.line_count = 1
            THEN excluded.turn ELSE turn END,
        queue_count = queue_count + excluded.queue_count,
        group_count = group_count + excluded.group_count,
        slot_count = slot_count + excluded.slot_count,
        line_count = line_count + excluded.line_count;
    UPDATE counts SET ready = 1, ring = (
        SELECT whole.turn FROM counts AS whole
        WHERE whole.kind = 'tenant' AND whole.tenant = NEW.tenant AND whole.part = ''
    )
    WHERE kind = NEW.kind AND tenant = NEW.tenant AND part = NEW.part
    AND kind = 'queue' AND open = 1 AND enqueued > blocked;
END;
CREATE TRIGGER counts_line AFTER UPDATE OF next_turn, open, aside ON counts
WHEN NEW.kind = 'queue'
AND NEW.ready <> (NEW.open = 1 AND NEW.aside = 0 AND NEW.enqueued > NEW.blocked)
BEGIN
    UPDATE counts SET
        turn = CASE WHEN line_count = 0 THEN NEW.next_turn ELSE turn END,
        line_count = line_count + CASE WHEN NEW.ready = 0 THEN 1 ELSE -1 END
    WHERE kind = 'tenant' AND tenant = NEW.tenant AND part = '';
    UPDATE counts SET
        ready = 1 - NEW.ready,
        turn = CASE WHEN NEW.ready = 0 THEN NEW.next_turn ELSE turn END,
        ring = CASE WHEN NEW.ready = 0 THEN (
            SELECT whole.turn FROM counts AS whole
            WHERE whole.kind = 'tenant' AND whole.tenant = NEW.tenant AND whole.part = ''
        ) ELSE ring END
    WHERE kind = 'queue' AND tenant = NEW.tenant AND part = NEW.part;
END;
CREATE TRIGGER counts_slots AFTER UPDATE OF slots ON counts
WHEN NEW.slots <> OLD.slots
BEGIN
    UPDATE counts SET slot_count = slot_count + NEW.slots - OLD.slots
    WHERE kind = 'tenant' AND tenant = NEW.tenant AND part = '';
END;
CREATE TRIGGER counts_delete AFTER DELETE ON counts
WHEN OLD.kind <> 'tenant'
BEGIN
    UPDATE counts SET
        queue_count = queue_count - (OLD.kind = 'queue'),
        group_count = group_count - (OLD.kind = 'group'),
        slot_count = slot_count - OLD.slots,
        line_count = line_count - OLD.ready
    WHERE kind = 'tenant' AND tenant = OLD.tenant AND part = '';
END;
COMMIT;
