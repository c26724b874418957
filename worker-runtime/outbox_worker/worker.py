"""The worker: listeners that are called with what their queues deliver, and what keeps them going."""

import asyncio
import inspect
import logging
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from outbox.arguments import described
from outbox.listener import Listener
from outbox.topology import Topology, subscription, topology
from outbox_core.broker import Broker, BrokerState
from outbox_core.database import UnreachableError
from outbox_core.health import Readiness
from outbox_core.plaintext import broker_warning
from outbox_core.signals import Shutdown
from outbox_core.starting import beside, broker_may_come, broker_reason, end, one_of, patiently
from outbox_worker.attempt import Attempts
from outbox_worker.call import Around, Caller
from outbox_worker.dead_letters import DeadLetters
from outbox_worker.dispatch import Dispatch
from outbox_worker.errors import WorkerError
from outbox_worker.handling import Handling
from outbox_worker.holding import HoldLimit, longest_retries, longest_wait_in_place
from outbox_worker.hooks import Hook, Hooks
from outbox_worker.metrics import Metrics
from outbox_worker.problems import Problems
from outbox_worker.settings import Settings
from outbox_worker.settling import Settling
from outbox_worker.stall import Stall
from outbox_worker.subscriber import Subscriber
from outbox_worker.threads import Threads
from outbox_worker.tracing import tracing
from outbox_worker.transactions import DatabaseAwayError, Transactions, transactions_of
from outbox_worker.upkeep import Upkeep

_log = logging.getLogger("outbox.worker")

_SWEEP_SECONDS = 1.0
_MOST_ABANDONED = 10
"""How many threads of a listener may be left to calls that timed out; more where it has more at a time."""
_MARGIN_SECONDS = 60.0
"""How much longer than a listener may take the server waits for its transaction."""


@dataclass(frozen=True, slots=True)
class _Brokers:
    """The connections. A broker in need reads nothing from one that publishes, not even an ack."""

    consuming: Broker
    publishing: Broker

    @property
    def each(self) -> tuple[Broker, ...]:
        if self.consuming is self.publishing:
            return (self.consuming,)
        return (self.consuming, self.publishing)


@dataclass(frozen=True, slots=True)
class _Post:
    """One listener at work."""

    subscriber: Subscriber
    attempts: Attempts
    dispatch: Dispatch
    threads: Threads


