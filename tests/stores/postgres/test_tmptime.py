import time
from uuid import uuid4
from holdfast.store import Claim
from tests.stores.postgres.test_flat_claims import FILL, STAND, LEASE
async def test_t(store, connect):
    c = await connect()
    for shape in ("tenants","queues"):
      for number in (100, 100_000):
        await c.execute("TRUNCATE jobs, ready, counts, deltas")
        await c.execute(FILL, *((number,1) if shape=="tenants" else (1,number)), timeout=120)
        for s in STAND: await c.execute(s, timeout=120)
        await c.execute("SELECT fold(1000000)", timeout=200)
        await c.execute("ANALYZE")
        for queues in (None, ("q1","q2","q3")):
          if shape=="queues" and queues: continue
          ts=[]
          for _ in range(8):
            t=time.perf_counter()
            got=await store.claim(Claim(worker="w",nonce=uuid4().hex,limit=10,lease_us=LEASE,queues=queues))
            ts.append(time.perf_counter()-t)
          print(shape, number, queues, len(got), "ms:", sorted(round(x*1000,1) for x in ts))
