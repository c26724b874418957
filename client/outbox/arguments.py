"""How a delivery becomes the keyword arguments of a callback.

Arguments are found by name, once, when the listener is made. Exactly one argument takes the body, decoded
as its annotation says; the decoder is chosen once as well, when it is first needed, because an annotation
may name something that is defined later and because pydantic is not imported for who only emits.
"""

import functools
import importlib
import inspect
import json
import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any, TypeAlias

from outbox.body import is_json

CONTEXT = ("routing_key", "message", "tracking_ids", "queue_name", "attempt_count")
"""The names that are filled from the delivery; any other name is the body's."""

TRANSACTION = ("connection", "session")
"""The names by which an exactly-once listener asks for the transaction it runs in; to any other listener they
are names like the body's."""

Decoder: TypeAlias = Callable[[bytes, str | None], object]

_MOST_ERRORS = 100
_MOST_SHOWN = 5
_LONGEST_REASON = 2000
"""From a body and its content type to a value; a ValueError or TypeError says why it does not fit."""


class ListenerError(ValueError):
    """A listener that could never be called; said where it is made."""


class BodyError(ValueError):
    """A body that is not what the listener's annotation asks for: no retry will change that."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message as it reached a listener."""

    routing_key: str
    """The key it was emitted with, also after retries."""
    body: bytes
    """Its body as sent."""
    content_type: str | None = None
    """Its media type, if it says one."""
    tracking_ids: Sequence[str] = ()
    """The ids of the emits that led to it, oldest first."""
    queue_name: str = ""
    """The queue it was consumed from."""
    attempt_count: int = 1
    """Which attempt this is, starting at 1."""
    message: object = None
    """The message object of the AMQP library, untouched."""
    message_id: str | None = None
    """What identifies it however often it is delivered, if it says so."""
    headers: Mapping[str, object] = field(default_factory=dict)
    """Its headers, the outbox's own included."""
    connection: object = None
    """The database connection in whose transaction an exactly-once listener runs."""
    session: object = None
    """The SQLAlchemy session of that transaction."""


@dataclass(frozen=True)
class Arguments:
    """The arguments of one callback."""

    callback: Callable[..., object]
    """What is called with them."""
    body: str
    """The name of the argument that takes the body."""
    context: tuple[str, ...]
    """The names among `CONTEXT`, and of an exactly-once listener `TRANSACTION`, that the callback wants."""
    annotation: object
    """The body's annotation as written: `inspect.Parameter.empty` for none, text where it is deferred."""

    @classmethod
    def of(cls, callback: Callable[..., object], *, exactly_once: bool = False) -> "Arguments":
        """The arguments that `callback` names, or a `ListenerError`."""
        known = (*CONTEXT, *TRANSACTION) if exactly_once else CONTEXT
        parameters = _parameters(callback, known)
        body = _body(callback, [name for name in parameters if name not in known], known)
        context = tuple(name for name in parameters if name in known)
        if set(TRANSACTION) <= set(context):
            raise ListenerError(
                f"{described(callback)}: 'connection' and 'session' would be two transactions, and only one "
                "can commit with the message; keep the one it writes through"
            )
        return cls(callback, body, context, parameters[body].annotation)

    def resolve(self, delivery: Delivery) -> dict[str, object]:
        """The keyword arguments for `delivery`, or a `BodyError`."""
        arguments = {name: getattr(delivery, name) for name in self.context}
        decode = self.decoder
        try:
            arguments[self.body] = decode(delivery.body, delivery.content_type)
        except (ValueError, TypeError, RecursionError) as error:
            raise BodyError(
                f"{name_of(self.callback)}: the body does not fit the argument {self.body!r}, "
                f"which is {inspect.formatannotation(self.hint)}: {_reason(error)}"
            ) from error
        return arguments

    @functools.cached_property
    def hint(self) -> Any:
        """The body's annotation as a type."""
        holder = types.SimpleNamespace(__annotations__={self.body: self.annotation})
        try:
            hints = typing.get_type_hints(holder, _globals(self.callback), include_extras=True)
        except Exception as error:
            raise ListenerError(
                f"{described(self.callback)}: the annotation {self.annotation!r} of {self.body!r} cannot be "
                f"resolved: {error}; import what it names outside `if TYPE_CHECKING`, at the module's top"
            ) from error
        return hints[self.body]

    @functools.cached_property
    def decoder(self) -> Decoder:
        """What turns a body into the argument. Read it at start to hear of a `ListenerError` then."""
        try:
            return _decoder(self.hint)
        except TypeError as error:
            raise ListenerError(
                f"{described(self.callback)}: no body can be decoded into the argument {self.body!r}, "
                f"which is {inspect.formatannotation(self.hint)}: {error}"
            ) from error


