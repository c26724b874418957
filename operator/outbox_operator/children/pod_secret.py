"""The Secret that the pods of a resource read: how to reach the broker, and for a relay the database.

It is never changed: other content is another Secret with another name, so that pods roll, and those that
still run can be started again with what they began with.
"""

import base64
from collections.abc import Mapping

from outbox_operator.children.manifest import Manifest
from outbox_operator.children.names import Owner, child_metadata

BROKER_URI = "broker-uri"
DATABASE_URI = "database-uri"
SCALER_URI = "scaler-uri"
"""The broker's URL with one host, if the other lists several: KEDA takes such a list for a name."""
CA = "ca.crt"
DATABASE_CA = "database-ca.crt"
TLS = "tls"
"""KEDA takes the switch for TLS with a private CA from a Secret alone."""


def secret_data(
    *,
    broker_uri: str,
    database_uri: str | None = None,
    scaler_uri: str | None = None,
    ca: str | None = None,
    database_ca: str | None = None,
) -> dict[str, str]:
    """What is in it."""
    return {
        BROKER_URI: broker_uri,
        **({SCALER_URI: scaler_uri} if scaler_uri is not None else {}),
        **({DATABASE_URI: database_uri} if database_uri is not None else {}),
        **({CA: ca, TLS: "enable"} if ca is not None else {}),
        **({DATABASE_CA: database_ca} if database_ca is not None else {}),
    }


def secret_manifest(
    owner: Owner, name: str, data: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> Manifest:
    """The Secret."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": child_metadata(owner, name, annotations),
        "type": "Opaque",
        "immutable": True,
        # `stringData` would not be read back, and so could not be compared.
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in sorted(data.items())},
    }
