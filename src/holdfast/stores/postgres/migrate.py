"""Brings the schema to the newest version, from many processes at once if need be."""

from __future__ import annotations

from importlib import resources

from holdfast.errors import SchemaTooNew, SchemaTooOld, StoreUnsupported
from holdfast.stores.postgres.connection import Connection
from holdfast.stores.postgres.faults import OTHER_VERSION
from holdfast.stores.postgres.layout import SCHEMA_VERSION, SERVER_VERSION_MIN
from holdfast.stores.postgres.options import Options

_PACKAGE = "holdfast.stores.postgres"

# Asked of the catalog itself: names that a session once looked up in vain it takes for missing.
FOUND = (
    "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = $1 AND c.relname = 'schema_version')"
)
SCHEMA_THERE = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)"
LOCK = "SELECT pg_advisory_xact_lock(hashtext($1), 1)"
# By this each call asks whether the schema is the one that it was written for: a program that was
# started before a migration stops then.
EXPECT = """
CREATE OR REPLACE FUNCTION holdfast.expect(known integer, given anyelement) RETURNS anyelement
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF known <> {version} THEN
        RAISE SQLSTATE '{code}' USING MESSAGE = '{version}';
    END IF;
    RETURN given;
END
$$
"""
# After a dump was restored elsewhere, transaction ids start over: what was below the floor then
# must be looked at now.
LOWER_FLOOR = (
    "UPDATE holdfast.heads SET floor = '0', mark = '1:1:'"
    " WHERE floor > pg_snapshot_xmax(pg_current_snapshot())"
    " OR pg_snapshot_xmin(mark) > pg_snapshot_xmax(pg_current_snapshot())"
)


def named(sql: str, options: Options) -> str:
    """The statement with the schema that the URL names."""
    return sql.replace("holdfast.", f'"{options.schema}".')


async def prepare(connection: Connection, options: Options, migrate: bool) -> int:
    """The schema at the right version, brought there if that is wanted; returns it."""
    version = connection.get_server_version()
    if version.major < SERVER_VERSION_MIN:
        feature = f"PostgreSQL {version.major}: {SERVER_VERSION_MIN} or newer is needed"
        raise StoreUnsupported(store=options.place, feature=feature)
    found = await _version(connection, options)
    if found < SCHEMA_VERSION:
        if not migrate:
            raise SchemaTooOld(store=options.place, found=found, known=SCHEMA_VERSION)
        found = await _migrate(connection, options)
    if found > SCHEMA_VERSION:
        raise SchemaTooNew(store=options.place, found=found, known=SCHEMA_VERSION)
    await connection.execute(named(LOWER_FLOOR, options))
    return found


async def _version(connection: Connection, options: Options) -> int:
    if not await connection.fetchval(FOUND, options.schema):
        return 0
    query = named("SELECT max(version) FROM holdfast.schema_version", options)
    return await connection.fetchval(query) or 0


async def _migrate(connection: Connection, options: Options) -> int:
    async with connection.transaction():
        await connection.execute(LOCK, f"holdfast migrate {options.schema}")
        # Another process may have been first.
        found = await _version(connection, options)
        if found == 0:
            if not await connection.fetchval(SCHEMA_THERE, options.schema):
                await connection.execute(f'CREATE SCHEMA "{options.schema}"')
            await connection.execute(
                named("CREATE TABLE holdfast.schema_version (version integer PRIMARY KEY)", options)
            )
        for number, sql in migrations():
            if number > found:
                await connection.execute(named(sql, options))
                await connection.execute(
                    named("INSERT INTO holdfast.schema_version VALUES ($1)", options), number
                )
        if found < SCHEMA_VERSION:
            expect = EXPECT.format(version=SCHEMA_VERSION, code=OTHER_VERSION)
            await connection.execute(named(expect, options))
        return max(found, SCHEMA_VERSION)


def migrations() -> list[tuple[int, str]]:
    """Every numbered file, in order."""
    folder = resources.files(_PACKAGE) / "migrations"
    files = sorted(each.name for each in folder.iterdir() if each.name.endswith(".sql"))
    return [(int(name[:3]), (folder / name).read_text("utf-8")) for name in files]
