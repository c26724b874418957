"""The hosts that a Secret names, as the operator reaches them from a namespace of its own. Pure."""

from outbox_core.url_hosts import partition_hosts


def seen_from_elsewhere(url: str, namespace: str) -> str:
    """The URL with each host that has a single word for its name as the Service of that name in `namespace`.

    That is what such a name means to the pods there; to the operator it would be a Service of its own
    namespace. What is no Service has a name with dots in it, or one that ends with one.
    """
    before, hosts, after = partition_hosts(url)
    return f"{before}{','.join(_qualified(host, namespace) for host in hosts.split(','))}{after}"


def host_seen_from_elsewhere(host: str, namespace: str) -> str:
    """The same for a host alone, without its port."""
    return host if ":" in host else _qualified(host, namespace)


def _qualified(address: str, namespace: str) -> str:
    name, colon, port = address.partition(":")
    # Neither an address, nor a socket's percent-encoded path, nor this machine.
    is_service = name and name != "localhost" and not any(sign in name for sign in ".[%")
    return f"{name}.{namespace}.svc{colon}{port}" if is_service else address
