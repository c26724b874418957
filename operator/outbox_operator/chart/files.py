"""The files of the chart that are made: their text, and which of a chart's are stale."""

from pathlib import Path

from outbox_operator.chart import dashboards, definitions, readme, rules, values_file, values_schema

COMMAND = "python -m outbox_operator.chart"
_HEADING = f"Made by `{COMMAND}` from operator/outbox_operator/%s; change it there."
_PATTERNS = ("templates/crd-*.yaml", "dashboards/*.json")
"""Where a file that nothing stands for any more is left over."""


def texts(chart: Path) -> dict[Path, str]:
    """The text of each file, by its path. Of the README there, all but the table is kept."""
    made = {
        "values.yaml": _yaml_heading("chart/values.py") + values_file.text(),
        "values.schema.json": values_schema.text(),
        "templates/_rules.tpl": _template_heading("rbac.py") + rules.text(),
        **{
            f"templates/{name}": _template_heading("resources") + text
            for name, text in definitions.texts().items()
        },
        **{f"dashboards/{name}": text for name, text in dashboards.texts().items()},
        "README.md": readme.with_table(_read(chart / "README.md") or ""),
    }
    return {chart / name: text for name, text in made.items()}


def stale(chart: Path) -> list[Path]:
    """The files of a chart that are missing or differ, and those that nothing stands for."""
    wanted = texts(chart)
    differing = [path for path, text in wanted.items() if _read(path) != text]
    left_over = [path for pattern in _PATTERNS for path in sorted(chart.glob(pattern)) if path not in wanted]
    return [*differing, *left_over]


def write(chart: Path) -> list[Path]:
    """Write all files, and give those that changed."""
    changed = stale(chart)
    wanted = texts(chart)
    for path in changed:
        if path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
        else:
            path.unlink()
    return changed


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def _yaml_heading(source: str) -> str:
    return f"# {_HEADING % source}\n\n"


def _template_heading(source: str) -> str:
    return f"{{{{- /* {_HEADING % source} */ -}}}}\n"
