"""A Lease as a manifest: who holds it, and what it becomes. Pure, but for the time, which is for people."""

from datetime import UTC, datetime

from outbox_operator.cluster.kinds import LEASE, Manifest

_INT32 = 1 << 31


def holder_of(lease: Manifest | None) -> str:
    """Whoever holds it; empty for nobody."""
    return str(_spec(lease).get("holderIdentity") or "")


def version_of(lease: Manifest | None) -> str:
    """What changes with each write; empty where there is no Lease."""
    return str(lease["metadata"].get("resourceVersion") or "") if lease else ""


def uid_of(lease: Manifest | None) -> str:
    """Tells it from every other Lease, one of its name included; empty where there is no Lease."""
    return str(lease["metadata"].get("uid") or "") if lease else ""


def duration_of(lease: Manifest | None, otherwise: float) -> float:
    """For how many seconds its holder has it after each renewal."""
    return _number(lease, "leaseDurationSeconds") or otherwise


def created(namespace: str, name: str) -> Manifest:
    """A new one, that nobody holds."""
    return {
        "apiVersion": LEASE.api_version,
        "kind": LEASE.kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {},
    }


def taken(lease: Manifest, identity: str, seconds: float) -> Manifest:
    """It, in the hands of another."""
    transitions = _number(lease, "leaseTransitions") + 1
    spec = {
        "holderIdentity": identity,
        "leaseDurationSeconds": max(1, round(seconds)),
        "acquireTime": _now(),
        "leaseTransitions": transitions,
    }
    return renewed(_with(lease, spec))


def renewed(lease: Manifest) -> Manifest:
    """It, held for another while."""
    return _with(lease, {"renewTime": _now()})


def released(lease: Manifest) -> Manifest:
    """It, in nobody's hands."""
    return _with(lease, {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()})


def _spec(lease: Manifest | None) -> Manifest:
    spec = (lease or {}).get("spec")
    return spec if isinstance(spec, dict) else {}


def _number(lease: Manifest | None, field: str) -> int:
    """A number that the API server would take; 0 for anything else."""
    number = _spec(lease).get(field)
    if not isinstance(number, int) or isinstance(number, bool):
        return 0
    return number if 0 < number < _INT32 else 0


def _with(lease: Manifest, changes: Manifest) -> Manifest:
    head = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": lease["metadata"]}
    return {**head, "spec": {**_spec(lease), **changes}}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
