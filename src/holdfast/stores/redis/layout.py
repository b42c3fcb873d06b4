r"""Every key of the Redis store, its type, and what it is for.

A shard is a hash tag, `{<prefix><number>}`: all its keys are in one slot, and one script sees all
of it at one instant. A tenant is in one shard (`shards.py`). The names below follow `<tag>:`. The
parts of a name are separated by a zero byte, which no name contains.

    meta           hash    shard 0 only: format, shards; written once
    heads          hash    seq, cursor, turn, visit: the last numbers given out; floor: the last
                           pruned cursor; rules: the number of scopes of tenants with settings,
                           of tiers, and 1 if `looks` is; platform: of scopes of the platform with
                           settings; tiers: of tiers, the defaults included; changes: how often a
                           tier changed, or a tenant its tier; looks: 1 if claims look again at
                           tenants of changed tiers; aside: 1 if anything may wait at limits of
                           the platform; releasing: the number of tenants of which it keeps ended
                           jobs to follow; epoch: the last permit that shard 0 gave; now: the latest
                           instant of a clock other than the server's; format: checked by each
                           script; sweep:*: how far prune has read the counts

A job is a row, a body and a name:

    rows           hash    seq -> row (its format is below)
    bodies         hash    seq -> {codec, version, rules, payload}, packed by Python. Scripts do not
                           unpack it, and it is written once
    names          hash    tenant, id -> seq
    errors, results, progress, replays, awaits
                   hash    seq -> text. Most jobs have none; flags of the row say which it has
    journal:<seq>  hash    what a job remembers: its steps, positions, signals and joins
    notes:<seq>    hash    its errors and its log (both: `lib_journal.lua`)
    parents        hash    tenant, id -> total, left, failed: the join of a job that has several
                           parents; and its seq, so that an end is counted without its row. That
                           is left out once the job has ended before its join. The join of one
                           parent is three flags of the row
    edges          hash    seq, part -> which jobs await its end, if that is too long for its row
                           (`lib_edges.lua`)
    of:<tenant>    zset    all its jobs, by seq: pages
    dead:<tenant>  zset    its failed jobs, by seq: the dead letters
    damaged        zset    seq of rows that cannot be read; they have no other entry
    keys           hash    tenant, queue, type, key -> until, id: idempotency
    key_ends       zset    keys that are held for a time, by their end: prune

By its state a job has exactly one of these entries. The step that changes the state moves it:

    line:<tenant, queue>    zset   enqueued: by -priority, then seq (equal scores sort by member)
    wait:<tenant, group, queue>    zset   enqueued, but its group has no room for it yet
    typed:<type, tenant, queue>    zset   enqueued, but its type has no room: as a line
    due            zset    scheduled, retrying: by run_at
    held, spent    zset    processing, with attempts left or without: by the deadline of the lease
    done           zset    ended: by the end of its keeping, or by when prune looks again whether
                           a living job may need its result

(a waiting job has none of them: the end of its parents finds it by its name) and some of these:

    granted:<tenant, group, queue> zset   jobs of a limited group that are in their line
    order:<tenant, group>   zset   jobs of a group that have not ended, by seq: its head is first
    parts:<tenant, group>   set    queues in which a limited group has waiting or granted jobs
    ttl, late      zset    waiting jobs with a time to live: not past it; past it, so in no line
    ages:<tenant, queue>    zset   enqueued jobs that became ready after their enqueue. With the
                           head of the line they tell how long the oldest waits

Tenants take turns, and the lines of a tenant take turns within its own (`lib_lines.lua`,
`lib_fairness.lua`). A tenant without jobs or room is in none of the first three:

    tenants        zset    tenants that can be claimed from, by turn
    open:<tenant>  zset    its queues that can be claimed from, by their last visit
    ring:<queue>   zset    tenants with an open line in a queue, by turn. A turn that is out of date
                           is too small; the claim that meets it corrects it
    resting:<tenant>  set  its queues that have ready jobs, but no room
    away:<tenant>  set     its open lines that were removed from their ring while it had no room
    credit         hash    tenant -> what is left of a turn that a full claim cut short

What has no room at a limit of the platform waits beside the turns, in no key that claims walk. Of a
queue whole lines wait, of a type single jobs (`lib_aside.lua`, `lib_resume.lua`):

    aside:<scope>  zset    tenants that wait at a scope of the platform, by a copy of their turn
    aside:<scope, q, queue>, aside:<scope, t, tenant>
                   zset    of a type: the tenants that wait in a queue, by turn; the queues in
                           which a tenant waits, by their last visit
    aside_of:<tenant>  zset   the scopes at which it waits
    ready          zset    scopes at which there may be room by now: claims let in what waits there
    kept           hash    tenant -> its turn, if all that it has waits

A tier changes in one write. What it kept waiting is listed while there are tiers, so that claims
find it (`lib_tiers.lua`, `lib_relook.lua`). A shard applies tiers by what it stores of them itself:

    tiers          hash    tier -> version, change, instant, its defaults; '' is the platform's
                           defaults. A deleted tier keeps its version. Of several shards each has
                           all tiers, and the versions are stamps of shard 0 (`lib_copies.lua`)
    closing        set     of several shards: tiers that may be deleted, so get no new tenants
    copying        set     shard 0 of several: tiers whose state not all shards are known to have
    tier_users     hash    tier -> number of tenants in it
    shut:<tier>    zset    tenants that have no room, or lines or groups without room, by the change
                           up to which claims have looked at them
    stuck:<tenant> zset    its lines (q) and groups (g) without room, likewise
    looks          zset    tiers whose tenants are looked at again, by the change that asks for it

What ended with more edges than a call follows is left for the next claims (`lib_joins.lua`):

    releasing      zset    tenants with such jobs, by turn
    releasing:<tenant>  list   these jobs, and how far their edges are followed

A claim that gave leases is stored for a minute, so that it leases nothing more when it is repeated:

    claim:<nonce>  string  until when, then the sequences of its jobs
    claim:<nonce>\0  string   in the shard that the nonce chooses: a claim over several shards was
                           begun (`claim.py`)

Scopes are named by kind (t, q, g), tenant and part; those of the platform (p: the store, q, y: a
type) have an empty tenant:

    counts         hash    scope -> number of jobs in each state, bytes of live payloads
    scopes:<kind>  zset    scopes that have counts, by name: pages of tallies
    settings       hash    name -> version, value; a deleted setting keeps its version
    setting_names  zset    names of settings that have a value, in order
    rules          hash    scope -> its settings
    ruled          hash    tenant -> number of its scopes with settings; tenant\0 -> number of those
                           that concern groups; tenant\0\0 -> number that ever had settings, which
                           is bounded; tenant\0\0\0 -> change and instant of its last change of tier
    running        hash    scope of the platform with settings -> its running jobs
    epochs         hash    of these, in a store of several shards: the last permit that is known
    parts, frozen  hash    in shard 0 of such a store: what each shard may use of a scope, and the
                           puts that are under way (`lib_ledger.lua`)
    buckets        hash    scope -> when the bucket of its rate is full again; with tiers also their
                           last change before it was used
    slots:<scope>  zset    slots that outsiders hold, by their end
    slots_of:<tenant>  zset   the names of all slots of a tenant, by their end: bounded
    reopen         zset    scopes, by the instant at which time alone may make room in them
    holds          hash    name -> owner, until, note, tenant if it is a slot
    hold_names, hold_ends   zset   names of holds in order, and by their end

    sources:<tenant>  hash   source -> stamp, bytes of its rows, state (`lib_shadow.lua`)
    shadow:<tenant, source>  hash   id -> bytes, instant, what Python packed: its objects
    shadow_ids:<tenant, source>  zset   the same ids, in the order of their bytes: pages

    events         stream  one entry for all events of a call; its id is the cursor of the last
    tails          zset    names without a row -> the cursor of their last event (`lib_events.lua`)

Row: state flags reason (a byte each), attempt fence lapses (4 bytes each), more flags, misses (2
bytes each; in format 4 misses had 4), priority created updated run_at expires lease last (doubles;
`last` is the cursor of its last event), nonce and worker; then the part that never changes:
max_attempts (4 bytes), keep keep_failed key_us size (doubles), tenant id queue type group key, its
edges if they are few, and {tags, origin} in msgpack if it has any. A text follows its length in 2
bytes. A job that ended was updated last when it ended. The size is that of its payload and its
edges.

Challenge: a claim of many jobs must be a handful of commands, because each command costs more than
the work it does. Pattern: jobs are fields of few large hashes, read and written a batch at a time,
and not keys of their own. Scripts gather their changes and write them at their end.

Challenge: what a claim does for each tenant that it visits is what a busy store with many tenants
pays for. Pattern: turns, visits and counts are gathered as well, so a visit is three reads and two
writes.

Sequences, cursors and turns follow the server's clock in microseconds, rounded so that each shard
has numbers of its own: unique over all shards, growing in each, and comparable.

Out of memory: Redis checks memory before the first write of a script. Enqueue is refused as a whole
(StoreFull), and so are signals. All other verbs begin with a write that needs no memory
(`base.insist`), so claims, acks, extensions and cancels go on, and prune can make room.

Reads (count, events, explain, expired, find, job_events, wait) write nothing.

Limits: numbers are doubles, exact to 2^53 (the year 2255 in microseconds). A server does nothing
else while a script runs, so all scripts are bounded by `core/bounds.py`; a walk over many rows
stops after some thousands and is called again. New settings of a group are the exception: they walk
over all its jobs that have not ended in one step.
"""

from __future__ import annotations

FORMAT = 7
"""The format of the keys and their values. A script does not touch a store of another format."""
