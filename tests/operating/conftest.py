"""What the tests of the operator have, for those of its whole behaviour."""

from tests.operator.conftest import _control_plane, api, namespace, neighbours, site

__all__ = ["_control_plane", "api", "namespace", "neighbours", "site"]
