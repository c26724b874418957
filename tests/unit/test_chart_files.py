"""What of the chart is made from the operator's own code is as that code says."""

import json
import shutil
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox_operator.chart import files, readme, values_schema
from outbox_operator.chart.__main__ import main
from outbox_operator.chart.values import Values
from tests.chart.helm import CHART


def test_the_committed_chart_is_what_the_code_says() -> None:
    stale = [path.name for path in files.stale(CHART)]
    assert not stale, f"the chart is stale ({', '.join(stale)}): run `make chart`, or `{files.COMMAND}`"


def test_the_check_names_what_is_stale_and_writing_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    assert main(["--check", str(chart)]) == 0
    rules, left_over = chart / "templates" / "_rules.tpl", chart / "dashboards" / "removed.json"
    rules.write_text(rules.read_text().replace("watch", "list"))
    left_over.write_text("{}")
    assert main(["--check", str(chart)]) == 1
    assert capsys.readouterr().err == f"stale: {rules}, {left_over}; run `{files.COMMAND} {chart}`\n"
    assert main([str(chart)]) == 0
    assert capsys.readouterr().out == f"{rules}\n{left_over}\n"
    assert main(["--check", str(chart)]) == 0


def test_a_readme_without_a_place_for_the_values_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "README.md").write_text("# outbox-operator\n")
    assert main([str(tmp_path)]) == 1
    assert readme.BEGIN in capsys.readouterr().err


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((CHART.parents[1] / "pyproject.toml").read_text())["project"]
    assert {chart["version"], chart["appVersion"]} == {project["version"]}
    assert chart["description"] == project["description"]


def test_the_values_file_has_every_value_as_it_is_by_default() -> None:
    written = yaml.safe_load((CHART / "values.yaml").read_text())
    assert written == Values().model_dump(mode="json", by_alias=True)
    assert Values.model_validate(written) == Values()


def test_every_value_is_explained() -> None:
    table = readme.table()
    comments = (CHART / "values.yaml").read_text().splitlines()
    for path in _paths(json.loads((CHART / "values.schema.json").read_text())):
        assert f"| `{path}` |" in table
    for above, line in pairwise(comments):
        is_ours = line.strip() and not line.strip().startswith("#") and not above.endswith(":")
        if is_ours and line.partition(":")[0].strip() not in ("cpu", "memory", "limits", "requests"):
            assert above.strip().startswith("#"), f"{line!r} of values.yaml has no comment above it"


def test_the_schema_refuses_what_it_does_not_know_everywhere() -> None:
    for path, part in _objects(values_schema.schema(), ""):
        assert part["additionalProperties"] is False, f"{path or 'the root'} takes anything"


def _objects(schema: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    """Those that have properties: what has none is a part of a manifest, or labels."""
    found = [(path, schema)] if "properties" in schema else []
    for name, each in schema.get("properties", {}).items():
        found += _objects(each, f"{path}.{name}")
    if "items" in schema:
        found += _objects(schema["items"], f"{path}[]")
    return found


def _paths(schema: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for name, each in schema["properties"].items():
        if not prefix and name in ("global", "enabled"):
            continue
        found += _paths(each, f"{prefix}{name}.") if "properties" in each else [f"{prefix}{name}"]
    return found
