"""PL/pgSQL text inside SQL text, without a chance for a name in it to end it."""


def dollar_quoted(text: str, tag: str) -> str:
    """The text between dollar quotes whose tag does not occur in it."""
    number = 0
    unique = tag
    while f"${unique}" in text:
        number += 1
        unique = f"{tag}_{number}"
    return f"${unique}${text}${unique}$"
