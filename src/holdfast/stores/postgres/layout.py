"""Every table, column and index of the PostgreSQL store, and why each is there.

    jobs      one row per job that has not ended and is in no pack and no piece
      seq                     first-enqueue sequence: the order in a priority, the cursor of pages
      tenant id queue type codec version payload rules priority key group_name tags origin
                              what was enqueued; rules as JSON
      state                   as in lifecycle.py; a due job may still say scheduled or retrying
      late                    1: outlived its time to live while waiting, upkeep's to fail
      gate                    1: enqueued, but its group has no place for it yet
      run_at attempt fence lapses misses progress reason error
      token lease_until worker    of the last lease; kept after it lapsed, so that a late ack hears
                              that it expired
      max_attempts keep_us    copied from the rules, for the indexes and for completions
      size                    bytes of the payload, for the tenant's cap
    ready     seq -> rank (-priority), queue, tenant, group_name, run_at, expires_at, gate
                              the enqueued jobs; a claim takes the row away. gate: 0 it stands in
                              its line, 1 as above, 2 it is late
    packs     jobs that came in one call and are alike, up to 128 in a row, enqueued
      seq number taken        of the first of them, the others follow; how many came, and how many
                              of these were taken, from the front
      rank at tenant queue type codec version rules max_attempts keep_us      of all of them
      ids payloads            of each
      first_id last_id        the least and the greatest; all begin with the same 11 characters
    pieces    what one claim took of one pack, leased
      seq number has          of the first of them, the others follow; how many they were, and how
                              many are still in it
      gone                    a bit for each: set, it has ended or is a row of jobs
      since until nonce worker    of the lease; a job's token is the nonce and its seq
      sizes ids payloads      of each; ids and payloads are NULL where it is a whole pack, whose
                              row then stays for them, with nothing left to take
                              And the columns that packs have for all of them
    due       seq -> run_at   the scheduled and retrying ones that are not late
    leases    until, spent, seqs    a row for each claim: the jobs that it leased, of a piece the
                              first, and until when; spent: those on their last attempt. Not touched
                              when a job ends: a row whose time has come names what to look at, no
                              more
    history   the same for jobs that have ended, until keep_until; in ten parts
      history_0 ... history_8   jobs kept for one to seven days: the day of keep_until, modulo nine
      history_rest            jobs kept for less or for longer
    counts    (kind, tenant, part) -> jobs in each state; a row for each tenant, queue and group
      bytes                   of a tenant: the payloads of its jobs that have not ended
      blocked                 of a queue: enqueued jobs that are in no line, gated or late
      open turn               of a tenant, or of a queue, which with its tenant is a line: whether
                              its own settings let it run; its place among the tenants, or among the
                              lines of its tenant
      lines queues groups     of a tenant: its open lines with jobs; rows of its queues and groups
      credit                  of a tenant: what is left of a turn that a full claim cut short
      ring parked             of a line: its tenant's turn of some time, never a later one; its
                              tenant was closed when a claim met it
      floor_rank floor_seq    of a line: no ready job stands before it, but for what deltas say
    deltas    what has changed since the counts were added up, by (tenant, queue, group)
      id                      from `turns`: also the turn of a line that comes up or was served
      txid                    who wrote it; the one index
      served turned credit    a claim visited the line; ended its tenant's turn, or left some of it
      head_rank head_seq due  the first of the jobs that came into the line (rank is -priority), and
                              when the first of the others is due
      held                    of a claim: when its leases end
      mark                    without a tenant: the snapshot in which somebody looked at all scopes
                              that deltas name
    heads     one row: floor (no unfolded delta is below this txid), mark, folded_at, events_floor,
              held_floor due_floor (no living lease, nothing due is below, but for what deltas say),
              repeat_floor (no living claim ends before)
    claims    nonce -> until, seqs     of the last minute, so that a repeated claim is known
    crowded   tenants that have as many queues or groups as they may; found now and then
    waiters   (tenant, id) -> until    jobs whose end somebody waits for, and is told of
    scopes    the settings of scopes in columns, for the functions; `settings` holds what was put
    ruled     tenants for which anything was ever set: no other tenant costs a question
    buckets   (kind, tenant, part) -> full_at     tokens of a rate; no row: full
    reopen    (kind, tenant, part) -> at          when time alone may make room in a scope
    keys      (tenant, queue, type, key) -> id, until     idempotency; until NULL: while it lives
    events    cursor -> the fact              the log
      number ids last_id      of a fact about many jobs: the first is job_id, cursors count on
      signed                  who wanted it, and why
    settings  name -> value, version; of a scope: its tenant
    holds     name -> owner, until, note; of a slot: its scope

Challenge: PostgreSQL keeps every version of a row until nobody can see it. A counter that is
updated with each job grows a chain of dead versions that everybody walks, and holds up whoever
else wants to count; one long transaction of somebody else makes it endless.

Pattern: **only claims touch what is shared.** Enqueue, ack and cancel insert, delete and append;
they wait for nobody but those who change the same job. What they changed they append to `deltas`,
one row for each line and group of a call. A count is the row of `counts` plus the deltas since,
read in one snapshot, so it is exact at every instant. About once a second a claim adds the deltas
to the counts (`fold`). Claims take one advisory lock, so they and changes of settings come one
after the other and see one truth, as SQLite's writer does; the lock ends with the transaction, and
no busy verb holds it over a round trip. A claim that would find nothing does not take it.

An index holds the entries of dead rows too, until vacuum may take them away. So each fold notes
where the living ones begin: of the ready jobs of a line, of leases, of what is due. Claims start
there, or at what newer deltas say, and do not slow down under somebody's old snapshot. Should a
line give fewer jobs than it counts, the claim looks once more from the very beginning.

What ends a job frees a place: the claim that follows looks at the scopes that new deltas name, lets
jobs of groups into their lines, opens and closes lines (`look`), and remembers by a mark which
deltas it has seen. It asks again of each job whether its group has room, so that a job that came in
while settings changed is neither started too early nor left behind.

Challenge: turns go over tenants first, of which some have many queues, and claims for listed
queues must find the tenant whose turn it is among all that have jobs there.

Pattern: **a line keeps a copy of its tenant's turn**, which only grows. A claim reads the lines of
a queue by that copy, puts right what it meets out of date, parks lines of closed tenants, and goes
on until what it meets is right: that is first, since no other copy is too large. Each correction is
paid by one meeting. Tenants that deltas name are worked out by themselves (`told`, `turns_told`).

Challenge: a new version of a row is a new entry in each index of its table, unless no index names a
column that has changed; and the rows of jobs are wide.

Pattern: **the places where jobs stand are tables of their own.** The indexes of `jobs` name only
what never changes (and `late`), so a claim writes the new version beside the old one, into the room
that the fillfactor leaves in each page, and touches no index: it takes 7 us less for each job, of
about 19. Places are narrow and are not updated, only left and entered. The lock of a job's own row
is the lock of its places as well.

    ready_line  (queue, tenant, rank, seq)            gate = 0        claim: head of a line
    ready_group (tenant, group, gate, queue, rank, seq)     of a group: granted a place when its
                                                      group has one
    ready_ages  (tenant, queue, run_at)                               how long the oldest waits
    due_at      (run_at)                                              claim: made ready when due
    leases_until (spent, until)          attempts left: claim, made ready when lapsed; none left:
                                         expired, upkeep fails them
    jobs_order  (tenant, group, seq)     of a group                   head of an ordered group; none
                                                      left: the group is drained
    jobs_ttl    (late, expires_at)       with a time to live
    jobs_name   (tenant, id) unique      by name
    jobs_key    (tenant, key)            where given
    history_name, history_seq, history_done (keep_until), history_dead (tenant, seq) of failed ones
    tenants_turn (turn)                  open, with lines             claim: whose turn it is
    lines_turn  (tenant, turn)           open, with jobs              claim: the lines of a tenant
    lines_ring  (queue, ring)            the same, not parked         claim: the tenants of a queue
    lines_closed (tenant), lines_parked (tenant)                      opened with their settings
    deltas_txid (txid)                   from the floor on: dead entries below it are not walked

Challenge: to delete a million ended jobs one by one costs as much as it did to write them, and
leaves as many dead rows behind.

Pattern: **days take turns.** A day's jobs are in one table, which is emptied at once (TRUNCATE)
when the day is over. Kept for a day at least, none comes into the part of today any more; kept for
a week at most, none comes into that of yesterday before tomorrow: nine parts are enough. They
follow from the jobs' own times, so nothing is made ahead, and no table is made or dropped while the
store works, which would lock the whole history. Before a part is emptied its jobs are counted off
as single ones are, while others may read it; then it is locked for an instant, or another time if
somebody uses it for long. A day of few jobs (`WHOLE_MIN` of upkeep.py) is pruned job by job and in
time, as is what is in `history_rest`; the jobs of a large one stay up to a day longer. Where upkeep
did not run for days, two of them may meet in one part: it is then pruned job by job.

To ask for an id in ten parts costs ten look-ups. Ids that were not chosen by the caller grow with
time, so none that has ended is between those of one call: that is asked first (`ended_between`).

Challenge: most of an enqueue is arrays that say the same of each job, and care for what is rare:
keys, caps, groups, ids that are known.

Pattern: **jobs that are alike go a short way** (`enqueue_alike`): what they share is said once, and
they are inserted as if nothing could be in the way. Should anything be, all of it is undone as a
subtransaction and `enqueue` does it with care. A job takes half of the server's time. One that
comes alone with an id made for it goes a shorter way still (`enqueue_one`).

Challenge: even so a job is a wide row, a narrow one and five entries of indexes, which are written
to be taken away again soon.

Pattern: **jobs that are alike wait in packs** (`enqueue_pack`), where the call has some size and
its ids were made for it. A number of the sequence is the first of 128, so all of a pack stands at
one place of its line, and no other job in between. A claim takes jobs from the front. That takes a
fifth of the server's time for an enqueue. Whoever asks for a job by more than its turn **opens**
its pack first: what is left of it becomes rows of `jobs` and `ready`, as if it had come so. Those
who only look read packs beside the rows (`packed`, `living`).

Packs are made by anybody, and changed by who has the lock of claims, nobody else: so there is no
lock of a pack. As an id in it was made for its call, nobody knows it before its pack is there, but
the same call repeated, which makes the same packs and meets the first try at their unique index. So
an enqueue finds known ids without opening anything, also inside somebody's long transaction. One
with a snapshot from before the pack may take an id that is in it: the pack's job gives way when it
is taken or opened.

Challenge: to lease such a job is to write a wide row, which its ack takes away again.

Pattern: **what a claim takes of a pack is one row, a piece**, and to complete some of its jobs is
to set their bits (`complete_held`); the last one takes the row away. Such a job is never a row of
its own; where its record is kept, the history gets it from the piece. Claim and ack take two thirds
of the server's time and of the WAL, and without the log less than half. Whatever else is done to
such a job, to renew its lease, fail, cancel or explain it, **moves it to a row** first
(`open_held`), and leaves the others of its piece where they are; so does the end of the lease, with
all that are left. Those who only look read pieces beside the rows (`held`, `living`).

The lock of a piece is that of its row. Acks and those who move jobs wait for it, and then read in a
new statement what the piece has: a job has left it once, by whoever was first. Claims rescue lapsed
pieces but do not wait, since an ack may be part of a long transaction. No ack waits for claims: of
a pack that is taken in parts each piece has its part of the arrays; one that is taken whole, as
most are, is its piece's alone, passed over by all others, and goes with it. An id goes from a pack
to a piece to `jobs` to the history, never back, and is looked for in that order, or in all of them
in one snapshot: it cannot be missed on its way.

    packs_line  (queue, tenant, rank, seq)            claim: with `ready_line`, head of a line
    packs_ages  (tenant, queue, at)                   how long the oldest waits
    packs_name  (tenant, first_id) unique             by name: from what its id begins with
    pieces_name (tenant, first_id, last_id)           by name
    events_many (tenant, job_id, last_id) partial     facts about many, by the name of one

Ordering: transactions commit in another order than they draw cursors. Before its first cursor a
transaction takes a shared advisory lock whose number tells the last one drawn so far; a reader of
the log goes up to the lowest number that is held (`horizon`), so that it never passes over a fact
that is still on its way.

Ids: a job's name is unique among the living by its index; that no ended job has it is asked after
the insert, when one that ended in between can be seen.

Limits: numbers are 64 bits, times whole microseconds; a text cannot hold a zero character.
"""

from __future__ import annotations

SCHEMA_VERSION = 16
"""The number of the newest file in `migrations/`; the highest row of `schema_version`."""

SERVER_VERSION_MIN = 13
"""Transaction ids of 64 bits and their snapshots came with 13."""
