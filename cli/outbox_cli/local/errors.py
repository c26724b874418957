"""What can go wrong with a local service, in words that say what to do about it."""


class LocalServiceError(Exception):
    """A local service could not be found, started or stopped."""


class PortTakenError(LocalServiceError):
    """Somebody else took the port between choosing it and listening on it."""
