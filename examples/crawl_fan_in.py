"""A crawl with fan-in: pages are found, each is parsed by a job of its own, one job publishes."""

from __future__ import annotations

import asyncio

from holdfast import App, Context, Fail, Flow, JobFailed
from holdfast.worker import Worker

app = App("memory://")
SITES = {"a": ["a/1", "a/2", "a/3"], "b": ["b/1", "b/broken"]}


@app.job(queue="crawl")
async def crawl(ctx: Context, site: str) -> list[str]:
    return SITES[site]


@app.job(queue="parse", max_attempts=1)
async def parse(ctx: Context, page: str) -> int:
    if page.endswith("broken"):
        raise Fail(f"{page} is no HTML")
    return len(page)


@app.job(queue="publish")
async def publish(ctx: Context, site: str, rows: list[int]) -> None:
    print(f"{site}: published {len(rows)} rows")


@app.job(queue="crawl")
async def drop_pages(ctx: Context, pages: list[str]) -> None:
    print(f"dropped {len(pages)} pages")


@app.job(queue="crawl")
async def notify(ctx: Context, site: str) -> None:
    print(f"{site}: notified")


def crawled(site: str) -> Flow:
    flow = Flow("crawl", key=site)
    pages = flow.add(crawl(site=site))
    parsed = flow.map(parse, over=pages, most=1000)
    flow.add(publish(site=site, rows=parsed.results()), on_failure="run")
    flow.undo(pages, drop_pages)
    flow.finally_(notify(site=site))
    return flow


async def main() -> None:
    async with app:
        worker = Worker(app)
        working = asyncio.create_task(worker.run())
        acme = app.tenant("acme")
        for site in SITES:
            run = await acme.start(crawled(site))
            try:
                status = await run.wait()
                print(f"{site}: {status.state}, {status.total} nodes")
            except JobFailed:
                print(f"{site}: failed, {(await run.status()).failed} node failed")
        worker.stop()
        await working


if __name__ == "__main__":
    asyncio.run(main())
