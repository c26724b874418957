"""What an answer of the API server means."""

import json

import pytest

from outbox_operator.cluster.errors import (
    BusyError,
    ClusterError,
    ConflictError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    RefusedError,
    refusal,
)
from outbox_operator.cluster.kinds import DEPLOYMENT, SECRET

_RBAC = (
    'deployments.apps "a" is forbidden: '
    'User "operator" cannot patch resource "deployments" in API group "apps"'
)


def _body(message: str, reason: str = "", fields: tuple[str, ...] = ()) -> bytes:
    causes = [{"field": field, "message": message} for field in fields]
    return json.dumps({"message": message, "reason": reason, "details": {"causes": causes}}).encode()


@pytest.mark.parametrize(
    ("status", "message", "error", "words"),
    [
        (
            404,
            'deployments.apps "a" not found',
            NotFoundError,
            'Deployment shop/a: deployments.apps "a" not found',
        ),
        (
            409,
            "Apply failed with 1 conflict",
            ConflictError,
            "Deployment shop/a: Apply failed with 1 conflict",
        ),
        (410, "too old resource version", GoneError, "Deployment shop/a: too old resource version"),
        (
            422,
            "spec.replicas: Invalid value",
            RefusedError,
            "Deployment shop/a: spec.replicas: Invalid value",
        ),
        (400, "", RefusedError, "Deployment shop/a: the API server answers 400"),
        (429, "", BusyError, "Deployment shop/a: the API server has too many calls; try again later"),
        (503, "", BusyError, "Deployment shop/a: the API server answers 503; try again later"),
        (
            403,
            f'{_RBAC} in the namespace "shop"',
            ForbiddenError,
            "Deployment shop/a: the operator may not patch deployments.apps in namespace shop; "
            "add that to its Role",
        ),
        (
            403,
            f"{_RBAC} at the cluster scope",
            ForbiddenError,
            "Deployment shop/a: the operator may not patch deployments.apps in all namespaces; "
            "add that to its ClusterRole",
        ),
        (
            500,
            "failed to create typed patch object (shop/a; apps/v1, Kind=Deployment): .spec.replica: field "
            "not declared in schema",
            RefusedError,
            "Deployment shop/a: .spec.replica: field not declared in schema",
        ),
        (
            500,
            "etcdserver: no leader",
            BusyError,
            "Deployment shop/a: the API server answers 500; etcdserver: no leader",
        ),
        (403, "exceeded quota: small", RefusedError, "Deployment shop/a: exceeded quota: small"),
    ],
)
def test_an_answer_becomes_an_error_that_names_the_object(
    status: int, message: str, error: type[ClusterError], words: str
) -> None:
    found = refusal(status, _body(message), "Deployment shop/a", DEPLOYMENT)
    assert type(found) is error
    assert str(found) == words


def test_an_unknown_user_is_told_to_look_at_the_token() -> None:
    found = refusal(401, _body("Unauthorized"), "Deployment shop/a", DEPLOYMENT)
    assert isinstance(found, ForbiddenError)
    assert "check the service account's token" in str(found)


def test_the_page_of_a_proxy_is_not_repeated() -> None:
    found = refusal(502, b"<html>bad gateway</html>", "Deployment shop/a", DEPLOYMENT)
    assert str(found) == "Deployment shop/a: the API server answers 502; try again later"


def test_words_about_a_secret_name_its_fields_and_not_what_is_in_them() -> None:
    body = _body('data[password]: Invalid value: "hunter2"', "Invalid", ("data[password]",))
    found = refusal(422, body, "Secret shop/db", SECRET)
    assert str(found) == "Secret shop/db: Invalid: data[password]"


def test_every_error_has_an_outcome_of_its_own_for_the_metric() -> None:
    errors = [NotFoundError, ConflictError, ForbiddenError, RefusedError, GoneError, BusyError]
    assert len({error.outcome for error in errors}) == len(errors)
