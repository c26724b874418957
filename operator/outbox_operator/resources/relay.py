"""OutboxRelay: from a table to an exchange."""

import re
from datetime import datetime, timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from outbox.schema import DEFAULT_CHANNEL, NOTIFY_HORIZON
from outbox.table import DEFAULT_TABLE
from outbox_operator import durations
from outbox_operator.resources.condition import Conditions
from outbox_operator.resources.metadata import Metadata
from outbox_operator.resources.names import ExchangeName
from outbox_operator.resources.part import Part
from outbox_operator.resources.policies import DeletionPolicy
from outbox_operator.resources.references import AdministratorSecretRef, SecretKeyRef, SecretRef
from outbox_operator.resources.rules import Rule, bytes_at_most
from outbox_operator.resources.spans import FOREVER, Kept, Span
from outbox_operator.resources.template import Template
from outbox_operator.resources.virtual_host import PreviousVirtualHosts, VirtualHost

_TEN_YEARS = "87600h"
# A timer set further ahead does not notify: it has to be found in time.
_LONGEST_LOOK = durations.format(NOTIFY_HORIZON / 2)
# ASCII alone, as a pattern counts characters and Postgres cuts a name after 63 bytes.
_TABLE_PART = r'([!#-\-/-~][ -\-/-~]{0,62}|"([ !#-~]|""){1,63}")'
_TABLE = rf"^{_TABLE_PART}(\.{_TABLE_PART})?$"
_A_TABLE = Rule(
    f"self.matches(r'{_TABLE}')",
    "must be table or schema.table, each of at most 63 ASCII characters; "
    "put a part with a dot in it into double quotes",
    lambda name: re.fullmatch(_TABLE, name) is not None,
)
_LABEL = r"[^\x00-\x20\x7f\[\]@/?#:,%.\\]{1,63}"
_PORT = r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_MANAGEMENT_HOST = rf"({_LABEL}(\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\])(:{_PORT})?"
_MANAGEMENT_URL = rf"^https?://{_MANAGEMENT_HOST}(,{_MANAGEMENT_HOST})*(/[A-Za-z0-9._~/-]*)?$"
_A_MANAGEMENT_URL = Rule(
    f"self.matches(r'{_MANAGEMENT_URL}')",
    "must be http://host:port or https://host:port, without user and password: those are in the Secret. "
    "There is no query either",
    lambda url: re.fullmatch(_MANAGEMENT_URL, url) is not None,
)


class Database(Part):
    """The Postgres that has the outbox table."""

    secret_ref: SecretRef
    """The Secret with the credentials: a key `uri` (postgresql://user:password@host:port/database), or the
    keys `host`, `port`, `username`, `password` and `database`. Several hosts have commas between them, and
    the one that accepts writes is used. A host of one word is a Service in this namespace."""
    table: Annotated[str, Field(min_length=1, max_length=133), _A_TABLE] = DEFAULT_TABLE
    """The outbox table, with its schema where that is not on the search path: shop.outbox_table."""
    channel: Annotated[str, Field(min_length=1, max_length=63), bytes_at_most(63)] = DEFAULT_CHANNEL
    """The channel on which the table's triggers notify."""
    ca_secret_ref: SecretKeyRef | None = None
    """The Secret with the certificates by which the server's own is checked, for TLS with a private CA. The
    host's name is checked too, unless the URL has sslmode=verify-ca."""
    notify: Literal["IfAsleep", "Never"] = "IfAsleep"
    """IfAsleep has the table's triggers notify while no relay is looking at the table anyway. Never is for a
    database where NOTIFY is not wanted: the table has no triggers, and the relay looks at it at growing
    intervals, up to pollInterval."""
    manage_schema: Literal["Create", "Check"] = "Create"
    """Create makes the table where it is missing. Check only looks, for a schema that migrations keep."""


