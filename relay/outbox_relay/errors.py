"""What keeps a relay from starting, in one line that names the object and the cure."""


class RelayError(Exception):
    """The relay cannot do its work until somebody changes something."""


class TableError(RelayError):
    """The outbox table is missing, or is not as the relay needs it."""


class ForeignRowsError(RelayError):
    """A claim has returned rows of another table: a prepared statement was not the relay's own."""
