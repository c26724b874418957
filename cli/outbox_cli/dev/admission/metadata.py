"""The metadata of a manifest against what Kubernetes wants of any object. Pure."""

import re
from collections.abc import Iterator
from typing import Any

from outbox_cli.dev.admission.complaint import Complaint, quoted, too_long

_LONGEST_NAME = 253
_LONGEST_LABEL = 63
_MOST_OF_ANNOTATIONS = 256 * 1024

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


def of_metadata(metadata: dict[str, Any]) -> Iterator[Complaint]:
    """What is wrong with the name, the labels and the annotations."""
    if name := metadata.get("name"):
        yield from _invalid("name", name, _of_name(name))
    else:
        words = "Required value: name or generateName is required"
        yield Complaint("metadata.name", words, is_blocking=True)
    for key, value in metadata.get("labels", {}).items():
        yield from _invalid("labels", key, _of_key(key))
        yield from _invalid("labels", value, _of_text(value, _LONGEST_LABEL, _VALUE, _A_VALUE))
    annotations = metadata.get("annotations", {})
    for key in annotations:
        yield from _invalid("annotations", key, _of_key(key.lower()))
    if sum(_size(key) + _size(value) for key, value in annotations.items()) > _MOST_OF_ANNOTATIONS:
        yield too_long("metadata.annotations", _MOST_OF_ANNOTATIONS)


def _invalid(field: str, value: str, found: Iterator[str]) -> Iterator[Complaint]:
    return (Complaint(f"metadata.{field}", f"Invalid value: {quoted(value)}: {words}") for words in found)


def _of_name(name: str) -> Iterator[str]:
    return _of_text(name, _LONGEST_NAME, _NAME, _A_NAME)


def _of_key(key: str) -> Iterator[str]:
    """Of a name that may have a domain before it: `example.com/name`."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        yield f"a qualified name {_A_KEY} {_WITH_A_PREFIX}"
        return
    if slash:
        found = _of_name(prefix) if prefix else ["must be non-empty"]
        yield from (f"prefix part {words}" for words in found)
    if not name:
        yield "name part must be non-empty"
    yield from (f"name part {words}" for words in _of_text(name, _LONGEST_LABEL, _KEY, _A_KEY))


def _of_text(text: str, most: int, pattern: str, words: str) -> Iterator[str]:
    if _size(text) > most:
        yield f"must be no more than {most} characters"
    if not re.fullmatch(pattern, text):
        yield words


def _size(text: str) -> int:
    """As Go counts, who speaks of characters."""
    return len(text.encode())
