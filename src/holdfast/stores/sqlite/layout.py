"""Every table, column and index of the SQLite store, and why each is there.

    jobs      one row per job
      seq                     first-enqueue sequence: the order in a priority, the cursor of pages;
                              from `heads`, never used twice
      tenant id queue type codec version payload rules priority key group_name tags origin
                              what was enqueued; rules and tags as JSON; a payload longer than
                              INLINE_MAX is in `bodies`
      state                   as in lifecycle.py; a due job may still say scheduled or retrying
      late                    1: outlived its time to live while waiting, upkeep's to fail
      gate                    1: enqueued, but its group has no place for it yet
      run_at attempt fence lapses misses progress reason error result replayed_as
      token lease_until worker    of the last lease; kept after it lapsed, so that a late ack hears
                              that it expired
      max_attempts keep_us    copied from the rules, for the indexes and for completions
      size                    bytes of the payload, for the tenant's cap
      created_at updated_at expires_at finished_at
      keep_until              set when finished: when prune deletes the row
    bodies    seq -> payload  large payloads: a row is written again at each step, these are not;
                              whatever deletes the job deletes its body
    counts    (kind, tenant, part) -> jobs in each state; a row for each tenant, queue and group
      bytes                   of a tenant: the payloads of its jobs that have not ended
      blocked                 of a queue: enqueued jobs that are in no line, gated or late
      slots                   rows of `holds` that are its slots, expired ones too
      open                    of a tenant, and of a queue, which with its tenant is a line: 0 while
                              it is paused, at its limit or out of tokens
      turn                    its place among the tenants, or the lines of its tenant, that take
                              turns; from `heads`
      ring                    of a line: its tenant's turn, as it was when that was last looked at;
                              0 while it is out of the ring of its queue
      line_count queue_count group_count slot_count
                              of a tenant: its lines that can be claimed from, its rows here and the
                              slots in all of them; kept by the triggers of the table
    claims    nonce -> until, seqs            claims that gave leases, until they are forgotten
    buckets   (kind, tenant, part) -> full_at     tokens of a rate; no row: full
    reopen    (kind, tenant, part) -> at          when time alone may make room in a scope
    keys      (tenant, queue, type, key) -> id, until     idempotency; until NULL: while it lives
    events    cursor -> a run of facts        the log; cursors from `heads`, never used twice
      at kind tenant queue type attempt fence until note    what the facts of the run share
      signed                  who wanted it and why, if an operator did
      ids number              of its jobs, as JSON; their cursors end with the row's: see `log.py`
    heads     one row: seq, cursor, events_floor (the last pruned cursor), scopes (how often any
              scope's settings were put), turn
    settings  name -> value, version; of a scope also `stamp`, the value of heads.scopes then
    holds     name -> owner, until, note; of a slot also what its scope's slots begin with, and its
              tenant

Challenge: a claim must find the first job by (priority, seq) of each line that has work, among
millions that wait, run or are done, and never walk over one that it cannot take (P9).

Pattern: each place where a job can stand is a partial index, so a job is in one of them, and leaves
it in the same statement that changes its state.

    tenants_turn (turn)                  open tenants with open lines claim: whose turn it is
    lines_turn  (tenant, turn)           open lines with work         claim: which of its queues
    lines_ring  (queue, ring)            open lines with work         claim of listed queues: whose
                                         turn; lines_out (tenant) those taken out of their rings
    jobs_ready  (queue, tenant, priority desc, seq)   enqueued        claim: head of a line
    jobs_gated  (tenant, group, gate, queue, priority desc, seq)      enqueued, of a group: granted
                                                      a place when its group has one
    jobs_order  (tenant, group, seq)     not ended, of a group        head of an ordered group
    jobs_due    (run_at)                 scheduled, retrying          claim: made ready when due
    jobs_held   (lease_until)            processing, attempts left    claim: made ready when lapsed
    jobs_spent  (lease_until)            processing, none left        expired: upkeep fails them
    jobs_ttl    (late, expires_at)       waiting in any way, with a time to live
    jobs_done   (keep_until)             finished                     prune
    jobs_dead   (tenant)                 failed                       the dead letters, by seq

    jobs_ages   (tenant, queue, run_at)  enqueued                     how long the oldest waits
    jobs_name   (tenant, id) unique      by name
    jobs_tenant (tenant)                 pages of a tenant, by seq
    jobs_group  (tenant, group_name), jobs_key (tenant, key)          where given
    events_tenant (tenant)               a tenant's runs; also looked through for those of one job
    keys_until  (until)                  timed keys                   prune
    counts_idle, buckets_full, holds_until     what says nothing any more        prune
    reopen_at   (at)                     claim: looked at again       holds_slots (scope, until)
    claims_until (until)                 claims to forget             holds_tenant (tenant, until)

`jobs_due` carries a few columns more, so that `count` need not touch the rows.

Counts: each call notes its moves from place to place, the transaction adds them up and writes each
scope once (`Transaction.settle`): before a claim looks, and before the commit. That a scope is
full is asked of these counts, so whatever ends a job frees its place; `gates.open_up` looks at the
scopes that the moves touched. Where nothing is set for a tenant none of this asks anything.

Ordering: tenants and lines without work, and closed ones, are not in the indexes of turns, so they
cost nothing however many they are; only a ring may have a closed tenant's line, until it is met.
`jobs_ready` begins with the queue, for workers name queues. The history of one job has no index,
which would cost every job three entries: its tenant's runs are looked through, in time that grows
with the tenant's log and no other's (`log.py`).

Limits: one writer at a time (SQLite's), so every write is short and bounded by `limits.py`; integer
columns hold 64 bits; a text or blob at most 1 GB, far above ours.
"""

from __future__ import annotations

SCHEMA_VERSION = 3
"""The number of the newest file in `migrations/`; PRAGMA user_version of the database."""

APPLICATION_ID = 0x484F4C44
"""PRAGMA application_id: "HOLD", so that no other application's database is taken for ours."""

INLINE_MAX = 1024
"""Bytes of a payload that is kept in the row of its job."""
