"""From a delivery to keyword arguments: which argument gets what, and how a body is decoded."""

import functools
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Optional

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from outbox.arguments import Arguments, BodyError, Delivery, ListenerError

if TYPE_CHECKING:
    from decimal import Decimal


class User(BaseModel):
    id: int
    username: str = ""


@dataclass
class Point:
    x: int
    y: int = 0


class Order(TypedDict):
    id: int


def annotated(annotation: Any) -> Callable[..., object]:
    """A callback whose body is annotated as given."""

    def callback(body: object) -> object:
        return body

    callback.__annotations__["body"] = annotation
    return callback


def decoded(annotation: Any, body: bytes, content_type: str | None = None) -> object:
    arguments = Arguments.of(annotated(annotation))
    return arguments.resolve(Delivery("user.created", body, content_type))["body"]


def test_arguments_are_filled_by_name_and_the_other_one_with_the_body() -> None:
    def callback(
        attempt_count: int,
        message: object,
        user: dict[str, object],
        routing_key: str,
        tracking_ids: Sequence[str],
        *,
        queue_name: str,
    ) -> None: ...

    message = object()
    delivery = Delivery("user.created", b'{"id": 1}', None, ("a", "b"), "shop.mail", 3, message)
    assert Arguments.of(callback).resolve(delivery) == {
        "attempt_count": 3,
        "message": message,
        "user": {"id": 1},
        "routing_key": "user.created",
        "tracking_ids": ("a", "b"),
        "queue_name": "shop.mail",
    }


def test_an_exactly_once_callback_is_given_its_transaction_by_name() -> None:
    connection, session = object(), object()
    delivery = Delivery("k", b"1", connection=connection, session=session)
    by_connection = Arguments.of(lambda user, connection: (user, connection), exactly_once=True)
    by_session = Arguments.of(lambda session, user: (user, session), exactly_once=True)
    assert by_connection.resolve(delivery) == {"user": 1, "connection": connection}
    assert by_session.resolve(delivery) == {"user": 1, "session": session}


@pytest.mark.parametrize("name", ["connection", "session", "message_id", "headers"])
def test_any_other_callback_may_call_its_body_as_it_likes(name: str) -> None:
    callback = {
        "connection": lambda connection: connection,
        "session": lambda session: session,
        "message_id": lambda message_id: message_id,
        "headers": lambda headers: headers,
    }[name]
    delivery = Delivery("k", b"1", message_id="a", headers={"a": 1}, connection=object(), session=object())
    assert Arguments.of(callback).resolve(delivery) == {name: 1}


def test_only_what_is_named_is_passed() -> None:
    assert Arguments.of(lambda user: user).resolve(Delivery("k", b"1")) == {"user": 1}


def test_a_body_without_annotation_is_json_or_else_the_bytes() -> None:
    arguments = Arguments.of(lambda user: user)
    assert arguments.resolve(Delivery("k", b'{"id": 1}')) == {"user": {"id": 1}}
    assert arguments.resolve(Delivery("k", b"\xff\x00")) == {"user": b"\xff\x00"}
    assert arguments.resolve(Delivery("k", b"[" * 100_000)) == {"user": b"[" * 100_000}


@pytest.mark.parametrize(
    ("annotation", "body", "content_type", "expected"),
    [
        (Any, b"[1]", None, [1]),
        (object, b"plain", None, b"plain"),
        (bytes, b'{"id": 1}', "application/json", b'{"id": 1}'),
        (str, b'"caf\xc3\xa9"', "application/json", "café"),
        (str, b'"hi"', "application/vnd.shop+json; charset=utf-8", "hi"),
        (str, b'"hi"', None, "hi"),
        (str, b"12", None, "12"),
        (str, b'"hi"', "text/plain", '"hi"'),
        (str, b"caf\xc3\xa9", None, "café"),
        (dict, b'{"a": 1}', None, {"a": 1}),
        (list, b"[1]", None, [1]),
        (int, b"5", None, 5),
        (float, b"5", None, 5.0),
        (float, b"5.5", None, 5.5),
        (bool, b"true", None, True),
        (User, b'{"id": 1, "username": "jo"}', None, User(id=1, username="jo")),
        ("User", b'{"id": 1}', None, User(id=1)),
        (Point, b'{"x": 1}', None, Point(1)),
        (Order, b'{"id": 1}', None, {"id": 1}),
        (User | None, b"null", None, None),
        (Optional[User], b'{"id": 1}', None, User(id=1)),  # noqa: UP045
        (list[User], b'[{"id": 1}]', None, [User(id=1)]),
        ("dict[str, int]", b'{"a": 1}', None, {"a": 1}),
        (Annotated[int, Field(gt=0)], b"1", None, 1),
        (date, b'"2024-02-29"', None, date(2024, 2, 29)),
    ],
)
def test_a_body_is_what_its_annotation_says(
    annotation: Any, body: bytes, content_type: str | None, expected: object
) -> None:
    value = decoded(annotation, body, content_type)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "body", "content_type", "named"),
    [
        (str, b'{"a": 1}', "application/json", ["is str", "JSON of type dict"]),
        (str, b"\xff", None, ["is str", "utf-8"]),
        (dict, b"[]", None, ["is dict", "JSON of type list"]),
        (dict, b"nonsense", None, ["is dict", "not JSON"]),
        (dict, b"[" * 100_000, None, ["is dict", "nested too deeply"]),
        (int, b"true", None, ["is int", "JSON of type bool"]),
        (int, b"1.5", None, ["is int", "JSON of type float"]),
        (bool, b"1", None, ["is bool", "JSON of type int"]),
        (User, b'{"id": "x"}', None, ["User", "id: Input should be a valid integer"]),
        (User, b"\xff", None, ["User", "body: Invalid JSON"]),
        (Point, b"{}", None, ["Point", "x: Field required"]),
        (list[int], b'["x"]', None, ["list[int]", "0: Input should be a valid integer"]),
        (Annotated[int, Field(gt=0)], b"0", None, ["greater than 0"]),
    ],
)
def test_a_body_that_does_not_fit_names_argument_type_and_reason(
    annotation: Any, body: bytes, content_type: str | None, named: list[str]
) -> None:
    with pytest.raises(BodyError) as refused:
        decoded(annotation, body, content_type)
    parts = ["annotated.<locals>.callback", "argument 'body'", *named]
    assert [part for part in parts if part not in str(refused.value)] == []