class Broker(Part):
    """The RabbitMQ that messages go to."""

    secret_ref: SecretRef | None = None
    """The Secret with the credentials: a key `uri` (amqp://user:password@host:port/vhost), or the keys of a
    default-user Secret of the RabbitMQ Cluster Operator (`host`, `port`, `username`, `password`). Several
    hosts have commas between them: host1,host2:5673. A host of one word is a Service in this namespace."""
    administrator_secret_ref: AdministratorSecretRef | None = None
    """Instead of secretRef: a Secret in the operator's namespace with an administrator of the broker, which
    the operator alone uses. Its key `namespaces` says which namespace may use it for which virtual host."""
    vhost: Annotated[str, Field(min_length=1, max_length=255), bytes_at_most(255)] | None = None
    """The virtual host, where it is not the one in the Secret. Required with administratorSecretRef."""
    management_url: Annotated[str, Field(max_length=2048), _A_MANAGEMENT_URL] | None = None
    """The management API, where it is not at port 15672 (15671 with TLS) of the broker's hosts. It may list
    several hosts, which are tried in turn: http://host1:15672,host2:15672."""
    ca_secret_ref: SecretKeyRef | None = None
    """The Secret with the certificates by which the broker's own is checked, for TLS with a private CA."""

    rules: ClassVar = (
        Rule(
            "has(self.secretRef) != has(self.administratorSecretRef)",
            "must have either secretRef or administratorSecretRef; write one of them",
            lambda broker: (broker.secret_ref is None) != (broker.administrator_secret_ref is None),
        ),
        Rule(
            "!has(self.administratorSecretRef) || has(self.vhost)",
            "administratorSecretRef needs vhost: the virtual host that this namespace was given",
            lambda broker: broker.administrator_secret_ref is None or broker.vhost is not None,
        ),
        Rule(
            "!has(self.administratorSecretRef) || !(has(self.managementUrl) || has(self.caSecretRef))",
            "managementUrl and caSecretRef must not be set with administratorSecretRef: they are the keys "
            "managementUrl and ca.crt of that Secret",
            lambda broker: (
                broker.administrator_secret_ref is None
                or (broker.management_url is None and broker.ca_secret_ref is None)
            ),
        ),
    )


class PublishRetry(Part):
    """When a message that the broker refused is published again."""

    initial: Annotated[timedelta, Span("1ms", "1h")] = timedelta(milliseconds=500)
    """How long a message waits after its first failure. The wait doubles with each failure."""
    maximum: Annotated[timedelta, Span("1ms", "24h")] = timedelta(minutes=1)
    """How long it waits at most."""
    max_attempts: Annotated[int, Field(ge=0, le=1_000_000)] = 100
    """After how many failed attempts a message is parked; 0 for never. An outage of the broker is none."""

    rules: ClassVar = (
        Rule(
            "duration(self.initial) <= duration(self.maximum)",
            "initial must not be longer than maximum; shorten initial or lengthen maximum",
            lambda retry: retry.initial <= retry.maximum,
        ),
    )


class Retention(Part):
    """How long messages stay in the table when they are done with."""

    sent: Annotated[Kept, Span("0s", _TEN_YEARS, or_forever=True)] = timedelta()
    """How long a message is kept after it was sent. 0s deletes it at once; Forever leaves it to you."""
    parked: Annotated[Kept, Span("0s", _TEN_YEARS, or_forever=True)] = FOREVER
    """How long a message that was given up is kept for a person to look at."""


