"""The environment of a relay's container: the settings of `outbox_relay`, from an OutboxRelay's spec.

All of them are written out, so that what a pod does follows from the spec and not from the image's defaults.
"""

from datetime import timedelta

from outbox_operator.resources.relay import RelaySpec
from outbox_operator.resources.spans import Kept


def relay_environment(spec: RelaySpec) -> dict[str, str]:
    """The `OUTBOX_…` variables, but for the URLs, which are secret."""
    settings = {
        "exchange_name": spec.exchange,
        "table_name": spec.database.table,
        "channel": spec.database.channel,
        "notify": "never" if spec.database.notify == "Never" else "if_asleep",
        "auto_create_table": _flag(spec.database.manage_schema == "Create"),
        "provisioned": _flag(True),
        "batch_size": str(spec.batch_size),
        "lanes": str(spec.lanes),
        "notification_timeout": _seconds(spec.notification_timeout),
        "poll_interval": _seconds(spec.poll_interval),
        "listen": _flag(spec.listen),
        "publish_timeout": _seconds(spec.publish_timeout),
        "expiration": _seconds(spec.expiration) if spec.expiration is not None else "none",
        "expired": spec.expired.lower(),
        "unroutable": spec.unroutable.lower(),
        "unroutable_grace": _seconds(spec.unroutable_grace),
        "max_attempts": str(spec.publish_retry.max_attempts or "none"),
        "backoff_initial": _seconds(spec.publish_retry.initial),
        "backoff_maximum": _seconds(spec.publish_retry.maximum),
        "clean_up_after": _clean_up(spec.retention.sent),
        "parked_retention": _kept(spec.retention.parked, "none"),
        "shutdown_timeout": _seconds(spec.shutdown_timeout),
        "max_message_size": str(spec.max_message_size),
    }
    return {f"OUTBOX_{name.upper()}": value for name, value in settings.items()}


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _seconds(value: timedelta) -> str:
    # Not `g` alone, which keeps six digits.
    return f"{value.total_seconds():.15g}"


def _clean_up(sent: Kept) -> str:
    return "immediately" if sent == timedelta() else _kept(sent, "never")


def _kept(value: Kept, forever: str) -> str:
    return _seconds(value) if isinstance(value, timedelta) else forever
