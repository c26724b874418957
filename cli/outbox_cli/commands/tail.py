"""`outbox tail`: watch messages go by."""

import asyncio
import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from outbox.topology import TopologyError
from outbox_cli import bodies, screen
from outbox_cli.cluster.place import Place
from outbox_cli.commands.options import BrokerUrl, Exchange, Output, broker
from outbox_cli.commands.place import placed
from outbox_cli.commands.targets import ExchangeTarget, exchange_target
from outbox_cli.failures import CommandError, line_of, run
from outbox_cli.screen import Format
from outbox_cli.tail import Tail, View
from outbox_core.broker_errors import BrokerLostError
from outbox_core.consumer import Received

_LEAST_OF_A_BODY = 20


@placed()
def tail(
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATTERN",
            help="Routing keys, as in a binding: * is a word, # any number of words; all without one.",
            show_default=False,
        ),
    ] = None,
    *,
    place: Place,
    url: BrokerUrl = None,
    exchange: Exchange = "outbox",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Leave after so many.")] = None,
    with_bodies: Annotated[bool, typer.Option("--bodies/--no-bodies", help="With what they say.")] = True,
    output: Output = Format.TABLE,
) -> None:
    """Watch messages go by, without taking them from anybody; Ctrl-C ends it.

    They come through a queue of its own, which is gone afterwards. It holds a thousand: a terminal that is
    slower than the messages misses some, and nobody waits for it. JSON is one object a line.
    """

    def shown(messages: list[Received]) -> None:
        now = datetime.now(UTC)
        for received in messages:
            if output is Format.JSON:
                print(screen.json_line(_json(received, now, with_bodies)))
            else:
                print(_line(received, now, with_bodies))
        sys.stdout.flush()

    async def watch() -> BrokenPipeError | None:
        left = limit
        target = await exchange_target(place, url, exchange)
        view = _view(target, patterns)
        async with (
            broker(target.url) as connected,
            Tail(connected, view, on_lost=_tell_lost, on_back=lambda: _tell(view)) as messages,
        ):
            _tell(view)
            while left is None or left > 0:
                batch = (await messages.take())[:left]
                try:
                    # A terminal that is held must not keep us from answering the broker.
                    await asyncio.to_thread(shown, batch)
                except BrokenPipeError as error:
                    return error
                left = None if left is None else left - len(batch)
        return None

    try:
        reader_gone = run(watch())
    except KeyboardInterrupt:
        return
    if reader_gone:
        raise reader_gone


def _view(target: ExchangeTarget, patterns: list[str] | None) -> View:
    try:
        return View(target.name, tuple(dict.fromkeys(patterns or ["#"])))
    except TopologyError as error:
        raise CommandError(str(error)) from None


def _tell(view: View) -> None:
    screen.warn(f'watching {" ".join(view.patterns)} on exchange "{view.exchange}"')


def _tell_lost(error: BrokerLostError) -> None:
    screen.warn(f"{line_of(error)}; waiting for the broker to come back")


def _line(received: Received, now: datetime, with_bodies: bool) -> str:
    message = received.message
    cells = f"{screen.moment(now)}  {message.routing_key:<24}  {message.message_id or '-':<36}  "
    cells += f"{len(message.body):>7} B"
    if with_bodies:
        room = screen.console().width - len(cells) - 2
        cells += f"  {bodies.brief(message.body, max(room, _LEAST_OF_A_BODY))}"
    return screen.one_line(cells)


def _json(received: Received, now: datetime, with_bodies: bool) -> dict[str, object]:
    message = received.message
    told: dict[str, object] = {
        "received_at": now,
        "routing_key": message.routing_key,
        "message_id": message.message_id,
        "content_type": message.content_type,
        "headers": dict(message.headers),
        "size": len(message.body),
    }
    return {**told, "body": bodies.as_json(message.body)} if with_bodies else told
