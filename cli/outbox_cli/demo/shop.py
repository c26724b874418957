"""The shop example, in a copy that the demo may edit: its manifests, its program, its tables."""

import asyncio
import os
import re
import shutil
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from outbox_cli.failures import CommandError
from outbox_cli.messages import connected
from outbox_core.database import Database

NAMESPACE = "shop"

_IN_THE_PACKAGE = Path(__file__).parent / "example"
_IN_THE_REPOSITORY = Path(__file__).parents[3] / "examples" / "shop"
_RELAY, _LISTENERS = "relay.yaml", "listeners.yaml"
_SAID = re.compile(r"(\d+) orders placed, (\d+) rolled back")
_PLACING_SECONDS = 120.0

_EMITTED = "SELECT routing_key, pg_catalog.count(*) FROM outbox_table WHERE id > $1 GROUP BY 1"
_UNSENT = "SELECT routing_key, pg_catalog.count(*) FROM outbox_table WHERE sent_at IS NULL GROUP BY 1"
_HANDLED = """
SELECT 'book' AS listener, pg_catalog.count(*) FROM bookings WHERE order_id >= $1
UNION ALL SELECT event, pg_catalog.count(*) FROM journal WHERE order_id >= $1 GROUP BY 1
"""
_STRANGERS = """
SELECT pg_catalog.count(*)
FROM (SELECT order_id FROM bookings UNION ALL SELECT order_id FROM journal) AS heard
WHERE order_id >= $1 AND NOT EXISTS (SELECT FROM orders WHERE orders.id = order_id)
"""


@dataclass(frozen=True, slots=True)
class Placed:
    """What came of the orders that were begun."""

    orders: int
    """How many there are."""
    rolled_back: int
    """How many were given up."""


class Shop:
    """A shop with a database of its own."""

    def __init__(self, folder: Path, database_url: str) -> None:
        """`folder` is where its manifests and its code are to be."""
        self.folder = folder
        """Where its manifests and its code are."""
        self._database_url = database_url
        self._database = Database(database_url)

    def open(self) -> None:
        """Copy it. What it sends stays in its table, so that it can be counted."""
        source = next((each for each in (_IN_THE_PACKAGE, _IN_THE_REPOSITORY) if each.is_dir()), None)
        if source is None:
            raise CommandError(
                "the shop example is missing; install outbox-operator anew, or run from a clone"
            )
        shutil.copytree(source / "shop", self.folder / "shop", ignore=shutil.ignore_patterns("__pycache__"))
        for name in (_RELAY, _LISTENERS):
            shutil.copy(source / "manifests" / name, self.folder / name)
        relay, *_ = self._manifests(_RELAY)
        relay["spec"]["retention"] = {"sent": "Forever"}
        self._write(_RELAY, [relay])

    def mend(self) -> None:
        """Deploy the version in which cards can be charged."""
        listeners = self._manifests(_LISTENERS)
        [charging] = [each for each in listeners if each["metadata"]["name"] == "charge-card"]
        charging["spec"]["worker"]["template"]["env"].append({"name": "FIXED", "value": "true"})
        self._write(_LISTENERS, listeners)

    async def place(self, first: int, count: int, *, per_second: float, remind_after: float) -> Placed:
        """Begin orders, by the shop's own program."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "shop.app", f"--first={first}", f"--orders={count}"),
            *(f"--per-second={per_second}", f"--remind-after={remind_after}"),
            env={**os.environ, "PYTHONPATH": str(self.folder), "SHOP_DATABASE_URL": self._database_url},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_PLACING_SECONDS):
                output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        said = _SAID.search(output.decode())
        if said is None:
            raise CommandError(f"the shop could not place its orders: {errors.decode().strip()[-500:]}")
        return Placed(int(said[1]), int(said[2]))

    async def mark(self) -> tuple[int, int]:
        """Where it stands: the next order's number, and the newest row of the outbox table."""
        async with connected(self._database) as connection:
            newest = await connection.fetchval("SELECT coalesce(pg_catalog.max(id), 0) FROM outbox_table")
            if await connection.fetchval("SELECT pg_catalog.to_regclass('orders')") is None:
                return 1, newest
            # A round number and one: which orders are rolled back and which are paid by card follows from it.
            return await connection.fetchval(
                "SELECT coalesce(pg_catalog.max(id) / 10 + 1, 0) * 10 + 1 FROM orders"
            ), newest

    async def emitted(self, after: int) -> Counter[str]:
        """How many messages were committed since, by routing key."""
        return await self._counted(_EMITTED, after)

    async def unsent(self) -> Counter[str]:
        """How many messages the relay has not sent, by routing key."""
        return await self._counted(_UNSENT)

    async def handled(self, first: int) -> Counter[str]:
        """What the listeners did for orders from this number on."""
        return await self._counted(_HANDLED, first)

    async def strangers(self, first: int) -> int:
        """How many things were done for orders that are not there."""
        async with connected(self._database) as connection:
            return int(await connection.fetchval(_STRANGERS, first))

    async def _counted(self, query: str, *arguments: int) -> Counter[str]:
        async with connected(self._database) as connection:
            return Counter(dict(await connection.fetch(query, *arguments)))

    def _manifests(self, name: str) -> list[dict[str, Any]]:
        return list(yaml.safe_load_all((self.folder / name).read_text()))

    def _write(self, name: str, manifests: list[dict[str, Any]]) -> None:
        (self.folder / name).write_text(yaml.safe_dump_all(manifests))
