"""The Postgres and the RabbitMQ of a project: one database and one virtual host for all of its relays."""

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit

from outbox_cli.dev.containers import texts_of_url
from outbox_cli.failures import CommandError
from outbox_cli.local import Services
from outbox_cli.local.server import ForeignServer
from outbox_cli.messages import connected
from outbox_core.broker import Broker
from outbox_core.broker_address import BrokerAddress, broker_urls
from outbox_core.database import Database
from outbox_core.url_hosts import partition_hosts
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.management import Management, ManagementError
from outbox_operator.resources import OutboxRelay


@dataclass(frozen=True, slots=True)
class Site:
    """How both are entered."""

    database_url: str = field(repr=False)
    """The database."""
    access: BrokerAccess
    """The virtual host."""
    is_private: bool
    """Whether the broker is ours alone, so that each resource can have a user of its own there."""

    @classmethod
    def of(cls, services: Services) -> "Site":
        """What was started, or given by a URL."""
        rabbitmq = services.rabbitmq
        return cls(
            services.postgres.url,
            broker_access(rabbitmq.url, rabbitmq.management_url),
            not isinstance(rabbitmq, ForeignServer),
        )

    async def enter(self) -> None:
        """Try both; an error says what is wrong with a URL that was given."""
        async with connected(Database(self.database_url)), Broker(self.access.uri(), name="outbox dev"):
            pass
        async with Management(self.access, on_call=lambda _method, _status: None) as management:
            try:
                await management.snapshot()
            except ManagementError as error:
                raise CommandError(_in_our_words(str(error))) from None

    def secrets_for(self, relay: OutboxRelay) -> dict[str, dict[str, str]]:
        """What the Secrets that a relay names say here, whatever they say in a cluster."""
        broker = relay.spec.broker.secret_ref
        return {
            **({broker.name: texts_of_url(self.access.uri())} if broker else {}),
            relay.spec.database.secret_ref.name: texts_of_url(self.database_url),
        }


_IN_OUR_WORDS = {
    "spec.broker.managementUrl": "--management-url",
    "spec.broker.vhost or the Secret": "--broker-url",
    "correct the Secret": "correct --broker-url",
}


def _in_our_words(text: str) -> str:
    for words, ours in _IN_OUR_WORDS.items():
        text = text.replace(words, ours)
    return text


def broker_access(url: str, management_url: str) -> BrokerAccess:
    """How the broker of a URL is entered, with its management API at another."""
    try:
        urls = broker_urls(url)
        before, management_hosts, after = partition_hosts(management_url)
        management = urlsplit(f"{before}{after}")
    except ValueError as error:
        raise CommandError(str(error)) from None
    if management.scheme not in ("http", "https") or not management_hosts:
        raise CommandError("the management API's URL is malformed: it must be http://host:port (or https)")
    address, *others = map(BrokerAddress.parse, urls)
    return BrokerAccess(
        host=address.host,
        port=address.port,
        tls=url.startswith("amqps:"),
        vhost=address.vhost,
        username=address.user,
        password=unquote(urlsplit(urls[0]).password or "guest"),
        management_url=urlunsplit((management.scheme, management_hosts, management.path.rstrip("/"), "", "")),
        other_hosts=tuple(other.host_port for other in others),
    )