class Worker:
    """Calls listeners with the messages of their queues."""

    def __init__(
        self,
        rmq_connection: Any = None,
        rmq_connection_url: str | None = None,
        *,
        listeners: Sequence[Listener[..., Any]] = (),
        db_engine: Any = None,
        db_engine_url: str | None = None,
        middleware: Sequence[Around] = (),
        on_success: Hook | None = None,
        on_retry: Hook | None = None,
        on_dead_letter: Hook | None = None,
        settings: Settings | None = None,
        **options: Any,
    ) -> None:
        """Describe the worker; nothing is opened before `run`.

        The database is for listeners with `exactly_once` or `deduplicate`. The other arguments are the fields
        of `Settings`, unless `settings` has them all.
        """
        if settings is None:
            settings = Settings(**options)
        elif options:
            raise TypeError("give settings=, or its fields as arguments, not both")
        self.settings = settings
        one_of(rmq_connection=rmq_connection, rmq_connection_url=rmq_connection_url)
        self._rmq_connection = rmq_connection
        self._rmq_url = rmq_connection_url
        self._listeners = _by_queue(listeners)
        self._topology = self._topology_of(each for same in self._listeners.values() for each in same)
        self._db_engine = db_engine
        self._db_engine_url = db_engine_url
        self._with_inbox = _with_inbox(self._first_of_each())
        for listener in self._first_of_each():
            _check_waits(listener, settings)
        if self._with_inbox:
            _require_database(self._with_inbox, db_engine, db_engine_url)
        self._middleware = tuple(middleware)
        self._hooks = Hooks(on_success, on_retry, on_dead_letter)
        self._metrics = {
            queue: Metrics(settings.exchange_name, queue, exposed=settings.enable_metrics)
            for queue in self._listeners
        }
        self._problems = Problems()
        self._readiness = Readiness()
        self._readiness.add("start", lambda: "connecting")
        self._is_leaving = False

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT; the listeners that run are finished first."""
        with Shutdown() as shutdown:
            await self.run_until(shutdown.requested)

    def unready_reason(self) -> str | None:
        """Why messages are not handled at the moment, or None where they are; for a readiness probe."""
        return "; ".join(self._readiness.failures()) or None

    async def run_until(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set; for applications that handle signals themselves."""
        self._check_listeners()
        brokers = self._brokers()
        transactions = self._transactions()
        try:
            if transactions is not None:
                await patiently(
                    partial(self._prepare_database, transactions),
                    is_passing=_database_may_come,
                    stopping=stopping,
                    on_wait=self._wait,
                )
            await patiently(
                partial(self._prepare_topology, brokers),
                is_passing=broker_may_come,
                stopping=stopping,
                on_wait=self._wait,
            )
            if not stopping.is_set():
                await self._work(brokers, transactions, stopping)
        finally:
            self._is_leaving = True
            for broker in brokers.each:
                await broker.aclose()
            if transactions is not None:
                await transactions.aclose()

    async def _work(
        self, brokers: _Brokers, transactions: Transactions | None, stopping: asyncio.Event
    ) -> None:
        traced = tracing()
        middleware = (traced, *self._middleware) if traced is not None else self._middleware
        posts = [
            self._post(listener, brokers, transactions, middleware, stopping)
            for listener in self._first_of_each()
        ]
        self._watch(brokers, posts)
        helpers = [broker.run() for broker in brokers.each]
        helpers += [_sweep(posts, self.settings.handler_timeout), Stall(self._files()).run()]
        if self.settings.enable_metrics:
            gauge = DeadLetters(brokers.publishing, self._metrics, self.settings.dlq_interval)
            helpers.append(gauge.run())
        if transactions is not None:
            helpers.append(Upkeep(transactions, self.settings.inbox_retention).run())
        async with beside(*helpers):
            await self._drive(posts, stopping)

    async def _drive(self, posts: list[_Post], stopping: asyncio.Event) -> None:
        """Run the subscribers; when they are asked to stop, give the listeners their time to finish."""
        try:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(post.subscriber.run()) for post in posts]
                await stopping.wait()
                await end(running)
            _log.info("stopping: finishing the messages under way")
            timeout_seconds = self.settings.shutdown_timeout
            async with asyncio.TaskGroup() as group:
                for post in posts:
                    group.create_task(post.subscriber.stop())
                    group.create_task(post.subscriber.finish(timeout_seconds))
        finally:
            await asyncio.gather(*(post.subscriber.leave() for post in posts))
            for post in posts:
                await post.dispatch.aclose()
                post.threads.close()

    def _post(
        self,
        listener: Listener[..., Any],
        brokers: _Brokers,
        transactions: Transactions | None,
        middleware: Sequence[Around],
        stopping: asyncio.Event,
    ) -> _Post:
        """What one listener needs to work."""
        settings, queue, metrics = self.settings, listener.queue, self._metrics[listener.queue]
        wanted = self._topology_of(self._listeners[queue])
        dispatch = Dispatch(
            brokers.publishing,
            self._problems,
            publish_timeout_seconds=settings.publish_timeout,
            repair=None if settings.provisioned else partial(brokers.publishing.declare, wanted),
        )
        size = 1 if listener.ordered else settings.prefetch_count
        threads = Threads(size, queue, most_abandoned=max(_MOST_ABANDONED, settings.prefetch_count))
        caller = Caller(listener, middleware, threads)
        attempts = Attempts(
            listener,
            caller,
            threads,
            metrics=metrics,
            transactions=transactions,
            timeout_seconds=settings.handler_timeout,
        )
        hold_limit = HoldLimit(settings.consumer_timeout, settings.delivery_limit)
        handling = Handling(
            listener,
            listener.policy(settings.policy),
            attempts=attempts,
            settling=Settling(settings.exchange_name, queue, dispatch),
            transactions=transactions,
            metrics=metrics,
            hooks=self._hooks,
            problems=self._problems,
            hold_limit=hold_limit,
            threads=threads,
            stopping=stopping,
        )
        subscriber = Subscriber(
            queue=queue,
            prefetch_count=settings.prefetch_count,
            keeps_order=listener.ordered,
            broker=brokers.consuming,
            handle=handling.handle,
            cancel_lost=attempts.cancel_lost,
            repair=None if settings.provisioned else partial(brokers.consuming.declare, wanted),
            hold_limit=hold_limit,
            metrics=metrics,
            stopping=stopping,
        )
        return _Post(subscriber, attempts, dispatch, threads)

    def _check_listeners(self) -> None:
        """Choose the decoders now, and say now what is wrong with an annotation."""
        for listener in self._first_of_each():
            _ = listener.arguments.decoder
        if not self.settings.calls_end_in_time:
            _log.warning(
                "handler_timeout (%s) is not less than consumer_timeout (%s): over a call that takes so long "
                "the broker closes the channel, and its message is delivered again",
                self.settings.handler_timeout,
                self.settings.consumer_timeout,
            )
        if not self._listeners:
            _log.warning("the worker has no listeners: give it some, as Worker(listeners=[on_user_created])")

    def _brokers(self) -> _Brokers:
        if self._rmq_connection is not None:
            given = Broker(
                connection=self._rmq_connection,
                name="outbox-worker",
                on_change=partial(self._changed, "the connection given"),
            )
            return _Brokers(given, given)
        host = socket.gethostname()
        consuming, publishing = (
            Broker(self._rmq_url, name=f"outbox-worker-{kind}@{host}", on_change=partial(self._changed, kind))
            for kind in ("consuming", "publishing")
        )
        return _Brokers(consuming, publishing)

    def _transactions(self) -> Transactions | None:
        if not self._with_inbox:
            return None
        limit = self.settings.handler_timeout
        transactions = transactions_of(
            self._db_engine,
            self._db_engine_url,
            table=self.settings.inbox_table,
            size=self.settings.inbox_connections,
            longest_seconds=None if limit is None else limit + _MARGIN_SECONDS,
        )
        if problems := transactions.problems(self._with_inbox):
            raise WorkerError("; ".join(problems))
        return transactions

    async def _prepare_database(self, transactions: Transactions) -> None:
        """Create or check the inbox, since without it no message could be handled."""
        await transactions.open()
        if self.settings.auto_create_table:
            await transactions.create()
        if problems := await transactions.check():
            raise WorkerError("; ".join(problems))

    async def _prepare_topology(self, brokers: _Brokers) -> None:
        for broker in brokers.each:
            await broker.connect_once()
        if self.settings.provisioned:
            await brokers.consuming.check(self._topology)
        else:
            await brokers.consuming.declare(self._topology)
        if brokers.consuming.plain_hosts:
            _log.warning(broker_warning(str(brokers.consuming.address)))

    def _topology_of(self, listeners: Iterable[Listener[..., Any]]) -> Topology:
        policy = self.settings.policy
        return topology(self.settings.exchange_name, [subscription(each, policy) for each in listeners])

    def _first_of_each(self) -> list[Listener[..., Any]]:
        """One listener of each queue: the others differ in their binding keys only."""
        return [same[0] for same in self._listeners.values()]

    def _files(self) -> dict[str, str]:
        """Where the listeners are written, by their queues."""
        functions = {each.queue: inspect.unwrap(each.callback) for each in self._first_of_each()}
        codes = {queue: getattr(function, "__code__", None) for queue, function in functions.items()}
        return {queue: code.co_filename if code else "" for queue, code in codes.items()}

    def _wait(self, reason: str, failures: int) -> None:
        if failures == 1:
            _log.warning(reason)
        self._readiness.add("start", partial(str, reason))

    def _watch(self, brokers: _Brokers, posts: list[_Post]) -> None:
        """Let `/readyz` tell of what is away."""
        for name, broker in zip(("broker", "broker for retries"), brokers.each, strict=False):
            self._readiness.add(name, partial(_reason_of, broker))
        self._readiness.add("listeners", partial(_first_of, [post.subscriber for post in posts]))
        self._readiness.add("messages", self._problems.reason)
        self._readiness.add("threads", partial(_first_of, [post.threads for post in posts]))
        # Last: another thread asks, and must not find nothing at all to complain of.
        self._readiness.add("start", lambda: None)

    def _changed(self, kind: str, state: BrokerState) -> None:
        if self._is_leaving:
            return
        reason = broker_reason(state)
        if reason is None:
            _log.info("the broker is ready (%s)", kind)
        else:
            _log.warning("the broker is %s (%s)", reason, kind)


