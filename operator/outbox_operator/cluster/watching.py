"""The watches, which are kopf's: it lists, watches, reconnects and tells of each event. It does nothing else.

It runs on a loop of its own in a thread of its own. On ours it would take over the process's signals, and at
its end cancel every task that was started after it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import kopf

# Not exported, although `kopf.spawn_tasks` takes one.
from kopf._cogs.structs.credentials import Vault

from outbox_core.logs import event as log_event
from outbox_operator.cluster.connection import Connection, Credentials
from outbox_operator.cluster.kinds import DEPLOYMENT, Kind
from outbox_operator.cluster.store import MANAGED, WATCHED, Store
from outbox_operator.cluster.tasks import end_other_tasks, end_tasks, keeping_tasks
from outbox_operator.faults import Faults

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_LONG_ENOUGH_SECONDS = 60.0
_GOODBYE_SECONDS = 0.25
# So kopf names the tasks that each watch one kind of resource.
_WATCH_NAMES = "watcher for "

_log = logging.getLogger("outbox.operator.watching")

_Deliver = Callable[[Kind, kopf.RawEvent], None]
_Login = Callable[[], Awaitable[kopf.ConnectionInfo]]


async def run_watches(
    store: Store,
    connection: Connection,
    namespaces: Sequence[str] = (),
    faults: Faults | None = None,
) -> None:
    """Keep `store` as the cluster is, until cancelled; in these namespaces, or in all where there are none.

    An object that cannot be read is passed over.

    Where kopf gives up (the API server answers with errors for a while, or a custom resource is not defined),
    it is started again.
    """
    if not _log.isEnabledFor(logging.DEBUG):
        # It has a line of its own for each event.
        logging.getLogger("kopf").setLevel(logging.WARNING)
    loop = asyncio.get_running_loop()
    pause = _FIRST_PAUSE_SECONDS
    while True:
        began = loop.time()
        try:
            await _watch(store, connection, namespaces, faults or Faults())
        except Exception as error:
            log_event(_log, logging.WARNING, "watches ended", error=type(error).__name__, cause=str(error))
        if loop.time() - began > _LONG_ENOUGH_SECONDS:
            pause = _FIRST_PAUSE_SECONDS
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


async def _watch(store: Store, connection: Connection, namespaces: Sequence[str], faults: Faults) -> None:
    """Run kopf until it fails, or until cancelled."""
    loop = asyncio.get_running_loop()

    def take(kind: Kind, event: kopf.RawEvent) -> None:
        found: Any = event.get("object")
        with faults.contained("watch", _named(kind, found)):
            act = store.remove if event["type"] == "DELETED" else store.put
            act(kind, dict(found))
            return
        store.pass_over(kind, found)

    def deliver(kind: Kind, event: kopf.RawEvent) -> None:
        loop.call_soon_threadsafe(take, kind, event)

    async def login() -> kopf.ConnectionInfo:
        asked = asyncio.run_coroutine_threadsafe(connection.credentials(), loop)
        return _info(await asyncio.wrap_future(asked))

    stopping: Future[Callable[[], Any]] = Future()

    async def run() -> None:
        vault = Vault()
        asyncio.get_running_loop().set_task_factory(keeping_tasks())
        operating = asyncio.create_task(_operate(_registry(deliver, login), namespaces, vault))
        stopping.set_result(partial(asyncio.get_running_loop().call_soon_threadsafe, operating.cancel))
        try:
            with suppress(asyncio.CancelledError):
                await operating
        finally:
            # A watch first ends what it began, which cannot be done for it.
            await end_tasks(task for task in asyncio.all_tasks() if task.get_name().startswith(_WATCH_NAMES))
            await end_other_tasks()
            # Cancelled at its beginning, kopf leaves its connections open.
            await vault.close()
            # aiohttp says goodbye in the background; with the loop gone nobody would hear the answer.
            await asyncio.sleep(_GOODBYE_SECONDS)

    threads = ThreadPoolExecutor(1, "outbox-watches")
    running = loop.run_in_executor(threads, lambda: asyncio.run(run()))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        stop = await asyncio.wrap_future(stopping)
        # Its loop is closed where it has just failed.
        with suppress(RuntimeError):
            stop()
        await asyncio.wait([running])
        if error := running.exception():
            log_event(_log, logging.DEBUG, "watches failed at their end", cause=str(error))
        raise
    finally:
        threads.shutdown(wait=False)


def _named(kind: Kind, manifest: object) -> str:
    match manifest:
        case {"metadata": {"namespace": str() as namespace, "name": str() as name}}:
            return f"{kind} {namespace}/{name}"
    return str(kind)


async def _operate(registry: kopf.OperatorRegistry, namespaces: Sequence[str], vault: Vault) -> None:
    """Run kopf's tasks until one of them ends, and leave the others to the caller.

    `kopf.operator` would end them itself. It cancels each once and waits for ever for one that swallows it,
    as a watch does that is between two requests: the operator would hear of nothing any more.
    """
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=_settings(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        vault=vault,
    )
    ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        task.result()


def _is_of_use(record: logging.LogRecord) -> bool:
    """The signals are the process's own business, so that kopf's warning about them leads nowhere."""
    return not str(record.msg).startswith("OS signals are ignored")


logging.getLogger("kopf._core.reactor.running").addFilter(_is_of_use)


def _registry(deliver: _Deliver, login: _Login) -> kopf.OperatorRegistry:
    """What kopf is to call. An `on.event` handler, unlike others, leaves no trace on the object."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def enter(**_: Any) -> kopf.ConnectionInfo:
        return await login()

    for kind in WATCHED:

        @kopf.on.event(kind.group, kind.version, kind.plural, param=kind, registry=registry)
        async def see(event: kopf.RawEvent, param: Any = None, **_: Any) -> None:
            deliver(param, event)

    return registry


class _NoDiffs(kopf.DiffBaseStorage):
    """What changed in an object since the last time, which nobody asks: else each is copied for it."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


class _NoProgress(kopf.ProgressStorage):
    """How far handlers of other kinds have come: there are none."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.persistence.progress_storage = _NoProgress()
    # Else it lists namespaces and watches CustomResourceDefinitions, which takes a ClusterRole.
    settings.scanning.disabled = True
    settings.posting.enabled = False
    # Else it kills the process where its end takes long.
    settings.process.ultimate_exiting_timeout = None
    settings.networking.request_timeout = 30.0
    settings.networking.connect_timeout = 10.0
    settings.networking.error_backoffs = (0.5, 1, 2, 4)
    # A bookmark comes each minute on a watch that lives.
    settings.watching.inactivity_timeout = 75.0
    settings.watching.label_selectors[DEPLOYMENT.group, DEPLOYMENT.version, DEPLOYMENT.plural] = MANAGED
    return settings


def _info(credentials: Credentials) -> kopf.ConnectionInfo:
    scheme, _, token = (credentials.authorization or "").partition(" ")
    return kopf.ConnectionInfo(
        server=credentials.server,
        ca_path=credentials.ca_file,
        certificate_path=credentials.certificate_file,
        private_key_path=credentials.key_file,
        insecure=not credentials.verify,
        scheme=scheme or None,
        token=token or None,
        proxy_url=credentials.proxy,
        trust_env=True,
    )
