"""Texts that a message, a server or a pod may have, to be shown by whatever shows them."""

HOSTILE = {
    "colour": "\x1b[31m",
    "title": "\x1b]0;x\x07",
    "clipboard": "\x1b]52;c;cm0gLXJmIC8K\x07",
    "NUL": "\0",
    "backspaces": "\b\b\b",
    "carriage return": "\r",
    "DEL": "\x7f",
    "C1 CSI": "\x9b31m",
    "C1 OSC": "\x9d0;x\x9c",
    "bidi override": "\u202egpj.exe",
    "bidi isolate": "\u2066x\u2069",
    "bidi marks": "\u200e\u200f\u061c",
    "zero width": "\u200b\u200c\u200d\u2060\ufeff",
    "soft hyphen": "\xad",
    "line separators": "\x85\u2028\u2029\v\f",
    "tags": "\U000e0041\U000e007f",
    "selectors": "\ufe0f\U000e0101",
    "fillers": "\u115f\u3164\uffa0",
    "surrogate": "\udc9b",
}

ALL = "".join(HOSTILE.values())
"""All of it in one text."""


def escaped(text: str, kept: str = "\n\t") -> bool:
    """Whether an output does nothing to a terminal and hides nothing."""
    return all(each.isprintable() or each in kept for each in text)
