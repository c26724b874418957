import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox_operator.crds import DEFINITIONS, files
from outbox_operator.crds.__main__ import main

CRDS = Path(__file__).parents[2] / "crds"


def test_the_committed_definitions_are_what_the_types_say() -> None:
    stale = [path.name for path in files.stale(CRDS)]
    assert not stale, f"crds/ is stale ({', '.join(stale)}): run `make crds`, or `{files.COMMAND} crds`"


def test_the_command_writes_what_is_committed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "outbox_operator.crds", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_text() for path in CRDS.glob("*.yaml")}
    assert sorted(written) == ["outboxlisteners.yaml", "outboxrelays.yaml"]


def test_the_check_passes_on_what_was_written_and_names_what_is_stale(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0
    capsys.readouterr()
    stale = tmp_path / "outboxrelays.yaml"
    stale.write_text(stale.read_text().replace("Retain", "Keep"))
    (tmp_path / "removed.yaml").write_text("")
    assert main(["--check", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said == (
        f"stale: {stale}, {tmp_path / 'removed.yaml'}; run `python -m outbox_operator.crds {tmp_path}`\n"
    )
    assert "Keep" in stale.read_text()


def test_writing_again_mends_only_what_is_stale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path)])
    capsys.readouterr()
    (tmp_path / "outboxrelays.yaml").unlink()
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'outboxrelays.yaml'}\n"


def test_the_yaml_is_the_definition_without_anchors() -> None:
    for definition in DEFINITIONS:
        text = files.texts()[f"{definition.plural}.yaml"]
        assert yaml.safe_load(text) == definition.manifest()
        assert not any(line.strip().startswith(("&", "*")) or ": &" in line for line in text.splitlines())


def test_schemas_are_structural() -> None:
    for definition in DEFINITIONS:
        [version] = definition.manifest()["spec"]["versions"]
        for schema in _schemas(version["schema"]["openAPIV3Schema"]):
            assert not schema.keys() & {"$ref", "$defs", "anyOf", "oneOf", "allOf", "title", "const"}
            assert schema["type"] in ("object", "array", "string", "integer", "boolean")
            assert schema.get("default", 0) is not None


def test_whatever_a_rule_looks_at_is_bounded() -> None:
    for definition in DEFINITIONS:
        [version] = definition.manifest()["spec"]["versions"]
        for schema in _schemas(version["schema"]["openAPIV3Schema"]):
            if "x-kubernetes-validations" in schema:
                assert schema["type"] != "string" or "maxLength" in schema
                assert schema["type"] != "array" or "maxItems" in schema


def test_unknown_fields_are_kept_only_where_a_type_of_kubernetes_is_embedded() -> None:
    for definition in DEFINITIONS:
        [version] = definition.manifest()["spec"]["versions"]
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        owner = spec if "template" in spec else spec["worker"]["properties"]
        owner["template"]["properties"] = {}
        kept = "x-kubernetes-preserve-unknown-fields"
        assert not any(kept in schema for schema in _schemas(version["schema"]["openAPIV3Schema"]))


def _schemas(schema: dict[str, Any]) -> list[dict[str, Any]]:
    inside = [*schema.get("properties", {}).values()]
    inside += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    return [schema, *(found for each in inside for found in _schemas(each))]
