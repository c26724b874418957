"""A body that is emitted and read with the same annotation is the same again."""

import dataclasses
import enum
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NewType, TypeVar
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    AliasGenerator,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    RootModel,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    computed_field,
    field_serializer,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from outbox.arguments import Arguments, BodyError, Delivery
from outbox.body import BINARY, JSON, encode_body

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


def made(kind: type[M], **values: Any) -> M:
    return kind.model_validate(values)


def listener_of(annotation: Any) -> Callable[..., object]:
    def callback(body: object) -> object:
        return body

    callback.__annotations__["body"] = annotation
    return callback


def round_trip(body: Any, annotation: Any, content_type: str | None = None) -> Any:
    raw, sent_as = encode_body(body, content_type)
    return Arguments.of(listener_of(annotation)).resolve(Delivery("k", raw, sent_as))["body"]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Plain(BaseModel):
    """A field of every kind that JSON does not have."""

    id: UUID
    price: Decimal
    at: datetime
    day: date
    clock: time
    lasts: timedelta
    colour: Colour
    level: Level
    raw: bytes
    ratio: float
    maybe: int | None = None
    tags: frozenset[str] = frozenset()
    pair: tuple[int, str] = (0, "")


class Aliased(BaseModel):
    user_id: int = Field(alias="userId")
    name: str = Field("", alias="Name")


class AliasedByName(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    user_id: int = Field(alias="userId")


class WrittenByAlias(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)
    user_id: int = Field(alias="userId")


class ReadByAlias(BaseModel):
    user_id: int = Field(1, validation_alias="userId")
    other: int = Field(2, validation_alias=AliasChoices(AliasPath("deep", 0), "oTher", "OTHER"))


class WrittenUnderAnother(BaseModel):
    user_id: int = Field(serialization_alias="userId")


class WrittenUnderAnotherByAlias(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)
    user_id: int = Field(validation_alias="in", serialization_alias="out")


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=AliasGenerator(validation_alias=to_camel), extra="forbid")
    user_id: int
    first_name: str


class Crossed(BaseModel):
    """One field's alias is the other's name."""

    model_config = ConfigDict(populate_by_name=True)
    id: int = Field(alias="_id")
    external_id: int = Field(alias="id")


class ByNameOnly(BaseModel):
    model_config = ConfigDict(validate_by_alias=False, validate_by_name=True)
    user_id: int = Field(alias="userId")


class Computing(BaseModel):
    model_config = ConfigDict(extra="forbid")
    width: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.width * self.width


class ComputingOpen(BaseModel):
    model_config = ConfigDict(extra="allow")
    width: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.width * self.width


class Holder(BaseModel):
    model_config = ConfigDict(extra="forbid")
    payload: Json[list[int]]


class Cat(BaseModel):
    kind: Literal["cat"] = Field("cat", alias="Kind")
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"] = Field("dog", alias="Kind")
    good: bool


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Pets(RootModel[list[Pet]]):
    pass


class Page(BaseModel, Generic[T]):
    items: list[T]
    total: int = Field(alias="totalCount")


class Tree(BaseModel):
    label: str = Field(alias="Label")
    children: list["Tree"] = []
    by_name: dict[str, "Tree"] = {}


class Address(TypedDict):
    street: str
    number: int


@dataclasses.dataclass
class Point:
    x: int
    owner: Aliased
    colour: Colour = Colour.RED
    price: Decimal = Decimal(0)


@pydantic_dataclass
class AliasedPoint:
    x: int = Field(alias="X")
    y: int = 0


class Nested(BaseModel):
    computing: Computing
    point: Point
    aliased_point: AliasedPoint
    address: Address
    pets: list[Pet]
    pages: dict[str, Page[Aliased]]
    tree: Tree
    read: ReadByAlias
    maybe: Camel | None = None
    pair: tuple[Aliased, int]


