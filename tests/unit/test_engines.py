from pathlib import Path

import pytest

from tests.engines.catalogue import (
    MATRIX,
    Debian,
    Engines,
    Maven,
    UnknownEngineError,
    parse_engines,
    postgres_source,
    rabbitmq_source,
    versions_sentence,
)

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "engines"),
    [
        ("4.3,18", Engines("4.3", "18")),
        ("18, 4.3", Engines("4.3", "18")),
        ("14", Engines(None, "14")),
        ("4.0", Engines("4.0", None)),
        ("newest", Engines("4.3", "18")),
        ("", Engines()),
    ],
)
def test_engines_are_named_by_their_versions(text: str, engines: Engines) -> None:
    assert parse_engines(text) == engines


@pytest.mark.parametrize("text", ["5.0", "4.3,4.0", "18,17", "4.3,13", "4"])
def test_an_unknown_or_second_version_is_refused(text: str) -> None:
    with pytest.raises(UnknownEngineError, match=r"is none of 3\.10, 4\.0, 4\.3, 14"):
        parse_engines(text)


def test_every_version_of_the_matrix_has_a_source() -> None:
    for run in MATRIX:
        if run.engines.rabbitmq:
            assert isinstance(rabbitmq_source(run.engines.rabbitmq), Debian)
        if run.engines.postgres:
            assert isinstance(postgres_source(run.engines.postgres), Debian | Maven)


def test_every_pattern_of_the_matrix_names_tests() -> None:
    for run in MATRIX:
        for pattern in run.tests:
            assert list(REPOSITORY.glob(pattern)), pattern


@pytest.mark.parametrize("page", ["README.md", "docs/operations.md"])
def test_a_page_tells_what_the_matrix_runs_on(page: str) -> None:
    assert versions_sentence() in (REPOSITORY / page).read_text()


def test_every_line_of_the_newest_part_names_tests() -> None:
    lines = (REPOSITORY / "tests/engines/newest.txt").read_text().split()
    assert lines
    assert [line for line in lines if not (REPOSITORY / line).is_file()] == []