def name_of(callback: Callable[..., object]) -> str:
    """`module.qualname`, or what it is made of; never a repr, which shows what a partial has bound."""
    if isinstance(callback, functools.partial):
        return f"partial of {name_of(callback.func)}"
    if qualname := getattr(callback, "__qualname__", None):
        return f"{callback.__module__}.{qualname}"
    return f"instance of {name_of(type(callback))}"


def described(callback: Callable[..., object]) -> str:
    """Its name and where it is written, for an error."""
    code = getattr(inspect.unwrap(callback), "__code__", None)
    return f"{name_of(callback)} ({code.co_filename}:{code.co_firstlineno})" if code else name_of(callback)


def _parameters(callback: Callable[..., object], known: tuple[str, ...]) -> Mapping[str, inspect.Parameter]:
    """The parameters to fill: those that a partial has already bound by name are not among them."""
    bound = callback.keywords if isinstance(callback, functools.partial) else {}
    parameters = inspect.signature(callback).parameters
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ListenerError(
                f"{described(callback)}: {parameter} is not possible, since arguments are found by name; "
                f"name the body and any of {', '.join(known)}"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ListenerError(
                f"{described(callback)}: {parameter.name!r} is positional-only, but arguments are passed "
                "by name; remove the '/'"
            )
    return {name: parameter for name, parameter in parameters.items() if name not in bound}


def _body(callback: Callable[..., object], names: list[str], known: tuple[str, ...]) -> str:
    match names:
        case [name]:
            return name
        case []:
            raise ListenerError(
                f"{described(callback)}: no argument takes the body; add one with a name other than "
                f"{', '.join(known)}"
            )
        case ["self" | "cls", *_]:
            raise ListenerError(
                f"{described(callback)}: a method cannot listen before it is bound; "
                "write Listener(binding_key, instance.method) where the instance exists"
            )
        case _:
            hint = "; connection and session take exactly_once=True" if {*TRANSACTION} & {*names} else ""
            raise ListenerError(
                f"{described(callback)}: {' and '.join(map(repr, names))} would each take the body; keep "
                f"one, bind the rest with functools.partial, or name them among {', '.join(known)}{hint}"
            )


def _globals(callback: Callable[..., object]) -> dict[str, Any]:
    """The names that a deferred annotation of `callback` may use."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    function = inspect.unwrap(callback)
    if not hasattr(function, "__globals__"):  # an object with `__call__`
        function = type(function).__call__
    return getattr(function, "__globals__", {})


def _decoder(hint: Any) -> Decoder:
    if (decode := _simple(hint)) is not None:
        return decode
    bare = _bare(hint)
    if bare in (bytes, str):
        decode = _simple(bare)
    elif typing.get_origin(bare) in (typing.Union, types.UnionType):
        decode = _union(bare)
    if decode is None:
        return _adapted(hint)
    return decode if bare is hint else _constrained(hint, decode)


def _simple(hint: Any) -> Decoder | None:
    """The decoder that takes no pydantic, if the hint has one."""
    if hint in (inspect.Parameter.empty, Any, object):
        return _anything
    if hint is bytes:
        return _raw
    if hint is str:
        return _text
    if hint in (bool, int, float, dict, list, types.NoneType):
        return functools.partial(_plain, hint)
    return None


def _bare(hint: Any) -> Any:
    """The type below `Annotated`, `NewType` and a type alias."""
    while True:
        if typing.get_origin(hint) is typing.Annotated:
            hint = hint.__origin__
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif type(hint).__name__ == "TypeAliasType":  # of `typing` or, before Python 3.12, typing_extensions
            hint = hint.__value__
        else:
            return hint


def _union(hint: Any) -> Decoder | None:
    """How bytes or text are told from the union's other members; None for one with neither."""
    members = typing.get_args(hint)
    if any(_bare(member) is bytes for member in members):
        others = [member for member in members if _bare(member) is not bytes]
        return functools.partial(_bytes_or, _decoder(functools.reduce(operator.or_, others)))
    if any(_bare(member) is str for member in members):
        return functools.partial(_text_or, _adapted(hint))
    return None


def _bytes_or(decode: Decoder, body: bytes, content_type: str | None) -> object:
    """The body as it is, unless it says that it is JSON and fits another member of the union."""
    if content_type is None or not is_json(content_type):
        return body
    try:
        return decode(body, content_type)
    except (ValueError, TypeError, RecursionError):
        return body


def _text_or(decode: Decoder, body: bytes, content_type: str | None) -> object:
    """The decoded JSON; the text if the body says that it is not JSON, or is not and says nothing."""
    if content_type is not None:
        return decode(body, content_type) if is_json(content_type) else body.decode()
    try:
        return decode(body, content_type)
    except (ValueError, TypeError, RecursionError):
        return body.decode()


def _constrained(hint: Any, decode: Decoder) -> Decoder:
    """`decode`, and then what pydantic checks of the annotation, if it is installed."""
    try:
        adapter = importlib.import_module("pydantic").TypeAdapter
    except ImportError:
        return decode
    validate = _adapter_of(adapter, hint).validate_python
    return lambda body, content_type: validate(decode(body, content_type))


def _adapted(hint: Any) -> Decoder:
    """What pydantic makes of any other annotation; without it, as much as can be done honestly."""
    if inspect.isclass(hint) and hasattr(hint, "model_validate_json"):
        return lambda body, _: hint.model_validate_json(body)
    try:
        adapter = importlib.import_module("pydantic").TypeAdapter
    except ImportError:
        if inspect.isclass(hint) and is_dataclass(hint):
            return lambda body, _: hint(**_plain(dict, body, None))
        if (origin := typing.get_origin(hint)) in (dict, list):
            return functools.partial(_plain, origin)
        raise TypeError("it takes pydantic; install outbox-operator[worker]") from None
    validate = _adapter_of(adapter, hint).validate_json
    return lambda body, _: validate(body)


def _adapter_of(adapter: Any, hint: Any) -> Any:
    try:
        return adapter(hint)
    except Exception as error:
        raise TypeError(str(error).partition("\n")[0]) from error  # the rest are links


def _anything(body: bytes, _content_type: str | None) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body


def _raw(body: bytes, _content_type: str | None) -> bytes:
    return body


def _text(body: bytes, content_type: str | None) -> str:
    """A JSON string's value, or the text itself; a JSON body that is no string does not fit."""
    if content_type is not None and is_json(content_type):
        return str(_checked(str, json.loads(body)))
    is_text = (content_type or "").strip().lower().startswith("text/")
    if not is_text and isinstance(value := _anything(body, None), str):
        return value
    return body.decode()


def _plain(kind: type[Any], body: bytes, _content_type: str | None) -> Any:
    return _checked(kind, json.loads(body))


def _checked(kind: type[Any], value: object) -> object:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:  # not isinstance: to Python a bool is an int, to JSON it is not
        raise TypeError(f"it is JSON of type {type(value).__name__}")
    return value


def _reason(error: Exception) -> str:
    """Why, in one line; of pydantic's errors the places and messages, without the values found there."""
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {error}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if type(error).__module__.startswith("pydantic") and (errors := getattr(error, "errors", None)):
        count: int = getattr(error, "error_count", lambda: 0)()
        if count > _MOST_ERRORS:
            # pydantic writes out either all of them or none, at some microseconds each.
            return f"{count} values in it do not fit"
        found = errors(include_url=False, include_input=False)
        places = [f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in found[:_MOST_SHOWN]]
        more = f"; and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
        return "; ".join(places)[:_LONGEST_REASON] + more
    return str(error)[:_LONGEST_REASON] or type(error).__name__
