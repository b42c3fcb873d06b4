"""A FoundationDB for tests: an engine in this process, with the binding's API and real semantics.

    engine = Engine(ManualClock(), faults=Faults(seed=7, conflict=0.05, unknown=0.02))
    db = engine.database()                  # what fdb.open() gives
    tr = db.create_transaction()
    tr[b"greeting"] = b"hello"
    tr.commit().wait()

Names are those of the binding 7.3 at API version 730, so that code written for `fdb` can use this
package instead: `FDBError`, `KeySelector`, `StreamingMode`, `predicates`, `Database`,
`Transaction`, futures. Nothing is installed, nothing is global, and each `Engine` is a cluster of
its own that any number of threads may use.

## What is faithful

Each line is a test of `test_engine*.py`; those that need no fault and no clock
also run against a real cluster.

- **Versions**: a million a second of the given clock; commits strictly grow; an idle cluster's read
  version moves in steps of 2 s; transactions whose answers are on their way together share a
  version, told apart by their order in it; `recover()` jumps by 100,000,000 and never back.
- **Isolation**: strict serializability by ranges. A plain read conflicts (1020) with what was
  written since, inserts into a range that was read too; with a limit only as far as was read.
  Snapshot reads, atomic operations and blind writes do not conflict. A commit that wrote nothing
  does nothing.
- **Read-your-writes**: own sets, clears and atomic operations show in own reads, in ranges too;
  what waits for its versionstamp gives 1036.
- **Versionstamps**: ten bytes, commit version and order; the place by four bytes, little-endian, at
  the end of key or value. The stamp of a transaction that wrote nothing gives 2021.
- **Age**: reads and commits at a version older than 5,000,000 fail with 1007, those ahead of time
  with 1009.
- **Limits**: key 10,000 B (2102), value 100,000 B (2103), transaction 10,000,000 B or its
  `size_limit` (2101). As in the binding a write has no answer: its error comes with the commit, or
  with the next read.
- **Watches**: armed by the commit, ready when the value is another, not when the same is written
  again; cancelled with a transaction that does not commit; 10,000 per connection (1032); they
  outlive a recovery.
- **Life**: a transaction that is used while or after it commits gives 2017, a cancelled one 1025,
  one past its time-out 1031; its futures fail with 1025 if it is garbage before they are looked at.
  `on_error` retries what can be retried, up to `retry_limit`.
- **Down**: between `stop()` and `start()` nothing is answered, but by the time-out of a
  transaction; `start()` recovers, and commits that were on their way before it end with 1021.

## What is not

- Answers come at once, in the calling thread, unless `Faults(delay=...)` holds some back for a few
  turns of the event loop that waits for them. There is no network thread; latency means nothing
  here.
- Without delays, tasks of one event loop do not meet inside their transactions: figures of
  contention need `delay`. With it, commits overtake each other as those of several clients do;
  without, stamps are in the order of issue.
- `on_error` does not wait: retries come sooner than after the real back-off.
- Time-outs are counted by the engine's clock; by real seconds while the cluster is down.
- 1009 comes at once; a cluster waits about a second for the version to be reached.
- Only the newest 256 changes are kept beside those that open transactions can see: a
  `set_read_version` to a version that nobody reads at may be too old (1007) before 5 s have passed.
- A watch that is dropped without `cancel` counts until it fires. A read sent while the cluster is
  down sees what its transaction wrote until `start`.
- Not there: tenants, the directory and tuple layers (`fdb.tuple` works without a cluster), system
  and special keys, `locality`, `transactional`, throttling, `get_estimated_range_size_bytes`.

## Faults

`Faults` draws them by a seed: conflicts that were none, 1021 applied or not, 1031 of commits
applied, not applied or applied later, 1007, 1009, delays, recoveries; `Faults.storm(seed)` mixes
them, `plan` sets single ones. `Engine.counts` tells attempts, commits and conflicts.
"""

from __future__ import annotations

from tests.foundationdb_engine.database import Database
from tests.foundationdb_engine.engine import Counts, Engine
from tests.foundationdb_engine.errors import FDBError, predicates
from tests.foundationdb_engine.faults import Fault, Faults
from tests.foundationdb_engine.futures import Future, Key, Value
from tests.foundationdb_engine.keys import KeySelector, KeyValue, StreamingMode
from tests.foundationdb_engine.transaction import Transaction

__all__ = [
    "Counts",
    "Database",
    "Engine",
    "Fault",
    "Faults",
    "FDBError",
    "Future",
    "Key",
    "KeySelector",
    "KeyValue",
    "predicates",
    "StreamingMode",
    "Transaction",
    "Value",
]
