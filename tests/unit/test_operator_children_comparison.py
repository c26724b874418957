from copy import deepcopy
from typing import Any

import pytest

from outbox_operator.children import quantities
from outbox_operator.children.comparison import is_so

_SAME: list[tuple[str, Any, Any]] = [
    ("the same", {"a": [1, {"b": "c"}]}, {"a": [1, {"b": "c"}]}),
    ("more in the live one", {"a": 1}, {"a": 1, "b": 2}),
    ("defaults within a list", {"x": [{"a": 1}]}, {"x": [{"a": 1, "mode": 420}]}),
    ("an empty text is left out", {"env": [{"name": "A", "value": ""}]}, {"env": [{"name": "A"}]}),
    ("a false is left out", {"readOnly": False}, {}),
    ("emptiness within emptiness", {"affinity": {"pod": {"preferred": []}}}, {"affinity": {"pod": {}}}),
    ("emptiness as a whole", {"affinity": {"pod": {"preferred": []}}}, {}),
    ("a null is no wish", {"a": None}, {"a": 1}),
    ("another's variable", {"env": [{"name": "A"}]}, {"env": [{"name": "B"}, {"name": "A"}]}),
    (
        "another's mount",
        {"volumeMounts": [{"mountPath": "/a", "name": "v"}]},
        {"volumeMounts": [{"mountPath": "/b", "name": "v"}, {"mountPath": "/a", "name": "v"}]},
    ),
    (
        "another's spread",
        {"topologySpreadConstraints": [{"topologyKey": "a", "whenUnsatisfiable": "x"}]},
        {
            "topologySpreadConstraints": [
                {"topologyKey": "b", "whenUnsatisfiable": "x"},
                {"topologyKey": "a", "whenUnsatisfiable": "x"},
            ]
        },
    ),
    (
        "another's port",
        {"ports": [{"containerPort": 8080, "protocol": "TCP"}]},
        {"ports": [{"containerPort": 1, "protocol": "TCP"}, {"containerPort": 8080, "protocol": "TCP"}]},
    ),
    ("another owner", {"ownerReferences": [{"uid": "1"}]}, {"ownerReferences": [{"uid": "2"}, {"uid": "1"}]}),
    ("quantities", {"requests": {"cpu": "1000m"}}, {"requests": {"cpu": "1"}}),
    ("a number as quantity", {"limits": {"cpu": 1}}, {"limits": {"cpu": "1"}}),
    ("memory", {"limits": {"memory": "1024Mi"}}, {"limits": {"memory": "1Gi"}}),
    ("a size", {"emptyDir": {"sizeLimit": "1000k"}}, {"emptyDir": {"sizeLimit": "1M"}}),
]

_OTHER: list[tuple[str, Any, Any]] = [
    ("another value", {"a": 1}, {"a": 2}),
    ("a field that is missing", {"a": {"b": 1}}, {"a": {}}),
    ("another kind of thing", {"a": {"b": 1}}, {"a": "b"}),
    ("a list where a value was", {"a": [1]}, {"a": "1"}),
    ("a value where there should be none", {"value": ""}, {"value": "x"}),
    ("a false that became true", {"readOnly": False}, {"readOnly": True}),
    ("a variable that is missing", {"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B"}]}),
    ("a variable of another value", {"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A"}]}),
    ("a text that only looks like a quantity", {"env": {"value": "1000m"}}, {"env": {"value": "1"}}),
    ("another quantity", {"limits": {"cpu": "2"}}, {"limits": {"cpu": "2m"}}),
    ("an item more in a list that is one value", {"x": [{"a": 1}]}, {"x": [{"a": 1}, {"a": 2}]}),
    (
        "ports that are no container's",
        {"ports": [{"port": "http", "protocol": "TCP"}]},
        {"ports": [{"port": "http", "protocol": "TCP"}, {"port": 22, "protocol": "TCP"}]},
    ),
    ("another order of a command", {"command": ["a", "b"]}, {"command": ["b", "a"]}),
    ("another order of references", {"ref": [{"name": "a"}, {"name": "b"}]}, {"ref": [{"name": "b"}] * 2}),
]


@pytest.mark.parametrize(("wanted", "live"), [case[1:] for case in _SAME], ids=[case[0] for case in _SAME])
def test_what_a_server_or_others_add_is_no_difference(wanted: Any, live: Any) -> None:
    before = deepcopy((wanted, live))
    assert is_so(wanted, live)
    assert (wanted, live) == before


@pytest.mark.parametrize(("wanted", "live"), [case[1:] for case in _OTHER], ids=[case[0] for case in _OTHER])
def test_what_is_not_so_is_a_difference(wanted: Any, live: Any) -> None:
    assert not is_so(wanted, live)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", 1),
        ("1000m", "1"),
        (0.5, "500m"),
        ("1e3", "1k"),
        ("1E3", "1000"),
        ("12E", "12000P"),
        ("1Ki", "1024"),
        ("1.5Gi", "1536Mi"),
        ("100n", "0.1u"),
        ("+1", "1"),
        (".5", "0.5"),
    ],
)
def test_quantities_are_compared_by_their_amount(one: str | float, other: str | float) -> None:
    assert quantities.equal(one, other)


@pytest.mark.parametrize(("one", "other"), [("1", "1Ki"), ("1m", "1M"), ("abc", "abd"), ("1x", "1"), ("", 0)])
def test_other_amounts_are_not_equal(one: str | float, other: str | float) -> None:
    assert not quantities.equal(one, other)


def test_a_quantity_that_is_none_is_equal_to_itself() -> None:
    assert quantities.equal("lots", "lots")
    assert quantities.parse("lots") is None
