"""How long a sweep leaves the database alone."""

import pytest

from outbox_relay.sweep import pause_seconds


@pytest.mark.parametrize(
    ("took", "pause"), [(0.001, 0.025), (0.4, 10.0), (3.0, 60.0), (300.0, 60.0)], ids=str
)
def test_a_sweep_pauses_in_proportion_but_no_longer_than_a_minute(took: float, pause: float) -> None:
    """A query that waited for a migration's lock does not keep late commits for many minutes."""
    assert pause_seconds(took) == pytest.approx(pause)
