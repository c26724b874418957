"""The charts of a report as one SVG, which needs nothing but a browser."""

from collections.abc import Sequence
from html import escape

from bench.report import Chart

_WIDTH, _HEIGHT, _MARGIN = 520, 260, 50
_COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#475569")


def svg(charts: Sequence[Chart]) -> str:
    panels = "".join(
        f'<g transform="translate(0 {number * _HEIGHT})">{_panel(chart)}</g>\n'
        for number, chart in enumerate(charts)
    )
    height = _HEIGHT * len(charts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n'
        f"{panels}</svg>\n"
    )


def _panel(chart: Chart) -> str:
    top = max((y for points in chart.lines.values() for _, y in points), default=0) or 1
    title = _text(_MARGIN, 18, chart.title, size=13) + _text(_WIDTH - _MARGIN, _HEIGHT - 8, chart.x, "end")
    axis = "".join(
        _text(_MARGIN - 6, _y(top * part, top) + 4, f"{top * part:,.4g}", "end")
        + f'<line x1="{_MARGIN}" x2="{_WIDTH - 10}" y1="{_y(top * part, top)}" y2="{_y(top * part, top)}" '
        'stroke="#e2e8f0"/>'
        for part in (0, 0.5, 1)
    )
    return title + axis + (_curves(chart, top) if chart.x else _bars(chart, top))


def _bars(chart: Chart, top: float) -> str:
    step = (_WIDTH - _MARGIN - 10) / max(len(chart.lines), 1)
    drawn = ""
    for number, (label, points) in enumerate(chart.lines.items()):
        x, value = _MARGIN + step * number, points[0][1]
        y = _y(value, top)
        drawn += (
            f'<rect x="{x + step * 0.2:.1f}" y="{y:.1f}" width="{step * 0.6:.1f}" '
            f'height="{_y(0, top) - y:.1f}" fill="{_COLOURS[number % len(_COLOURS)]}"/>'
            + _text(x + step / 2, y - 3, f"{value:,.4g}", "middle")
            + _text(x + step / 2, _y(0, top) + 14, label, "middle")
        )
    return drawn


def _curves(chart: Chart, top: float) -> str:
    right = max((x for points in chart.lines.values() for x, _ in points), default=0) or 1
    drawn = ""
    for number, (label, points) in enumerate(chart.lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(
            f"{_MARGIN + x / right * (_WIDTH - _MARGIN - 10):.1f},{_y(y, top):.1f}" for x, y in points
        )
        drawn += f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{path}"/>'
        drawn += _text(_MARGIN + 8, 44 + 14 * number, label, colour=colour)
    return drawn + _text(_WIDTH - 10, _y(0, top) + 14, f"{right:,.4g}", "end")


def _y(value: float, top: float) -> float:
    return _HEIGHT - 40 - value / top * (_HEIGHT - 80)


def _text(
    x: float, y: float, text: str, anchor: str = "start", *, size: int = 11, colour: str = "#0f172a"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">'
        f"{escape(text)}</text>"
    )
