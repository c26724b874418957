"""What a page shows as an answer, compared with the answer: but for what is another with each run."""

import re

_VARYING = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b20\d\d-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|\+00:00)?)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b(?:\d+(?:\.\d+)? ?(?:ms|s|m|h|d|min))+\b"), "SPAN"),
    # Rules, and the room between columns, are as wide as the widest cell.
    (re.compile(r"[─━]+"), "─"),
    (re.compile(r"[ \t]+"), " "),
)
_ANYTHING = "…"


def agrees(shown: str, answer: str) -> bool:
    """Whether the answer is what the page shows; a line `…` there stands for any number of lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == _ANYTHING else re.escape(line) + "\n" for line in _lines(shown)
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(answer))) is not None


def _lines(text: str) -> list[str]:
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    lines = [line.strip() for line in text.strip().splitlines()]
    return [line for line in lines if line]
