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
    posted    n -> jobs that are alike and came together; no place in line yet (`posting.py`)
      head                    what they share: tenant, queue, type, codec, version, priority, rules
      at number size          when they came, how many they are, bytes of their payloads
      ids bodies              of each, as MessagePack
    packs     seq of its first job -> jobs that are alike and follow each other, in one row
      number taken left       how many came; how many of them, from the front, claims took; how many
                              are still in line or in pieces
      size at                 bytes of those in line, and when the first came
      loose first_id last_id  where an id may be: see `packing.span`
    contents  seq -> head, at, ats, ids, bodies of a pack; never written again
    pieces    seq of its first job -> what one claim took of a pack
      pack number token until worker at     token: what the tokens of its jobs begin with
      sizes done              of each job: bytes of its payload, and a bit for its end
    counts    (kind, tenant, part) -> jobs in each state; a row for each tenant, queue and group
      bytes                   of a tenant: the payloads of its jobs that have not ended
      blocked                 of a queue: enqueued jobs that are in no line, gated or late
      slots                   rows of `holds` that are its slots, expired ones too
      open turn               of a queue, which with its tenant is a line: 0 while its tenant or its
                              queue is paused, at its limit or out of tokens; and its place among
                              the lines that take turns, from `heads`
    buckets   (kind, tenant, part) -> full_at     tokens of a rate; no row: full
    reopen    (kind, tenant, part) -> at          when time alone may make room in a scope
    keys      (tenant, queue, type, key) -> id, until     idempotency; until NULL: while it lives
    events    cursor -> a run of facts        the log; cursors from `heads`, never used twice
      at kind tenant queue type attempt fence until note    what the facts of the run share
      ids number              of its jobs, as JSON; their cursors end with the row's: see `log.py`
    heads     one row: seq, cursor, events_floor (the last pruned cursor), scopes (how often any
              scope's settings were put), turn
    settings  name -> value, version; of a scope also `stamp`, the value of heads.scopes then
    holds     name -> owner, until, note; of a slot also what its scope's slots begin with

Challenge: a claim must find the first job by (priority, seq) of each line that has work, among
millions that wait, run or are done, and never walk over one that it cannot take (P9).

Pattern: each place where a job can stand is a partial index, so a job is in one of them, and leaves
it in the same statement that changes its state.

    lines_turn  (turn), lines_open (queue, turn)      lines with work  claim: whose turn it is
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

`jobs_due` carries a few columns more, so that `count` need not touch the rows.

Challenge: a job costs a row with four index entries when it comes, writes all of it again when it
is claimed, and a third time when it goes. Most jobs are like the one before and go as they came.

Pattern: **jobs that are alike travel in packs.** Many of one call, or that came one after the
other, are one row until they are claimed, and then a piece that says which of them are done. A job
is in one form at a time: in a pack, in a piece, or a row of `jobs`. Who asks for it by more than
its turn (by name, by a page, by a failure, a heartbeat or a lease that lapsed) has the pack or the
piece opened first, and meets rows as of any other job; so only claims, completions and counts know
packs at all. A drain takes 13 us a job in the worker instead of 27.

    packs_line  (queue, tenant, priority desc, seq)   in line         claim: beside jobs_ready
    packs_ages  (tenant, queue, at)                   in line         how long the oldest waits
    packs_name  (tenant, loose, last_id, first_id)                    where an id may be
    pieces_pack (pack), pieces_until (until)                          opened; lapsed

What may be packed has an id made for its call, and nothing that only some have: no key, group,
delay, time to live, tags or large payload (`packing.may_pack`). Jobs that are kept after their end
are rows from their claim on.

Counts: each call notes its moves from place to place, the transaction adds them up and writes each
scope once (`Transaction.settle`): before a claim looks, and before the commit. That a scope is
full is asked of these counts, so whatever ends a job frees its place; `gates.open_up` looks at the
scopes that the moves touched. Where nothing is set for a tenant none of this asks anything.

Ordering: lines without work and closed lines are not in the indexes of lines, so they cost nothing
however many they are. `jobs_ready` begins with the queue, for workers name queues. The history
of one job has no index, which would cost every job three entries: its tenant's runs are looked
through, in time that grows with the tenant's log and no other's (`log.py`).

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
