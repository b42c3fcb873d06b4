// Speaks the Firecrawl wire as its client does: plain fetch, JSON announced on every call, every 2xx
// parsed as JSON. Exercises each route and exits with 1 at the first thing that is not as it should be.
//
//     node firecrawl.mjs <base url> <seconds that a claim lasts> [alone]
//
// `alone` says that nothing but these calls cleans up, so that a cleanup must find what is there.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'

const [base, claimSeconds, alone] = [process.argv[2], Number(process.argv[3]), process.argv[4] === 'alone']
const least = alone ? 1 : 0
const used = new Set()

async function raw(method, path, body) {
  const headers = { 'Content-Type': 'application/json' }
  used.add(`${method} ${path.split('?')[0]}`)
  return fetch(base + path, { method, headers, body, signal: AbortSignal.timeout(30_000) })
}

async function call(method, path, body) {
  const answer = await raw(method, path, body === undefined ? undefined : JSON.stringify(body))
  if (!answer.ok) throw new Error(`HTTP ${answer.status}: ${await answer.text()}`)
  return answer.json()
}

async function refused(status, method, path, body) {
  const answer = await raw(method, path, typeof body === 'object' ? JSON.stringify(body) : body)
  assert.equal(answer.status, status, `${method} ${path}: ${await answer.text()}`)
}

const seg = encodeURIComponent
const sleep = ms => new Promise(done => setTimeout(done, ms))
const id = word => `${word}-${randomUUID()}`

async function until(see) {
  for (const end = Date.now() + 20_000; Date.now() < end; await sleep(50)) {
    const seen = await see()
    if (seen) return seen
  }
  assert.fail(`not seen in time: ${see}`)
}

function job(jobId, more = {}) {
  return { id: jobId, data: { url: 'https://example.com' }, priority: 10, listenable: false, ...more }
}

const push = (teamId, what, timeout = null, crawlId = undefined) =>
  call('POST', '/queue/push', { teamId, job: what, timeout, crawlId })
const pop = (team, blockedCrawlIds = [], workerId = 'worker') =>
  call('POST', `/queue/pop/${seg(team)}`, { workerId, blockedCrawlIds })
const complete = async queueKey => (await call('POST', '/queue/complete', { queueKey })).success
const release = async jobId => (await call('POST', '/queue/release', { jobId })).success
const count = async path => (await call('GET', path)).count
const teamCount = team => count(`/queue/count/team/${seg(team)}`)
const crawlCount = crawl => count(`/queue/count/crawl/${seg(crawl)}`)
const teamJobs = async (team, query = '') =>
  (await call('GET', `/queue/jobs/team/${seg(team)}${query}`)).jobIds

