"""The pages that people read: their blocks of code, their headings, and where their links lead."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md")))
"""Those whose blocks are run."""
LINKED = (
    *PAGES,
    REPOSITORY / "examples" / "shop" / "README.md",
    REPOSITORY / "charts" / "outbox-operator" / "README.md",
)
"""Those whose links are followed."""

_FENCE = "```"
_MARK = re.compile(r"<!-- run: (.+) -->")
_FILE = re.compile(r"# (\S+\.(?:py|yaml))")
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_NOT_IN_ANCHOR = re.compile(r"[^\w\- ]")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: Path
    """The page that it is on."""
    line: int
    """The line of its fence, from 1."""
    language: str
    """What stands behind the fence."""
    text: str
    """What is between the fences."""
    mark: str = ""
    """What the comment `<!-- run: … -->` above it says."""

    @property
    def id(self) -> str:
        """How a test names it."""
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"

    @property
    def file(self) -> str | None:
        """The file that it is the content of, where its first line says so: `# shop/listeners.py`."""
        found = _FILE.fullmatch(self.text.partition("\n")[0])
        return found[1] if found else None


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in its order."""
    return list(_blocks(page, page.read_text(encoding="utf-8").splitlines()))


def _blocks(page: Path, lines: list[str]) -> Iterator[Block]:
    opened: int | None = None
    for number, line in enumerate(lines, start=1):
        if not _is_fence(line):
            continue
        if opened is None:
            opened = number
            continue
        # In a list a block stands further to the right.
        text = dedent("".join(f"{each}\n" for each in lines[opened : number - 1]))
        mark = _MARK.fullmatch(lines[opened - 2].strip()) if opened > 1 else None
        language = lines[opened - 1].strip().removeprefix(_FENCE)
        yield Block(page, opened, language, text, mark[1] if mark else "")
        opened = None
    assert opened is None, f"{page}: the block of line {opened} has no end"


def _is_fence(line: str) -> bool:
    return line.lstrip().startswith(_FENCE)


def prose_of(page: Path) -> list[str]:
    """The lines outside of blocks."""
    lines, is_prose = [], True
    for line in page.read_text(encoding="utf-8").splitlines():
        if _is_fence(line):
            is_prose = not is_prose
        elif is_prose:
            lines.append(line)
    return lines


def headings_of(page: Path) -> list[str]:
    """The texts of its headings."""
    return [line.lstrip("#").strip() for line in prose_of(page) if re.match("#+ ", line)]


def anchors_of(page: Path) -> set[str]:
    """What a link to a part of the page may say behind the #."""
    return {anchor(heading) for heading in headings_of(page)}


def anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return _NOT_IN_ANCHOR.sub("", heading.lower()).replace(" ", "-")


def links_of(page: Path) -> list[str]:
    """Where the links of a page lead."""
    # In code, a bracket before a parenthesis is no link; in the text of a link there may be code.
    lines = (_CODE.sub("code", line) for line in prose_of(page))
    return [link for line in lines for link in _LINK.findall(line)]
