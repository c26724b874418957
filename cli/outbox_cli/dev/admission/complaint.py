"""One thing that is wrong with a manifest, in the API server's words."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Complaint:
    """A field, and what is wrong with it."""

    path: str
    """The field: `spec.bindingKeys[0]`; empty for the whole object."""
    words: str
    """What is wrong."""
    is_blocking: bool = False
    """Whether rules are not looked at for its sake: they may not be able to read the value."""

    def __str__(self) -> str:
        return f"{self.path or '<nil>'}: {self.words}"


def invalid(path: str, value: object, why: str) -> Complaint:
    return Complaint(path, f"Invalid value: {quoted(value)}: {why}")


def required(path: str) -> Complaint:
    return Complaint(path, "Required value", is_blocking=True)


def wrong_type(path: str, wanted: str, found: str) -> Complaint:
    words = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return Complaint(path, words, is_blocking=True)


def unsupported(path: str, value: object, supported: list[str]) -> Complaint:
    known = ", ".join(map(quoted, supported))
    return Complaint(path, f"Unsupported value: {quoted(value)}: supported values: {known}", is_blocking=True)


def out_of_bounds(path: str, value: object, bound: str) -> Complaint:
    return invalid(path, value, f"{path} in body should be {bound}")


def too_long(path: str, most: int) -> Complaint:
    return Complaint(path, f"Too long: may not be more than {most} bytes", is_blocking=True)


def too_many(path: str, count: int, most: int) -> Complaint:
    return Complaint(path, f"Too many: {count}: must have at most {most} items", is_blocking=True)


def duplicate(path: str, value: object) -> Complaint:
    return Complaint(path, f"Duplicate value: {quoted(value)}")


def quoted(value: object) -> str:
    """A value as Go and JSON both write it; what cannot be seen in a text is written out."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)
