"""Somebody with exactly these rights: a service account with a token, as a pod would have."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.operator.control_plane.api import Api

Rule = Mapping[str, Sequence[str]]

_DEADLINE_SECONDS = 30
_POLL_SECONDS = 0.02
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass(frozen=True)
class Identity:
    """A service account."""

    user: str
    """Its name to the API server."""
    token: str
    """What proves it."""
    kubeconfig: Path
    """How it gets in."""


def rule(group: str, resources: str, verbs: str) -> Rule:
    """A rule of a Role, the resources and verbs separated by spaces."""
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}


def identity(
    api: Api,
    namespace: str,
    folder: Path,
    roles: Mapping[str, Sequence[Rule]],
    cluster_role: Sequence[Rule] = (),
) -> Identity:
    """A service account in `namespace` with a Role in each of `roles`, and a ClusterRole where asked for."""
    name = f"tester-{uuid.uuid4().hex[:8]}"
    api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    user = f"system:serviceaccount:{namespace}:{name}"
    for where, rules in roles.items():
        _grant(api, f"{_RBAC}/namespaces/{where}", "Role", subject, rules)
    if cluster_role:
        _grant(api, _RBAC, "ClusterRole", subject, cluster_role)
    _await(api, user, {**roles, "": cluster_role})
    token = _token(api, namespace, name)
    return Identity(user, token, _kubeconfig(api, folder / f"{name}.kubeconfig", token))


def _grant(api: Api, path: str, kind: str, subject: Mapping[str, str], rules: Sequence[Rule]) -> None:
    name = subject["name"]
    metadata = {"name": name}
    api.request("POST", f"{path}/{kind.lower()}s", {"metadata": metadata, "rules": list(rules)})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    binding = {"metadata": metadata, "roleRef": reference, "subjects": [dict(subject)]}
    api.request("POST", f"{path}/{kind.lower()}bindings", binding)


def _await(api: Api, user: str, roles: Mapping[str, Sequence[Rule]]) -> None:
    """The authoriser learns of a Role by a watch of its own."""
    wanted = [
        {"namespace": namespace, "group": one["apiGroups"][0], "resource": one["resources"][0], "verb": verb}
        for namespace, rules in roles.items()
        for one in rules
        for verb in one["verbs"]
    ]
    deadline = time.monotonic() + _DEADLINE_SECONDS
    for attributes in wanted:
        resource, _, subresource = attributes["resource"].partition("/")
        asked = {**attributes, "resource": resource, "subresource": subresource}
        while not _is_allowed(api, user, asked):
            assert time.monotonic() < deadline, f"{user} was given {attributes}, and does not have it"
            time.sleep(_POLL_SECONDS)


def _is_allowed(api: Api, user: str, attributes: Mapping[str, str]) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": dict(attributes)},
    }
    answer = api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def _token(api: Api, namespace: str, name: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    request: dict[str, Any] = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(api.request("POST", path, request)["status"]["token"])


def _kubeconfig(api: Api, file: Path, token: str) -> Path:
    plane = api.control_plane
    cluster = {"server": plane.url, "certificate-authority": str(plane.folder / "ca.pem")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "tests", "user": {"token": token}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
    }
    file.write_text(yaml.safe_dump(config))
    return file
