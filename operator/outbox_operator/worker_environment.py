"""The environment of a worker's container: the settings of `outbox_worker`, from an OutboxListener's spec.

What the resource says wins over what the code says of the same listener: the operator made the queue so.
"""

from datetime import timedelta

from outbox_operator.resources.listener import ListenerSpec, Worker


def worker_environment(spec: ListenerSpec, worker: Worker, exchange: str, queue: str) -> dict[str, str]:
    """The `OUTBOX_…` variables, but for the URL, which is secret."""
    return {
        "OUTBOX_EXCHANGE_NAME": exchange,
        "OUTBOX_QUEUE": queue,
        # Nothing at all is an answer: no retries.
        "OUTBOX_RETRY_DELAYS": ",".join(_seconds(delay) for delay in spec.retry_delays),
        "OUTBOX_ORDERED": "true" if spec.ordered else "false",
        "OUTBOX_PROVISIONED": "true",
        "OUTBOX_PREFETCH_COUNT": str(worker.prefetch),
        "OUTBOX_SHUTDOWN_TIMEOUT": _seconds(worker.shutdown_timeout),
    }


def _seconds(value: timedelta) -> str:
    # Not `g` alone, which keeps six digits.
    return f"{value.total_seconds():.15g}"
