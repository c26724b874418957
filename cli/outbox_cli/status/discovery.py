"""The queues of an exchange, as the management API lists them."""

from urllib.parse import unquote, urlsplit

from outbox_cli.failures import CommandError
from outbox_cli.status.looking import QueueNames
from outbox_core.broker_address import BrokerAddress, broker_urls
from outbox_core.url_hosts import partition_hosts
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.management import Management, ManagementError
from outbox_operator.broker.snapshot import Snapshot
from outbox_operator.credentials import default_management_url


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
        urls = broker_urls(broker_url)
    except ValueError as error:
        raise CommandError(str(error)) from None
    address, *others = addresses = [BrokerAddress.parse(url) for url in urls]
    parts = urlsplit(urls[0])
    default = default_management_url([each.host for each in addresses], tls=parts.scheme == "amqps")
    before, hosts, after = partition_hosts(management_url or default)
    given = urlsplit(f"{before}{after}")
    return BrokerAccess(
        host=address.host,
        port=address.port,
        tls=parts.scheme == "amqps",
        vhost=address.vhost,
        username=unquote(given.username or "") or address.user,
        password=unquote(given.password or "") or unquote(parts.password or "guest"),
        # Without the login: it is shown.
        management_url=given._replace(netloc=hosts).geturl().rstrip("/"),
        other_hosts=tuple(other.host_port for other in others),
    )
