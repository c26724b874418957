"""What the pages say of other files is so: links lead somewhere, tests and alerts have these names."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox_operator.reference import page as reference
from outbox_operator.reference.__main__ import main
from tests.docs.pages import LINKED, PAGES, REPOSITORY, anchors_of, headings_of, links_of, prose_of

README = REPOSITORY / "README.md"
DOCS = REPOSITORY / "docs"
PROMISES = sorted(path for path in (DOCS / "promises").glob("*.md") if path.name != "README.md")
_TEST = re.compile(r"`(test_[a-z0-9_]+)`")
_TESTED = re.compile(r"\[([^\]]*)\]\(([^)\s]*tests/[^)\s]*)\)")
_README_LINES = 250
_PROMISE_LINES = 60


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links_of(page):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link} leads nowhere"
        assert target.is_relative_to(REPOSITORY), f"{page.name}: {link} leads out of the repository"
        assert not anchor or anchor in anchors_of(target), f"{page.name}: {target.name} has no #{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_no_heading_is_there_twice(page: Path) -> None:
    assert max(Counter(headings_of(page)).values()) == 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_test_that_is_named_is_where_its_link_leads(page: Path) -> None:
    text = "\n".join(prose_of(page))
    linked = []
    for label, link in _TESTED.findall(text):
        target = (page.parent / link).resolve()
        names = _TEST.findall(label)
        linked += names
        missing = [name for name in names if name not in _tests_in(target)]
        assert not missing, f"{page.name}: {link} has no {missing}"
    alone = set(_TEST.findall(text)) - set(linked)
    assert not alone, f"{page.name}: {alone} are named without a link"


def _tests_in(target: Path) -> set[str]:
    files = target.rglob("test_*.py") if target.is_dir() else [target]
    return {name for file in files for name in re.findall(r"def (test_\w+)\(", file.read_text())}


def _promises() -> Iterator[tuple[str, str]]:
    """Each row of the README's table: the promise, and where it is shown."""
    rows = README.read_text().partition("\n| promise | ")[2].partition("\n\n")[0].splitlines()[2:]
    for row in rows:
        promise, _, shown = row.strip("| ").partition(" | ")
        yield promise, shown


def test_every_promise_has_its_page_and_its_tests() -> None:
    promises = list(_promises())
    assert len(promises) > 20
    for promise, shown in promises:
        assert "](docs/promises/" in promise, f"{promise}: there is no page"
        assert "](tests/" in shown, f"{promise}: there is no test"
    pages = set(re.findall(r"\]\((docs/promises/[a-z-]+\.md)\)", "".join(promise for promise, _ in promises)))
    assert pages == {str(page.relative_to(REPOSITORY)) for page in PROMISES}


@pytest.mark.parametrize("page", PROMISES, ids=lambda page: page.stem)
def test_a_page_of_a_promise_says_all_that_matters_and_no_more(page: Path) -> None:
    _, *parts = headings_of(page)
    assert parts == ["What is promised", "Why it holds", "What could break it", "Where it is tested"]
    assert len(page.read_text().splitlines()) <= _PROMISE_LINES


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= _README_LINES


def test_every_alert_has_its_runbook() -> None:
    groups = yaml.safe_load((REPOSITORY / "charts/outbox-operator/alerts.yaml").read_text())["groups"]
    alerts = [rule["alert"] for group in groups for rule in group["rules"]]
    runbooks = [heading for heading in headings_of(DOCS / "operations.md") if heading.startswith("Outbox")]
    assert runbooks == alerts


def test_the_reference_is_what_the_types_say() -> None:
    stale = f"docs/reference.md is stale: run `make docs`, or `{reference.COMMAND}`"
    assert (DOCS / "reference.md").read_text() == reference.text(), stale


def test_the_reference_is_written_where_it_is_stale(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "reference.md"
    assert main(["--check", str(file)]) == 1
    assert capsys.readouterr().err == f"stale: {file}; run `{reference.COMMAND} {file}`\n"
    assert main([str(file)]) == 0
    assert capsys.readouterr().out == f"{file}\n"
    assert file.read_text() == reference.text()
    assert main(["--check", str(file)]) == 0


def test_the_reference_has_every_field_and_every_rule() -> None:
    text = reference.text()
    for file in sorted((REPOSITORY / "crds").glob("*.yaml")):
        [version] = yaml.safe_load(file.read_text())["spec"]["versions"]
        for name, schema in _fields(version["schema"]["openAPIV3Schema"]["properties"]["spec"]):
            assert f"| `{name}` |" in text
            rules = [rule["message"] for rule in schema.get("x-kubernetes-validations", [])]
            # The bounds of a duration are in its type.
            missing = [each for each in rules if each not in text and "be a duration from" not in each]
            assert not missing, f"{name}: {missing}"


def _fields(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, each in schema.get("properties", {}).items():
        if "x-kubernetes-preserve-unknown-fields" not in each.get("items", each):
            yield name, each
            yield from _fields(each.get("items", each))
