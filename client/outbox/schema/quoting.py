"""Names and PL/pgSQL inside SQL text, without a chance for a name to end the text around it."""

from outbox.table import TableName, quote_literal


def dollar_quoted(text: str, tag: str) -> str:
    """The text between dollar quotes whose tag does not occur in it."""
    number = 0
    unique = tag
    while f"${unique}" in text:
        number += 1
        unique = f"{tag}_{number}"
    return f"${unique}${text}${unique}$"


def array_sql(texts: list[str]) -> str:
    """The texts as an SQL array, one a line."""
    items = ",\n                ".join(map(quote_literal, texts))
    return f"ARRAY[\n                {items}\n            ]"


def creation_name_sql(table: TableName, name: str) -> str:
    """The SQL expression for the full text of `name`, which CREATE makes in the table's schema.

    Without a schema that is the first of the search path, whatever the name leads to in the others.
    """
    if table.schema is not None:
        return quote_literal(name)
    return f"pg_catalog.quote_ident(pg_catalog.current_schema()) || {quote_literal('.' + name)}"
