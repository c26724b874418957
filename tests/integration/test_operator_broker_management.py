"""The management API of a real RabbitMQ: what is seen, what is done, and what is said where it is not."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from urllib.parse import quote

import aio_pika
import pytest
import trustme

from outbox.topology import Binding, Exchange, Queue, Subscription, topology
from outbox_cli.local import Services
from outbox_cli.local.ports import free_ports
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.actions import (
    Action,
    MakeBinding,
    MakeExchange,
    MakeQueue,
    MakeUser,
    Permissions,
    RemoveBinding,
    RemoveExchange,
    RemoveQueue,
    RemoveUser,
)
from outbox_operator.broker.identity import ClusterIdentity
from outbox_operator.broker.live_snapshot import LiveSnapshot
from outbox_operator.broker.management import Management, ManagementError, Timeouts
from outbox_operator.broker.snapshot import BrokerProblem, Snapshot
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.broker.user_plan import user_action
from tests.integration.administrator import management, user_without_rights
from tests.integration.broker_access import Counter, Gate, access_to, serving
from tests.integration.relaying import until

MAIL = Subscription("shop.mail", ("user.#", "order.paid"), (timedelta(milliseconds=50), timedelta(seconds=1)))
WANTED = topology("outbox", [MAIL])
QUORUM = Queue("shop.mail", (("x-queue-type", "quorum"),))
CLASSIC = Queue("shop.mail", (("x-queue-type", "classic"),))
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
IMPATIENT = Timeouts(connect_seconds=0.2, call_seconds=0.2, listing_seconds=0.2)


@pytest.fixture
def access(services: Services, rabbitmq_url: str) -> BrokerAccess:
    return access_to(services, rabbitmq_url)


@pytest.fixture
async def broker(access: BrokerAccess) -> AsyncIterator[Management]:
    async with entered(access) as broker:
        yield broker


@asynccontextmanager
async def entered(access: BrokerAccess, timeouts: Timeouts | None = None) -> AsyncIterator[Management]:
    async with Management(access, on_call=Counter(), timeouts=timeouts) as broker:
        yield broker


async def problem_of(access: BrokerAccess, timeouts: Timeouts | None = None) -> BrokerProblem:
    """What is wrong with a broker that cannot be looked at."""
    async with entered(access, timeouts) as broker:
        with pytest.raises(ManagementError) as raised:
            await broker.snapshot()
    if access.password != access.username:
        assert access.password not in str(raised.value)
    return raised.value.problem


async def refusal_of(broker: Management, action: Action) -> BrokerProblem:
    # Whoever has not told who we are is not quoted.
    with suppress(ManagementError):
        await broker.snapshot()
    with pytest.raises(ManagementError) as raised:
        await broker.perform(action)
    return raised.value.problem


async def done(broker: Management, *actions: Action) -> None:
    for action in actions:
        await broker.perform(action)


@asynccontextmanager
async def channel_to(url: str) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    async with await aio_pika.connect(url) as connection:
        yield await connection.channel()


async def publish(url: str, queue: str) -> None:
    async with channel_to(url) as channel:
        await channel.default_exchange.publish(aio_pika.Message(b"x"), queue)


# -- seeing and doing


async def test_an_empty_vhost_is_empty(broker: Management, access: BrokerAccess) -> None:
    seen = await broker.snapshot()
    assert (seen.exchanges, seen.queues, seen.bindings) == ({}, {}, {})
    assert seen.users is not None
    assert seen.users[access.username].permissions == Permissions(".*", ".*", ".*")


async def test_what_is_done_is_seen_and_is_what_was_expected_to_be_seen(broker: Management) -> None:
    before = await broker.snapshot()
    live = LiveSnapshot(before)
    for action in topology_actions(WANTED, "shop/mail", before).actions:
        live.apply(action, await broker.perform(action))
    seen = await broker.snapshot()
    assert seen == live.view
    assert topology_actions(WANTED, "shop/mail", seen).actions == ()


async def test_what_is_there_can_be_made_and_what_is_gone_removed_again(broker: Management) -> None:
    made = topology_actions(WANTED, "shop/mail", await broker.snapshot()).actions
    await done(broker, *made, *made)
    seen = await broker.snapshot()
    [binding, *_] = seen.bindings["shop.mail"]
    removals = (
        RemoveBinding(binding.binding, binding.properties_key),
        RemoveQueue("shop.mail.dlq", if_empty=True),
        RemoveQueue("shop.mail", if_empty=False),
        RemoveExchange("outbox"),
        RemoveExchange("outbox.dlx", if_unused=True),
        RemoveUser("nobody of this name"),
    )
    await done(broker, *removals, *removals)
    left = await broker.snapshot()
    assert set(left.exchanges) == set(left.queues) == {"outbox.delay_1s", "outbox.delay_50ms"}


@pytest.mark.parametrize("vhost", ["a/b", "/c", "white space", "50%#?&+é"])
async def test_any_name_can_be_had(services: Services, access: BrokerAccess, vhost: str) -> None:
    names = f"an/exchange #1 {vhost}", f"a queue/2+3 {vhost}"
    binding, owner = Binding(*names, "user.#/x é~"), "shop/mail"
    path = quote(vhost, safe="")
    await asyncio.to_thread(management, services, "PUT", f"vhosts/{path}")
    await asyncio.to_thread(management, services, "PUT", f"permissions/{path}/{access.username}", EVERYTHING)
    try:
        async with entered(replace(access, vhost=vhost)) as broker:
            queue = Queue(names[1], QUORUM.settings)
            await done(broker, MakeExchange(Exchange(names[0], "topic")), MakeQueue(queue))
            key = await broker.perform(MakeBinding(binding, owner))
            seen = await broker.snapshot()
            [found] = seen.bindings[names[1]]
            assert (found.binding, found.properties_key, found.owner) == (binding, key, owner)
            await done(
                broker,
                RemoveBinding(binding, found.properties_key),
                RemoveQueue(names[1], if_empty=True),
                RemoveExchange(names[0], if_unused=True),
            )
            seen = await broker.snapshot()
            assert (seen.exchanges, seen.queues, seen.bindings) == ({}, {}, {})
    finally:
        await asyncio.to_thread(management, services, "DELETE", f"vhosts/{path}")


async def test_a_binding_of_ours_is_beside_somebody_elses_and_goes_alone(
    broker: Management, services: Services, access: BrokerAccess
) -> None:
    await done(broker, MakeExchange(Exchange("outbox", "topic")), MakeQueue(QUORUM))
    theirs = Binding("outbox", "shop.mail", "user.#")
    await asyncio.to_thread(
        management,
        services,
        "POST",
        f"bindings/{access.vhost}/e/outbox/q/shop.mail",
        {"routing_key": "user.#"},
    )
    key = await broker.perform(MakeBinding(theirs, "shop/mail"))
    seen = await broker.snapshot()
    assert [each.owner for each in seen.bindings["shop.mail"]] == [None, "shop/mail"]
    await broker.perform(RemoveBinding(theirs, key or ""))
    seen = await broker.snapshot()
    assert [each.owner for each in seen.bindings["shop.mail"]] == [None]


async def test_a_vhost_is_seen_in_seven_calls_and_three_more_for_the_first(access: BrokerAccess) -> None:
    counter = Counter()
    async with Management(access, on_call=counter) as broker:
        await broker.snapshot()
        assert counter.calls == [("GET", "200")] * 10
        await broker.snapshot()
        assert len(counter.calls) == 17


async def test_a_broker_is_the_same_by_every_address_and_for_every_user(
    broker: Management, access: BrokerAccess, services: Services
) -> None:
    seen = (await broker.snapshot()).cluster
    assert seen is not None
    assert seen.id is not None
    by_name = replace(access, management_url=access.management_url.replace("127.0.0.1", "localhost"))
    assert by_name != access
    async with entered(by_name) as same:
        assert (await same.snapshot()).cluster == seen
    with user_without_rights(services) as name:
        management(services, "PUT", f"users/{name}", {"password": name, "tags": "management"})
        management(services, "PUT", f"permissions/{quote(access.vhost, safe='')}/{name}", EVERYTHING)
        async with entered(replace(access, username=name, password=name)) as same:
            assert (await same.snapshot()).cluster == ClusterIdentity(seen.name)


@pytest.mark.parametrize("if_empty", [False, True])
async def test_a_queue_that_another_listener_has_marked_is_not_removed(
    broker: Management, if_empty: bool
) -> None:
    binding = Binding("outbox", "shop.mail", "a")
    await done(
        broker,
        MakeExchange(Exchange("outbox", "topic")),
        MakeQueue(QUORUM),
        MakeBinding(binding, "shop/mail", "here"),
        MakeBinding(binding, "shop/mail"),
    )
    removal = RemoveQueue("shop.mail", if_empty, "shop/mail", "here")
    others = [("shop/other", "here"), ("shop/mail", "there")]
    for owner, installation in others:
        key = await broker.perform(MakeBinding(binding, owner, installation))
        problem = await refusal_of(broker, removal)
        assert problem.reason == "InUse"
        assert f"bound by OutboxListener {owner} of installation {installation} too" in problem.message
        assert key is not None
        await done(broker, RemoveBinding(binding, key))
    await done(broker, removal, removal)
    assert (await broker.snapshot()).queues == {}


async def test_the_number_of_messages_is_seen(broker: Management, rabbitmq_url: str) -> None:
    await done(broker, MakeQueue(QUORUM))
    await publish(rabbitmq_url, "shop.mail")

    async def is_seen() -> bool:
        return (await broker.snapshot()).queues["shop.mail"].messages == 1

    await until(is_seen, "the message to be counted")


async def test_a_proxy_in_the_environment_is_not_used(
    access: BrokerAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    [port] = free_ports(1)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    async with entered(access) as broker:
        assert isinstance(await broker.snapshot(), Snapshot)


# -- conditional removal


@pytest.mark.parametrize("queue", [QUORUM, CLASSIC], ids=["quorum", "classic"])
async def test_a_queue_with_a_message_that_has_just_come_is_not_removed_if_empty(
    broker: Management, rabbitmq_url: str, queue: Queue
) -> None:
    await done(broker, MakeQueue(queue))
    await publish(rabbitmq_url, "shop.mail")
    problem = await refusal_of(broker, RemoveQueue("shop.mail", if_empty=True))
    assert problem.reason == "NotEmpty"
    assert "shop.mail" in problem.message
    assert "shop.mail" in (await broker.snapshot()).queues
    async with channel_to(rabbitmq_url) as channel:
        kept = await (await channel.get_queue("shop.mail")).get()
        assert kept.body == b"x"


async def test_a_quorum_queue_whose_message_a_consumer_has_is_not_removed_if_empty(
    broker: Management, services: Services, access: BrokerAccess, rabbitmq_url: str
) -> None:
    await done(broker, MakeQueue(QUORUM))
    await publish(rabbitmq_url, "shop.mail")
    async with channel_to(rabbitmq_url) as channel:
        await (await channel.get_queue("shop.mail")).get()

        async def is_counted() -> bool:
            path = f"queues/{access.vhost}/shop.mail"
            found = await asyncio.to_thread(management, services, "GET", path)
            return bool(found.get("messages_unacknowledged"))

        await until(is_counted, "the message to be counted as delivered")
        problem = await refusal_of(broker, RemoveQueue("shop.mail", if_empty=True))
        assert problem.reason == "NotEmpty"
        assert 'queue "shop.mail" has 1 message;' in problem.message


async def test_an_exchange_with_a_binding_is_not_removed_if_unused(broker: Management) -> None:
    await done(broker, MakeExchange(Exchange("outbox", "topic")), MakeQueue(QUORUM))
    await done(broker, MakeBinding(Binding("outbox", "shop.mail", "a"), "shop/mail"))
    problem = await refusal_of(broker, RemoveExchange("outbox", if_unused=True))
    assert problem.reason == "InUse"
    await done(broker, RemoveQueue("shop.mail", if_empty=False), RemoveExchange("outbox", if_unused=True))


# -- users


@contextmanager
def removed_after(services: Services, user: str) -> Iterator[str]:
    try:
        yield user
    finally:
        management(services, "DELETE", f"users/{user}")


async def test_a_user_is_made_and_put_right(
    broker: Management, services: Services, access: BrokerAccess
) -> None:
    rights = Permissions("^$", "^(outbox)$", "^$")
    user = f"made {access.vhost}"
    with removed_after(services, quote(user)):
        for password in ("first", "second"):
            action = MakeUser(user, password, rights)
            assert user_action(user, password, rights, await broker.snapshot()) == action
            await broker.perform(action)
            assert user_action(user, password, rights, await broker.snapshot()) is None
            async with await aio_pika.connect(access.uri(user, password)):
                pass
        with pytest.raises(aio_pika.exceptions.ProbableAuthenticationError):
            await aio_pika.connect(access.uri(user, "first"))
        await broker.perform(RemoveUser(user))
        assert user not in ((await broker.snapshot()).users or {})
        await broker.perform(action)


async def test_a_user_that_becomes_administrator_or_is_one_no_longer_is_noticed(
    services: Services, access: BrokerAccess
) -> None:
    with user_without_rights(services) as user:
        path = f"permissions/{access.vhost}/{user}"
        await asyncio.to_thread(management, services, "PUT", path, EVERYTHING)

        async def tag(tags: str) -> None:
            body = {"password": user, "tags": tags}
            await asyncio.to_thread(management, services, "PUT", f"users/{user}", body)

        await tag("management")
        async with entered(replace(access, username=user, password=user)) as broker:
            assert (await broker.snapshot()).users is None
            await tag("administrator")
            assert (await broker.snapshot()).users is not None
            await tag("management")
            with pytest.raises(ManagementError, match="give it the tag administrator"):
                await broker.snapshot()
            assert (await broker.snapshot()).users is None


# -- refusals


async def test_other_arguments_are_refused_in_the_brokers_words(broker: Management) -> None:
    await done(broker, MakeQueue(QUORUM))
    problem = await refusal_of(
        broker, MakeQueue(replace(QUORUM, settings=(*QUORUM.settings, ("x-max-length", 5))))
    )
    assert problem.reason == "Refused"
    assert "inequivalent arg 'x-max-length' for queue 'shop.mail'" in problem.message


async def test_a_binding_of_a_queue_that_is_gone_is_refused(broker: Management) -> None:
    await done(broker, MakeExchange(Exchange("outbox", "topic")))
    problem = await refusal_of(broker, MakeBinding(Binding("outbox", "shop.mail", "a"), "shop/mail"))
    assert problem.reason == "Refused"
    assert "no queue 'shop.mail'" in problem.message


async def test_a_user_without_permissions_may_look_and_not_touch(
    services: Services, access: BrokerAccess
) -> None:
    with user_without_rights(services) as user:
        body = {"password": user, "tags": "management"}
        await asyncio.to_thread(management, services, "PUT", f"users/{user}", body)
        own = replace(access, username=user, password=user)
        problem = await problem_of(own)
        assert problem.reason == "PermissionDenied"
        assert f'may not enter vhost "{access.vhost}"' in problem.message
        nothing = {"configure": "^$", "write": "^$", "read": "^$"}
        path = f"permissions/{access.vhost}/{user}"
        await asyncio.to_thread(management, services, "PUT", path, nothing)
        async with entered(own) as broker:
            await broker.snapshot()
            problem = await refusal_of(broker, MakeQueue(QUORUM))
            assert problem.reason == "PermissionDenied"
            assert 'may not make queue "shop.mail"' in problem.message
            problem = await refusal_of(broker, MakeUser("u", "p", Permissions("", "", "")))
            assert problem.reason == "PermissionDenied"
            assert "give it the tag administrator" in problem.message


async def test_a_wrong_password_is_told(access: BrokerAccess) -> None:
    problem = await problem_of(replace(access, password=access.password[::-1]))
    assert problem.reason == "AuthenticationFailed"
    assert problem.message.endswith("the name or the password is wrong; correct the Secret")


async def test_a_user_without_a_tag_has_no_wrong_password(services: Services, access: BrokerAccess) -> None:
    with user_without_rights(services) as user:
        problem = await problem_of(replace(access, username=user, password=user))
    assert problem.reason == "PermissionDenied"
    assert "give it the tag management" in problem.message


async def test_a_missing_vhost_is_told_to_who_looks_and_who_acts(access: BrokerAccess) -> None:
    nowhere = replace(access, vhost="no where")
    problem = await problem_of(nowhere)
    assert problem.reason == "VhostMissing"
    assert 'vhost "no where" does not exist' in problem.message
    async with entered(nowhere) as broker:
        assert await refusal_of(broker, MakeQueue(QUORUM)) == problem
        await broker.perform(RemoveQueue("shop.mail", if_empty=False))


# -- nobody there, or somebody else


async def test_a_port_that_nobody_listens_to_is_unreachable(access: BrokerAccess) -> None:
    [port] = free_ports(1)
    counter = Counter()
    nobody = replace(access, management_url=f"http://127.0.0.1:{port}")
    async with Management(nobody, on_call=counter) as broker:
        with pytest.raises(ManagementError) as raised:
            await broker.snapshot()
    assert raised.value.problem.reason == "Unreachable"
    assert f"http://127.0.0.1:{port} cannot be reached: Connect call failed" in str(raised.value)
    assert "spec.broker.managementUrl" in str(raised.value)
    assert counter.calls == [("GET", "unreachable")]


async def test_the_next_management_api_is_called_if_one_is_unreachable(access: BrokerAccess) -> None:
    there = access.management_url.removeprefix("http://")
    counter = Counter()
    several = replace(access, management_url=f"http://127.0.0.1:1,{there},127.0.0.1:2")
    async with Management(several, on_call=counter) as broker:
        await broker.snapshot()
        failed = counter.calls.count(("GET", "unreachable"))
        await broker.snapshot()
    assert counter.calls[0] == ("GET", "unreachable")
    # Calls at the same time meet the first host together, and no call after them does.
    assert counter.calls.count(("GET", "unreachable")) == failed


async def test_calls_go_to_the_next_management_api_after_one_that_fails(access: BrokerAccess) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")

    there = access.management_url.removeprefix("http://")
    counter = Counter()
    async with serving(serve) as failing:
        several = replace(access, management_url=f"{failing},{there}")
        async with Management(several, on_call=counter) as broker:
            with pytest.raises(ManagementError, match="fails with 503"):
                await broker.snapshot()
            await broker.snapshot()
    assert counter.calls.count(("GET", "503")) == 1


async def test_an_error_names_each_management_api_that_was_tried(access: BrokerAccess) -> None:
    several = replace(access, management_url="http://127.0.0.1:1,rabbitmq.invalid:15672")
    problem = await problem_of(several)
    assert "http://127.0.0.1:1 cannot be reached: " in problem.message
    assert "http://rabbitmq.invalid:15672 cannot be reached: " in problem.message


async def test_a_host_that_does_not_exist_is_unreachable(access: BrokerAccess) -> None:
    problem = await problem_of(replace(access, management_url="http://rabbitmq.invalid:15672"))
    assert problem.reason == "Unreachable"
    assert "http://rabbitmq.invalid:15672 cannot be reached: " in problem.message
    assert "; correct the host in the Secret, or set spec.broker.managementUrl" in problem.message


@pytest.mark.parametrize("url", ["ftp://rabbitmq", "rabbitmq:15672", "http://", "http://[::1"])
async def test_an_address_that_is_none_is_told(access: BrokerAccess, url: str) -> None:
    problem = await problem_of(replace(access, management_url=url))
    assert problem.reason == "Unreachable"
    assert "spec.broker.managementUrl" in problem.message


async def test_the_amqp_port_is_not_the_management_api(access: BrokerAccess) -> None:
    problem = await problem_of(replace(access, management_url=f"http://{access.host}:{access.port}"))
    assert problem.reason == "Unreachable"
    assert "is it the management API? Set spec.broker.managementUrl" in problem.message


def answering(
    status: str, body: str
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(f"{head}{body}".encode())

    return serve


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("200 OK", "<html>Welcome</html>"),
        ("200 OK", "{}"),
        ("200 OK", "[1]"),
        ("302 Found", ""),
        ("404 Not Found", '{"message": "no such route"}'),
    ],
)
async def test_another_web_server_is_not_the_management_api(
    access: BrokerAccess, status: str, body: str
) -> None:
    async with serving(answering(status, body)) as url:
        problem = await problem_of(replace(access, management_url=url))
    assert problem.reason == "Unreachable"
    assert "is it the management API? Set spec.broker.managementUrl" in problem.message


async def test_listings_that_are_not_rabbitmqs_are_told(access: BrokerAccess) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readuntil(b"\r\n\r\n"):
            body = b'{"name": "shop", "tags": "management"}' if b"whoami" in line else b'[{"id": 1}]'
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    async with serving(serve) as url:
        problem = await problem_of(replace(access, management_url=url))
    assert "its listings are not those of RabbitMQ; is it the management API?" in problem.message


@pytest.mark.parametrize(("failures", "is_seen"), [(1, True), (3, True), (4, False)])
async def test_a_listing_that_fails_since_something_in_it_went_is_asked_for_again(
    access: BrokerAccess, failures: int, is_seen: bool
) -> None:
    """RabbitMQ lists the names of users and then looks each up: for one that is gone it answers with 500."""
    left = failures

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        while line := await reader.readuntil(b"\r\n\r\n"):
            body = b'{"name": "shop", "tags": "administrator"}' if b"whoami" in line else b"[]"
            status = b"200 OK"
            if b"/users " in line and left:
                left, status = left - 1, b"500 Internal Server Error"
            writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))

    counter = Counter()
    async with (
        serving(serve) as url,
        Management(replace(access, management_url=url), on_call=counter) as broker,
    ):
        if is_seen:
            assert (await broker.snapshot()).users == {}
        else:
            with pytest.raises(ManagementError, match="fails with 500"):
                await broker.snapshot()
    assert counter.calls.count(("GET", "500")) == failures


async def test_a_server_that_does_not_answer_is_given_up(access: BrokerAccess) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(serve) as url:
        problem = await problem_of(replace(access, management_url=url), IMPATIENT)
    assert problem.reason == "Unreachable"
    assert "no answer within 0.2 s" in problem.message
    assert "most nodes of its cluster run" in problem.message


async def test_a_server_that_hangs_up_is_unreachable(access: BrokerAccess) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with serving(serve) as url:
        problem = await problem_of(replace(access, management_url=url))
    assert problem.reason == "Unreachable"
    assert "cannot be reached" in problem.message


# -- TLS


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def secure(access: BrokerAccess, authority: trustme.CA) -> AsyncIterator[BrokerAccess]:
    """The same broker behind TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    async with Gate(access).serving(context) as gate:
        yield gate.access


