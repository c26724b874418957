"""Where the API server keeps the objects of a kind."""

import pytest

from outbox_operator.cluster import kinds
from outbox_operator.cluster.kinds import Kind, kind_of, path


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "subresource", "expected"),
    [
        (kinds.SECRET, "shop", "db", "", "/api/v1/namespaces/shop/secrets/db"),
        (kinds.SECRET, "shop", "", "", "/api/v1/namespaces/shop/secrets"),
        (kinds.RELAY, None, "", "", "/apis/outbox.dev/v1alpha1/outboxrelays"),
        (
            kinds.RELAY,
            "shop",
            "main",
            "status",
            "/apis/outbox.dev/v1alpha1/namespaces/shop/outboxrelays/main/status",
        ),
        (kinds.DEPLOYMENT, "shop", "a/b", "", "/apis/apps/v1/namespaces/shop/deployments/a%2Fb"),
        (Kind("v1", "Node", "nodes", namespaced=False), "shop", "one", "", "/api/v1/nodes/one"),
    ],
)
def test_a_path_names_group_version_namespace_and_object(
    kind: Kind, namespace: str | None, name: str, subresource: str, expected: str
) -> None:
    assert path(kind, namespace, name, subresource) == expected


@pytest.mark.parametrize("kind", kinds.ALL, ids=str)
def test_a_manifest_tells_its_kind(kind: Kind) -> None:
    assert kind_of({"apiVersion": kind.api_version, "kind": kind.kind}) is kind


def test_a_kind_that_is_not_the_operators_business_is_refused() -> None:
    with pytest.raises(ValueError, match="v1 ConfigMap is no kind that the operator knows"):
        kind_of({"apiVersion": "v1", "kind": "ConfigMap"})
