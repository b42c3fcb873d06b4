"""Translation between Firecrawl and Holdfast: names, numbers, job data, keys. Pure.

team      a tenant. An id that is not a valid name is escaped reversibly
crawl     a group in the team's tenant
job       a job in QUEUE with a generated id, because a client may push an id twice
claim     a lease; the queueKey contains its token, and release finds it by a hold under CLAIMS
marker    a slot: of the team's tenant, or of the crawl's group in the tenant ACTIVE; a team's token
          has a share of its own for the markers of crawls, and a hold under MARKED lists them
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Callable, Iterable
from urllib.parse import quote, unquote

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.core.bounds import (
    DELAY_S_MAX,
    GROUP_MAX,
    HOLD_S_MAX,
    ID_MAX,
    NAME_MAX,
    TENANT_MAX,
    WORKER_MAX,
)
from holdfast.core.check import check_name, check_token
from holdfast.core.clock import Micros
from holdfast.core.codec import BYTES, JSON, json_fault
from holdfast.core.errors import InvalidInput
from holdfast.core.job import TERMINAL, Envelope, JobRecord, Lease, NewJob, Rules
from holdfast.core.redact import Redacted
from holdfast.core.scope import Scope, ScopeKind
from holdfast.service.call import decoded
from holdfast.service.firecrawl.shapes import JobOut, PoppedOut, PushIn
from holdfast.service.problems import NotJson
from holdfast.store import Tally

QUEUE = "firecrawl"
TYPE = "firecrawl"
CRAWLS = "%crawls"
"""The tenant of the list of crawls and their teams. No team can have this name."""
ACTIVE = "%active"
"""The tenant of the markers of crawls; separate from the list, which teams can fill."""
MARKED = "firecrawl/active/"
CLAIMS = "firecrawl/claim/"
JOB_MAX = 256
"""Characters of an escaped job id: two of them, a team and a crawl fit into one name."""
TIMEOUT_MS_MAX = int(DELAY_S_MAX * 1000)
MARKER_MS_MAX = int(HOLD_S_MAX * 1000)

# -- names -----------------------------------------------------------------------------------------

ESCAPE = "%"


def name_of(field: str, id: str, most: int) -> str:
    """A valid name for an id, unique per id: the id itself, or escaped with a leading `%`."""
    if not id:
        raise InvalidInput(field=field, why="must not be empty")
    legal = id.isprintable() and id == id.strip() and not id.startswith(ESCAPE)
    return check_name(field, id if legal else ESCAPE + quote(id, safe=""), most)


def id_of(name: str) -> str:
    """The id of a name: the inverse."""
    return unquote(name[1:]) if name.startswith(ESCAPE) else name


def team_name(id: str, field: str = "teamId") -> str:
    return name_of(field, id, TENANT_MAX)


def crawl_name(id: str, field: str = "crawlId") -> str:
    return name_of(field, id, GROUP_MAX)


def job_name(id: str, field: str = "jobId") -> str:
    return name_of(field, id, JOB_MAX)


def known(name: Callable[[str], str], id: str) -> str | None:
    """The name of an id; None if it is too long or empty, so that nothing can have it."""
    try:
        return name(id)
    except InvalidInput:
        return None


def worker_name(id: str) -> str:
    """A name for display only; a long one is cut."""
    return name_of("workerId", id[:WORKER_MAX] or "?", 10 * WORKER_MAX)[:WORKER_MAX].strip()


# -- numbers ---------------------------------------------------------------------------------------


def ttl_us(timeout_ms: float | None, crawl: str | None) -> Micros | None:
    """How long a job may wait. None: for ever (no positive time-out, or a job of a crawl)."""
    if crawl is not None or timeout_ms is None or timeout_ms <= 0:
        return None
    return max(1, int(min(timeout_ms, TIMEOUT_MS_MAX))) * 1000


def marker_us(timeout_ms: int) -> Micros:
    """The duration of a marker; 0 removes it."""
    return max(0, min(timeout_ms, MARKER_MS_MAX)) * 1000


def native_priority(priority: int) -> int:
    """Firecrawl: lower first. Holdfast: higher first."""
    return -priority


def millis(at: Micros) -> int:
    return at // 1000


def alive(tallies: Iterable[Tally]) -> int:
    """The number of jobs that have not ended, both queued and claimed."""
    return sum(
        number
        for tally in tallies
        for state, number in tally.counts.items()
        if state not in TERMINAL
    )


# -- what is pushed --------------------------------------------------------------------------------

_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair
    rb"|(\\)u[dD][89a-fA-F][0-9a-fA-F]{2}"  # half of one
    rb"|\\.",
    re.DOTALL,
)
_push = msgspec.json.Decoder(PushIn)


def read_push(body: bytes) -> tuple[PushIn, bytes]:
    """A push, and the text of its data as sent.

    JavaScript writes a lone surrogate as an escape, which is valid JSON that our parsers refuse. So
    its backslash is replaced while the rest is parsed, and then restored in the data.
    """
    mask = secrets.token_hex(16).encode()
    masked = _masked(body, mask)
    push: PushIn = decoded(_push, masked)
    if (fault := json_fault(bytes(push.job.data))) is not None:
        raise InvalidInput(field="job.data", why=fault)
    if len(masked) == len(body):
        return push, bytes(push.job.data)
    for field in ("teamId", "crawlId", "job.id", "job.listenChannelId"):
        holder, _, name = field.rpartition(".")
        value = getattr(push.job if holder else push, name)
        if isinstance(value, str) and mask.decode() in value:
            raise InvalidInput(field=field, why="has a lone surrogate")
    return push, bytes(push.job.data).replace(mask, b"\\")


def _masked(text: bytes, mask: bytes = b"") -> bytes:
    """The text with the backslash before every lone surrogate replaced."""
    if b"\\u" not in text:
        return text
    return _ESCAPES.sub(lambda one: mask + one[0][1:] if one[1] else one[0], text)


class _Head(msgspec.Struct, frozen=True):
    """The fields of a job beside its data. `data_bytes` comes first, so that the data can be cut
    out without parsing.
    """

    data_bytes: int
    id: str
    listenable: bool
    listenChannelId: str | UnsetType = UNSET  # noqa: N815


_head = msgspec.json.Decoder(_Head)
_BYTES = re.compile(rb'\{"data_bytes":([0-9]{1,10}),')
_DATA = b',"data":'


def envelope_of(push: PushIn, data: bytes) -> Envelope:
    """The payload: JSON with the data as sent. With a lone surrogate in it, other parsers would
    refuse it as JSON, so it is stored as bytes then.
    """
    job = push.job
    channel = UNSET if job.listenChannelId is None else job.listenChannelId
    head = msgspec.json.encode(_Head(len(data), job.id, job.listenable, channel))
    body = b"".join((head[:-1], _DATA, data, b"}"))
    halves = any(one[1] for one in _ESCAPES.finditer(data))
    return Envelope(TYPE, BYTES if halves else JSON, 1, body)


def new_job(push: PushIn, data: bytes, id: str, rules: Rules) -> NewJob:
    """The job in the form that the store takes."""
    job_name(push.job.id, "job.id")
    crawl = None if push.crawlId is None else crawl_name(push.crawlId)
    return NewJob(
        tenant=team_name(push.teamId),
        id=id,
        queue=QUEUE,
        envelope=envelope_of(push, data),
        rules=rules,
        priority=native_priority(push.job.priority),
        ttl_us=ttl_us(push.timeout, crawl),
        group=crawl,
    )


# -- what is popped --------------------------------------------------------------------------------


def _parts(job: JobRecord) -> tuple[_Head, bytes] | None:
    """Head and data; None for a job that did not come from this protocol."""
    body = job.envelope.body
    if job.type != TYPE or not isinstance(body, bytes):
        return None
    found = _BYTES.match(body)
    if found is None:
        return None
    end = len(body) - 1
    start = end - int(found[1])
    cut = start - len(_DATA)
    if cut < 0 or body[cut:start] != _DATA:
        return None
    try:
        head = _head.decode(body[:cut] + b"}")
    except msgspec.DecodeError:
        return None
    return None if known(job_name, head.id) is None else (head, body[start:end])


def job_id(job: JobRecord) -> str | None:
    """The client's id."""
    parts = _parts(job)
    return None if parts is None else parts[0].id