const steps = {
  async 'health tells that the store answers'() {
    assert.deepEqual(await call('GET', '/health'), { status: 'ok', fdbConnected: true })
  },

  async 'a job goes from push to complete'() {
    const [team, crawl] = [id('team'), id('crawl')]
    const before = Date.now()
    assert.deepEqual(await push(team, job('a', { listenChannelId: 'ch', priority: -3 }), 60_000), { success: true })
    assert.deepEqual(await push(team, job('b', { listenChannelId: null }), Infinity, crawl), { success: true })
    assert.equal(await teamCount(team), 2)
    assert.equal(await crawlCount(crawl), 1)
    assert.deepEqual(await teamJobs(team), ['a', 'b'])

    const first = await pop(team)
    assert.deepEqual(Object.keys(first).sort(), ['job', 'queueKey'])
    assert.match(first.queueKey, /^[A-Za-z0-9+/]+=*$/)
    const { createdAt, timesOutAt, ...rest } = first.job
    assert.deepEqual(rest, { id: 'a', data: { url: 'https://example.com' }, priority: -3, listenable: false,
      listenChannelId: 'ch', teamId: team })
    assert.ok(Math.abs(createdAt - before) < 60_000, 'createdAt is now, in milliseconds')
    assert.equal(timesOutAt, createdAt + 60_000)
    const second = await pop(team)
    assert.deepEqual(Object.keys(second.job).sort(),
      ['crawlId', 'createdAt', 'data', 'id', 'listenable', 'priority', 'teamId'])
    assert.equal(second.job.crawlId, crawl)
    assert.equal(await pop(team), null)
    assert.equal(await teamCount(team), 2, 'claimed jobs count')
    assert.equal(await crawlCount(crawl), 1)
    assert.deepEqual(await teamJobs(team), ['a', 'b'])

    assert.equal(await complete(first.queueKey), true)
    assert.equal(await complete(first.queueKey), false)
    assert.equal(await complete(second.queueKey), true)
    assert.equal(await teamCount(team), 0)
    assert.equal(await crawlCount(crawl), 0)
    assert.deepEqual(await teamJobs(team), [])
  },

  async 'an empty pop is a literal null'() {
    const answer = await raw('POST', `/queue/pop/${id('nobody')}`, '{"workerId":"w","blockedCrawlIds":[]}')
    assert.equal(answer.status, 200)
    assert.equal(await answer.text(), 'null')
  },

  async 'lower priorities come first, equals in order'() {
    const team = id('team')
    for (const [name, priority] of [['a', 5], ['b', -2147483648], ['c', 0], ['d', 5], ['e', 2147483647], ['f', -1]]) {
      await push(team, job(name, { priority }))
    }
    assert.deepEqual(await teamJobs(team), ['b', 'f', 'c', 'a', 'd', 'e'])
    assert.deepEqual(await teamJobs(team, '?limit=2'), ['b', 'f'])
    const popped = []
    for (let found; (found = await pop(team)); await complete(found.queueKey)) popped.push(found.job.id)
    assert.deepEqual(popped, ['b', 'f', 'c', 'a', 'd', 'e'])
  },

  async 'ids may hold anything'() {
    for (const word of ['a/b', 'ü 日本', '%2F', ' x ', 'a?b#c&d', '100%', 'tab\t', '💥/🚀']) {
      const [team, crawl] = [`${word}${id('t')}${word}`, `${word}${id('c')}`]
      await push(team, job(word), 0, crawl)
      assert.equal(await teamCount(team), 1)
      assert.equal(await crawlCount(crawl), 1)
      const found = await pop(team)
      assert.deepEqual([found.job.id, found.job.teamId, found.job.crawlId], [word, team, crawl])
      assert.equal(await release(word), true)
      const again = await pop(team)
      assert.equal(again.job.id, word)
      await call('POST', '/active/push', { teamId: team, jobId: word, timeout: 60_000 })
      assert.deepEqual((await call('GET', `/active/jobs/${seg(team)}`)).jobIds, [word])
      assert.equal(await complete(again.queueKey), true)
    }
  },

  async 'data is any JSON and comes back as it was'() {
    const team = id('team')
    const texts = ['null', '-0', '1e400', '123456789012345678901234567890', '{"b":1,"a":{"b":[]},"b":2}',
      '"\\u0041\\/\\ud83d\\ude00 é"', '"\\ud800"', '[ 1, 2.50 ]', '""', 'false']
    for (const data of texts) {
      const pushed = await raw('POST', '/queue/push',
        `{"teamId":"${team}","timeout":null,"job":{"id":"x","data":${data},"priority":0,"listenable":true}}`)
      assert.equal(pushed.status, 200, data)
      const answer = await raw('POST', `/queue/pop/${team}`, '{"workerId":"w","blockedCrawlIds":[]}')
      const text = await answer.text()
      assert.ok(text.includes(`"data":${data},`), `${data}: ${text}`)
      assert.equal(await complete(JSON.parse(text).queueKey), true)
    }
  },

  async 'bodies of two mebibytes are taken'() {
    const team = id('team')
    const frame = JSON.stringify({ teamId: team, job: job('big', { data: '' }), timeout: null })
    const data = 'x'.repeat(2 * 1024 * 1024 - frame.length)
    await push(team, job('big', { data }))
    const found = await pop(team)
    assert.equal(found.job.data, data)
    assert.equal(await complete(found.queueKey), true)
    await refused(413, 'POST', '/queue/push', { teamId: team, job: job('big', { data: data + 'x' }), timeout: null })
  },

  async 'the same id twice is two jobs'() {
    const [team, crawl] = [id('team'), id('crawl')]
    await push(team, job('twin'), null, crawl)
    await push(team, job('twin'), null, crawl)
    assert.equal(await crawlCount(crawl), 2)
    assert.equal(await complete((await pop(team)).queueKey), true)
    assert.equal(await crawlCount(crawl), 1)
    assert.equal(await complete((await pop(team)).queueKey), true)
    assert.equal(await crawlCount(crawl), 0)
  },

  async 'blocked crawls are passed over, and a released job is popped again'() {
    const [team, crawl] = [id('team'), id('crawl')]
    const names = Array.from({ length: 120 }, (_, n) => id(`j${n}`))
    for (const name of names) await push(team, job(name, { priority: 0 }), null, crawl)
    await push(team, job('free', { priority: 99 }))
    const over = await pop(team, [], 'chain')
    assert.equal(over.job.id, names[0])
    assert.equal(await release(over.job.id), true)
    const free = await pop(team, [crawl], 'chain')
    assert.equal(free.job.id, 'free')
    assert.equal(await pop(team, [crawl], 'chain'), null)
    assert.equal(await complete(over.queueKey), false, 'a released claim has no right left')
    assert.equal(await release(id('unknown')), true)
    assert.equal((await pop(team)).job.id, names[0])
    assert.equal(await crawlCount(crawl), 120)
  },

  async 'concurrent pops never share a job'() {
    const team = id('team')
    await Promise.all(Array.from({ length: 30 }, (_, n) => push(team, job(`${n}`))))
    const found = await Promise.all(Array.from({ length: 40 }, () => pop(team)))
    const got = found.filter(Boolean)
    assert.equal(new Set(got.map(one => one.job.id)).size, 30)
    assert.equal(got.length, 30)
    const done = await Promise.all(got.flatMap(one => [complete(one.queueKey), complete(one.queueKey)]))
    assert.equal(done.filter(Boolean).length, 30)
    assert.equal(await teamCount(team), 0)
  },

  async 'the count of a crawl is never early 0, and never stuck'() {
    const [teams, crawl] = [[id('team'), id('team')], id('crawl')]
    let [seen, begun, over] = [[], false, false]
    const watch = (async () => {
      while (!over) {
        const first = begun
        const now = await crawlCount(crawl)
        if (first) seen.push(now)
      }
    })()
    await push(teams[0], job(id('last'), { priority: 99 }), null, crawl)
    begun = true
    await Promise.all(teams.map(async team => {
      for (let n = 0; n < 40; n++) {
        await push(team, job(id('j')), null, crawl)
        let found = await pop(team)
        if (n % 4 === 0) {
          await release(found.job.id)
          found = await pop(team)
        }
        assert.equal(await complete(found.queueKey), true)
      }
    }))
    over = true
    await watch
    assert.ok(seen.length > 0 && seen.every(now => now >= 1 && now <= 3), JSON.stringify(seen))
    assert.equal(await crawlCount(crawl), 1)
    assert.equal(await complete((await pop(teams[0])).queueKey), true)
    assert.equal(await crawlCount(crawl), 0)
  },

  async 'an expired job is not popped and not counted'() {
    const [team, crawl] = [id('team'), id('crawl')]
    await push(team, job('late'), 200)
    await push(team, job('crawled'), 200, crawl)
    await push(team, job('none'), 0)
    await push(team, job('negative'), -5)
    await sleep(400)
    assert.ok((await call('POST', '/cleanup/expired-jobs')).cleaned >= least)
    await push(team, job('also late'), 1)
    await sleep(20)
    const kept = [await pop(team), await pop(team), await pop(team)]
    assert.deepEqual(kept.map(one => one.job.id), ['crawled', 'none', 'negative'])
    assert.ok(kept.every(one => !('timesOutAt' in one.job)))
    assert.equal(await pop(team), null)
    assert.equal(await teamCount(team), 3, 'a pop that finds nothing removes what is late')
    for (const one of kept) assert.equal(await complete(one.queueKey), true)
    assert.equal(await teamCount(team), 0)
    assert.equal(await crawlCount(crawl), 0)
  },

  async 'a vanished client loses its claim, and a late complete counts if nobody popped again'() {
    const [team, crawl] = [id('team'), id('crawl')]
    await push(team, job('one'), null, crawl)
    const first = await pop(team)
    assert.equal(await pop(team), null)
    const second = await until(() => pop(team))
    assert.equal(second.job.id, 'one')
    assert.equal(await complete(first.queueKey), false)
    assert.equal(await crawlCount(crawl), 1)
    await sleep(claimSeconds * 1000 + 200)
    assert.ok((await call('POST', '/cleanup/orphaned-claims')).cleaned >= least)
    assert.equal(await complete(second.queueKey), true, 'late, and nobody has claimed it since')
    assert.equal(await complete(second.queueKey), false)
    assert.equal(await crawlCount(crawl), 0)
    await push(team, job('two'), null, crawl)
    const third = await pop(team)
    await sleep(claimSeconds * 1000 + 200)
    assert.equal(await complete(third.queueKey), true, 'late, and nothing has looked at it since')
    assert.equal(await complete(third.queueKey), false)
    assert.equal(await pop(team), null)
    assert.equal(await crawlCount(crawl), 0)
    assert.equal(await teamCount(team), 0)
  },

  async 'a client of the first generation pops the bare job'() {
    const team = id('team')
    await push(team, job('old'))
    const found = await call('POST', `/queue/pop/${team}`, { blockedCrawlIds: [] })
    assert.equal(found.id, 'old')
    assert.equal(await teamCount(team), 0)
  },

  async 'active markers of a team'() {
    const team = id('team')
    const list = async () => (await call('GET', `/active/jobs/${team}`)).jobIds.sort()
    const mark = (jobId, timeout) => call('POST', '/active/push', { teamId: team, jobId, timeout })
    assert.deepEqual(await mark('a', 60_000), { success: true })
    await mark('a', 60_000)
    await mark('b/ü', 60_000)
    await mark('short', 300)
    assert.equal((await call('GET', `/active/count/${team}`)).count, 3)
    await until(async () => (await list()).length === 2)
    assert.deepEqual(await list(), ['a', 'b/ü'])
    assert.equal((await call('GET', `/active/count/${team}`)).count, 2)
    assert.ok((await call('POST', '/cleanup/expired-active-jobs')).cleaned >= 1)
    for (const jobId of ['a', 'a', 'never']) {
      assert.deepEqual(await call('DELETE', '/active/remove', { teamId: team, jobId }), { success: true })
    }
    assert.deepEqual(await list(), ['b/ü'])
    assert.equal((await call('GET', `/active/count/${id('none')}`)).count, 0)
    assert.equal((await call('POST', `/reconcile/team/active/${team}`)).correction, 0)
  },

  async 'active markers of a crawl'() {
    const crawl = id('crawl/ü')
    const list = async () => (await call('GET', `/active/crawl/jobs/${seg(crawl)}`)).jobIds.sort()
    const mark = (jobId, timeout) => call('POST', '/active/crawl/push', { crawlId: crawl, jobId, timeout })
    assert.deepEqual(await mark('a', 60_000), { success: true })
    await mark('b', 60_000)
    await mark('short', 300)
    await until(async () => (await list()).length === 2)
    assert.deepEqual(await call('DELETE', '/active/crawl/remove', { crawlId: crawl, jobId: 'a' }), { success: true })
    assert.deepEqual(await list(), ['b'])
    assert.equal((await call('POST', `/reconcile/crawl/active/${seg(crawl)}`)).correction, 0)
    assert.ok((await sample('crawls')).includes(crawl))
  },

  async 'a crawl is counted over teams, and reconcile has nothing to correct'() {
    const crawl = id('crawl')
    const teams = [id('team'), id('team'), id('team')]
    for (const team of teams) await push(team, job('j'), null, crawl)
    assert.equal(await crawlCount(crawl), 3)
    assert.equal(await crawlCount(id('none')), 0)
    assert.equal((await call('POST', `/reconcile/crawl/queue/${crawl}`)).correction, 0)
    for (const team of teams) {
      assert.equal((await call('POST', `/reconcile/team/queue/${team}`)).correction, 0)
      assert.equal(await complete((await pop(team)).queueKey), true)
    }
    assert.equal(await crawlCount(crawl), 0)
    assert.equal((await call('POST', `/reconcile/crawl/queue/${crawl}`)).correction, 0)
    assert.deepEqual(await call('POST', '/cleanup/stale-counters'), { cleaned: 0 })
  },

  async 'samples page through every team and crawl once'() {
    const names = Array.from({ length: 30 }, (_, n) => id(n % 2 ? 'sample/' : ' é'))
    for (const name of names) await push(name, job('j'), null, name)
    for (const what of ['teams', 'crawls']) {
      const seen = await sample(what)
      assert.equal(new Set(seen).size, seen.length)
      for (const name of names) assert.ok(seen.includes(name), `${what}: ${name}`)
    }
  },

  async 'bad input is told apart'() {
    const good = { teamId: 't', job: job('j'), timeout: null }
    await refused(400, 'POST', '/queue/push', '{"teamId":')
    await refused(400, 'POST', '/queue/push', '')
    await refused(422, 'POST', '/queue/push', { ...good, teamId: 7 })
    await refused(422, 'POST', '/queue/push', { ...good, job: job('j', { priority: 2 ** 31 }) })
    await refused(422, 'POST', '/active/push', { teamId: 't', jobId: 'j' })
    await refused(422, 'POST', '/active/push', { teamId: 't', jobId: 'j', timeout: null })
    await refused(400, 'GET', '/queue/jobs/team/t?limit=x')
    await refused(400, 'POST', '/queue/complete', { queueKey: 'not base64!' })
    await refused(404, 'GET', '/queue/nothing')
    await refused(405, 'GET', '/queue/push')
    const plain = await fetch(`${base}/queue/push`, { method: 'POST', body: JSON.stringify(good) })
    assert.equal(plain.status, 415)
    for (const token of ['x', 'x.1', '..', '9'.repeat(40) + '.' + '9'.repeat(40)]) {
      const key = Buffer.from(JSON.stringify(['t', 'id', token, 'j'])).toString('base64')
      assert.equal(await complete(key), false)
    }
  },
}