def _by_queue(listeners: Iterable[Listener[..., Any]]) -> dict[str, list[Listener[..., Any]]]:
    """The listeners of each queue: one function, with one binding key or several."""
    found: dict[str, list[Listener[..., Any]]] = {}
    for listener in listeners:
        if not isinstance(listener, Listener):
            raise WorkerError(f"{listener!r} is no listener; decorate a function with @listen")
        same = found.setdefault(listener.queue, [])
        if same and same[0].callback != listener.callback:
            raise WorkerError(
                f"queue {listener.queue!r} has two listeners, of which each message would reach only one: "
                f"{described(same[0].callback)} and {described(listener.callback)}; "
                "give one of them another queue"
            )
        if same and _flags(same[0]) != _flags(listener):
            raise WorkerError(
                f"queue {listener.queue!r}: {described(listener.callback)} listens to several topics; "
                "its exactly_once, deduplicate and ordered must be the same for each"
            )
        same.append(listener)
    return found


def _flags(listener: Listener[..., Any]) -> tuple[bool, ...]:
    return listener.exactly_once, listener.deduplicate, listener.ordered


def _with_inbox(listeners: Iterable[Listener[..., Any]]) -> list[Listener[..., Any]]:
    return [listener for listener in listeners if listener.exactly_once or listener.deduplicate]


