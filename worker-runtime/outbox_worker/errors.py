"""What keeps a worker from starting, and what a message can fail with beside its listener's own errors."""


class WorkerError(Exception):
    """The worker cannot do its work until somebody changes something."""


class HandlerTimeoutError(Exception):
    """The listener took longer than `handler_timeout`."""


class HandlerCancelledError(Exception):
    """The listener was cancelled by something inside of it, and not by the worker."""


class HandlerExitError(Exception):
    """The listener asked for the end of the process; the message failed instead."""


class NotAwaitedError(Exception):
    """A listener that is not async returned something to await, so that its work was never done."""


class ExpiredError(Exception):
    """The message's expiration ended before it was handled."""


class MessageIdMissingError(Exception):
    """The message has no id by which a listener could tell that it was handled before."""
