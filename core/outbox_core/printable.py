"""Text from outside as it may be shown: what acts on a terminal, or is not seen, is written as an escape.

A message id, a line of a pod's log or an error of a server may have been written by anybody. Every output
goes through here: text and JSON logs, probes, what the command prints, conditions and Events.
"""

import unicodedata

_ESCAPED = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of C0, C1 and DEL, of format characters such as those for bidirectional text, of
surrogates, and of separators of lines and paragraphs."""
_UNSEEN = frozenset(
    # Fillers, selectors and joiners that have no glyph, though Unicode calls them letters or marks.
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2065\u3164\uffa0"
    "\ufe00\ufe01\ufe02\ufe03\ufe04\ufe05\ufe06\ufe07\ufe08\ufe09\ufe0a\ufe0b\ufe0c\ufe0d\ufe0e\ufe0f"
)
_TAGS_AND_SELECTORS = range(0xE0000, 0xE1000)
_MOST_KNOWN = 0x10000


class _Escapes(dict[int, int | str]):
    """What stands for each character, found out once for those that are common."""

    def __init__(self, kept: str, *, json: bool = False) -> None:
        super().__init__({ord(each): each for each in kept})
        self._json = json

    def __missing__(self, code: int) -> int | str:
        shown = self._shown(code)
        if code < _MOST_KNOWN:
            self[code] = shown
        return shown

    def _shown(self, code: int) -> int | str:
        character = chr(code)
        is_seen = unicodedata.category(character) not in _ESCAPED and character not in _UNSEEN
        if is_seen and code not in _TAGS_AND_SELECTORS:
            return code
        if self._json:
            units = character.encode("utf-16-be", "surrogatepass").hex()
            return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
        return character.encode("unicode_escape", "surrogatepass").decode()


_LINE, _LINES, _JSON = _Escapes("\t"), _Escapes("\t\n"), _Escapes("\n", json=True)


def printable(text: str) -> str:
    """The text on one line."""
    return text if text.isascii() and text.isprintable() else text.translate(_LINE)


def printable_lines(text: str) -> str:
    """The text with its lines as they are."""
    return text if text.isascii() and text.isprintable() else text.translate(_LINES)


def printable_json(text: str) -> str:
    """JSON with the same meaning, as `json.dumps` leaves some of this as it is."""
    return text if text.isascii() and text.isprintable() else text.translate(_JSON)
