"""Where OutboxListener manifests differ from the listeners in the code. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from outbox_cli.listeners.export import Known
from outbox_operator import durations
from outbox_operator.resources import OutboxListener
from outbox_operator.subscriptions import queue_of


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing about which code and manifests disagree."""

    listener: str
    """The OutboxListener, or the handler where there is none."""
    field: str
    """Which field; empty where one of the two is missing altogether."""
    code: str | None
    """What the code says; None where it has no such listener."""
    manifest: str | None
    """What the manifest says; None where there is none."""

    @property
    def line(self) -> str:
        if self.manifest is None:
            return f"{self.listener}: no manifest has this handler; add what `outbox listeners export` prints"
        if self.code is None:
            return f"OutboxListener {self.listener}: the code has no listener {self.manifest}"
        return (
            f"OutboxListener {self.listener}: {self.field} is {self.code} in the code "
            f"and {self.manifest} in the manifest"
        )


def differences(code: Sequence[Known], manifests: Sequence[OutboxListener]) -> list[Difference]:
    """All of them, by listener. What the code does not know is left alone."""
    pairs = [(each, _manifest_of(each, manifests)) for each in code]
    unused = [each for each in manifests if all(each is not used for _, used in pairs)]
    return [
        *(difference for each, resource in pairs for difference in _compared(each, resource)),
        *_without_code(code, unused),
    ]


def _without_code(code: Sequence[Known], unused: Sequence[OutboxListener]) -> Iterator[Difference]:
    """Handlers in the same modules that the code does not have."""
    modules = {each.handler.partition(":")[0] for each in code}
    for resource in unused:
        handler = resource.spec.handler
        if handler and handler.partition(":")[0] in modules:
            yield Difference(resource.metadata.name, "", None, handler)


def _manifest_of(each: Known, manifests: Sequence[OutboxListener]) -> OutboxListener | None:
    """The one with its handler, else the one with its name."""
    by_handler = (resource for resource in manifests if resource.spec.handler == each.handler)
    by_name = (resource for resource in manifests if resource.metadata.name == each.name)
    return next(by_handler, None) or next(by_name, None)


def _compared(each: Known, resource: OutboxListener | None) -> Iterator[Difference]:
    if resource is None:
        yield Difference(each.handler, "", each.handler, None)
        return
    spec, name = resource.spec, resource.metadata.name
    pairs = [("bindingKeys", _keys(each.binding_keys), _keys(spec.binding_keys))]
    if each.queue is not None:
        pairs.append(("queue", each.queue, queue_of(resource)))
    if each.retry_delays is not None:
        pairs.append(("retryDelays", _delays(each.retry_delays), _delays(spec.retry_delays)))
    pairs.append(("ordered", str(each.ordered).lower(), str(spec.ordered).lower()))
    if spec.handler is not None:
        pairs.append(("handler", each.handler, spec.handler))
    for field, code, manifest in pairs:
        if code != manifest:
            yield Difference(name, field, code, manifest)


def _keys(keys: Sequence[str]) -> str:
    """Their order means nothing."""
    return f"[{', '.join(sorted(keys))}]"


def _delays(delays: Sequence[timedelta]) -> str:
    return f"[{', '.join(map(durations.format, delays))}]"
