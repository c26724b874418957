"""Settings from `OUTBOX_…` variables, whatever the type of the field."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pytest

from outbox_core.environment import (
    SettingError,
    leaves,
    log_format,
    needed_url,
    one_line,
    probe_host,
    probe_port,
    settings_of,
    variable_of,
)


@dataclass(frozen=True)
class Choices:
    flag: bool = False
    count: int = 1
    rate: float = 1.0
    name: str = "x"
    wait: timedelta = timedelta(seconds=1)
    mode: Literal["park", "drop"] = "park"
    delays: tuple[float, ...] = (1, 10)
    limit: int | None = 5
    kept: Literal["never"] | timedelta = "never"


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("flag", "true", True),
        ("flag", "YES", True),
        ("flag", "0", False),
        ("count", "12", 12),
        ("rate", "0.5", 0.5),
        ("name", "a b", "a b"),
        ("wait", "1.5", timedelta(seconds=1.5)),
        ("mode", "DROP", "drop"),
        ("delays", "1, 2.5,3", (1.0, 2.5, 3.0)),
        ("delays", " ", ()),
        ("limit", "7", 7),
        ("limit", "none", None),
        ("limit", "", None),
        ("kept", "never", "never"),
        ("kept", "60", timedelta(minutes=1)),
    ],
)
def test_a_variable_gives_the_field_of_its_name(field: str, text: str, value: object) -> None:
    found = settings_of(Choices, {variable_of(field): text})
    assert getattr(found, field) == value
    assert found == Choices(**{field: value})  # type: ignore[arg-type]  # the table says which


def test_what_is_not_given_is_as_by_default() -> None:
    assert settings_of(Choices, {"OTHER_COUNT": "3", "OUTBOX_UNKNOWN": "4"}) == Choices()


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("OUTBOX_FLAG", "perhaps", "write true or false"),
        ("OUTBOX_COUNT", "many", "OUTBOX_COUNT='many'"),
        ("OUTBOX_MODE", "keep", "write park or drop"),
        ("OUTBOX_DELAYS", "1,,2", "OUTBOX_DELAYS="),
        ("OUTBOX_WAIT", "1e400", "OUTBOX_WAIT="),
        ("OUTBOX_KEPT", "always", "write never"),
    ],
)
def test_a_wrong_value_names_its_variable(variable: str, text: str, words: str) -> None:
    with pytest.raises(SettingError) as raised:
        settings_of(Choices, {variable: text})
    assert str(raised.value).startswith(variable)
    assert words in str(raised.value)


def test_a_url_that_is_needed_and_not_there_is_asked_for_by_name() -> None:
    assert needed_url({"OUTBOX_BROKER_URL": "amqp://x"}, "OUTBOX_BROKER_URL") == "amqp://x"
    for environment in ({}, {"OUTBOX_BROKER_URL": ""}):
        with pytest.raises(SettingError, match="OUTBOX_BROKER_URL is not set; give the URL"):
            needed_url(environment, "OUTBOX_BROKER_URL")


@pytest.mark.parametrize(
    ("ask", "variable", "good", "bad"),
    [
        (log_format, "OUTBOX_LOG_FORMAT", {"json": "json", "text": "text"}, "xml"),
        (probe_port, "OUTBOX_PROBE_PORT", {"0": 0, "9090": 9090}, "http"),
    ],
)
def test_the_log_format_and_the_port_of_the_probes(
    ask: Any, variable: str, good: dict[str, object], bad: str
) -> None:
    assert ask({}) in ("text", 8080)
    for text, value in good.items():
        assert ask({variable: text}) == value
    with pytest.raises(SettingError, match=f"{variable}='{bad}'"):
        ask({variable: bad})


def test_the_probes_are_on_all_addresses_unless_one_is_named() -> None:
    assert probe_host({}) is None
    assert probe_host({"OUTBOX_PROBE_HOST": ""}) is None
    assert probe_host({"OUTBOX_PROBE_HOST": "127.0.0.1"}) == "127.0.0.1"


def test_a_group_of_errors_comes_apart_and_each_fits_a_line() -> None:
    first, second = ValueError("one\ntwo"), KeyError("k")
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [first]), second])
    assert leaves(group) == [first, second]
    assert leaves(first) == [first]
    assert one_line(first) == "one; two"
