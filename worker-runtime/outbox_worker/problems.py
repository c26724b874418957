"""What keeps messages from moving at the moment, as the readiness probe tells it."""


class Problems:
    """Problems by who has them, from the time they are noted until they are solved."""

    def __init__(self) -> None:
        self._noted: dict[object, str] = {}

    def note(self, who: object, problem: str) -> None:
        """`who` cannot go on because of this."""
        self._noted[who] = problem

    def solved(self, who: object) -> None:
        """`who` goes on, or has given up."""
        self._noted.pop(who, None)

    def reason(self) -> str | None:
        """One of them, or None where there is none."""
        # A copy, for the probe's thread asks while the loop's changes it.
        return next(iter(list(self._noted.values())), None)
