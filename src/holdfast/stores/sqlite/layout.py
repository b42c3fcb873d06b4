"""Every table, column and index of the SQLite store, and why each is there.

    jobs      one row per job
      seq                     first-enqueue sequence: the order in a priority, the cursor of pages;
                              from `heads`, never used twice
      tenant id queue type codec version payload rules priority key group_name tags origin
                              what was enqueued; rules and tags as JSON; a payload longer than
                              INLINE_MAX is in `bodies`
      state                   as in lifecycle.py; a due job may still say scheduled or retrying
      late                    1: outlived its time to live while waiting, upkeep's to fail
      run_at attempt fence lapses misses progress reason error result replayed_as
      token lease_until worker    of the last lease; kept after it lapsed, so that a late ack hears
                              that it expired
      max_attempts keep_us    copied from the rules, for the indexes and for completions
      created_at updated_at expires_at finished_at
      keep_until              set when finished: when prune deletes the row
    bodies    seq -> payload  large payloads: a row is written again at each step, these are not
    finished  (tenant, queue, state) -> jobs    how many finished jobs are kept, for `count`
    keys      (tenant, queue, type, key) -> id, until     idempotency; until NULL: while it lives
    events    cursor -> the fact              the log; cursors from `heads`, never used twice
    heads     one row: seq, cursor, events_floor (the last pruned cursor)
    settings  name -> value, version
    holds     name -> owner, until, note

Challenge: a claim must find the first job by (priority, seq) of each line that has work, among
millions that wait, run or are done, and never walk over one that it cannot take (P9).

Pattern: each place where a job can stand is a partial index, so a job is in one of them, and leaves
it in the same statement that changes its state.

    jobs_ready  (queue, tenant, priority desc, seq)   enqueued        claim: head of a line
    jobs_due    (run_at)                 scheduled, retrying          claim: made ready when due
    jobs_waiting (tenant)                waiting for parents
    jobs_held   (lease_until)            processing, attempts left    claim: made ready when lapsed
    jobs_spent  (lease_until)            processing, none left        expired: upkeep fails them
    jobs_ttl    (late, expires_at)       waiting in any way, with a time to live
    jobs_done   (keep_until)             finished                     prune
    jobs_dead   (tenant)                 failed                       the dead letters, by seq

    jobs_name   (tenant, id) unique      by name
    jobs_tenant (tenant)                 pages of a tenant, by seq
    jobs_group  (tenant, group_name), jobs_key (tenant, key)          where given
    events_job  (tenant, job_id)         the history of a job
    keys_until  (until)                  timed keys                   prune

`jobs_ready` and `jobs_due` carry a few columns more, so that `count` need not touch the rows.

Ordering: `jobs_ready` begins with the queue, for workers name queues and serve all tenants. Lines
are enumerated by seeking from one (queue, tenant) to the next, so tenants and queues without work
cost nothing. A tenant's facts are read by walking the log from the cursor: see `sight.events`.

Limits: one writer at a time (SQLite's), so every write is short and bounded by `limits.py`; integer
columns hold 64 bits; a text or blob at most 1 GB, far above ours.
"""

from __future__ import annotations

SCHEMA_VERSION = 1
"""The number of the newest file in `migrations/`; PRAGMA user_version of the database."""

APPLICATION_ID = 0x484F4C44
"""PRAGMA application_id: "HOLD", so that no other application's database is taken for ours."""

INLINE_MAX = 1024
"""Bytes of a payload that is kept in the row of its job."""
