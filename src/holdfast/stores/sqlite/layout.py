"""Every table, column and index of the SQLite store, and why each is there.

    jobs      one row per job
      seq                     first-enqueue sequence: the order within a priority and the cursor of
                              pages; from `counters`, never used twice
      tenant id queue type codec version payload rules priority key group_name tags origin
                              what was enqueued; rules and tags as JSON; a payload longer than
                              INLINE_MAX is in `bodies`
      state                   as in core/lifecycle.py; a due job may still say scheduled or retrying
      late                    1: its time to live passed while it waited; upkeep will fail it
      gate                    1: enqueued, but its group has no room for it yet
                              2: enqueued, but set aside: its type had no room over all tenants
      run_at attempt fence lapses misses progress reason error result replayed_as
      token lease_until worker    of the last lease; kept after the lease lapsed, so that a late ack
                              is told that it expired
      max_attempts keep_us    copied from the rules, for the indexes
      size                    bytes of payload, edges and journal, for the cap of the tenant
      awaits                  what a parked or waiting job awaits
      journal                 how much of its share its journal uses, as JSON (`journal.Size`); NULL
                              while it has none
      edges                   how many jobs await its end; NULL for none
      parents parents_due parents_failed      of a job with parents: how many, how many of them it
                              awaits yet, and how many have not completed
      created_at updated_at expires_at finished_at
      keep_until              set when the job ends: when prune deletes the row
    bodies    seq -> payload  large payloads: a row is rewritten at each step of the job, these are
                              not; deleted with the job
    entries   (seq, kind, name) -> value, at          the journals of jobs, but for their joins
    joins     (seq, name) -> total, due, failed, at   joins of jobs, but for those of their parents;
                              due: how many they await yet
    edges     (seq, number) -> targets      the jobs that await the end of this one, from this
                              number on, up to EDGES_OF_ROW: [[id, join, on_failure], ...] as JSON
    releasing (tenant, seq) -> id, state, edges, followed, gone     jobs that ended or were deleted
                              with edges that have to be followed yet; gone: the record is deleted
    leftovers seq -> weight   deleted jobs that have rows in entries, joins and edges still, and
                              about how many these are
    counts    (kind, tenant, part) -> jobs in each state; one row per tenant, queue and group. Rows
                              without a tenant are the platform's: of scopes that have settings,
                              with their running jobs only
      bytes                   of a tenant: payload bytes of its jobs that have not ended
      blocked                 of a queue: enqueued jobs that are gated, aside or late
      slots                   rows of `holds` that are its slots, expired ones included
      open                    of a tenant or a line (a queue of a tenant): 0 while it is paused, at
                              its limit or without tokens
      turn                    its position among the tenants, or among the lines of its tenant; from
                              `counters`
      aside                   of a line: 1 while it is set aside: its queue had no room over all
                              tenants
      ready                   of a line: 1 while it is open, not aside, and has jobs to claim. A
                              trigger keeps it, so that the indexes of lines are written only when
                              it changes
      next_turn               of a line: the turn that it gets when it becomes ready
      resting                 of a closed tenant or line, and of a group whose jobs wait: the tier
                              of the tenant, '' without one. Set where there are tiers, or were
      looked                  of these: the value of counters.scopes when their room was computed
      ring                    of a line: a copy of its tenant's turn, corrected when a claim meets
                              it; 0 while the line is out of the ring of its queue
      line_count queue_count group_count slot_count
                              of a tenant: its lines with jobs to claim, its rows in this table, and
                              the slots of all of them; kept by the triggers of the table
    aside     (kind, part, tenant, queue) -> turn, seen     what waits at a queue or a type over all
                              tenants. Of a queue: a row for each line that is aside, without its
                              name. Of a type: a row for each line with jobs that are aside, and one
                              without a queue for each tenant of these. A row may be left over
      turn                    a copy of the tenant's turn, corrected when a claim meets it
      seen                    the order of a tenant's lines: the one let in longest ago first
    claims    nonce -> until, seqs            claims that gave leases, for repeats
    buckets   (kind, tenant, part) -> full_at     tokens of a rate; no row: full
      rated                   the value of counters.scopes up to which changes of the rate by a tier
                              are in full_at
    reopen    (kind, tenant, part) -> at          when time alone may make room in a scope. With the
                              instant 0: what changed tiers may have opened; the kind is `tier/` and
                              a kind of scope, the part the tier; or `tier/all` and a tenant
    keys      (tenant, queue, type, key) -> id, until     idempotency; until NULL: while it lives
    events    cursor -> a run of events       the log; cursors from `counters`, never used twice
      at kind tenant queue type attempt fence until note    what the events of the run share
      signed                  the operator who acted, and why
      ids number              of the jobs, as JSON; the row has the last cursor (`events.py`)
    counters  one row: seq, cursor, turn, a few ahead of the last ones that were used; events_floor
              (the last pruned cursor); scopes (how often settings of scopes and tiers were
              changed)
    settings  name -> value, version; of a scope or a tier also `stamp`, the value of
                              counters.scopes then
      tier                    of a tenant: the tier that it is in
      changed at              the stamp and the instant of the last change of the rates of a tier,
                              or of the tier of a tenant
    sources   (tenant, source) -> stamp, state, rows, size      sources; how many rows of `shadow`
                              each has, and their bytes
    shadow    (tenant, source, id) -> version, number, seen, gone, at, size, body      their objects
    holds     name -> owner, until, note; of a slot also the prefix of its scope's slots, and its
              tenant

Challenge: a claim must find the first job by (priority, seq) of each line with jobs, among millions
that wait, run or are finished, and never walk over one that it cannot take (P9).

Pattern: each position of a job is a partial index. A job leaves the index in the same statement
that changes its state.

    tenants_turn (turn)                  open tenants with open lines claim: whose turn it is
    lines_turn  (tenant, turn)           ready lines                  claim: which of its queues
    lines_ring  (queue, ring)            ready lines                  claim of listed queues;
                                         lines_out (tenant) has those out of their rings
    jobs_ready  (queue, tenant, priority desc, seq)   enqueued        claim: the head of a line
    jobs_gated  (tenant, group, gate, queue, priority desc, seq)      enqueued, of a group
    jobs_aside  (queue, tenant, type, priority desc, seq)     aside at their type
    aside_turn  (kind, part, queue, turn)             claim: the tenants that it lets in
    aside_line  (kind, part, tenant, seen)            claim: and their lines
    jobs_order  (tenant, group, seq)     not ended, of a group        the head of an ordered group
    jobs_due    (run_at)                 scheduled, retrying          claim: made ready when due
    jobs_held   (lease_until)            processing, attempts left    claim: made ready when lapsed
    jobs_spent  (lease_until)            processing, none left        expired: upkeep fails them
    jobs_ttl    (late, expires_at)       waiting in any way, with a time to live
    jobs_done   (keep_until)             finished                     prune
    jobs_dead   (tenant)                 failed                       the dead letters, by seq

    jobs_ages   (tenant, queue, run_at)  enqueued                     how long the oldest waits
    jobs_name   (tenant, id) unique      by id
    jobs_tenant (tenant)                 pages of a tenant, by seq
    jobs_group  (tenant, group_name), jobs_key (tenant, key)          where given
    events_tenant (tenant)               the runs of a tenant
    keys_until  (until)                  timed keys                   prune
    counts_idle, buckets_full, holds_until, claims_until              prune
    reopen_at   (at)                     claim: checked again
    counts_resting (resting, kind, looked), counts_looked (tenant, looked)
                                         claim: checked again after a change of a tier
    settings_tier (tier)                 whether tenants are in a tier
    holds_slots (scope, until), holds_tenant (tenant, until)          slots of a scope or a tenant

`jobs_due` has a few more columns, so that `count` need not read the rows.

Counts: each call notes which jobs moved from which place to which. The transaction adds these moves
up and writes each scope once (`Transaction.write_counts`), before a claim reads the counts and
before the commit. Limits compare with these counts, so whatever ends a job frees its place:
`limits.apply_limits` checks the scopes that the moves touched. A tenant without limits costs
nothing here.

Tiers: the values that count are computed when they are needed, so a change of a tier writes its
setting and a few rows of `reopen`. The next claims look at what rests in that tier, in portions.

Ordering: tenants and lines without jobs, and closed ones, are not in the indexes of turns, so they
cost nothing however many they are. `jobs_ready` begins with the queue because workers name queues.
The history of one job has no index, which would cost every job three entries: a read searches the
runs of its tenant.

Limits: SQLite has one writer at a time, so every write is short and bounded by `core/bounds.py`.
Integers have 64 bits; a text or blob at most 1 GB, far more than our bounds allow.
"""

from __future__ import annotations

SCHEMA_VERSION = 8
"""PRAGMA user_version of a database with the tables of `migrate.SCHEMA`."""

APPLICATION_ID = 0x484F4C44
"""PRAGMA application_id: "HOLD", so that no other application's database is taken for ours."""

EDGES_OF_ROW = 50
"""Edges of a job that one row of `edges` has."""

INLINE_MAX = 1024
"""Bytes of a payload that is kept in the row of its job."""