def _require_database(listeners: Sequence[Listener[..., Any]], engine: Any, url: str | None) -> None:
    if engine is None and url is None:
        raise WorkerError(
            f"{described(listeners[0].callback)} is exactly_once or deduplicates, which takes a database; "
            "give Worker db_engine_url or db_engine (OUTBOX_DATABASE_URL in a container)"
        )
    one_of(db_engine=engine, db_engine_url=url)


def _check_waits(listener: Listener[..., Any], settings: Settings) -> None:
    """Refuse retries that wait in their place for longer than the broker lets a message be held."""
    if not listener.ordered:
        return
    needed = longest_retries(listener.policy(settings.policy)).total_seconds()
    allowed = longest_wait_in_place(settings.consumer_timeout, settings.delivery_limit)
    if needed > allowed:
        raise WorkerError(
            f"{described(listener.callback)} is ordered, so that a message that fails waits in its place, "
            f"up to {needed:g} s by its retry delays; with consumer_timeout {settings.consumer_timeout:g} s "
            f"and delivery_limit {settings.delivery_limit} the broker allows {allowed:g} s: give it "
            "shorter delays, or raise consumer_timeout on the broker and here (OUTBOX_CONSUMER_TIMEOUT)"
        )


def _database_may_come(error: Exception) -> bool:
    return isinstance(error, DatabaseAwayError | UnreachableError)


def _reason_of(broker: Broker) -> str | None:
    return broker_reason(broker.state)


def _first_of(parts: Sequence[Subscriber] | Sequence[Threads]) -> str | None:
    return next((problem for each in parts if (problem := each.problem) is not None), None)


async def _sweep(posts: Sequence[_Post], timeout_seconds: float | None) -> None:
    """Look for listeners that take too long; one look for all costs a message nothing."""
    while timeout_seconds is not None:
        await asyncio.sleep(min(_SWEEP_SECONDS, timeout_seconds / 4))
        for post in posts:
            post.attempts.cancel_late()
