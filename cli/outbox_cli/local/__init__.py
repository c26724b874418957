"""Local services: a private Postgres and a private RabbitMQ, for `outbox dev`, the tests and the benchmarks.

    with start() as services:
        services.postgres.url, services.rabbitmq.url, services.rabbitmq.management_url

The law of this package: it imports the standard library and nothing else; everything it starts listens on
127.0.0.1 only, lives below one run folder, and is gone when the `with` block ends. What a killed run leaves
behind is ended and removed by the next one. A password is in a file of mode 0600 or in a URL in memory,
never on a command line, in a log or in an error. A service that the environment names is used as it is.
"""

from outbox_cli.local.errors import LocalServiceError
from outbox_cli.local.server import Postgres, RabbitMQ
from outbox_cli.local.services import Services, start, use

__all__ = ["LocalServiceError", "Postgres", "RabbitMQ", "Services", "start", "use"]