small = st.integers(-(2**60), 2**60)
text = st.text(st.characters(exclude_categories=["Cs"]))
finite = st.floats(allow_nan=False, allow_infinity=False)
aliased = st.builds(lambda user_id, name: made(Aliased, userId=user_id, Name=name), small, text)
points = st.builds(
    Point, small, aliased, st.sampled_from(Colour), st.decimals(allow_nan=False, allow_infinity=False)
)
pets = st.builds(lambda lives: made(Cat, lives=lives), small) | st.builds(
    lambda good: made(Dog, good=good), st.booleans()
)
pages = st.builds(
    lambda items, total: made(Page[Aliased], items=items, totalCount=total),
    st.lists(aliased, max_size=3),
    small,
)
trees = st.recursive(
    st.builds(lambda label: made(Tree, Label=label), text),
    lambda inner: st.builds(
        lambda label, children, named: made(Tree, Label=label, children=children, by_name=named),
        text,
        st.lists(inner, max_size=2),
        st.dictionaries(text, inner, max_size=2),
    ),
    max_leaves=4,
)
reads = st.builds(lambda one, two: made(ReadByAlias, userId=one, OTHER=two), small, small)
camels = st.builds(lambda user_id, name: made(Camel, userId=user_id, firstName=name), small, text)
plain = st.builds(
    Plain,
    id=st.uuids(),
    price=st.decimals(allow_nan=False, allow_infinity=False),
    at=st.datetimes(timezones=st.just(UTC)),
    day=st.dates(),
    clock=st.times(),
    lasts=st.timedeltas(timedelta(days=-30_000), timedelta(days=30_000)),
    colour=st.sampled_from(Colour),
    level=st.sampled_from(Level),
    raw=text.map(str.encode),
    ratio=finite,
    maybe=st.none() | small,
    tags=st.frozensets(text, max_size=3),
    pair=st.tuples(small, text),
)
nested = st.builds(
    Nested,
    computing=st.builds(Computing, width=small),
    point=points,
    aliased_point=st.builds(lambda x, y: AliasedPoint(X=x, y=y), small, small),
    address=st.fixed_dictionaries({"street": text, "number": small}),
    pets=st.lists(pets, max_size=3),
    pages=st.dictionaries(text, pages, max_size=2),
    tree=trees,
    read=reads,
    maybe=st.none() | camels,
    pair=st.tuples(aliased, small),
)  # fmt: skip

MODELS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "plain": (Plain, plain),
    "aliased": (Aliased, aliased),
    "aliased, also by name": (AliasedByName, st.builds(AliasedByName, user_id=small)),
    "written by alias": (WrittenByAlias, st.builds(lambda n: made(WrittenByAlias, userId=n), small)),
    "alias for reading only": (ReadByAlias, reads),
    "alias for writing only": (WrittenUnderAnother, st.builds(WrittenUnderAnother, user_id=small)),
    "two aliases": (
        WrittenUnderAnotherByAlias,
        st.builds(lambda n: WrittenUnderAnotherByAlias.model_validate({"in": n}), small),
    ),
    "alias generator": (Camel, camels),
    "crossed": (Crossed, st.builds(lambda a, b: made(Crossed, _id=a, id=b), small, small)),
    "by name only": (ByNameOnly, st.builds(ByNameOnly, user_id=small)),
    "computed, extra forbidden": (Computing, st.builds(Computing, width=small)),
    "computed, extra allowed": (ComputingOpen, st.builds(ComputingOpen, width=small, more=text)),
    "Json": (Holder, st.builds(lambda items: made(Holder, payload=json.dumps(items)), st.lists(small))),
    "root model": (Pets, st.builds(Pets, st.lists(pets, max_size=3))),
    "generic": (Page[Aliased], pages),
    "recursive": (Tree, trees),
    "nested": (Nested, nested),
    "dataclass": (Point, points),
    "pydantic dataclass": (AliasedPoint, st.builds(lambda x: AliasedPoint(X=x), small)),
    "union of models": (Pet, pets),
    "optional model": (Aliased | None, st.none() | aliased),
    "list of models": (list[Aliased], st.lists(aliased, max_size=3)),
    "dict of models": (dict[str, Aliased], st.dictionaries(text, aliased, max_size=3)),
    "TypedDict": (Address, st.fixed_dictionaries({"street": text, "number": small})),
    "bytes": (bytes, st.binary()),
    "annotated bytes": (Annotated[bytes, Field(max_length=10_000)], st.binary()),
    "optional bytes": (bytes | None, st.none() | st.binary()),
    "bytes or a model": (bytes | Aliased, st.binary() | aliased),
    "str": (str, text),
    "optional str": (str | None, st.none() | text),
    "annotated str": (Annotated[str, Field(max_length=10_000)], text),
    "int": (int, st.integers(-(10**30), 10**30)),
    "float": (float, finite),
    "bool": (bool, st.booleans()),
    "Decimal": (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    "UUID": (UUID, st.uuids()),
    "datetime": (datetime, st.datetimes(timezones=st.just(UTC))),
    "date": (date, st.dates()),
    "time": (time, st.times()),
    "timedelta": (timedelta, st.timedeltas(timedelta(days=-30_000), timedelta(days=30_000))),
    "enum": (Colour, st.sampled_from(Colour)),
    "int enum": (Level, st.sampled_from(Level)),
    "set": (set[int], st.sets(small)),
    "tuple": (tuple[int, str], st.tuples(small, text)),
}


