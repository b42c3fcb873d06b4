"""Limits of the platform over several shards: what this process asks their home.

Shard 0 is the home of the platform: it has the settings, and a ledger of what each shard may use of
a limit (`lua/lib_ledger.lua`). A claim gets permits from the ledger before it takes jobs in a
shard. What ends is told to the home, so that others may start. Nothing here must succeed for a
limit to hold: a permit that is not used, or a word that is lost, only leaves a place free for a
while, and the next claim that misses it asks the shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.core.clock import Micros
from holdfast.core.errors import StoreError, StoreUnavailable
from holdfast.core.scope import PLATFORM, Scope, platform_scopes
from holdfast.stores.redis.count import KIND_CODES
from holdfast.stores.redis.shards import Shards

HOME = 0
BEGUN, OVERTAKEN = 6, 7
"""What the first step of a put answers, and the second if another put came between."""
PUT_TRIES_MAX = 100
"""How often a put begins anew because others put the same at the same time."""

Report = tuple[int, str, int, int]
"""A shard, a scope, its running jobs there, and the last permit that the shard knows."""


def scope_name(scope: Scope) -> str:
    """The name of a scope of the platform in the scripts."""
    return f"{KIND_CODES[scope.kind]}\0\0{scope.part}"


WHOLE_STORE = scope_name(PLATFORM)


def scopes_of(queue: str, type: str) -> list[str]:
    """The scopes of the platform that a job is in."""
    return [scope_name(scope) for scope in platform_scopes(queue, type)]


class Scarce(msgspec.Struct, frozen=True):
    """A scope that has room for few jobs."""

    room: int
    delay_us: Micros | None
    """In which room may come by itself; None if never, or if there is room."""
    told: Sequence[tuple[int, int]]
    """For each shard what it told last: its running jobs, and the last permit that it knew."""
    overdue: Sequence[tuple[int, int]]
    """Shards and permits that were not heard of for long."""


class Answer(msgspec.Struct, frozen=True):
    """What the home says."""

    number: int
    """Scopes with settings."""
    scarce: dict[str, Scarce]
    permits: Sequence[tuple[int, int]]
    """For each that was wanted: jobs and epoch."""
    gone: Sequence[str]
    """Of the names, those without settings."""
    epoch: int


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a process tells the home and wants of it; see platform.lua."""

    reports: Sequence[Report] = ()
    used: Sequence[tuple[int, str, int, int]] = ()
    """Permits that a claim is done with: shard, scope, epoch, jobs started."""
    wanted: Sequence[tuple[int, str, int]] = ()
    """Permits: shard, scope, jobs."""
    least: int = 0
    """Tell which scopes have room for fewer jobs."""
    heals: bool = True
    names: Sequence[str] = ()


async def ask_home(shards: Shards, question: Question, now: Micros | None) -> Answer:
    args = msgspec.structs.astuple(question)
    number, scarce, permits, gone, epoch = await shards.call("platform", HOME, args, now)
    return Answer(
        number=number,
        scarce={
            name.decode(): Scarce(room, int(delay) if delay else None, told, overdue)
            for name, room, delay, told, overdue in scarce
        },
        permits=permits,
        gone=[name.decode() for name in gone],
        epoch=epoch,
    )


def reports_of(answers: Iterable[tuple[int, Any]]) -> list[Report]:
    """What shards told, from {scope, running, epoch} each."""
    return [
        (shard, name.decode(), running, epoch)
        for shard, told in answers
        for name, running, epoch in told
    ]


async def tell_home(shards: Shards, told: Sequence[tuple[int, Any]], now: Micros | None) -> None:
    """Tells the home what ended, so that others start at once. If that fails, the next claim that
    finds no room asks the shards.
    """
    reports = reports_of(told)
    if reports:
        with suppress(StoreError):
            await ask_home(shards, Question(reports=reports), now)


async def waits(shards: Shards, answers: Sequence[Any], now: Micros | None) -> list[Any]:
    """What wait.lua answered for each shard, with what the home knows of the room there."""
    if not any(isinstance(each, list) for each in answers):
        return list(answers)
    home = await ask_home(shards, Question(least=1, heals=False), now)
    found: list[Any] = []
    for each in answers:
        if not isinstance(each, list):
            found.append(each)
            continue
        delay, is_open, waiting = each
        found.append(delay)
        missed = {WHOLE_STORE} & home.scarce.keys()
        if not missed:
            names = {name.decode() for name in waiting}
            missed = names & home.scarce.keys()
            if is_open or names - missed:
                found.append(0)
        delays = (home.scarce[name].delay_us for name in missed)
        found += [delay for delay in delays if delay is not None]
    return found


async def put(
    shards: Shards,
    scopes: Sequence[Scope],
    args: tuple[Any, ...],
    now: Micros | None,
    *,
    deletes: bool,
) -> Any:
    """Puts settings of these scopes, as settings.lua answers; see there."""
    names = [scope_name(scope) for scope in scopes]
    for _ in range(PUT_TRIES_MAX):
        begun = await shards.call("settings", HOME, (*args, 0), now)
        if begun[0] != BEGUN:
            return begun
        epoch = int(begun[1])
        fences = [each for name in names for each in (name, epoch)]
        answers = await shards.each("scopes", shards.all(), (fences, ()), now)
        running = _running(names, [told for told, _ in answers])
        answer = await shards.call("settings", HOME, (*args, (epoch, running)), now)
        if answer[0] != OVERTAKEN:
            shards.is_limited = True
            if deletes:
                await forget_gone(shards, names, now)
            return answer
    raise StoreUnavailable(store="redis", why="others put the same settings all the time")


def _running(names: Sequence[str], told: Sequence[Any]) -> list[list[int]]:
    """For each scope its running jobs in each shard."""
    by_shard = [{name.decode(): number for name, number, _ in one} for one in told]
    return [[one[name] for one in by_shard] for name in names]


async def forget_gone(shards: Shards, names: Iterable[str], now: Micros | None) -> bool:
    """Has all shards forget those of these scopes that have no settings. Returns whether any."""
    home = await ask_home(shards, Question(names=list(names)), now)
    drops = [each for name in home.gone for each in (name, home.epoch)]
    if drops:
        await shards.each("scopes", shards.all(), ((), drops), now)
    return bool(drops)