async function sample(what) {
  const seen = []
  for (let after = ''; ;) {
    const { ids } = await call('GET', `/sample/${what}?limit=7${after}`)
    seen.push(...ids)
    if (ids.length < 7) return seen
    after = `&after=${seg(ids.at(-1))}`
  }
}

const ROUTES = `GET /health, POST /queue/push, POST /queue/pop/, POST /queue/complete, POST /queue/release,
  GET /queue/count/team/, GET /queue/count/crawl/, GET /queue/jobs/team/, POST /active/push, DELETE /active/remove,
  GET /active/count/, GET /active/jobs/, POST /active/crawl/push, DELETE /active/crawl/remove, GET /active/crawl/jobs/,
  POST /cleanup/expired-jobs, POST /cleanup/expired-active-jobs, POST /cleanup/stale-counters,
  POST /cleanup/orphaned-claims, POST /reconcile/team/queue/, POST /reconcile/team/active/,
  POST /reconcile/crawl/queue/, POST /reconcile/crawl/active/, GET /sample/teams, GET /sample/crawls`.split(/,\s*/)

try {
  for (const [words, step] of Object.entries(steps)) {
    const begun = Date.now()
    await step()
    console.log(`ok ${words} (${Date.now() - begun} ms)`)
  }
  const unused = ROUTES.filter(route => ![...used].some(path => path.startsWith(route)))
  assert.deepEqual(unused, [], 'every route is exercised')
  console.log(`ok all ${ROUTES.length} routes`)
} catch (error) {
  console.error(error)
  process.exit(1)
}