def job_out(job: JobRecord) -> JobOut | None:
    parts = _parts(job)
    if parts is None or json_fault(_masked(parts[1])) is not None:
        return None  # Someone else wrote it and could forge the answer.
    head, data = parts
    return JobOut(
        id=head.id,
        data=Raw(data),
        priority=native_priority(job.priority),
        listenable=head.listenable,
        createdAt=millis(job.created_at),
        timesOutAt=UNSET if job.expires_at is None else millis(job.expires_at),
        listenChannelId=head.listenChannelId,
        crawlId=UNSET if job.group is None else id_of(job.group),
        teamId=id_of(job.tenant),
    )


def popped(lease: Lease) -> PoppedOut | None:
    job = job_out(lease.job)
    if job is None:
        return None
    return PoppedOut(job, key_text(Key(lease.job.tenant, lease.job.id, lease.token, job.id)))


# -- claims ----------------------------------------------------------------------------------------


class Key(Redacted, msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The content of a queueKey: tenant, job and lease token."""

    tenant: str
    id: str
    token: str
    job: str
    """The client's id, under which the claim is listed for release."""


class BadKey(NotJson):
    """Not a valid queueKey."""

    code = "MALFORMED_KEY"
    text = "queueKey: {why}"


_key = msgspec.json.Decoder(Key)


def key_text(key: Key) -> str:
    return base64.b64encode(msgspec.json.encode(key)).decode()


def key_of(text: str) -> Key:
    try:
        key = _key.decode(base64.b64decode(text, validate=True))
        check_name("tenant", key.tenant, TENANT_MAX)
        check_name("id", key.id, ID_MAX)
        check_name("token", key.token, NAME_MAX)
        job_name(key.job)
    except (binascii.Error, ValueError, msgspec.MsgspecError, InvalidInput):
        raise BadKey(why="was not returned by a pop") from None
    return key


def token_name(token: str) -> str:
    """The token, if it has the form of a lease token."""
    return check_token("queueKey", token)


def claim_hold(key: Key) -> str:
    """The name of the hold by which a release finds the claim of a job id."""
    return f"{claims_under(key.job, key.tenant)}{key.id}"


def claims_under(job: str, tenant: str | None) -> str:
    """Prefix of the holds for the claims of a job id: in all teams, or in one."""
    name = job_name(job)
    under = f"{CLAIMS}{len(name)}:{name}/"
    return under if tenant is None else f"{under}{len(tenant)}:{tenant}/"


_LENGTH = re.compile(r"([0-9]+):")


def claim_of(name: str, under: str, token: str) -> Claimed | None:
    """The claim of a hold; `under` is the prefix of all claims of the job id."""
    found = _LENGTH.match(name, len(under))
    if found is None:
        return None
    end = found.end() + int(found[1])
    return Claimed(name[found.end() : end], name[end + 1 :], token)


class Claimed(Redacted, msgspec.Struct, frozen=True):
    """A lease with the fields that an ack needs."""

    tenant: str
    id: str
    token: str


# -- markers ---------------------------------------------------------------------------------------


def team_scope(tenant: str) -> Scope:
    return Scope(tenant)


def crawl_scope(crawl: str) -> Scope:
    """The scope whose slots list the teams that pushed jobs of a crawl."""
    return Scope(CRAWLS, ScopeKind.GROUP, crawl)


TEAMS = "t/"
"""Prefix of the slots that name the teams of a crawl."""


def active_scope(crawl: str) -> Scope:
    """The scope of the markers of a crawl that tokens for all teams set."""
    return Scope(ACTIVE, ScopeKind.GROUP, crawl)


def marker_share(tenant: str, crawl: str, job: str) -> str:
    """The slot that counts a marker of a crawl against the team whose token sets it. Each team has
    a separate tenant for these, which its token cannot reach by other routes.
    """
    own = f"{ACTIVE}/{hashlib.sha256(tenant.encode()).hexdigest()}"  # Any team's name fits.
    return Scope(own, ScopeKind.GROUP, ACTIVE).slot(f"{len(crawl)}:{crawl}/{job}")


def marker_hold(tenant: str, crawl: str, job: str) -> str:
    """The name of the hold that lists such a marker by its crawl."""
    return f"{markers_under(crawl, tenant)}{job}"


def markers_under(crawl: str, tenant: str | None) -> str:
    """Prefix of the holds of a crawl's markers: of all teams' tokens, or of one team's."""
    under = f"{MARKED}{len(crawl)}:{crawl}/"
    return under if tenant is None else f"{under}{len(tenant)}:{tenant}/"


def marked_job(name: str, crawl: str) -> str:
    """The job id of a marker in the list."""
    found = _LENGTH.match(name, len(markers_under(crawl, None)))
    assert found is not None, "only names of `marker_hold` are asked about"
    return id_of(name[found.end() + int(found[1]) + 1 :])
