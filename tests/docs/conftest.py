"""What the tests of the operator have, for the manifests and commands of the pages."""

from tests.operator.conftest import _control_plane, api, namespace

__all__ = ["_control_plane", "api", "namespace"]
