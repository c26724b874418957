"""What happens in the demo, from the first order to the last reminder."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from outbox.topology import dead_letter_queue, tier_name
from outbox_cli import redrive
from outbox_cli.dead_letters import Selection
from outbox_cli.demo.account import Account, Expectation, Line
from outbox_cli.demo.shop import NAMESPACE, Placed, Shop
from outbox_cli.dev import manifests as files
from outbox_cli.dev.board import Board
from outbox_cli.dev.development import Development
from outbox_cli.dev.happenings import Happening, Kind
from outbox_cli.dev.site import Site
from outbox_cli.dev.sources import Sources
from outbox_cli.failures import CommandError
from outbox_core.broker import Broker

_PATIENCE_SECONDS = 120.0
_DRAIN_SECONDS = 15.0
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Pace:
    """How much happens, and how fast."""

    orders: int
    """How many orders are begun; a multiple of ten."""
    per_second: float
    """How many in a second."""
    remind_after: float
    """How many seconds an order is old when its customer is reminded."""


@dataclass(frozen=True, slots=True)
class _Role:
    """One kind of message, and who handles it."""

    routing_key: str
    listener: str
    effect: str
    """What the shop calls it when it is done."""

    @property
    def queue(self) -> str:
        return f"{NAMESPACE}.{self.listener}"


_BOOK = _Role("order.placed", "book", "book")
_MAIL = _Role("order.booked", "send-mail", "mail")
_CARD = _Role("card.charge", "charge-card", "charge")
_REMIND = _Role("order.reminder", "remind", "reminder")
_ROLES = (_BOOK, _MAIL, _CARD, _REMIND)
_CARDS_IN_TEN = 1
_EXCHANGE = "outbox"
_DELAYS = (timedelta(seconds=1), timedelta(seconds=2))
_TIERS = "delay tiers"


def expectations(pace: Pace) -> dict[str, Expectation]:
    """What must have happened, by routing key: every second order is kept, and one in ten is paid by card."""
    kept, cards = pace.orders // 2, pace.orders // 10 * _CARDS_IN_TEN
    return {
        _BOOK.routing_key: Expectation(kept),
        _MAIL.routing_key: Expectation(kept, retries=2),
        _CARD.routing_key: Expectation(cards, retries=1, dead_letters=1),
        _REMIND.routing_key: Expectation(kept),
    }


class Story:
    """A day of the shop. It is the screen of what runs: it keeps the news instead of showing them."""

    def __init__(self, site: Site, shop: Shop, say: Callable[[str], None], pace: Pace) -> None:
        self._site = site
        self._shop = shop
        self._say = say
        self._pace = pace
        self._board = Board()
        self._news: Counter[tuple[str, Kind]] = Counter()

    def tell(self, happening: Happening) -> None:
        """Count it."""
        self._news[happening.source, happening.kind] += 1

    def show(self, board: Board) -> None:
        """Keep it."""
        self._board = board

    async def run(self) -> Account:
        """Let it happen, and account for it."""
        stopping = asyncio.Event()
        async with Broker(self._site.access.uri(), name="outbox demo") as broker:
            async with asyncio.TaskGroup() as group:
                running = group.create_task(self._development().run(stopping))
                first, newest = await self._opened()
                placed = await self._placed(first)
                redriven = await self._mended(broker, first)
                await self._handled(
                    _REMIND, first, placed.orders, "reminders, some seconds after their orders"
                )
                await self._drained(broker)
                self._say("stopping everything …")
                stopping.set()
                await running
            left = await self._left_over(broker)
            lines = [await self._line(role, first, newest, redriven, left) for role in _ROLES]
        return Account(
            begun=self._pace.orders,
            rolled_back=placed.rolled_back,
            placed=placed.orders,
            strangers=await self._shop.strangers(first),
            waiting=left[_TIERS],
            lines=tuple(lines),
        )

    def _development(self) -> Development:
        sources = Sources.of([self._shop.folder], [])
        manifests = files.read(sources.texts(), NAMESPACE)
        if manifests.complaints:
            raise CommandError(manifests.complaints[0])
        return Development(sources, manifests, self._site, self, NAMESPACE)

    async def _opened(self) -> tuple[int, int]:
        self._say("starting a relay and four listeners …")
        await self._until("the relay and the listeners to be ready", self._is_ready)
        return await self._shop.mark()

    async def _placed(self, first: int) -> Placed:
        pace = self._pace
        self._say(f"beginning {pace.orders} orders, each in a transaction with its messages …")
        placed = await self._shop.place(
            first, pace.orders, per_second=pace.per_second, remind_after=pace.remind_after
        )
        self._say(f"{placed.orders} orders were placed, {placed.rolled_back} were rolled back")
        await self._handled(_BOOK, first, placed.orders, "bookings, each exactly once")
        await self._handled(_MAIL, first, placed.orders, "mails, each at its third attempt")
        return placed

    async def _mended(self, broker: Broker, first: int) -> int:
        """Have the cards charged that are dead letters; how many that were."""
        cards = expectations(self._pace)[_CARD.routing_key].messages
        letters = dead_letter_queue(_CARD.queue)

        async def are_dead() -> bool:
            return await broker.depth(letters) >= cards

        await self._until("cards that cannot be charged to be dead letters", are_dead)
        self._say(f"{cards} cards could not be charged and are dead letters: mending the listener …")
        self._shop.mend()
        await self._until("the listener's worker to be replaced", self._is_charging_replaced)
        await self._until("the mended listener to be ready", self._is_ready)
        walked = redrive.Walked()
        await redrive.redrive(
            broker,
            (_CARD.queue, letters),
            selection=Selection(),
            limit=None,
            rate=None,
            walked=walked,
            on_progress=lambda _: None,
        )
        self._say(f"{walked.done} dead letters were sent to it again")
        await self._handled(_CARD, first, cards, "charges")
        return walked.done

    async def _handled(self, role: _Role, first: int, count: int, what: str) -> None:
        async def are_there() -> bool:
            return (await self._shop.handled(first))[role.effect] >= count

        self._say(f"waiting for {count} {what} …")
        await self._until(f"{count} {what}", are_there)

    async def _is_ready(self) -> bool:
        return self._board.is_ready

    async def _is_charging_replaced(self) -> bool:
        return not self._board.is_ready

    async def _until(self, what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        if not await _holds_within(_PATIENCE_SECONDS, condition):
            wrong = [f"{row.resource}: {row.message}" for row in self._board.rows if row.message]
            raise CommandError("; ".join([f"waited {_PATIENCE_SECONDS:.0f} s for {what}", *wrong]))

    async def _drained(self, broker: Broker) -> None:
        """Give what is still on its way some time; what is left then is for the account to say."""

        async def is_empty() -> bool:
            return not (await self._left_over(broker)).total()

        await _holds_within(_DRAIN_SECONDS, is_empty)

    async def _left_over(self, broker: Broker) -> Counter[str]:
        """What is unsent in the table or waits in a queue, by routing key, and what is in delay tiers."""
        left = await self._shop.unsent()
        for role in _ROLES:
            for queue in (role.queue, dead_letter_queue(role.queue)):
                left[role.routing_key] += await broker.depth(queue)
        for delay in _DELAYS:
            left[_TIERS] += await broker.depth(tier_name(_EXCHANGE, delay))
        return left

    async def _line(self, role: _Role, first: int, newest: int, redriven: int, left: Counter[str]) -> Line:
        source = f"outboxlistener/{role.listener}"
        return Line(
            routing_key=role.routing_key,
            emitted=(await self._shop.emitted(newest))[role.routing_key],
            listener=role.listener,
            handled=(await self._shop.handled(first))[role.effect],
            retries=self._news[source, Kind.RETRIED],
            dead_letters=self._news[source, Kind.DEAD_LETTERED],
            redriven=redriven if role is _CARD else 0,
            left_over=left[role.routing_key],
        )


async def _holds_within(seconds: float, condition: Callable[[], Awaitable[bool]]) -> bool:
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True
