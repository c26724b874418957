"""The commands of the README's part on clusters: what a newcomer types is what the tests run."""

import shlex

from tests.images.catalogue import REPOSITORY

README = REPOSITORY / "README.md"
_HEADING = "### Run it in a cluster\n"
_NAMESPACE = "shop"


def commands(program: str, namespace: str = _NAMESPACE) -> list[list[str]]:
    """The arguments of each command of a program, in the README's order, for this namespace."""
    lines = _blocks("sh").replace("\\\n", " ").splitlines()
    split = [shlex.split(line, comments=True) for line in lines]
    return [_here(words[1:], namespace) for words in split if words[:1] == [program]]


def shown() -> str:
    """What the README shows as the answer of the last command."""
    return _blocks("text")


def _here(arguments: list[str], namespace: str) -> list[str]:
    """With the files of this repository, from wherever the tests are run, and with another namespace."""
    before = ["", *arguments]
    return [
        namespace
        if word == _NAMESPACE and before[at] in ("--namespace", "namespace")
        else str(REPOSITORY / word)
        if "/" in word and (REPOSITORY / word).exists()
        else word
        for at, word in enumerate(arguments)
    ]


def _blocks(language: str) -> str:
    part = README.read_text().partition(_HEADING)[2].partition("\n## ")[0]
    return "".join(block.partition("```")[0] for block in part.split(f"```{language}\n")[1:])
