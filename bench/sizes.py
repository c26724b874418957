"""How much is measured, by default and to see that it works."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    drained: int = 50_000
    """Messages of one drain."""
    rounds: int = 3
    """How often each comparison is made, alternating."""
    backlog: int = 1_000_000
    """Pending rows that make a backlog."""
    few: int = 10_000
    """Pending rows that do not."""
    keys: int = 1_000
    """Ordering keys."""
    dead: int = 5_000_000
    """Messages that pass while a snapshot is held."""
    dead_keyed: int = 500_000
    """The same with ordering keys."""
    waiting: int = 1_000_000
    """Ordering keys that wait."""
    stuck: int = 10_000
    """Due rows of each stuck key."""
    remembered: int = 500_000
    """Messages after which the memory of a relay is looked at."""
    redriven: int = 50_000
    """Dead letters of one redrive."""
    redriven_few: int = 5_000
    """Those of one whose memory it is compared with."""
    redriven_by_hand: int = 2_000
    """Those that are moved one by one."""
    paced: int = 6_000
    """Messages of one measurement of latency, at 1,000 a second."""
    commit_seconds: float = 10
    """How long connections commit, in one round."""
    grown: int = 600_000
    """Messages that are sent while the size of the table is watched; `--long` sends 10,000,000."""
    grown_little: int = 100_000
    """Those after which the size is what it is compared with."""
    grown_backlog: int = 100_000
    """Messages that are pending meanwhile."""
    bystander_seconds: float = 20
    """How long somebody else's transactions are measured, in one round."""
    idle_relays_seconds: float = 180
    """How long relays are watched while nothing happens."""
    applied: int = 300
    """Listeners that are applied at once."""
    resources: int = 500
    """Listeners that are there while something is measured, and those that have workers."""
    edits: int = 40
    """Edits, one at a time."""
    idle_seconds: float = 180
    """How long the operator is watched while nothing happens."""
    lives: int = 1_000
    """Listeners that come and go."""
    broken: int = 1_000
    """Relays of another namespace whose database never answers."""
    outage_seconds: float = 120
    """How long the operator's broker is away."""


QUICK = Sizes(
    drained=3_000,
    rounds=1,
    backlog=30_000,
    few=3_000,
    keys=100,
    dead=100_000,
    dead_keyed=50_000,
    waiting=50_000,
    stuck=500,
    remembered=20_000,
    redriven=3_000,
    redriven_few=1_000,
    redriven_by_hand=200,
    paced=2_000,
    commit_seconds=4,
    grown=60_000,
    grown_little=20_000,
    grown_backlog=10_000,
    bystander_seconds=4,
    idle_relays_seconds=60,
    applied=30,
    resources=50,
    edits=10,
    idle_seconds=60,
    lives=50,
    broken=50,
    outage_seconds=20,
)

LONG_GROWTH = 10_000_000
"""The messages of `grown` with `--long`, which takes more than half an hour."""
