"""How long delay tiers have been of no use."""

import time

from outbox_operator.broker.access import VhostId


class IdleTiers:
    """Keeps count: pods of before may still send retries to a tier that no listener needs."""

    def __init__(self, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._since: dict[tuple[VhostId, str], dict[str, float]] = {}

    def due(self, vhost: VhostId, exchange: str, unused: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the unused that have been so for long enough."""
        now, before = time.monotonic(), self._since.get((vhost, exchange), {})
        since = {tier: before.get(tier, now) for tier in unused}
        self._since[vhost, exchange] = since
        return tuple(tier for tier, moment in since.items() if now - moment >= self._grace_seconds)
