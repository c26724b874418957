"""The relay as a process: how it starts, says what is wrong, tells whether it is ready, and ends."""

import signal
from collections.abc import AsyncIterator
from importlib.metadata import version
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg
import pytest

from outbox import schema
from outbox_cli.local import Services
from outbox_cli.local.ports import free_ports
from tests.integration.administrator import management, user_without_rights
from tests.integration.relay_process import Result, relay_process, result_of
from tests.integration.relaying import Traffic, traffic_between


@pytest.fixture
async def traffic(postgres_url: str, rabbitmq_url: str) -> AsyncIterator[Traffic]:
    async with traffic_between(postgres_url, rabbitmq_url) as traffic:
        yield traffic


def with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    user, _, address = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:{quote(password, safe='')}@{address}"))


def assert_refuses(result: Result, *words: str) -> None:
    """It has ended with one line for a person, which says all of this."""
    assert result.status == 1
    assert len(result.complaints) == 1, result.errors
    for word in words:
        assert word in result.complaints[0]
    assert "Traceback" not in result.errors


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_with_status_0_and_nothing_lost(
    traffic: Traffic, signal_number: signal.Signals
) -> None:
    inbox = await traffic.inbox("#")
    async with relay_process(
        OUTBOX_DATABASE_URL=traffic.postgres_url,
        OUTBOX_BROKER_URL=traffic.rabbitmq_url,
        OUTBOX_EXCHANGE_NAME=traffic.exchange_name,
        OUTBOX_BATCH_SIZE="10",
    ) as process:
        await process.answers("/readyz", "200 ok\n")
        await process.answers("/livez", "200 ok\n")
        sent = await traffic.emit_many(1_000)
        await traffic.until(lambda: len(inbox.ids) > 0, "the first message")
        process.process.send_signal(signal_number)
        result = await process.ended()
    assert result.status == 0, result.errors
    left = await traffic.ids()
    await inbox.gets(set(sent) - set(left))
    assert sorted(inbox.ids + left) == sorted(sent)
    assert result.complaints == []


async def test_its_metrics_are_served(traffic: Traffic) -> None:
    inbox = await traffic.inbox("#")
    async with relay_process(
        OUTBOX_DATABASE_URL=traffic.postgres_url,
        OUTBOX_BROKER_URL=traffic.rabbitmq_url,
        OUTBOX_EXCHANGE_NAME=traffic.exchange_name,
    ) as process:
        await inbox.gets(await traffic.emit_many(3))
        await process.answers(
            "/metrics", f'outbox_messages_published_total{{exchange_name="{traffic.exchange_name}"}} 3.0'
        )


async def test_readiness_tells_that_the_broker_is_away(traffic: Traffic) -> None:
    [port] = free_ports(1)
    async with relay_process(
        OUTBOX_DATABASE_URL=traffic.postgres_url,
        OUTBOX_BROKER_URL=f"amqp://shop:s3cret@127.0.0.1:{port}/",
    ) as process:
        await process.answers("/readyz", f"waiting: broker 127.0.0.1:{port}, ")
        await process.answers("/livez", "200 ok")
        process.process.send_signal(signal.SIGTERM)
        result = await process.ended()
    assert result.status == 0
    # Once, and not with every try.
    assert result.errors.count("waiting: broker") == 1
    assert "s3cret" not in result.errors


async def test_readiness_tells_that_the_database_is_away(rabbitmq_url: str) -> None:
    [port] = free_ports(1)
    async with relay_process(
        OUTBOX_DATABASE_URL=f"postgresql://shop:s3cret@127.0.0.1:{port}/shop", OUTBOX_BROKER_URL=rabbitmq_url
    ) as process:
        await process.answers("/readyz", f"waiting: Postgres 127.0.0.1:{port}/shop")
        process.process.send_signal(signal.SIGTERM)
        result = await process.ended()
    assert result.status == 0
    assert "s3cret" not in result.errors


async def test_help_names_every_variable_and_version_the_version() -> None:
    helped = await result_of("--help")
    assert helped.status == 0
    for name in ("DATABASE_URL", "BROKER_URL", "PROBE_PORT", "PROBE_HOST", "CLEAN_UP_AFTER"):
        assert f"\n  OUTBOX_{name}\n" in helped.output
    asked = await result_of("--version")
    assert (asked.status, asked.output.strip()) == (0, version("outbox-operator"))


async def test_without_urls_it_says_which_variable_is_missing(postgres_url: str) -> None:
    assert_refuses(await result_of(), "OUTBOX_DATABASE_URL is not set")
    assert_refuses(await result_of(OUTBOX_DATABASE_URL=postgres_url), "OUTBOX_BROKER_URL is not set")


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("OUTBOX_BATCH_SIZE", "many", "OUTBOX_BATCH_SIZE='many': invalid literal"),
        ("OUTBOX_PROBE_PORT", "http", "OUTBOX_PROBE_PORT='http': write a port's number"),
        ("OUTBOX_LOG_LEVEL", "loud", "log level 'loud' is unknown; choose DEBUG"),
        ("OUTBOX_BROKER_URL", "http://shop:s3cret@broker", "the broker's URL is malformed: it must be amqp"),
    ],
)
async def test_a_setting_that_cannot_be_is_one_line(
    traffic: Traffic, variable: str, value: str, complaint: str
) -> None:
    variables = {
        "OUTBOX_DATABASE_URL": traffic.postgres_url,
        "OUTBOX_BROKER_URL": traffic.rabbitmq_url,
        variable: value,
    }
    result = await result_of(**variables)
    assert_refuses(result, complaint)
    assert "s3cret" not in result.errors


