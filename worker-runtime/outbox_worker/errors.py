"""What keeps a worker from starting, and what a message can fail with beside its listener's own errors."""

from outbox import listener


class WorkerError(Exception):
    """The worker cannot do its work until somebody changes something."""


class InterruptedCallError(Exception):
    """The listener was not waited for. A task or a thread that it has begun may go on."""


class HandlerTimeoutError(InterruptedCallError):
    """The listener took longer than `handler_timeout`."""


class HandlerCancelledError(listener.HandlerCancelledError):
    """The listener was cancelled by something inside of it, and not by the worker."""


class HandlerExitError(listener.HandlerExitError):
    """The listener asked for the end of the process; the message failed instead."""


class NoThreadError(Exception):
    """Calls that timed out still run in so many threads that another call might never begin."""


class HeldTooLongError(Exception):
    """The message had to wait for longer than the broker lets it be held."""

    def __init__(self, reason: str, returns: int) -> None:
        super().__init__(
            f"{reason}; the message was returned to its queue {returns} times, and soon the broker would "
            "dead-letter it without a reason: move it back to its queue when it can be handled"
        )


class NotAwaitedError(listener.NotAwaitedError):
    """A listener returned what it should have awaited or run, so that its work was never done."""


class TransactionEndedError(Exception):
    """An exactly-once listener has ended its transaction: its effect is not one with its message."""

    def __init__(self, ending: str = "COMMIT and ROLLBACK") -> None:
        super().__init__(
            "the listener has ended its transaction itself: what it committed stays, but not together with "
            "its message, which is handled again if it is moved back to its queue; "
            f"leave {ending} to the worker"
        )


class TransactionAbortedError(Exception):
    """An exactly-once listener returned although a statement of its transaction had failed."""


class ExpiredError(Exception):
    """The message's expiration ended before it was handled."""


class MessageIdMissingError(Exception):
    """The message has no id by which a listener could tell that it was handled before."""