@pytest.mark.parametrize(
    ("count", "end"),
    [
        (5, "valid integer, unable to parse string as an integer"),
        (6, "; and 1 more"),
        (50_000, ": 50000 values in it do not fit"),
    ],
)
def test_of_the_errors_of_a_body_the_first_are_named(count: int, end: str) -> None:
    with pytest.raises(BodyError) as refused:
        decoded(list[int], json.dumps(["x"] * count).encode())
    assert str(refused.value).endswith(end)
    assert len(str(refused.value)) < 1000


def test_a_key_of_a_body_does_not_make_its_error_long() -> None:
    with pytest.raises(BodyError) as refused:
        decoded(dict[str, int], json.dumps({"k" * 10_000_000: "x"}).encode())
    assert len(str(refused.value)) < 5000


def test_an_error_about_the_body_does_not_repeat_what_is_in_it() -> None:
    with pytest.raises(BodyError) as refused:
        decoded(User, b'{"id": "s3cret"}')
    assert "s3cret" not in str(refused.value)


def test_the_decoder_is_chosen_once() -> None:
    arguments = Arguments.of(annotated(Point))
    assert arguments.decoder is arguments.decoder


def two(user: object, order: object) -> None: ...
def none(routing_key: str) -> None: ...
def variable(*users: object) -> None: ...
def keywords(user: object, **rest: object) -> None: ...
def positional(user: object, /) -> None: ...
def method(self: object, user: object) -> None: ...


@pytest.mark.parametrize(
    ("callback", "named"),
    [
        (two, ["'user' and 'order'", "functools.partial"]),
        (none, ["no argument takes the body", "routing_key"]),
        (variable, ["*users"]),
        (keywords, ["**rest"]),
        (positional, ["'user' is positional-only"]),
        (method, ["instance.method"]),
    ],
)
def test_a_signature_that_cannot_be_called_is_named(
    callback: Callable[..., object], named: list[str]
) -> None:
    with pytest.raises(ListenerError) as refused:
        Arguments.of(callback)
    parts = [f"{__name__}.{callback.__name__}", "test_arguments.py:", *named]
    assert [part for part in parts if part not in str(refused.value)] == []


def test_what_a_partial_has_bound_is_not_asked_for() -> None:
    callback = functools.partial(two, order="bound")
    assert Arguments.of(callback).resolve(Delivery("k", b"1")) == {"user": 1}


def test_a_bound_method_and_an_object_with_call_have_the_types_of_their_functions() -> None:
    class Handler:
        def on_user(self, user: "User") -> None: ...
        def __call__(self, user: "User") -> None: ...

    for callback in (Handler().on_user, Handler(), functools.partial(Handler().on_user)):
        assert Arguments.of(callback).resolve(Delivery("k", b'{"id": 1}')) == {"user": User(id=1)}


def test_an_annotation_only_for_the_type_checker_is_said_when_the_decoder_is_needed() -> None:
    def callback(amount: "Decimal") -> None: ...

    arguments = Arguments.of(callback)
    with pytest.raises(ListenerError, match=r"'Decimal' of 'amount'.*TYPE_CHECKING"):
        arguments.decoder  # noqa: B018
    with pytest.raises(ListenerError, match="'Decimal' of 'amount'"):
        arguments.resolve(Delivery("k", b"1"))


def test_an_unresolvable_annotation_of_another_argument_does_not_matter() -> None:
    def callback(user: "User", message: "Decimal") -> "Decimal":
        return message

    assert Arguments.of(callback).resolve(Delivery("k", b'{"id": 1}'))["user"] == User(id=1)


def test_an_annotation_that_nothing_can_be_decoded_into_is_said() -> None:
    class Opaque:
        pass

    with pytest.raises(ListenerError, match=r"no body can be decoded into the argument 'body'.*Opaque"):
        decoded(Opaque, b"{}")


@pytest.fixture
def without_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", import_module)


@pytest.mark.usefixtures("without_pydantic")
def test_without_pydantic_dataclasses_and_containers_still_work() -> None:
    assert decoded(Point, b'{"x": 1}') == Point(1)
    assert decoded(dict[str, int], b'{"a": 1}') == {"a": 1}
    with pytest.raises(BodyError, match="unexpected keyword argument 'z'"):
        decoded(Point, json.dumps({"x": 1, "z": 2}).encode())


@pytest.mark.usefixtures("without_pydantic")
def test_without_pydantic_the_error_says_what_to_install() -> None:
    with pytest.raises(ListenerError, match=r"install outbox-operator\[worker\]"):
        decoded(User | None, b"null")
