"""What Kubernetes takes for a name, a key or a label, in its own words about others. Pure."""

import re
from collections.abc import Iterator

_LONGEST_NAME = 253
_LONGEST_LABEL = 63

_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_A_NAME = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character "
    f"(e.g. 'example.com', regex used for validation is '{_NAME}')"
)
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_A_KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_KEY}')"
)
_WITH_A_PREFIX = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
_VALUE = f"({_KEY})?"
_A_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE}')"
)


def of_name(name: str) -> Iterator[str]:
    """What is wrong with the name of an object."""
    return _of_text(name, _LONGEST_NAME, _NAME, _A_NAME)


def of_name_to_be(prefix: str) -> Iterator[str]:
    """What is wrong with the beginning of a name: a dash may end it."""
    # Kubernetes does not look at what is before that dash either.
    return of_name(f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix)


def of_key(key: str) -> Iterator[str]:
    """What is wrong with a name that may have a domain before it: `example.com/name`."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        yield f"a qualified name {_A_KEY} {_WITH_A_PREFIX}"
        return
    if slash:
        found = of_name(prefix) if prefix else ["must be non-empty"]
        yield from (f"prefix part {words}" for words in found)
    if not name:
        yield "name part must be non-empty"
    yield from (f"name part {words}" for words in _of_text(name, _LONGEST_LABEL, _KEY, _A_KEY))


def of_label(value: str) -> Iterator[str]:
    """What is wrong with the value of a label."""
    return _of_text(value, _LONGEST_LABEL, _VALUE, _A_VALUE)


def size(text: str) -> int:
    """As Go counts, who speaks of characters."""
    return len(text.encode())


def _of_text(text: str, most: int, pattern: str, words: str) -> Iterator[str]:
    if size(text) > most:
        yield f"must be no more than {most} characters"
    if not re.fullmatch(pattern, text):
        yield words
