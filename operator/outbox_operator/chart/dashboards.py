"""What is on the dashboards. Every replica of a relay tells of the whole table: those are never added up."""

import json

from outbox_operator.chart.grafana import Choice, Dashboard, Panel, Query

_RATE = "[$__rate_interval]"
_RELAY = '{namespace=~"$namespace", exchange_name=~"$exchange"}'
_QUEUE = '{namespace=~"$namespace", queue=~"$queue"}'
_OPERATOR = '{namespace=~"$namespace"}'


def texts() -> dict[str, str]:
    """The text of each file, by its name."""
    return {
        f"{name}.json": json.dumps(dashboard.manifest(), indent=2, ensure_ascii=False) + "\n"
        for name, dashboard in (("relays", RELAYS), ("workers", WORKERS), ("operator", OPERATOR))
    }


def _rate(metric: str, chosen: str, by: str, legend: str) -> Query:
    """How much a second."""
    return Query(f"sum by ({by}) (rate({metric}{chosen}{_RATE}))", legend)


def _largest(metric: str, chosen: str, by: str, legend: str) -> Query:
    """The largest that anybody says."""
    return Query(f"max by ({by}) ({metric}{chosen})", legend)


def _quantiles(metric: str, chosen: str, by: str, legend: str) -> tuple[Query, ...]:
    """The median, and what one in a hundred is beyond."""
    buckets = f"sum by (le, {by}) (rate({metric}_bucket{chosen}{_RATE}))"
    return tuple(
        Query(f"histogram_quantile({quantile}, {buckets})", f"p{100 * quantile:g} {legend}")
        for quantile in (0.5, 0.99)
    )


def _mean(metric: str, chosen: str, by: str, legend: str) -> Query:
    sums, counts = (f"sum by ({by}) (rate({metric}_{part}{chosen}{_RATE}))" for part in ("sum", "count"))
    return Query(f"{sums} / {counts}", legend)


def _process(container: str) -> tuple[Panel, ...]:
    chosen = f'{{namespace=~"$namespace", container="{container}"}}'
    memory = Query(f"process_resident_memory_bytes{chosen}", "{{pod}}")
    processor = Query(f"rate(process_cpu_seconds_total{chosen}{_RATE})", "{{pod}}")
    return (
        Panel("Memory", "Of each pod.", (memory,), "bytes"),
        Panel("Processor", "Cores that each pod uses.", (processor,)),
    )


_TABLE = "job, exchange_name"
_TABLE_LEGEND = "{{job}} {{exchange_name}}"
RELAYS = Dashboard(
    "outbox-relays",
    "Outbox: relays",
    (
        Choice("namespace", "outbox_table_backlog", "namespace"),
        Choice("exchange", 'outbox_table_backlog{namespace=~"$namespace"}', "exchange_name"),
    ),
    (
        Panel(
            "Backlog",
            "Messages that are due and not sent. Beyond 10,000 it is an estimate.",
            (_largest("outbox_table_backlog", _RELAY, _TABLE, _TABLE_LEGEND),),
        ),
        Panel(
            "Oldest message",
            "How long the oldest message has been due. It grows while nothing is sent.",
            (_largest("outbox_table_oldest_seconds", _RELAY, _TABLE, _TABLE_LEGEND),),
            "s",
        ),
        Panel(
            "Parked",
            "Messages in the table that wait for a person; their last_error says why.",
            (_largest("outbox_table_parked", _RELAY, _TABLE, _TABLE_LEGEND),),
        ),
        Panel(
            "Published",
            "Messages a second that the broker confirmed.",
            (_rate("outbox_messages_published_total", _RELAY, _TABLE, _TABLE_LEGEND),),
            "cps",
        ),
        Panel(
            "Failures",
            "Attempts to publish that failed, a second.",
            (
                _rate(
                    "outbox_publish_failures_total",
                    _RELAY,
                    "job, failure_type, error_type",
                    "{{job}} {{failure_type}} {{error_type}}",
                ),
            ),
            "cps",
        ),
        Panel(
            "Given up",
            "Messages parked or dropped, a second, and why.",
            (
                _rate("outbox_messages_parked_total", _RELAY, "job, reason", "{{job}} parked: {{reason}}"),
                _rate("outbox_messages_dropped_total", _RELAY, "job, reason", "{{job}} dropped: {{reason}}"),
            ),
            "cps",
        ),
        Panel(
            "Age when published",
            "From the emit to the broker's confirm; a timer waits for its time too.",
            _quantiles("outbox_message_age_seconds", _RELAY, "job", "{{job}}"),
            "s",
        ),
        Panel(
            "Confirm latency",
            "How long the broker takes to confirm a batch.",
            _quantiles("outbox_confirm_latency_seconds", _RELAY, "job", "{{job}}"),
            "s",
        ),
        Panel(
            "Batch duration",
            "From the claim of a batch to its commit.",
            _quantiles("outbox_poll_duration_seconds", _RELAY, "job", "{{job}}"),
            "s",
        ),
        Panel(
            "Batch size",
            "Rows in a claimed batch, on average.",
            (_mean("outbox_claimed_batch_size", _RELAY, "job", "{{job}}"),),
        ),
        Panel(
            "Wake-ups",
            "Why relays looked at the table. Where it is the poll alone, LISTEN does not work.",
            (_rate("outbox_wakeups_total", _RELAY, "job, reason", "{{job}} {{reason}}"),),
            "cps",
        ),
        Panel(
            "Routes held back",
            "Routing keys whose messages wait, because a queue refuses or does not confirm them.",
            (_largest("outbox_routes_closed", _RELAY, _TABLE, _TABLE_LEGEND),),
        ),
        Panel(
            "Unconfirmed",
            "Messages that were sent and that the broker has not confirmed in time.",
            (_largest("outbox_messages_unconfirmed", _RELAY, _TABLE, _TABLE_LEGEND),),
        ),
        Panel(
            "Blocked by the broker",
            "1 while the broker refuses publishers: its memory or disk alarm.",
            (_largest("outbox_broker_blocked", _RELAY, _TABLE, _TABLE_LEGEND),),
        ),
        Panel(
            "Dead rows",
            "Rows of the table that were deleted or changed, and that vacuum has not removed.",
            (_largest("outbox_table_dead_rows", _RELAY, _TABLE, _TABLE_LEGEND),),
        ),
        Panel(
            "Vacuum held back",
            "How long the same transaction, slot or standby has kept many dead rows; the log names it.",
            (_largest("outbox_vacuum_horizon_held_seconds", _RELAY, _TABLE, _TABLE_LEGEND),),
            "s",
        ),
        *_process("relay"),
    ),
)

