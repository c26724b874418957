"""The locks of the images still fit pyproject.toml; no index is asked."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
OURS = canonicalize_name(PROJECT["project"]["name"])
IMAGES = ("operator", "relay", "worker")
STALE = "run make lock"


def asked_for(name: str) -> dict[str, Requirement]:
    """What an image needs, by pyproject.toml: the requirements of its extra, and of the extras that names."""
    if name == "build":
        texts = PROJECT["build-system"]["requires"]
    else:
        texts = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"][name]
    found: dict[str, Requirement] = {}
    for requirement in map(Requirement, texts):
        if canonicalize_name(requirement.name) == OURS:
            for extra in requirement.extras:
                found |= asked_for(extra)
        else:
            found[canonicalize_name(requirement.name)] = requirement
    return found


def locked(name: str) -> dict[str, str]:
    """The packages in a lock, with their versions."""
    lines = (REPOSITORY / "images" / f"requirements-{name}.txt").read_text().splitlines()
    pins = [found for line in lines if (found := re.match(r"([\w.-]+)==(\S+)", line))]
    return {canonicalize_name(found[1]): found[2] for found in pins}


def direct(name: str) -> set[str]:
    """The packages of a lock that are there because pyproject.toml asks for them."""
    text = (REPOSITORY / "images" / f"requirements-{name}.txt").read_text()
    entries = re.split(r"^(?=\w)", text, flags=re.MULTILINE)
    return {
        canonicalize_name(entry.partition("==")[0])
        for entry in entries
        if re.search(r"^    #.*\(pyproject\.toml\)$", entry, re.MULTILINE)
    }


@pytest.mark.parametrize("name", [*IMAGES, "build"])
def test_a_lock_has_a_version_of_everything_that_is_asked_for(name: str) -> None:
    versions = locked(name)
    unfit = {
        package: versions.get(package)
        for package, requirement in asked_for(name).items()
        if package not in versions or not requirement.specifier.contains(versions[package])
    }
    assert not unfit, STALE


@pytest.mark.parametrize("name", IMAGES)
def test_a_lock_has_nothing_that_is_no_longer_asked_for(name: str) -> None:
    assert direct(name) == set(asked_for(name)), STALE


@pytest.mark.parametrize("name", [*IMAGES, "build"])
def test_every_package_of_a_lock_has_hashes(name: str) -> None:
    text = (REPOSITORY / "images" / f"requirements-{name}.txt").read_text()
    entries = [entry for entry in re.split(r"^(?=\w)", text, flags=re.MULTILINE) if "==" in entry]
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


def test_images_agree_on_the_version_of_a_package() -> None:
    everything = [item for name in IMAGES for item in locked(name).items()]
    versions = dict(everything)
    assert {item for item in everything if versions[item[0]] != item[1]} == set()