async def test_a_broker_behind_tls_is_entered_with_the_authority_that_is_given(
    secure: BrokerAccess, authority: trustme.CA
) -> None:
    commented = f"# Autorité\n{authority.cert_pem.bytes().decode()}"
    async with entered(replace(secure, ca=commented)) as broker:
        assert (await broker.snapshot()).queues == {}


async def test_a_certificate_that_is_not_trusted_is_told_in_tlss_words(secure: BrokerAccess) -> None:
    for ca in (None, trustme.CA().cert_pem.bytes().decode()):
        problem = await problem_of(replace(secure, ca=ca))
        assert problem.reason == "Unreachable"
        assert "certificate verify failed" in problem.message
        assert "set spec.broker.caSecretRef" in problem.message


async def test_an_authority_that_is_none_is_told(secure: BrokerAccess) -> None:
    problem = await problem_of(replace(secure, ca="not a certificate"))
    assert problem.reason == "Unreachable"
    assert "put a PEM certificate into the Secret of spec.broker.caSecretRef" in problem.message


async def test_tls_to_a_port_without_it_is_told(access: BrokerAccess) -> None:
    url = access.management_url.replace("http:", "https:")
    problem = await problem_of(replace(access, management_url=url))
    assert problem.reason == "Unreachable"
    assert "see whether it speaks TLS there, and set spec.broker.managementUrl" in problem.message
