"""The last line of defence against passwords in logs, conditions, errors and dead letters.

It takes time in proportion to the text, of which at most `LONGEST` characters are kept: whatever comes from
outside may be made to be expensive.
"""

import re

LONGEST = 8_192
"""Characters of a text that are kept, unless its reader has room for more."""

_WORD = re.compile(r"\S+")
_USER = re.compile(r"[^\s:/@]*+:")
_PORT = re.compile(r"\d{1,5}(?=[/,])")
_QUERY = re.compile(r"[?#]")
_BARE = re.compile(r"[\"'(\[{<]*+[\w.+%=-]++:(?!//)(?=[^@\d]*+\d[^@]*+@(?!sha\d)[\w.\[…-])")
"""`user:password@host` without a scheme; it has to have a digit, as `node:rabbit@host` has not."""
_CUT = "…"

_KEY = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|(?:client|consumer)[_-]?secret"
    r"|secret[_-]?(?:access[_-]?)?key|api[_-]?key)"
)
_SHORT_KEY = r"(?:token|(?<![a-z])pass|(?<![a-z])pw)"
_VALUE = r"""(?:[bruf]{0,2}\\*+(?:'(?:[^'\\\n]|\\.)*+'?|"(?:[^"\\\n]|\\.)*+"?)|[^&\s'"][^&\s]*+)"""
_QUOTE = r"(?:\\*+['\"])?+"
_PATTERNS = (
    # password=x, password: x, "password": "x", PGPASSWORD => x
    re.compile(rf"({_KEY}{_QUOTE}[ \t]*+(?:=>|[=:])[ \t]*+){_VALUE}", re.IGNORECASE),
    # token=x; with a colon only as JSON has it, since "unexpected token: x" is another thing.
    re.compile(rf"({_SHORT_KEY}(?:[ \t]*+=>?[ \t]*+|\\*+['\"][ \t]*+:[ \t]*+)){_VALUE}", re.IGNORECASE),
    # token: and something that has the looks of one
    re.compile(r"(token[ \t]*+:[ \t]*+)(?=[a-z_.~+/=-]*+\d)[\w.~+/=-]{16,}+", re.IGNORECASE),
    # Authorization: Basic x
    re.compile(rf"(authorization{_QUOTE}[ \t]*+[:=][ \t]*+['\"]?+[a-z]++[ \t]++)[^\s'\"]++", re.IGNORECASE),
)


def mask(text: str, longest: int = LONGEST) -> str:
    """The text without the passwords in it: `amqp://shop:***@broker`, `password=***`."""
    is_cut = len(text) > longest
    if is_cut:
        # A password that is cut off has lost the @ behind it.
        text = f"{text[:longest]}@{_CUT}"
    if "@" in text:
        text = _WORD.sub(_masked_word, text)
    for pattern in _PATTERNS:
        text = pattern.sub(r"\1***", text)
    return f"{text.removesuffix(f'@{_CUT}')}{_CUT}" if is_cut else text


def _masked_word(match: re.Match[str]) -> str:
    """A word with what is between the user and the last @ masked: it may cost a path, and never a leak."""
    word = match[0]
    last = word.rfind("@")
    at = word.find("://", 0, last)
    if at < 0:
        bare = _BARE.match(word) if last > 0 else None
        return f"{word[: bare.end()]}***{word[last:]}" if bare else word
    while at >= 0:
        user = _USER.match(word, at + 3, last)
        if user and not _is_port(word, user.end(), last):
            return f"{word[: user.end()]}***{word[last:]}"
        at = word.find("://", at + 3, last)
    return word


def _is_port(word: str, start: int, last: int) -> bool:
    """Whether a port is there, and no password: no @ follows but in a query."""
    port = _PORT.match(word, start, last)
    if port is None:
        return False
    query = _QUERY.search(word, port.end(), last)
    return query is not None and word.find("@", port.end(), query.start()) < 0
