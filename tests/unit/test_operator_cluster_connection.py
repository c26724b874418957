"""The way to the API server, before anything is asked."""

from pathlib import Path

import pytest
import yaml
from kubernetes.aio.client import Configuration

from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.errors import ClusterError


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, None),
        ({"https_proxy": "http://proxy.example:3128"}, "http://proxy.example:3128"),
        ({"http_proxy": "http://proxy.example:3128"}, None),
        ({"https_proxy": "http://proxy.example:3128", "no_proxy": "cluster.example"}, None),
    ],
)
async def test_the_proxy_of_the_environment_is_used_where_it_is_for_the_api_server(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], proxy: str | None
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    connection = Connection(Configuration(host="https://cluster.example:6443"))
    try:
        assert (await connection.credentials()).proxy == proxy
    finally:
        await connection.close()


async def test_the_proxy_of_a_kubeconfig_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    configuration = Configuration(host="https://cluster.example:6443", proxy="http://other.example:3128")
    connection = Connection(configuration)
    try:
        assert (await connection.credentials()).proxy == "http://other.example:3128"
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("context", "server", "namespace"),
    [
        (None, "https://one.example", "default"),
        ("two", "https://two.example", "shop"),
    ],
)
async def test_a_context_of_a_kubeconfig_says_which_cluster_and_namespace(
    tmp_path: Path, context: str | None, server: str, namespace: str
) -> None:
    file = tmp_path / "kubeconfig"
    contexts = {"one": {"user": "jo"}, "two": {"user": "jo", "namespace": "shop"}}
    config = {
        "current-context": "one",
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example"}} for name in contexts],
        "users": [{"name": "jo", "user": {"token": "x"}}],
        "contexts": [{"name": name, "context": {"cluster": name, **each}} for name, each in contexts.items()],
    }
    file.write_text(yaml.safe_dump(config))
    connection = await Connection.open({"KUBECONFIG": str(file)}, context=context)
    try:
        assert ((await connection.credentials()).server, connection.namespace) == (server, namespace)
    finally:
        await connection.close()


async def test_a_kubeconfig_without_a_user_is_told(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    config = {
        "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": "https://one.example"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one"}}],
    }
    file.write_text(yaml.safe_dump(config))
    with pytest.raises(ClusterError, match="its context names no user; .* set KUBECONFIG"):
        await Connection.open({"KUBECONFIG": str(file)})
