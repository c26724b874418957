"""What somebody who may create in `public` can plant there: functions and operators that fit a call better
than Postgres' own, which takes its arguments only after an implicit cast, or takes any type."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg

_ROOT = Path(__file__).parents[2]
_CALL = re.compile(r"\b([a-z_][a-z0-9_]+)\(")

# Postgres' own function is the first of those that take no argument.
_NAMED = re.compile(
    r'(?<![\w.$"])(?P<call>[a-z_][a-z0-9_]*)\((?!\))|\b(?:FROM|JOIN) (?P<catalog>pg_(?!catalog\.)[a-z_]+)\b'
)
_SYNTAX = {"extract", "substring"}
"""What is written extract(epoch FROM …), and means Postgres' own function."""
_SEVERAL_ARRAYS = re.compile(r"unnest\(([^()]*,|$)")
"""Syntax too: it is an error with a schema, and means pg_catalog.unnest of each."""
_SOURCES = ("core", "client/outbox", "relay", "worker-runtime", "operator/outbox_operator", "cli")

_TYPES = """
    ('int2'::regtype), ('int4'), ('int8'), ('float4'), ('float8'), ('numeric'), ('text'), ('name'),
    ('varchar'), ('"char"'), ('oid'), ('regclass'), ('regprocedure'), ('bool'), ('timestamptz'), ('interval'),
    ('bytea'), ('uuid'), ('json'), ('jsonb'), ('xid'), ('tid'), ('text[]'), ('int2[]'), ('int8[]'), ('oid[]')
"""
_OPERATORS = "'=', '<>', '<', '>', '<=', '>=', '||', '+', '-', '*', '/', '~', '<@', '#>>', '<<', '|'"

# A sequence counts the calls: nothing rolls it back.
_BODY = """format(
    'BEGIN PERFORM pg_catalog.nextval(''public.planted_calls''); RAISE EXCEPTION %L; END',
    'hijacked: ' || {}
)"""

_PLANT = f"""
DO $plant$
DECLARE
    item record;
BEGIN
    FOR item IN
        SELECT DISTINCT
            format('public.%I(%s)', proname, arguments) AS signature,
            CASE WHEN proretset THEN 'SETOF ' ELSE '' END || CASE
                WHEN result::text LIKE 'any%array' THEN rtrim(other::text, '[]') || '[]'
                WHEN result::text LIKE 'any%' THEN rtrim(other::text, '[]')
                ELSE result::text
            END AS result
        FROM (
            SELECT proname, proretset, prorettype::regtype AS result, other, (
                SELECT string_agg(
                    CASE
                        WHEN argument::regtype::text LIKE 'any%array' THEN rtrim(other::text, '[]') || '[]'
                        WHEN place = changed OR argument::regtype::text LIKE '%any%' THEN other::text
                        ELSE format_type(argument, NULL)
                    END,
                    ', ' ORDER BY place
                )
                FROM unnest(proargtypes) WITH ORDINALITY AS given (argument, place)
            ) AS arguments
            FROM pg_proc
            CROSS JOIN generate_series(1, pronargs) AS changed
            CROSS JOIN (VALUES {_TYPES}) AS types (other)
            WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY ($names$NAMES$names$::text[])
                AND prokind IN ('f', 'a') AND pronargs BETWEEN 1 AND 4 AND proargtypes[changed - 1] <> other
                AND prorettype NOT IN ('record'::regtype, 'internal'::regtype, 'trigger'::regtype)
        ) AS planted
    LOOP
        BEGIN
            EXECUTE format(
                'CREATE FUNCTION %s RETURNS %s LANGUAGE plpgsql AS %L',
                item.signature, item.result, {_BODY.format("item.signature")}
            );
        EXCEPTION WHEN duplicate_function OR invalid_function_definition OR feature_not_supported
            OR undefined_object OR syntax_error
        THEN
            NULL;
        END;
    END LOOP;
    FOR item IN
        SELECT name, one.type AS one, other.type AS other
        FROM unnest(ARRAY[{_OPERATORS}]) AS name
        CROSS JOIN (VALUES {_TYPES}) AS one (type) CROSS JOIN (VALUES {_TYPES}) AS other (type)
        WHERE NOT EXISTS (
            SELECT FROM pg_operator WHERE oprname = name AND oprleft = one.type AND oprright = other.type
        )
    LOOP
        EXECUTE format(
            'CREATE FUNCTION public.%I(%s, %s) RETURNS bool LANGUAGE plpgsql AS %L',
            'op ' || item.name, item.one, item.other,
            {_BODY.format("format('%s %s %s', item.one, item.name, item.other)")}
        );
        EXECUTE format(
            'CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.%I)',
            item.name, item.one, item.other, 'op ' || item.name
        );
    END LOOP;
END
$plant$
"""


async def plant(url: str) -> int:
    """Plant it for every function that the product calls, as a role that owns nothing else.

    What is called counts in the sequence `public.planted_calls`, and raises an error. Returns how many there
    are.
    """
    names = sorted({name for path in _files() for name in _CALL.findall(path.read_text())})
    connection = await asyncpg.connect(url)
    await connection.execute(
        "DO 'BEGIN CREATE ROLE planter; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END';"
        "GRANT CREATE ON SCHEMA public TO planter; SET ROLE planter; SET search_path = pg_catalog;"
        "CREATE SEQUENCE public.planted_calls; GRANT ALL ON public.planted_calls TO PUBLIC"
    )
    await connection.execute(_PLANT.replace("NAMES", "{" + ",".join(names) + "}"))
    planted: int = await connection.fetchval(
        "SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
    )
    await connection.close()
    return planted


async def is_called(connection: Any) -> bool:
    """Whether anything that was planted was called."""
    called: bool = await connection.fetchval("SELECT is_called FROM public.planted_calls")
    return called


async def unqualified(connection: Any) -> list[str]:
    """The calls and catalogs in the product's SQL texts that stand there without their schema."""
    rows = await connection.fetch("SELECT DISTINCT proname::text AS name FROM pg_catalog.pg_proc")
    functions = {row["name"] for row in rows} - _SYNTAX
    return [
        f"{path.relative_to(_ROOT)}: {match[0]}"
        for path in _files()
        for text in _sql_texts(path)
        for match in _NAMED.finditer(text)
        if (match["catalog"] or match["call"] in functions) and not _SEVERAL_ARRAYS.match(text, match.start())
    ]


def _sql_texts(path: Path) -> Iterator[str]:
    """The strings of a file, docstrings excepted."""
    if path.suffix == ".sql":
        yield path.read_text()
        return
    tree = ast.parse(path.read_text())
    skipped = {
        part
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        or (isinstance(node, ast.FunctionDef) and node.name.startswith("former_"))
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            yield node.value


def _files() -> Iterator[Path]:
    paths = (path for source in _SOURCES for path in sorted((_ROOT / source).rglob("*")))
    return (path for path in paths if path.suffix in (".py", ".sql"))
