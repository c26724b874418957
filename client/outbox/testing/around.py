"""The object around which a session is: a mock, or the session of another database."""

import inspect
from typing import Any


class Around:
    """Passes calls on, where there is an object and it has the method."""

    def __init__(self, target: Any = None) -> None:
        self.target = target

    async def call(self, name: str) -> Any:
        """Call the method, and await it if that is what it takes."""
        result = self._call(name)
        return await result if inspect.isawaitable(result) else result

    def call_sync(self, name: str) -> Any:
        """Call the method, which must not be one to await."""
        result = self._call(name)
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            kind = type(self.target).__name__
            raise TypeError(f"{kind}.{name}() has to be awaited: use outbox.session(around=…) with it")
        return result

    def _call(self, name: str) -> Any:
        method = getattr(self.target, name, None)
        return None if method is None else method()