WORKERS = Dashboard(
    "outbox-workers",
    "Outbox: workers",
    (
        Choice("namespace", "outbox_active_consumers", "namespace"),
        Choice("queue", 'outbox_active_consumers{namespace=~"$namespace"}', "queue"),
    ),
    (
        Panel(
            "Dead letters",
            "Messages in the dead-letter queue; their headers say why.",
            (_largest("outbox_dlq_messages", _QUEUE, "namespace, queue", "{{queue}}"),),
        ),
        Panel(
            "Received",
            "Messages a second from the queue.",
            (_rate("outbox_messages_received_total", _QUEUE, "namespace, queue", "{{queue}}"),),
            "cps",
        ),
        Panel(
            "Attempts",
            "Calls of listeners a second, by how they ended.",
            (
                _rate(
                    "outbox_messages_processed_total",
                    _QUEUE,
                    "namespace, queue, status",
                    "{{queue}} {{status}}",
                ),
            ),
            "cps",
        ),
        Panel(
            "Retries",
            "Messages a second that were sent to a delay tier.",
            (
                _rate(
                    "outbox_retry_attempts_total",
                    _QUEUE,
                    "namespace, queue, delay_seconds",
                    "{{queue}} after {{delay_seconds}} s",
                ),
            ),
            "cps",
        ),
        Panel(
            "Duration",
            "How long listeners take.",
            _quantiles("outbox_message_processing_duration_seconds", _QUEUE, "namespace, queue", "{{queue}}"),
            "s",
        ),
        Panel(
            "Timeouts",
            "Calls a second that took longer than handler_timeout.",
            (_rate("outbox_handler_timeouts_total", _QUEUE, "namespace, queue", "{{queue}}"),),
            "cps",
        ),
        Panel(
            "Consumers",
            "Consumers that the broker delivers to. An ordered listener has one that is active.",
            (Query(f"sum by (namespace, queue) (outbox_active_consumers{_QUEUE})", "{{queue}}"),),
        ),
        Panel(
            "In flight",
            "Messages received and not settled.",
            (Query(f"sum by (namespace, queue) (outbox_messages_in_flight{_QUEUE})", "{{queue}}"),),
        ),
        Panel(
            "Duplicates",
            "Messages a second that had been handled before, and were skipped.",
            (_rate("outbox_duplicates_skipped_total", _QUEUE, "namespace, queue", "{{queue}}"),),
            "cps",
        ),
        *_process("worker"),
    ),
)

OPERATOR = Dashboard(
    "outbox-operator",
    "Outbox: operator",
    (Choice("namespace", "outbox_operator_leader", "namespace"),),
    (
        Panel(
            "Leaders",
            "One of the replicas leads; the others stand by.",
            (Query(f"sum by (job) (outbox_operator_leader{_OPERATOR})", "{{job}}"),),
            kind="stat",
        ),
        Panel(
            "Reconciles",
            "Looks at resources a second, by how they ended.",
            (_rate("outbox_operator_reconciles_total", _OPERATOR, "kind, result", "{{kind}} {{result}}"),),
            "cps",
        ),
        Panel(
            "Duration of a reconcile",
            "How long a look at a resource takes.",
            _quantiles("outbox_operator_reconcile_seconds", _OPERATOR, "kind", "{{kind}}"),
            "s",
        ),
        Panel(
            "Waiting",
            "Resources that wait to be looked at.",
            (_largest("outbox_operator_queue_depth", _OPERATOR, "job", "{{job}}"),),
        ),
        Panel(
            "Drift repaired",
            "Broker objects a second that somebody else had changed or removed.",
            (_rate("outbox_operator_drift_repairs_total", _OPERATOR, "action", "{{action}}"),),
            "cps",
        ),
        Panel(
            "Calls to brokers",
            "Calls a second to the management API, by how they ended.",
            (
                _rate(
                    "outbox_operator_broker_calls_total",
                    _OPERATOR,
                    "method, outcome",
                    "{{method}} {{outcome}}",
                ),
            ),
            "cps",
        ),
        Panel(
            "Calls to Kubernetes",
            "Calls a second to the API server, by how they ended.",
            (_rate("outbox_operator_api_calls_total", _OPERATOR, "verb, outcome", "{{verb}} {{outcome}}"),),
            "cps",
        ),
        Panel(
            "Unexpected errors",
            "Errors a second that nobody foresaw, by the part that met one and goes on; the log has each.",
            (_rate("outbox_operator_internal_errors_total", _OPERATOR, "part", "{{part}}"),),
            "cps",
        ),
        *_process("operator"),
    ),
)
