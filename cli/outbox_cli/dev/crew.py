"""All processes of a project, by the resource that they run for."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import aiohttp

from outbox_cli.dev.child import Child, Surroundings
from outbox_cli.dev.containers import Program
from outbox_cli.dev.happenings import Happening, heard

_OURS = "OUTBOX_"


def surroundings(environment: Mapping[str, str], code: Sequence[Path]) -> Surroundings:
    """What the shell's environment and the folders with code mean for all processes.

    They run where the code is, and not where the command was started: what is imported is also watched.
    """
    path = [*map(str, code), *filter(None, [environment.get("PYTHONPATH")])]
    variables = {
        # What the shell says to other programs of ours is not said to these.
        **{name: value for name, value in environment.items() if not name.startswith(_OURS)},
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
        # A file that is edited twice in a second, and keeps its size, would be taken for the one before.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return Surroundings(variables, code[0])


class Crew:
    """The processes. They run as tasks of a group, which ends when all were stopped."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        surroundings: Surroundings,
        tell: Callable[[Happening], None],
    ) -> None:
        self._group = group
        self._surroundings = surroundings
        self._tell = tell
        self._children: dict[str, list[Child]] = {}
        self._tasks: dict[Child, asyncio.Task[None]] = {}

    def of(self, owner: str) -> list[Child]:
        """The processes of a resource."""
        return self._children.get(owner, [])

    @property
    def owners(self) -> list[str]:
        """All resources that have some."""
        return list(self._children)

    def want(self, owner: str, program: Program, replicas: int) -> None:
        """Have so many processes of this program for a resource, and none of another one."""
        before = self._children.get(owner, [])
        now = []
        for place in range(replicas):
            old = before[place] if place < len(before) else None
            now.append(old if old and old.program == program else self._started(owner, program, old))
        for child in before[replicas:]:
            child.stop()
        self._children[owner] = now

    def dismiss(self, owner: str) -> None:
        """Stop the processes of a resource."""
        for child in self._children.pop(owner, []):
            child.stop()

    def restart(self, owner: str) -> None:
        """Have the processes of a resource begin anew."""
        for child in self.of(owner):
            child.restart()

    async def look(self, session: aiohttp.ClientSession) -> None:
        """Ask all of them whether they are ready."""
        async with asyncio.TaskGroup() as group:
            for children in self._children.values():
                for child in children:
                    group.create_task(child.look(session))

    def stop(self) -> None:
        """Ask all of them to finish."""
        for owner in self.owners:
            self.dismiss(owner)

    def kill(self) -> None:
        """End all of them now."""
        for child in self._tasks:
            child.stop()
            child.kill()

    def _started(self, owner: str, program: Program, old: Child | None) -> Child:
        child = Child(program, self._surroundings, lambda line: self._tell(heard(owner, line)))
        self._tasks[child] = self._group.create_task(self._run(child, old), name=f"process of {owner}")
        return child

    async def _run(self, child: Child, old: Child | None) -> None:
        if old is not None:
            old.stop()
            if old in self._tasks:
                await asyncio.wait([self._tasks[old]])
        try:
            await child.run()
        finally:
            del self._tasks[child]
