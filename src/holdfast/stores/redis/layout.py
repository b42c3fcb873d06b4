r"""Every key of the Redis store, its type, and why it is there.

A shard is a hash tag, `{<prefix><number>}`: all its keys are in one slot, and one script sees all
of it at one instant. A tenant lives in one shard (`shards.py`). Names below follow `<tag>:`; parts
of a name are apart by a zero byte, which no name holds.

    meta           hash    of shard 0: format, shards; written once
    heads          hash    seq, cursor, turn, visit: the last ones given out; floor: the last pruned
                           cursor; rules: how many scopes have settings; now: of a clock that is not
                           the server's; packs: 1 if there ever was one; format: of this shard,
                           which each script checks; sweep:*: how far prune has looked at the counts

    rows           hash    seq -> row: what changes of a job, packed, then what never does
    bodies         hash    seq -> {codec, version, rules, payload}: packed by Python, never unpacked
                           by a script, and not written again at each step of its job
    names          hash    tenant, id -> seq
    damaged        zset    seq of rows that nobody can read: set aside, in no other place
    errors, results, progress, replays
                   hash    seq -> the text: most jobs have none, and flags of the row say which
    of:<tenant>    zset    its jobs by seq, and its packs by the first job in them: pages
    dead:<tenant>  zset    its failed ones: the dead letters among millions
    keys           hash    tenant, queue, type, key -> until, id: idempotency
    key_ends       zset    timed ones by their end: prune

Jobs of a call that are alike are a pack (`lib_packs.lua`), by the seq of the first of them:

    packs          hash    seq -> created, last, how many; what they share; ids; where payloads end
    loads          hash    seq -> the payloads
    marks          hash    seq -> how many were taken, how many are left; none: none, all
    pieces         hash    what a claim took of a pack: from, how many, when, lease, last, nonce,
                           worker, and a mark for each that is done
    pieced         zset    the same by the seq of the first
    spans          zset    tenant, least id, greatest id, seq: packs by name
    packed:<tenant, queue>  zset   the packs of a line as they stand in it: how many jobs are ahead
    trails         hash    seq -> the cursors of the last facts about its jobs that are done
    ended_packs    zset    packs without jobs, whose ids and trails stay while the log has them

A job stands in exactly one place, and leaves it in the step that changes its state:

    line:<tenant, queue>    zset   enqueued, also packs: by -priority, then seq (equal scores sort
                           by name)
    wait:<tenant, group, queue>    zset   enqueued, but its group has no place for it yet
    due            zset    scheduled, retrying: by run_at
    held, spent    zset    processing, also pieces, with attempts left or without: by the deadline
    done           zset    ended: by the end of its keeping

and, where it applies, in these besides:

    granted:<tenant, group, queue> zset   jobs of a gated group that stand in their line
    order:<tenant, group>   zset   jobs of a group that have not ended, by seq: who is its head
    parts:<tenant, group>   set    queues in which a gated group has waiting or granted jobs
    ttl, late      zset    waiting, with a time to live: not past it; past it, so in no line
    ages:<tenant, queue>    zset   enqueued jobs whose run_at is not that of their enqueue: with the
                           head of the line they say how long the oldest waits

Tenants take turns, and the lines of each within its own (`lib_lines.lua`). Who has no jobs, or has
no room, is in none of the first three:

    tenants        zset    tenants that can be claimed from, by turn
    open:<tenant>  zset    its queues that can be claimed from, by their last visit
    ring:<queue>   zset    tenants with an open line in a queue, by turn; one that is not the
                           tenant's any more, and so too small, is put right when it is met
    resting:<tenant>  set  its queues that have ready jobs, but no room
    away:<tenant>  set     its open lines that were met in their ring while the tenant had no room
    credit         hash    tenant -> what is left of a turn that a full claim cut short

A claim that gave leases is remembered, so that it leases nothing more when it is repeated:

    claim:<nonce>  string  until when, then the sequences of its jobs; gone after a minute by itself
    claim:<nonce>\0  string   in the shard that the nonce picks: a claim over several of them was
                           begun (`claims.py`)

Scopes are named by kind (t, q, g), tenant and part:

    counts         hash    scope -> jobs in each state, bytes of live payloads
    scopes:<kind>  zset    scopes that have counts, by name: pages of tallies
    settings       hash    name -> version, value; a deleted one keeps its version
    setting_names  zset    those that are there, by name
    rules          hash    scope -> its settings
    ruled          hash    tenant -> how many of its scopes have settings; 0: nothing is asked.
                           tenant\0 -> how many of those concern groups; tenant\0\0 -> how many ever
                           had settings, which is bounded
    buckets        hash    scope -> when its rate's bucket is full again
    slots:<scope>  zset    places that outsiders hold, by their end
    slots_of:<tenant>  zset   the names of all of a tenant's, by their end: they are bounded
    reopen         zset    scopes by the instant at which time alone may make room in them
    holds          hash    name -> owner, until, note, tenant if it is a slot
    hold_names, hold_ends   zset   the same by name and by end

    events         stream  one entry for all the facts of a call; its id is the last one's cursor
    tails          zset    names without a row -> the cursor of their last fact (see lib_log.lua)

Row (`rows.py` and lib_row.lua read it): state flags reason (a byte each), attempt fence lapses
misses (4 bytes each), priority created updated run_at expires lease last (doubles; `last` is the
cursor of its last fact), nonce and worker; then what never changes: max_attempts (4 bytes), keep
keep_failed key_us size (doubles), tenant id queue type group key, and in msgpack {tags, origin}
where it has any. Texts follow their length in 2 bytes. A job that ended was updated last when it
ended.

Challenge: a claim of many jobs must be a handful of commands, for each costs more than the work it
does; so jobs are fields of few large hashes, read and written a batch at a time, and not keys of
their own. Scripts gather their writes and make them at their end.

Challenge: even so a job is a row, a body, a name and two places, for each of which the server looks
into tables that a million jobs make larger than its caches.

Pattern: **jobs that are alike travel in packs**, where a call has some size and its ids were made
for it: a value for up to 128 of them, one place in the line, one among those of the tenant. Their
ids begin alike, so few packs can have an id. A claim takes jobs from the front and holds them in a
piece, completions that follow each other in it are one step, and the facts about them are told as
one. A job takes a sixth of the server's time from its claim to its end, and a twentieth for an
enqueue. Those whose record stays after their end get rows when they are claimed. Whoever looks for
a job reads it off its pack; whoever changes one, otherwise than by completing it, **opens** the
pack: all its jobs get rows, as if they had come so. As does a claim, where something is set for the
tenant.

Sequences, cursors and turns are numbers of the server's clock in microseconds, rounded so that each
shard has its own: unique over all shards, growing in each, and about in the order of time over all.

Out of memory: Redis asks for memory before the first write of a script. Enqueue writes nothing
before it is allowed to, so a full server refuses it whole (StoreFull). All other verbs begin with a
write that needs none (`core.insist`), so claims, acks, extensions and cancels go on, and prune can
make room.

Limits: numbers are doubles, exact to 2^53 (the year 2255 in microseconds). A script holds up its
server while it runs, so all are bounded by `limits.py`; what walks over many rows stops after some
thousands and is called again. New settings of a group are the exception: they walk over its live
jobs in one step.
"""

from __future__ import annotations

FORMAT = 3
"""Of the keys and their values; a store of another one is not touched."""

PACK_MAX = 128
"""Jobs of a pack: whoever changes one of them gives all of them rows."""
STEM_SIZE = 11
"""What the ids of a pack begin with: of those made by the library, a quarter of a second. So few
packs may have an id, however many there are.
"""
