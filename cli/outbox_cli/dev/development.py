"""A project under development: what its files say is run, and goes on being what they say."""

import asyncio
import os
import time
from contextlib import suppress
from typing import Protocol, assert_never

import aiohttp

from outbox_cli.dev import manifests as files
from outbox_cli.dev.board import Board
from outbox_cli.dev.crew import Crew, surroundings
from outbox_cli.dev.happenings import Happening, Kind
from outbox_cli.dev.manifests import Manifests
from outbox_cli.dev.reconciling import Reconciler, name_of
from outbox_cli.dev.site import Site
from outbox_cli.dev.sources import Change, Sources, Watch
from outbox_cli.failures import CommandError
from outbox_core.signals import Shutdown
from outbox_operator.children.names import Owner
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_operator.subscriptions import queue_of

_TICK_SECONDS = 0.25
"""Between two looks at the files."""
_ROUND_SECONDS = 1.0
"""Between two looks at everything else."""


class Screen(Protocol):
    """Where a person sees it."""

    def tell(self, happening: Happening) -> None:
        """Something has happened."""

    def show(self, board: Board) -> None:
        """How everything is now."""


class Development:
    """A project that runs."""

    def __init__(
        self, sources: Sources, manifests: Manifests, site: Site, screen: Screen, namespace: str
    ) -> None:
        self._sources = sources
        self._manifests = manifests
        self._site = site
        self._screen = screen
        self._namespace = namespace
        self._complaints: tuple[str, ...] = ()
        self._crew: Crew | None = None

    async def run_until_interrupted(self) -> None:
        """Run it until a signal asks to stop; a second one ends all processes at once."""
        await self._site.enter()
        with Shutdown(on_second=self._kill) as shutdown:
            await self.run(shutdown.requested)

    async def run(self, stopping: asyncio.Event) -> None:
        """Run it until `stopping`, and until all processes have finished then."""
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            self._crew = crew = Crew(group, surroundings(os.environ, self._sources.code), self._heard)
            self._reconciler = Reconciler(self._site, crew)
            try:
                board = await self._go_round(session, crew, stopping)
            finally:
                await self._reconciler.close()
            self._screen.tell(
                Happening("outbox dev", Kind.SAID, "stopping: processes finish what they began")
            )
            self._screen.show(board)
            crew.stop()

    async def _go_round(self, session: aiohttp.ClientSession, crew: Crew, stopping: asyncio.Event) -> Board:
        """Look at the files often and at everything else now and then, and act; the last board."""
        watch, last, board = Watch(self._sources.state()), 0.0, Board()
        while not stopping.is_set():
            change = watch.look(self._sources.state())
            self._take(change, crew)
            if change != Change() or time.monotonic() - last >= _ROUND_SECONDS:
                last = time.monotonic()
                await crew.look(session)
                board = Board(await self._reconciler.reconcile(self._manifests), self._complaints)
                self._screen.show(board)
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await stopping.wait()
        return board

    def _kill(self) -> None:
        if self._crew is not None:
            self._crew.kill()

    def _take(self, change: Change, crew: Crew) -> None:
        """Act upon an edit."""
        if change.manifests:
            self._read()
        if change.code:
            for listener in self._manifests.listeners:
                crew.restart(name_of(listener))

    def _read(self) -> None:
        """Go by what the manifests say now; where something is wrong with them, by what they said before."""
        try:
            read = files.read(self._sources.texts(), self._namespace, before=self._manifests)
        except CommandError as error:
            self._complaints = (str(error),)
            return
        self._complaints = read.complaints
        if not read.complaints:
            before, self._manifests = self._manifests, read
            self._part_from(before)

    def _part_from(self, before: Manifests) -> None:
        """Stop what is not in the files any more."""
        present = {name_of(owner) for owner in self._manifests.owners}
        for owner in before.owners:
            if (name := name_of(owner)) not in present:
                self._reconciler.forget(name)
                self._screen.tell(
                    Happening(name, Kind.SAID, f"is gone, and its processes stop; {_what_stays(owner)}")
                )

    def _heard(self, happening: Happening) -> None:
        self._reconciler.count(happening)
        self._screen.tell(happening)


def _what_stays(owner: Owner) -> str:
    match owner:
        case OutboxRelay():
            return f"exchange {owner.spec.exchange} stays"
        case OutboxListener():
            return f"queue {queue_of(owner)} stays, and what is published for it gathers there"
        case _:
            assert_never(owner)
