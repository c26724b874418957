"""How many messages are in the dead-letter queues, asked of the broker every now and then."""

import asyncio
import logging
from collections.abc import Mapping

from outbox.topology import dead_letter_queue
from outbox_core.broker import Broker
from outbox_core.broker_errors import BrokerLostError
from outbox_worker.metrics import Metrics

_log = logging.getLogger("outbox.worker")


class DeadLetters:
    """Measures the dead-letter queues of a worker's listeners."""

    def __init__(self, broker: Broker, metrics: Mapping[str, Metrics], interval_seconds: float) -> None:
        """`metrics` are those of each queue."""
        self._broker = broker
        self._metrics = metrics
        self._interval_seconds = interval_seconds

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            await self.run_once()
            await asyncio.sleep(self._interval_seconds)

    async def run_once(self) -> None:
        """Measure each queue once; one that cannot be measured keeps its last value."""
        for queue, metrics in self._metrics.items():
            name = dead_letter_queue(queue)
            try:
                metrics.dead_letters(await self._broker.depth(name))
            except BrokerLostError as error:
                _log.debug("the depth of %s is not known: %s", name, error)
