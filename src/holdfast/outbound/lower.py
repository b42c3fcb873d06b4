"""Lowers the running limit of a job's group for a while, when a service is busy."""

from __future__ import annotations

from holdfast.context import Context
from holdfast.core.errors import HoldfastError


async def lower(ctx: Context, length_s: float) -> None:
    """Holds a slot of the job's group for this time, so that the group runs one job fewer, in all
    workers. Each job that is told to wait holds one. A slot ends by itself, also if this process
    dies, and nothing here raises a limit. A group without a running limit is not changed.
    """
    group = ctx.job.group
    if group is None:
        return
    try:
        await ctx.client.group(group).push_slot(
            f"outbound-{ctx.effect_key[:32]}", length_s, note="a service asked for a pause"
        )
    except HoldfastError as error:  # The call goes on: this only spares the service.
        ctx.logger.warning("the limit of group %r was not lowered: %s", group, error)
