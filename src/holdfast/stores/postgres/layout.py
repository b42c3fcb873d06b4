"""Every table, column and index of the PostgreSQL store, and why each is there.

    jobs      one row per job that has not ended
      seq                     first-enqueue sequence: the order in a priority, the cursor of pages
      tenant id queue type codec version payload rules priority key group_name tags origin
                              what was enqueued; rules as JSON
      state                   as in lifecycle.py; a due job may still say scheduled or retrying
      late                    1: outlived its time to live while waiting; upkeep will fail it
      gate                    0: in its line, or leased; 1: enqueued, but its group has no room for
                              it yet; 2: scheduled or retrying, it waits for its instant; 3:
                              enqueued, set aside where the platform leaves its type no room; 4:
                              waiting for its parents
      run_at attempt fence lapses misses progress reason error
      token lease_until worker    of the last lease; kept after it lapsed, so that a late ack hears
                              that it expired
      max_attempts keep_us    copied from the rules, for the indexes and for completions
      size                    bytes of payload, edges and journal, for the tenant's cap
      awaits edges            what makes it ready; the jobs that await its end, each with the name
                              of the join and what a failure does
      parents                 the join of its parents: how many there are, have not ended yet, and
                              have failed
      journal                 the size of its journal. NULL: nothing but `parents` is in it, and no
                              other table has anything of it
    entries   (seq, kind, name) -> value, at    the journal of a job, but for its joins
    joins     (seq, name) -> total, due, failed    ends that a join awaits, yet, and that failed;
                              of the joins that a job makes
    releasing (tenant, seq, part) -> id, state, edges    ended jobs with edges to follow; those of
                              one job are in parts, so that each step reads few
    leftovers seq                 deleted jobs; upkeep deletes their entries and joins
    leases    until, spent, seqs    a row for each claim: the jobs that it leased, and until when;
                              spent: those on their last attempt. Not changed when a job ends: a row
                              whose time has come only names the jobs to check
    history   the same as jobs for jobs that have ended, until keep_until; in ten partitions
      history_0 ... history_8   jobs kept for one to seven days: the day of keep_until, modulo nine
      history_rest            jobs kept for less or for longer
    counts    (kind, tenant, part) -> jobs in each state; a row for each tenant, queue and group
      bytes                   of a tenant: what its jobs hold that have not ended
      blocked                 of a queue: enqueued jobs that are in no line: gated, aside or late
      open turn               of a tenant, or of a queue, which with its tenant is a line: whether
                              its own settings let it run, and it is not aside; its place among the
                              tenants, or among the lines of its tenant
      lines queues groups     of a tenant: its open lines with jobs; its queues and groups
      credit                  of a tenant: what is left of a turn that a full claim cut short
      tenant_turn parked      of a line: a copy of its tenant's turn, never too large; its tenant
                              was closed when a claim met it
      kept                    of a tenant of which something is aside: it keeps its turn, whichever
                              lines it has left
      floor_rank floor_seq    of a line: no ready job comes before it, except what deltas name
    deltas    what has changed since the counts were added up, by (tenant, queue, group)
      id                      from `cursors`: also the turn of a line that comes up or was served
      txid                    of the transaction that wrote it
      type                    of jobs that start or end to run
      served turned credit    a claim visited the line; ended its tenant's turn, or left some of it
      head_rank head_seq due  the first of the jobs that came into the line (rank is -priority), and
                              when the first of the others is due
      leases_until            of a claim: when its leases end
      refreshed               without a tenant: the snapshot in which scopes were refreshed
    store_state   one row: deltas_floor (no unfolded delta is below), last_refresh, folded_at,
              events_floor, leases_floor and due_floor (no living lease, nothing due is below,
              except what deltas name), claims_floor (no living claim ends before), functions (the
              hash of the functions that were applied), fold_at (deltas that make a claim fold
              them), platform (limits of the platform concern claims), tiered (there are tiers, or
              were), limits_all (the platform's defaults limit every tenant), gates_all (they limit
              groups, or did)
    claims    nonce -> until, seqs     of the last minute, so that a repeated claim is recognised
    full_tenants    tenants that have as many queues or groups as they may; found by upkeep
    waiters   (tenant, id) -> until    jobs whose end somebody waits for, and is notified of
    scopes    the settings of scopes in columns, for the functions; `settings` holds what was put
      running                 of a scope of the platform: its running jobs, but for the deltas
    aside     (kind, part, queue, tenant) -> turn    what waits where a queue or a type has no room
                              over all tenants: the tenant's line, or jobs of it in a queue; a copy
                              of its tenant's turn, never too large
    tenants_with_settings    tenants that ever had a setting: no other tenant costs a look-up
      tier                    its tier; moved, moved_at: since when, by `cursors` and by the clock
    tiers     what each tier sets, and without a name the platform's defaults, in columns as in
              `scopes`; rated, rated_at: when its rates changed, as `moved`
    resting   (tenant, kind, part) -> tier    what had no room when it was last checked; only where
                              there are tiers, or were
    unchecked (tenant, queue, group)    what deltas have named, more than one claim refreshes
    looks     (kind, tier, tenant) -> up to where claims have looked at it again
    buckets   (kind, tenant, part) -> full_at     tokens of a rate; no row: full
      rated                   the newest change of rates that full_at takes into account
    reopen_times    (kind, tenant, part) -> at    when time alone may make room in a scope
    keys      (tenant, queue, type, key) -> id, until     idempotency; until NULL: while it lives
    events    cursor -> the event             the log; `signed`: the operator and the reason
    settings  name -> value, version; of a scope: its tenant
    holds     name -> owner, until, note; of a slot: its scope
    sources   (tenant, source) -> stamp, state, row_count, size    sources; how many rows of
                              `shadow` each has, and their bytes. A step locks this row first
    shadow    (tenant, source, id) -> version, number, seen, gone, at, size, body    their objects

Challenge: PostgreSQL keeps every version of a row until no snapshot can see it. A counter that is
updated with each job grows a chain of dead versions that everybody walks, and blocks everybody else
who wants to count; one long transaction of somebody else makes it endless.

Pattern: **only claims touch what is shared.** Enqueue, ack and cancel insert, delete and append;
they wait only for calls that change the same job. What they changed they append to `deltas`, one
row for each line and group of a call. A count is the row of `counts` plus the deltas since, read in
one snapshot, so it is exact at every instant. A claim that meets many deltas (64, or three for each
line of the last fold), or the first one of a second, adds them to the counts (`fold_deltas`).
Claims take one advisory lock, so claims and changes of settings come one after the other; the lock
ends with the transaction, and no busy verb holds it over a round trip. A claim that would find
nothing does not take it.

Claims read all deltas, so there must not be many. After a time without claims there may be a
million: a claim that meets more than 10,000 folds so many (`fold_backlog`) and ends, which commits
them, and its caller makes it again (`CLAIM_PARTS_MAX`). A put of the settings of a scope has the
lock of claims and reads deltas too, so it folds when claims would.

An index keeps the entries of dead rows until vacuum may remove them. So each fold notes where the
living entries begin: of the ready jobs of a line, of leases, of due jobs, of deltas. Claims start
there, or at what newer deltas name, and do not slow down under an old snapshot. If a line gives
fewer jobs than it counts, the claim reads it once more from the very beginning.

A job that ends makes room: the next claim reads the scopes that new deltas name, opens the gates of
jobs whose groups have room, opens and closes lines (`refresh_scopes`), and notes in which snapshot
it did. It checks the limits of each job's group again, so that a job that came in while settings
changed is neither started too early nor left behind.

Challenge: turns go over tenants first, of which some have many queues, and claims for listed queues
must find the tenant whose turn it is among all that have jobs there.

Pattern: **a line keeps a copy of its tenant's turn**, which only grows. A claim reads the lines of
a queue by that copy, corrects copies that are out of date, parks lines of closed tenants, and goes
on until all it reads is right: these are the first, since no copy is too large. Each copy is
corrected once per turn at most. Tenants that deltas name are computed (`line_changes`,
`changed_tenants`).

Challenge: a limit of the platform spans all tenants. What it holds must cost no later claim
anything, and come in the order of turns when there is room.

Pattern: **a claim sets aside what it meets without room.** A line is closed, a job gets gate 3;
`aside` names the tenant. A tenant keeps its turn meanwhile. A claim first reads how many jobs each
limit leaves (`bound_by_platform`); the room of the whole store only makes the claim smaller. Where
a queue or a type may stop it, or something is aside, it reads the places of `aside`, which are few,
lets in as much as it can take, by the copies of the turns, and plans its rounds tenant by tenant
(`plan_by_platform`). All that happens while `store_state.platform` says so, which claims read
anyway. What runs is counted as everything else: a base in `scopes`, plus deltas. All deltas of jobs
that start or end have the type, limit or not, so acks need not know whether there is one. The base
is set with the settings, under the lock of claims, by one statement: the leased jobs of its
snapshot less the deltas of its snapshot. A transaction that was open then adds its own deltas
later, so no start and no end is missed or counted twice.

Challenge: a tier has a hundred thousand tenants, and a change of it holds for the next claim.

Pattern: **values of tiers are looked up, and what rests is listed by its tier.** Each check of room
reads the tier (`limits_of`, `group_limits`), so a limit that was lowered holds at once; claims
close what they meet without room, a bounded number each. What has no room is in `resting`. A change
writes the tier and a row of `looks` for each kind of scope that it may open; claims then check what
rests in that tier in the order of its index, a portion at a time, until they are at its end. A
bucket that is older than the last change of its rate is brought up to date when it is read. A line
whose queue has no settings of its own is checked when deltas name it.

Challenge: a hundred thousand jobs end at once that one other awaits, and their acks must not wait
for each other; nor may an end be lost when a process dies. Most flows are small, and must cost
little more than their jobs.

Pattern: **an ack follows the edges of its jobs if nobody is in its way.** The step that completes
jobs with edges locks the targets that nobody else holds, counts down their joins, and makes them
ready or ends them, all in the server (`follow_completed`). It adds a row to `releasing` for what it
leaves: edges to jobs that somebody holds, to joins that jobs have made, to jobs whose end others
see. So do steps that fail, cancel or delete jobs. Then the same call takes one advisory lock and
follows, in a transaction of its own, the edges of all such jobs of its tenants that it finds:
again in the server (`release_completed`), which now waits for the targets, or by Python's rules
(joins.py). Either adds up what it has read, and writes each join and each job once. Who waited for
the lock mostly finds nothing left to do. Claims follow what is left, a bounded number of edges
each, tenants in turn, and never wait for the lock. Whoever changes the join of the parents holds
the job's row. A signal and the park that awaits it meet at the lock of that row too.

Challenge: a new version of a row is a new entry in each index of its table, unless no index names a
column that has changed; and the rows of jobs are wide.

Pattern: **no index of `jobs` names what a claim changes.** A leased job stays in the index of its
line until it ends, is scheduled or retried; claims pass over it. So a claim writes the new version
of the row beside the old one, into the room that the fillfactor leaves in each page, and touches no
index. The room is more than half of a page, since a leased job has a token and a worker besides.
What a claim passes over is what runs behind the floor of the line, or ran since the last fold.

    jobs_line   (queue, tenant, rank, seq)            gate = 0        claim: head of a line
    jobs_group  (tenant, group, gate, queue, rank, seq)     of a group: its gate opens with room
    jobs_ages   (tenant, queue, run_at)               gate 0, 1, 3    how long the oldest waits
    jobs_aside  (type, queue, tenant, rank, seq)      gate = 3        claim: let in with room
    jobs_due    (run_at)                              gate = 2        claim: made ready when due
    leases_until (spent, until)          attempts left: claim, made ready when lapsed; none left:
                                         expired, upkeep fails them
    jobs_order  (tenant, group, seq)     of a group                   head of an ordered group; none
                                                      left: the group is drained
    jobs_ttl    (late, expires_at)       with a time to live
    jobs_name   (tenant, id) unique      by id
    jobs_key    (tenant, key)            where given
    history_name, history_seq, history_done (keep_until), history_dead (tenant, seq) of failed ones
    history_parents (keep_until)         with edges                   upkeep: pruned by themselves
    tenants_turn (turn)                  open, with lines             claim: whose turn it is
    lines_turn  (tenant, turn)           open, with jobs              claim: the lines of a tenant
    lines_tenant_turn (queue, tenant_turn)    the same, not parked    claim: the tenants of a queue
    lines_parked (tenant)                                             opened with their tenant
    resting_tier (tier, kind, tenant, part)                           claim: what a tier may open
    tenants_in_tier (tier)               with a tier                  whether a tier is in use
    aside_turn (kind, part, queue, turn), aside_tenant (tenant)       claim: who is let in first
    deltas_id   (id)                     from the floor on: dead entries below it are not read

Challenge: to delete a million ended jobs one by one costs as much as it did to write them, and
leaves as many dead rows behind.

Pattern: **a day's jobs are in one partition**, which is emptied at once (TRUNCATE) when the day is
over. Jobs kept for a day at least do not enter the partition of today any more; jobs kept for a
week at most do not enter that of yesterday before tomorrow: nine partitions are enough. They follow
from the jobs' own times, so nothing is made ahead, and no table is made or dropped while the store
works, which would lock the whole history. Before a partition is emptied its jobs are subtracted
from the counts, while others may read it; then it is locked for an instant, or another time if
somebody uses it for long. A day of few jobs (`WHOLE_MIN` of maintenance.py) is pruned job by job
and in time, as is `history_rest`; the jobs of a large day stay up to a day longer. Where upkeep did
not run for days, two of them may meet in one partition: it is then pruned job by job.

To look up an id in ten partitions costs ten look-ups. Generated ids grow with time, so an enqueue
first asks whether any ended job has an id between those of the call (`ended_ids_in_range`).

Ordering: transactions commit in another order than they draw cursors. Before its first event or
delta a transaction takes a shared advisory lock whose number is the last cursor drawn so far
(`announce`). Readers of the log go up to the lowest number that is held (`horizon`), so that they
never skip an event that is not committed yet; a fold raises the floor of deltas up to the same. A
transaction that wrote neither holds nobody back.

Ids: an id is unique among living jobs by its index; that no ended job has it is checked after the
insert, when a job that ended in between can be seen.

Limits: numbers are 64 bits, times whole microseconds; a text cannot hold a zero character.
"""

from __future__ import annotations

SCHEMA_VERSION = 23
"""The number of the newest file in `sql/schema/`; the highest row of `schema_version`."""

SERVER_VERSION_MIN = 13
"""Transaction ids of 64 bits and their snapshots came with 13."""
