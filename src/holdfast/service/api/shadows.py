"""Sources of the remote store: reads and steps of a shadow. See `storage.py`.

A source makes jobs of what its state says, and polls and changes may be of any queue and type. So
it is for tokens of all queues and types, and its state is checked before it is stored.
"""

from __future__ import annotations

import msgspec

from holdfast.core.changes import check_row
from holdfast.core.errors import InvalidInput, SourceError
from holdfast.core.shadow import Shadow, ShadowRead, ShadowStep
from holdfast.core.source import check_source, decode
from holdfast.service.api import permissions
from holdfast.service.api.verbs import verb
from holdfast.service.aside import aside
from holdfast.service.call import Call
from holdfast.stores.remote import wire


@verb(wire.SHADOW)
async def shadow(call: Call, asked: ShadowRead) -> Shadow:
    """Reads a source with rows of it, or the sources of a tenant."""
    permissions.own(call, asked.tenant)
    permissions.over_queues(call)
    return await call.service.store.shadow(asked)


@verb(wire.STEP)
async def step(call: Call, asked: ShadowStep) -> Shadow:
    """Applies one step of a source."""
    permissions.own(call, asked.tenant)
    permissions.over_queues(call)
    checked = await aside(asked.size, lambda: _checked(call, asked))
    return await call.service.store.shadow(checked)


def _checked(call: Call, asked: ShadowStep) -> ShadowStep:
    """The step, if the library could have made it."""
    check_source(asked.source)
    asked.checked()
    if asked.state is not None:
        try:
            decode(asked.source, asked.state)
        except SourceError as error:
            raise InvalidInput(field="state", why=str(error)) from None
    for row in asked.put:
        check_row(row)
    jobs = tuple(permissions.new_job(call, job) for job in asked.jobs)
    return msgspec.structs.replace(asked, jobs=jobs)
