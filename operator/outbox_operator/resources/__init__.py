"""The custom resources of `outbox.dev/v1alpha1`, as types: what a manifest may say, with defaults and bounds.

Pure: nothing here talks to anybody. The CRDs follow from these types, and what the API server refuses they
refuse as well, so that a manifest means the same without a cluster.
"""

from outbox_operator.resources.listener import OutboxListener
from outbox_operator.resources.relay import OutboxRelay

API_GROUP = "outbox.dev"
API_VERSION = "v1alpha1"

__all__ = ["API_GROUP", "API_VERSION", "OutboxListener", "OutboxRelay"]
