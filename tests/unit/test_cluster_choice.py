"""Which cluster a run uses."""

from pathlib import Path

import pytest

from tests.cluster.choice import Given, Kind, Local, Source, choose


@pytest.mark.parametrize(
    ("asked", "kind_works", "source"),
    [
        ("auto", True, Kind()),
        ("auto", False, Local()),
        ("local", True, Local()),
        ("kind", False, Kind()),
        ("some/kubeconfig", True, Given(Path("some/kubeconfig"))),
    ],
)
def test_what_was_asked_for_comes_before_what_works(asked: str, kind_works: bool, source: Source) -> None:
    assert choose(asked, lambda: kind_works) == source


@pytest.mark.parametrize("asked", ["local", "kind", "kubeconfig"])
def test_docker_is_not_even_asked_where_the_answer_does_not_matter(asked: str) -> None:
    def works() -> bool:
        raise AssertionError("asked")

    choose(asked, works)