async def test_a_wrong_password_of_the_database_is_one_line_without_it(
    postgres_url: str, rabbitmq_url: str
) -> None:
    result = await result_of(
        OUTBOX_DATABASE_URL=with_password(postgres_url, "s3cret/Wrong"), OUTBOX_BROKER_URL=rabbitmq_url
    )
    assert_refuses(result, "Postgres 127.0.0.1:", "check the user and the password")
    assert_hidden(result, "s3cret", urlsplit(rabbitmq_url).password)


async def test_a_wrong_password_of_the_broker_is_one_line_without_it(traffic: Traffic) -> None:
    result = await result_of(
        OUTBOX_DATABASE_URL=traffic.postgres_url,
        OUTBOX_BROKER_URL=with_password(traffic.rabbitmq_url, "s3cret/Wrong"),
    )
    assert_refuses(result, "broker 127.0.0.1:", "the user or the password is wrong; correct the credentials")
    assert_hidden(result, "s3cret", urlsplit(traffic.postgres_url).password)


def assert_hidden(result: Result, *secrets: str | None) -> None:
    for secret in secrets:
        assert secret
        assert secret not in result.output + result.errors


async def test_a_missing_table_is_one_line_with_the_cure(postgres_url: str, rabbitmq_url: str) -> None:
    result = await result_of(OUTBOX_DATABASE_URL=postgres_url, OUTBOX_BROKER_URL=rabbitmq_url)
    assert_refuses(result, 'table "outbox_table": it does not exist; run outbox.schema.create_sql()')


@pytest.mark.parametrize("creates", ["false", "true"])
async def test_an_outdated_table_is_one_line_with_the_cure(
    postgres_url: str, rabbitmq_url: str, creates: str
) -> None:
    database = await asyncpg.connect(postgres_url)
    await schema.create(database)
    await database.execute("ALTER TABLE outbox_table DROP COLUMN last_error")
    await database.close()
    result = await result_of(
        OUTBOX_DATABASE_URL=postgres_url, OUTBOX_BROKER_URL=rabbitmq_url, OUTBOX_AUTO_CREATE_TABLE=creates
    )
    assert_refuses(result, 'table "outbox_table"', "last_error", "outbox.schema.upgrade_sql()")


async def test_a_table_that_the_user_may_not_touch_is_one_line(traffic: Traffic) -> None:
    role = f"stranger_{traffic.exchange_name.replace('-', '_')}"
    await traffic.database.execute(f"CREATE ROLE {role} LOGIN PASSWORD 's3cret'")
    try:
        parts = urlsplit(traffic.postgres_url)
        result = await result_of(
            OUTBOX_DATABASE_URL=urlunsplit(
                parts._replace(netloc=f"{role}:s3cret@{parts.netloc.rpartition('@')[2]}")
            ),
            OUTBOX_BROKER_URL=traffic.rabbitmq_url,
        )
    finally:
        await traffic.database.execute(f"DROP ROLE {role}")
    assert_refuses(result, "permission denied for table outbox_table", "grant the relay's user SELECT")
    assert_hidden(result, "s3cret")


async def test_a_missing_exchange_that_somebody_else_declares_is_one_line(traffic: Traffic) -> None:
    result = await result_of(
        OUTBOX_DATABASE_URL=traffic.postgres_url,
        OUTBOX_BROKER_URL=traffic.rabbitmq_url,
        OUTBOX_EXCHANGE_NAME="elsewhere",
        OUTBOX_PROVISIONED="true",
    )
    assert_refuses(result, 'missing on the broker: exchange "elsewhere"; declare them')


@pytest.mark.parametrize("provisioned", ["false", "true"])
async def test_a_broker_user_who_may_configure_nothing_relays_where_the_exchange_is_there(
    traffic: Traffic, services: Services, provisioned: str
) -> None:
    inbox = await traffic.inbox("#")
    parts = urlsplit(traffic.rabbitmq_url)
    with user_without_rights(services) as user:
        rights = {"configure": "^$", "write": f"^{traffic.exchange_name}$", "read": "^$"}
        management(services, "PUT", f"permissions/{parts.path[1:]}/{user}", rights)
        url = parts._replace(netloc=f"{user}:{user}@{parts.hostname}:{parts.port}")
        async with relay_process(
            OUTBOX_DATABASE_URL=traffic.postgres_url,
            OUTBOX_BROKER_URL=urlunsplit(url),
            OUTBOX_EXCHANGE_NAME=traffic.exchange_name,
            OUTBOX_PROVISIONED=provisioned,
        ) as process:
            await process.answers("/readyz", "200 ok\n")
            await inbox.gets(await traffic.emit_many(10))
            process.process.send_signal(signal.SIGTERM)
            result = await process.ended()
    assert (result.status, result.complaints) == (0, []), result.errors


async def test_an_exchange_of_another_kind_is_one_line(traffic: Traffic) -> None:
    await traffic.channel.declare_exchange("fanned", "fanout", durable=True)
    result = await result_of(
        OUTBOX_DATABASE_URL=traffic.postgres_url,
        OUTBOX_BROKER_URL=traffic.rabbitmq_url,
        OUTBOX_EXCHANGE_NAME="fanned",
    )
    assert_refuses(result, 'exchange "fanned" exists as something else')


async def test_json_logs_are_one_object_a_line(postgres_url: str, rabbitmq_url: str) -> None:
    result = await result_of(
        OUTBOX_DATABASE_URL=postgres_url, OUTBOX_BROKER_URL=rabbitmq_url, OUTBOX_LOG_FORMAT="json"
    )
    assert result.status == 1
    assert '"level": "ERROR"' in result.errors
    assert result.errors.startswith("{")
