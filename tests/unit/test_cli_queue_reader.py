"""How many messages of a queue are at hand."""

import pytest

from outbox_cli.queue_reader import wider


@pytest.mark.parametrize(
    ("window", "mean_bytes", "next_window"),
    [
        (2000, 0, 4000),
        (2000, 100, 4000),
        (40_000, 100, 65_535),
        (65_535, 10_000, 6710),
        (2000, 1 << 20, 100),
        (10, 100, 100),
    ],
)
def test_a_window_doubles_as_far_as_memory_allows(window: int, mean_bytes: float, next_window: int) -> None:
    assert wider(window, mean_bytes) == next_window
