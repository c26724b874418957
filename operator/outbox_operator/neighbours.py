"""Resources of other namespaces, which may be those of somebody else. Pure."""


def is_neighbour(path: str, namespace: str) -> bool:
    """Whether a resource, given as `namespace/name`, is not of this namespace."""
    return path.partition("/")[0] != namespace


def described(kind: str, path: str, namespace: str) -> str:
    """A resource as a message in `namespace` may call it: that of another namespace is not named."""
    return f"an {kind} of another namespace" if is_neighbour(path, namespace) else f"{kind} {path}"
