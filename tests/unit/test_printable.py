"""Text from outside does nothing to a terminal, and hides nothing from its reader."""

import json
import unicodedata
from collections.abc import Callable

import pytest

from outbox_core.printable import printable, printable_json, printable_lines
from tests.hostile import HOSTILE

HARMLESS = "plain, Grüße, Привет, 日本語\u3000, 👍, \u00a0, a\tb, C:\\x1b"


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("shown", [printable, printable_lines])
def test_what_acts_on_a_terminal_or_is_not_seen_is_escaped(text: str, shown: Callable[[str], str]) -> None:
    escaped = shown(f"<{text}>")
    assert escaped.isprintable()
    assert escaped.startswith("<\\")
    # Nothing is lost: the text can be read back.
    assert escaped.encode("ascii").decode("unicode_escape") == f"<{text}>"


@pytest.mark.parametrize("text", [*HOSTILE.values(), HARMLESS, "two\nlines"])
def test_json_is_escaped_and_means_the_same(text: str) -> None:
    dumped = printable_json(json.dumps({text: [text]}, ensure_ascii=False, indent=2))
    assert json.loads(dumped) == {text: [text]}
    assert printable_lines(dumped) == dumped


def test_what_people_write_stays_as_it_is() -> None:
    assert printable(HARMLESS) == HARMLESS


def test_lines_end_only_where_that_is_asked_for() -> None:
    assert printable("a\nb\r\n") == "a\\nb\\r\\n"
    assert printable_lines("a\nb\r\n") == "a\nb\\r\n"


def test_all_of_unicode_is_escaped_by_its_category() -> None:
    for code in range(0x110000):
        character = chr(code)
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character != "\t":
            assert printable(character).startswith("\\"), hex(code)
