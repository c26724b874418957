from dataclasses import asdict

from bench.page import table
from bench.report import Figure

NEW = [
    Figure("drain 50,000", "20,408/s", "5,364/s naive", 3.812, "≥ 5 ×", met=False),
    Figure("memory", "44 MB", "", 43.64, "< 90 MB", met=True),
    Figure("CPU", "14 µs", "", 14836.4, "", met=True),
]
OLD = [Figure("memory", "40 MB", "", 40, "< 90 MB", met=True), Figure("gone", "1", "", 1, "", met=True)]


def test_a_table_shows_each_figure_with_its_verdict() -> None:
    assert table([asdict(figure) for figure in NEW]) == [
        "| what | ours | baseline | value | goal |  |",
        "| --- | --- | --- | --- | --- | --- |",
        "| drain 50,000 | 20,408/s | 5,364/s naive | 3.81 | ≥ 5 × | missed |",
        "| memory | 44 MB |  | 43.6 | < 90 MB | ok |",
        "| CPU | 14 µs |  | 14,836 |  |  |",
    ]


def test_older_engines_are_a_second_column() -> None:
    old = [asdict(Figure("drain 50,000", "19,000/s", "5,000/s naive", 3.8, "≥ 5 ×", met=False))]
    lines = table(
        [asdict(figure) for figure in NEW], old + [asdict(figure) for figure in OLD], column="3.10,15"
    )
    assert [line.split(" | ")[-1] for line in lines] == [
        "3.10,15 |",
        "--- |",
        "19,000/s (5,000/s naive) |",
        "40 MB |",
        " |",
    ]
