"""The queues of an exchange, as the management API lists them."""

from urllib.parse import unquote, urlsplit

from outbox_cli.failures import CommandError
from outbox_cli.status.looking import QueueNames
from outbox_core.broker_address import BrokerAddress
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.management import Management, ManagementError
from outbox_operator.broker.snapshot import Snapshot

_PORTS = {"amqp": ("http", 15672), "amqps": ("https", 15671)}


async def discovered(broker_url: str, management_url: str | None, exchange: str) -> QueueNames:
    """Those of the listeners of an exchange, and its delay tiers."""
    access = _access(broker_url, management_url)
    try:
        async with Management(access, on_call=lambda _method, _status: None) as management:
            snapshot = await management.snapshot()
    except ManagementError as error:
        # Its cures are for whoever writes an OutboxRelay.
        problem = str(error).partition(";")[0]
        raise CommandError(
            f"the queues of exchange {exchange} cannot be found: {problem}; name them with --queue, "
            "or the management API with --management-url"
        ) from None
    if exchange not in snapshot.exchanges:
        raise CommandError(f'{access.vhost_id} has no exchange "{exchange}"; correct --exchange')
    return queues_of_exchange(snapshot, exchange)


def queues_of_exchange(snapshot: Snapshot, exchange: str) -> QueueNames:
    """What is bound to an exchange for good, and where messages wait for another attempt. Pure."""
    listeners, tiers = [], []
    for name, queue in sorted(snapshot.queues.items()):
        sources = {each.binding.exchange for each in snapshot.bindings.get(name, ())}
        # `outbox tail` has one that is not durable.
        if exchange in sources and queue.durable:
            listeners.append(name)
        elif name in sources and name.startswith(f"{exchange}.delay_"):
            tiers.append(name)
    return QueueNames(tuple(listeners), tuple(tiers))


def _access(broker_url: str, management_url: str | None) -> BrokerAccess:
    try:
        address = BrokerAddress.parse(broker_url)
    except ValueError as error:
        raise CommandError(str(error)) from None
    parts = urlsplit(broker_url)
    scheme, port = _PORTS[parts.scheme]
    host = f"[{address.host}]" if ":" in address.host else address.host
    given = urlsplit(management_url or f"{scheme}://{host}:{port}")
    return BrokerAccess(
        host=address.host,
        port=address.port,
        tls=parts.scheme == "amqps",
        vhost=address.vhost,
        username=unquote(given.username or "") or address.user,
        password=unquote(given.password or "") or unquote(parts.password or "guest"),
        # Without the login: it is shown.
        management_url=given._replace(netloc=given.netloc.rpartition("@")[2]).geturl().rstrip("/"),
    )
