"""The rules between Firecrawl's words and ours."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.arguments import check_take
from holdfast.core.bounds import (
    DELAY_S_MAX,
    GROUP_MAX,
    NAME_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    TENANT_MAX,
)
from holdfast.core.check import check_name
from holdfast.core.errors import InvalidInput
from holdfast.core.job import Rules, State
from holdfast.core.scope import slot_scope_of
from holdfast.service.firecrawl import mapping
from holdfast.service.firecrawl.mapping import BadKey, Claimed, Key
from holdfast.store import Take, Tally

ids = some.text(min_size=1, max_size=20)


@given(ids)
def test_every_id_has_a_name_and_comes_back(id: str) -> None:
    """Also with control characters, spaces at its ends, and what looks escaped."""
    name = mapping.name_of("id", id, 1000)

    assert check_name("id", name, 1000) == name
    assert mapping.id_of(name) == id


def test_a_usual_id_is_its_own_name() -> None:
    """So that operators and native callers meet it under the name they know."""
    for id in ("5e1f", "team/ü 7", "a%2Fb", "日本"):
        assert mapping.team_name(id) == id
    assert mapping.team_name("%crawls") == "%%25crawls"


def test_an_id_without_a_name_is_refused_by_its_field() -> None:
    """Empty, or longer than a name may be, escapes included."""
    for id in ("", "x" * 129, "\n" * 43):
        with pytest.raises(InvalidInput, match="teamId"):
            mapping.team_name(id)
        assert mapping.known(mapping.team_name, id) is None
    assert len(mapping.team_name("\n" * 42)) <= TENANT_MAX


@pytest.mark.parametrize("letter", ["x", "😀"])
def test_the_longest_ids_fit_the_names_of_their_holds(letter: str) -> None:
    """A claim's and a marker's name holds those of its team, its crawl and its job."""
    job, team, crawl = (letter * most for most in (mapping.JOB_MAX, TENANT_MAX, GROUP_MAX))
    claim = mapping.claim_hold(Key(team, "i" * 36, "token", job))
    of_team = [name(team, crawl, job) for name in (mapping.marker_share, mapping.marker_hold)]

    for name in (claim, mapping.active_scope(crawl).slot(job), *of_team):
        assert len(name) <= NAME_MAX
        check_take(Take(name, "o", 1))
        slot_scope_of(name)


@pytest.mark.parametrize(
    ("timeout", "crawl", "length"),
    [
        (None, None, None), (0, None, None), (-1, None, None), (-0.5, None, None),
        (1, None, 1000), (60_000, None, 60_000_000), (1.9, None, 1000), (0.2, None, 1000),
        (60_000, "c", None), (1e300, None, int(DELAY_S_MAX) * 1_000_000),
    ],
)  # fmt: skip
def test_a_timeout_is_a_time_to_live_only_above_zero_and_without_a_crawl(
    timeout: float | None, crawl: str | None, length: int | None
) -> None:
    """In whole milliseconds, a hundred years at most."""
    assert mapping.ttl_us(timeout, crawl) == length


def test_priorities_are_turned_around() -> None:
    """Every 32-bit number has its place among ours."""
    lowest, highest = -(2**31), 2**31 - 1

    assert mapping.native_priority(lowest) == PRIORITY_MAX
    assert mapping.native_priority(highest) > PRIORITY_MIN
    assert mapping.native_priority(mapping.native_priority(-7)) == -7


def test_only_what_has_ended_does_not_count() -> None:
    """Claimed, postponed and waiting jobs do."""
    counts = dict.fromkeys(State, 1)

    assert mapping.alive([Tally("a", "q", counts), Tally("b", "q", {})]) == 5


@given(ids, ids)
def test_a_key_carries_whose_job_it_is(team: str, job: str) -> None:
    """In standard base64, to be handed back as it is."""
    key = Key(mapping.name_of("t", team, 999)[:128].strip(), "id", "nonce.7", job)
    text = mapping.key_text(key)

    assert base64.b64decode(text, validate=True)
    assert mapping.key_of(text) == key


@given(some.one_of(some.text(), some.binary().map(lambda b: base64.b64encode(b).decode())))
def test_anything_else_is_no_key(text: str) -> None:
    """Refused as malformed, whatever it is."""
    with pytest.raises(BadKey):
        mapping.key_of(text)


@given(ids, ids, ids)
def test_a_claim_is_found_by_its_job_in_all_teams_or_in_one(job: str, team: str, id: str) -> None:
    """Its name tells whose it is, whatever the ids look like."""
    tenant = mapping.name_of("t", team, 999)
    name = mapping.claim_hold(Key(tenant, id, "token", job))

    assert name.startswith(mapping.claims_under(job, tenant))
    under = mapping.claims_under(job, None)
    assert mapping.claim_of(name, under, "token") == Claimed(tenant, id, "token")


@given(ids, ids, ids)
def test_a_crawl_s_marker_tells_its_job(team: str, crawl: str, job: str) -> None:
    """Its name is found under its crawl in all teams or in one, whatever the ids look like."""
    tenant, group = (mapping.name_of("id", id, 999) for id in (team, crawl))
    name = mapping.marker_hold(tenant, group, mapping.name_of("jobId", job, 999))

    assert name.startswith(mapping.markers_under(group, tenant))
    assert mapping.markers_under(group, tenant).startswith(mapping.markers_under(group, None))
    assert mapping.marked_job(name, group) == job


def test_a_push_becomes_a_job_of_ours() -> None:
    """With an id of ours, in the team's tenant and the crawl's group."""
    body = b'{"teamId":" t","crawlId":"c/1","timeout":5,"job":{"id":"j","data":{"x": 1},'
    body += b'"priority":-3,"listenable":true}}'

    job = mapping.new_job(*mapping.read_push(body), id="ours", rules=Rules())

    assert (job.tenant, job.group, job.id, job.priority) == ("%%20t", "c/1", "ours", 3)
    assert (job.ttl_us, job.envelope.codec) == (None, "json")
    assert b'"data":{"x": 1}}' in job.envelope.body


def test_half_of_a_surrogate_pair_makes_the_payload_bytes() -> None:
    """Nobody else shall take for JSON what their parsers cannot read."""
    body = b'{"teamId":"t","job":{"id":"j","data":["\\uD800"],"priority":1,"listenable":true}}'

    job = mapping.new_job(*mapping.read_push(body), id="ours", rules=Rules())

    assert job.envelope.codec == "bytes"
    assert job.envelope.body.endswith(b'"data":["\\uD800"]}')


def test_an_escaped_backslash_begins_no_surrogate() -> None:
    """Six letters after two backslashes are letters; the pair is whole."""
    data = b'"\\\\ud800 \\ud83d\\ude00"'
    body = b'{"teamId":"t","job":{"id":"j","data":%b,"priority":1,"listenable":true}}' % data

    push, text = mapping.read_push(body)

    assert text == data
    assert mapping.envelope_of(push, text).codec == "json"


def test_a_worker_s_name_is_cut_to_what_fits() -> None:
    """It is for people to read, and no reason to refuse a pop."""
    for id in ("", "w", "x" * 500, "\n" * 500, "a" * 127 + " b"):
        assert 0 < len(check_name("worker", mapping.worker_name(id), 128)) <= 128