@pytest.mark.parametrize("kind", MODELS)
@settings(max_examples=40)
@given(data=st.data())
def test_a_body_reads_back_as_it_was_emitted(kind: str, data: st.DataObject) -> None:
    annotation, strategy = MODELS[kind]
    body = data.draw(strategy)
    received = round_trip(body, annotation)
    assert received == body
    assert type(received) is type(body)


@given(aliased)
def test_models_inside_plain_containers_read_back(model: Aliased) -> None:
    assert round_trip({"users": [model]}, dict[str, list[Aliased]]) == {"users": [model]}


@pytest.mark.parametrize(
    ("model", "written"),
    [
        (made(Aliased, userId=1), {"userId": 1, "Name": ""}),
        (made(AliasedByName, user_id=1), {"user_id": 1}),
        (made(WrittenByAlias, userId=1), {"userId": 1}),
        (WrittenUnderAnother(user_id=1), {"user_id": 1}),
        (made(ReadByAlias, userId=1), {"userId": 1, "oTher": 2}),
        (made(Crossed, _id=1, id=2), {"_id": 1, "id": 2}),
        (Computing(width=2), {"width": 2}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_keys_change_only_if_the_model_would_not_read_them(model: Any, written: dict[str, Any]) -> None:
    raw, content_type = encode_body(model)
    assert json.loads(raw) == written
    assert content_type == JSON


def test_computed_fields_are_kept_if_the_model_ignores_them() -> None:
    class Square(BaseModel):
        width: int

        @computed_field  # type: ignore[prop-decorator]
        @property
        def area(self) -> int:
            return self.width * self.width

    assert json.loads(encode_body(Square(width=3))[0]) == {"width": 3, "area": 9}
    assert round_trip(Square(width=3), Square) == Square(width=3)


def test_a_model_with_its_own_serializer_is_left_alone() -> None:
    class Own(BaseModel):
        user_id: int = Field(alias="userId")

        @model_serializer
        def write(self) -> dict[str, int]:
            return {"user_id": self.user_id + 1}

    assert encode_body(made(Own, userId=1))[0] == b'{"user_id":2}'


def test_a_serializer_around_pydantics_keeps_the_aliases_readable() -> None:
    class Short(BaseModel):
        user_id: int = Field(alias="userId")
        friends: list[Aliased] = []
        note: str | None = None

        @model_serializer(mode="wrap")
        def write(self, pydantics: SerializerFunctionWrapHandler) -> dict[str, Any]:
            return {name: value for name, value in pydantics(self).items() if value is not None}

    body = made(Short, userId=1, friends=[made(Aliased, userId=2)])
    assert b"null" not in encode_body(body)[0]
    assert round_trip(body, Short) == body


def test_keys_that_a_models_own_validator_reads_are_left_alone() -> None:
    class Own(BaseModel):
        user_id: int = Field(alias="userId")

        @model_validator(mode="before")
        @classmethod
        def read(cls, data: dict[str, Any]) -> dict[str, Any]:
            return {"userId": data.pop("user_id")}

        @model_serializer(mode="wrap")
        def write(self, pydantics: SerializerFunctionWrapHandler) -> dict[str, Any]:
            written: dict[str, Any] = pydantics(self)
            return written

    assert round_trip(made(Own, user_id=1), Own) == made(Own, user_id=1)


def test_a_field_with_only_a_path_for_alias_keeps_its_name() -> None:
    class Deep(BaseModel):
        street: str = Field(validation_alias=AliasPath("address", "street"))

    assert encode_body(made(Deep, address={"street": "Low"}))[0] == b'{"street":"Low"}'


class Measured(BaseModel):
    ratio: float | None = None
    more: list[float] = []


class Series(BaseModel):
    label: str | None = None
    points: dict[str, Measured] = {}


class Free(BaseModel):
    model_config = ConfigDict(extra="allow")
    payload: Any = None
    items: list = []  # type: ignore[type-arg]


@pytest.mark.parametrize(
    ("model", "place"),
    [
        (Measured(ratio=math.nan), "ratio is nan"),
        (Measured(ratio=math.inf), "ratio is inf"),
        (Measured(more=[1.0, -math.inf]), r"more\[1\] is -inf"),
        (Series(points={"a": Measured(ratio=math.nan)}), r"points\.a\.ratio is nan"),
        (Free(payload=math.nan), "payload is nan"),
        (Free(payload={"a": [math.inf]}), r"payload\.a\[0\] is inf"),
        (Free(items=[Measured(ratio=math.nan)]), r"items\[0\]\.ratio is nan"),
        (made(Free, more=math.nan), "more is nan"),
    ],
)
def test_a_float_that_json_does_not_have_is_refused_at_emit(model: BaseModel, place: str) -> None:
    with pytest.raises(ValueError, match=f"the body cannot be written as JSON: {place}"):
        encode_body(model)


def test_a_model_may_write_null_for_nan_itself() -> None:
    class Own(BaseModel):
        ratio: float

        @field_serializer("ratio", when_used="json")
        def write(self, ratio: float) -> float | None:
            return ratio if math.isfinite(ratio) else None

    assert encode_body(Own(ratio=math.nan))[0] == b'{"ratio":null}'


@pytest.mark.parametrize("form", ["constants", "strings"])
def test_a_model_may_choose_how_nan_is_written(form: Literal["constants", "strings"]) -> None:
    class Chosen(BaseModel):
        model_config = ConfigDict(ser_json_inf_nan=form)
        ratio: float
        none: int | None = None

    assert math.isnan(round_trip(Chosen(ratio=math.nan), Chosen).ratio)


Raw = NewType("Raw", bytes)


@pytest.mark.parametrize(
    ("annotation", "body", "content_type", "expected"),
    [
        (Annotated[bytes, "a note"], b"\xff\x00", BINARY, b"\xff\x00"),
        (Annotated[bytes, "a note"], b'{"a": 1}', JSON, b'{"a": 1}'),
        (bytes | None, b"\xff", None, b"\xff"),
        (bytes | None, b'"hi"', JSON, b'"hi"'),
        (bytes | None, b"null", JSON, None),
        (bytes | None, b"null", BINARY, b"null"),
        (Annotated[bytes | None, Field(max_length=9)], b"\xff", BINARY, b"\xff"),
        (Raw, b"\xff", BINARY, b"\xff"),
        (bytes | dict[str, int], b'{"a": 1}', JSON, {"a": 1}),
        (bytes | dict[str, int], b'{"a": 1}', BINARY, b'{"a": 1}'),
        (str | None, b"hello", "text/plain", "hello"),
        (str | None, b"null", "text/plain", "null"),
        (str | None, b"null", JSON, None),
        (str | None, b"hello", None, "hello"),
        (Annotated[str, Field(min_length=1)], b"hello", "text/plain", "hello"),
        (Annotated[str, Field(min_length=1)], b'"hello"', JSON, "hello"),
        (str | int, b"5", JSON, 5),
        (str | int, b"5", "text/plain", "5"),
    ],
)
def test_bytes_and_text_are_given_as_they_are(
    annotation: Any, body: bytes, content_type: str | None, expected: object
) -> None:
    received = Arguments.of(listener_of(annotation)).resolve(Delivery("k", body, content_type))["body"]
    assert received == expected
    assert type(received) is type(expected)


@pytest.mark.parametrize(
    ("annotation", "body"),
    [(Annotated[bytes, Field(max_length=2)], b"abc"), (Annotated[str, Field(max_length=2)], b'"abc"')],
)
def test_the_constraints_of_bytes_and_text_are_checked(annotation: Any, body: bytes) -> None:
    with pytest.raises(BodyError, match="at most 2"):
        Arguments.of(listener_of(annotation)).resolve(Delivery("k", body, None))


def test_what_is_written_is_what_pydantic_alone_reads() -> None:
    body = Nested(
        computing=Computing(width=1),
        point=Point(1, made(Aliased, userId=2)),
        aliased_point=AliasedPoint(X=3),
        address={"street": "Low", "number": 4},
        pets=[made(Cat, lives=9)],
        pages={"a": made(Page[Aliased], items=[made(Aliased, userId=5)], totalCount=1)},
        tree=made(Tree, Label="root"),
        read=made(ReadByAlias),
        pair=(made(Aliased, userId=6), 7),
    )
    assert TypeAdapter(Nested).validate_json(encode_body(body)[0]) == body