class RelaySpec(Part):
    """What is wanted of a relay."""

    database: Database
    """The Postgres that has the outbox table."""
    broker: Broker
    """The RabbitMQ that messages go to."""
    exchange: Annotated[
        ExchangeName,
        Rule(
            "self == oldSelf",
            "exchange cannot be changed, since its listeners' queues are bound to it; "
            "make another OutboxRelay with the new exchange",
            allows=lambda old, new: old == new,
        ),
    ] = "outbox"
    """The topic exchange that messages are published to. The names of the dead-letter exchange and of the
    delay tiers begin with it. It cannot be changed."""
    replicas: Annotated[int, Field(ge=0, le=100)] = 1
    """How many relays share the table. Two keep messages moving while a node fails; 0 stops."""
    batch_size: Annotated[int, Field(ge=1, le=10_000)] = 500
    """How many messages are claimed and published at a time."""
    lanes: Annotated[int, Field(ge=1, le=32)] = 2
    """How many batches a replica has under way at the same time, each on a database connection of its own."""
    listen: bool = True
    """Wake by LISTEN/NOTIFY. Where it is false, or a pooler lets no notification through, the relay looks
    every pollInterval."""
    poll_interval: Annotated[timedelta, Span("10ms", "1h")] = timedelta(seconds=1)
    """How long the relay may go without a look at the table where notifications do not arrive."""
    notification_timeout: Annotated[timedelta, Span("100ms", _LONGEST_LOOK)] = timedelta(minutes=1)
    """How long the relay may go without a look at the table when nothing is due."""
    publish_timeout: Annotated[timedelta, Span("100ms", "1h")] = timedelta(seconds=30)
    """How long rows stay locked while their batch is published."""
    expiration: Annotated[timedelta, Span("1ms", _TEN_YEARS)] | None = None
    """How long a message without an expiration of its own may wait for a listener; for ever where it is left
    out."""
    expired: Literal["Drop", "Park"] = "Drop"
    """What becomes of a message whose expiration ended before it could be sent."""
    unroutable: Literal["Park", "Drop"] = "Park"
    """What becomes of a message that no queue is bound for, after unroutableGrace."""
    unroutable_grace: Annotated[timedelta, Span("0s", "24h")] = timedelta(minutes=1)
    """How long such a message is tried again, since a listener may be about to appear."""
    publish_retry: PublishRetry = PublishRetry()
    """When a message that the broker refused is published again."""
    retention: Retention = Retention()
    """How long messages stay in the table when they are done with."""
    max_message_size: Annotated[int, Field(ge=1, le=512 * 1024 * 1024)] = 128 * 1024 * 1024
    """The largest body that the broker takes, in bytes; a larger one is parked without being sent."""
    shutdown_timeout: Annotated[timedelta, Span("0s", "1h")] = timedelta(seconds=30)
    """How long a batch under way may take to finish when a pod is asked to stop."""
    deletion_policy: DeletionPolicy = "Retain"
    """What becomes of the exchanges when this resource is deleted. Retain leaves them; DeleteIfEmpty waits
    until no queue is bound to them; Delete removes them. The table is never touched."""
    paused: bool = False
    """While true the operator changes nothing for this resource: pods run on, drift is left alone."""
    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """The relay's image, where it is not the one that the operator was installed with."""
    template: Template = Template()
    """What the pods have beside the operator's choices."""


class RelayStatus(Part):
    """What the operator found."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The metadata.generation that all of this was found for."""
    conditions: Conditions = ()
    """Each side of the relay that can be well or not; Ready is their sum."""
    virtual_host: VirtualHost | None = None
    """The virtual host that the exchange is in."""
    previous_virtual_hosts: PreviousVirtualHosts = ()
    """Virtual hosts that the exchange was in before, as long as something of it is left there."""
    exchange: str | None = None
    """The exchange, once it exists."""
    replicas: Annotated[int, Field(ge=0)] | None = None
    """How many pods there are."""
    ready_replicas: Annotated[int, Field(ge=0)] | None = None
    """How many of them are ready."""
    selector: str | None = None
    """The labels by which the pods are found, for kubectl scale and autoscalers."""
    backlog: Annotated[int, Field(ge=0)] | None = None
    """How many messages are due and not sent; an estimate when there are very many."""
    oldest_pending_at: datetime | None = None
    """When the oldest of them became due."""
    parked: Annotated[int, Field(ge=0)] | None = None
    """How many messages were given up and wait for a person."""


class OutboxRelay(Part):
    """Moves messages that applications committed to a table in Postgres to an exchange of RabbitMQ."""

    metadata: Metadata
    """Standard object's metadata."""
    spec: RelaySpec
    """What is wanted."""
    status: RelayStatus = RelayStatus()
    """What the operator found; written by it alone."""
