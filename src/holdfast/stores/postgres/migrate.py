"""Migrate: brings the schema to the newest version, from many processes at once if need be.

Tables change by numbered files. Functions and views are replaced, all in one transaction, when
their text is another than the one that was applied.
"""

from __future__ import annotations

from holdfast.core.errors import SchemaTooNew, SchemaTooOld, StoreUnsupported
from holdfast.stores.postgres import schema
from holdfast.stores.postgres.connection import Connection
from holdfast.stores.postgres.errors import OTHER_FORMAT
from holdfast.stores.postgres.layout import SCHEMA_VERSION, SERVER_VERSION_MIN
from holdfast.stores.postgres.options import Options

# Read from the catalog itself: a session remembers names that it once looked up in vain.
TABLE_EXISTS = (
    "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = $1 AND c.relname = $2)"
)
SCHEMA_EXISTS = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)"
LOCK = "SELECT pg_advisory_xact_lock(hashtext($1), 1)"
# By this each call checks that schema and functions are those that it was written for: a process
# that was started before a migration stops then.
EXPECT = """
CREATE OR REPLACE FUNCTION holdfast.expect(known text, given anyelement) RETURNS anyelement
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF known <> '{format}' THEN
        RAISE SQLSTATE '{code}' USING MESSAGE = '{format}';
    END IF;
    RETURN given;
END
$$
"""
# Those that no view or trigger depends on: these are replaced in place, so that their views stay.
DROP_FUNCTIONS = """
DO $$
DECLARE
    old record;
BEGIN
    FOR old IN
        SELECT p.oid::regprocedure AS name
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname || '.' = replace('holdfast.', '"', '') AND NOT EXISTS (
            SELECT FROM pg_depend d WHERE d.refobjid = p.oid AND d.deptype = 'n'
        )
    LOOP
        EXECUTE 'DROP FUNCTION ' || old.name;
    END LOOP;
END
$$
"""
# After a dump was restored elsewhere, transaction ids start over: the snapshot means nothing then.
FORGET_SNAPSHOT = (
    "UPDATE holdfast.store_state SET last_refresh = '1:1:'"
    " WHERE pg_snapshot_xmin(last_refresh) > pg_snapshot_xmax(pg_current_snapshot())"
)


def named(sql: str, options: Options) -> str:
    """The statement with the schema that the URL names."""
    return sql.replace("holdfast.", f'"{options.schema}".')


async def prepare(connection: Connection, options: Options, migrate: bool) -> int:
    """Checks that the schema is the one of this library, or brings it there if that is wanted.

    Returns its version.
    """
    server = connection.get_server_version()
    if server.major < SERVER_VERSION_MIN:
        feature = f"PostgreSQL {server.major}: {SERVER_VERSION_MIN} or newer is needed"
        raise StoreUnsupported(store=options.place, feature=feature)
    version, functions = await _found(connection, options)
    if version <= SCHEMA_VERSION and (version, functions) != (SCHEMA_VERSION, schema.HASH):
        if not migrate:
            raise too_old(options.place, version, functions)
        version = await _migrate(connection, options)
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(store=options.place, found=version, known=SCHEMA_VERSION)
    await connection.execute(named(FORGET_SNAPSHOT, options))
    return version


def too_old(place: str, version: int, functions: str) -> SchemaTooOld:
    """Names the functions where the version is the right one."""
    found: int | str = version
    known: int | str = SCHEMA_VERSION
    if version == SCHEMA_VERSION:
        found = f"{version} with functions {functions or 'missing'}"
        known = f"{SCHEMA_VERSION} with functions {schema.HASH}"
    return SchemaTooOld(store=place, found=found, known=known)


async def _found(connection: Connection, options: Options) -> tuple[int, str]:
    """The version of the schema and the hash of its functions; 0 where there is none."""
    if not await connection.fetchval(TABLE_EXISTS, options.schema, "schema_version"):
        return 0, ""
    query = named("SELECT max(version) FROM holdfast.schema_version", options)
    version = await connection.fetchval(query) or 0
    if not await connection.fetchval(TABLE_EXISTS, options.schema, "store_state"):
        return version, ""
    query = named("SELECT functions FROM holdfast.store_state", options)
    return version, await connection.fetchval(query) or ""


async def _migrate(connection: Connection, options: Options) -> int:
    async with connection.transaction():
        await connection.execute(LOCK, f"holdfast migrate {options.schema}")
        # Another process may have been first.
        version, functions = await _found(connection, options)
        if version > SCHEMA_VERSION:
            return version
        if version < SCHEMA_VERSION:
            await _change_tables(connection, options, version)
            functions = ""
        if functions != schema.HASH:
            await _replace_functions(connection, options)
        return SCHEMA_VERSION


async def _change_tables(connection: Connection, options: Options, version: int) -> None:
    first = schema.schema_files()[0][0]
    if version == 0:
        if not await connection.fetchval(SCHEMA_EXISTS, options.schema):
            await connection.execute(f'CREATE SCHEMA "{options.schema}"')
        table = "CREATE TABLE holdfast.schema_version (version integer PRIMARY KEY)"
        await connection.execute(named(table, options))
    elif version < first:
        version = await _upgrade(connection, options, version, first)
    for number, text in schema.schema_files():
        if number > version:
            await connection.execute(named(text, options))
            await _note_version(connection, options, number)


async def _upgrade(connection: Connection, options: Options, version: int, first: int) -> int:
    """Brings the tables of an older version to the first one that `sql/schema/` knows."""
    files = [schema.upgrade_file(number) for number in range(version, first)]
    for text in files:
        if text is None:
            feature = f"an upgrade from schema version {version}, which is too old"
            raise StoreUnsupported(store=options.place, feature=feature)
        await connection.execute(named(text, options))
    await connection.execute(named("DELETE FROM holdfast.schema_version", options))
    await _note_version(connection, options, first)
    return first


async def _note_version(connection: Connection, options: Options, version: int) -> None:
    statement = named("INSERT INTO holdfast.schema_version VALUES ($1)", options)
    await connection.execute(statement, version)


async def _replace_functions(connection: Connection, options: Options) -> None:
    # Functions call each other, so none can be checked before all of them are there.
    await connection.execute("SET LOCAL check_function_bodies = off")
    expect = EXPECT.format(format=schema.FORMAT, code=OTHER_FORMAT)
    for text in (DROP_FUNCTIONS, schema.FUNCTIONS, expect, schema.VIEWS):
        await connection.execute(named(text, options))
    statement = named("UPDATE holdfast.store_state SET functions = $1", options)
    await connection.execute(statement, schema.HASH)
