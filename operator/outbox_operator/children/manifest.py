"""Kubernetes objects as they travel."""

from typing import Any, TypeAlias

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON. It is never changed once it is made."""
