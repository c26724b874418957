"""What somebody who may create in `public` can plant there: functions and operators that fit a call better
than Postgres' own, which takes its arguments only after an implicit cast."""

import re
from pathlib import Path
from typing import Any

_CALL = re.compile(r"\b([a-z_][a-z0-9_]+)\(")
_SOURCES = ("core", "client/outbox/schema", "relay", "worker-runtime", "operator/outbox_operator", "cli")

_TYPES = """
    ('int2'::regtype), ('int4'), ('int8'), ('float4'), ('float8'), ('numeric'), ('text'), ('name'),
    ('varchar'), ('"char"'), ('oid'), ('regclass'), ('regprocedure'), ('bool')
"""
_PLANT = f"""
DO $plant$
DECLARE
    item record;
BEGIN
    FOR item IN
        SELECT DISTINCT
            format('public.%I(%s)', proname, arguments) AS signature, prorettype::regtype AS result
        FROM (
            SELECT proname, prorettype, (
                SELECT string_agg(
                    CASE WHEN place = changed THEN other::text ELSE format_type(argument, NULL) END,
                    ', ' ORDER BY place
                )
                FROM unnest(proargtypes) WITH ORDINALITY AS given (argument, place)
            ) AS arguments
            FROM pg_proc
            CROSS JOIN generate_series(1, pronargs) AS changed
            CROSS JOIN (VALUES {_TYPES}) AS types (other)
            WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY (NAMES)
                AND prokind = 'f' AND NOT proretset
                AND pronargs BETWEEN 1 AND 4 AND proargtypes[changed - 1] <> other
                AND prorettype NOT IN (
                    'anyelement'::regtype, 'anyarray'::regtype, 'record'::regtype,
                    'internal'::regtype, 'trigger'::regtype
                )
        ) AS planted
    LOOP
        BEGIN
            EXECUTE format(
                'CREATE FUNCTION %s RETURNS %s LANGUAGE plpgsql AS %L', item.signature, item.result,
                format('BEGIN RAISE EXCEPTION %L; END', 'hijacked: ' || item.signature)
            );
        EXCEPTION WHEN duplicate_function OR invalid_function_definition OR feature_not_supported THEN
            NULL;
        END;
    END LOOP;
    FOR item IN
        SELECT name, one.type AS one, other.type AS other
        FROM unnest(ARRAY['=', '<>', '<', '>', '<=', '>=', '||', '+', '-', '*', '/']) AS name
        CROSS JOIN (VALUES {_TYPES}) AS one (type) CROSS JOIN (VALUES {_TYPES}) AS other (type)
        WHERE NOT EXISTS (
            SELECT FROM pg_operator WHERE oprname = name AND oprleft = one.type AND oprright = other.type
        )
    LOOP
        EXECUTE format(
            'CREATE FUNCTION public.%I(%s, %s) RETURNS bool LANGUAGE plpgsql AS %L',
            'op ' || item.name, item.one, item.other,
            format('BEGIN RAISE EXCEPTION %L; END',
                format('hijacked: %s %s %s', item.one, item.name, item.other))
        );
        EXECUTE format(
            'CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.%I)',
            item.name, item.one, item.other, 'op ' || item.name
        );
    END LOOP;
END
$plant$
"""


async def plant(connection: Any) -> int:
    """Plant it for every function that the product calls; returns how many there are."""
    root = Path(__file__).parents[2]
    files = (path for source in _SOURCES for path in (root / source).rglob("*"))
    texts = (path.read_text() for path in files if path.suffix in (".py", ".sql"))
    names = sorted({name for text in texts for name in _CALL.findall(text)})
    listed = ", ".join(f"'{name}'" for name in names)
    await connection.execute("SET search_path = pg_catalog")
    await connection.execute(_PLANT.replace("NAMES", f"ARRAY[{listed}]"))
    planted: int = await connection.fetchval(
        "SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
    )
    await connection.execute("RESET search_path")
    return planted
