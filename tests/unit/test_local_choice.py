from pathlib import Path

import pytest

from outbox_cli.local import LocalServiceError
from outbox_cli.local.choice import (
    POSTGRES,
    RABBITMQ,
    Container,
    Given,
    Installed,
    Package,
    Product,
    Seen,
    Source,
    choose,
)

PROGRAM = Path("/usr/lib/postgresql/15/bin/postgres")


@pytest.mark.parametrize(
    ("product", "seen", "source"),
    [
        (POSTGRES, Seen("postgresql://db", PROGRAM, docker=True, apt=True), Given("postgresql://db")),
        (POSTGRES, Seen(None, PROGRAM, docker=True, apt=True), Installed(PROGRAM)),
        (POSTGRES, Seen("", PROGRAM), Installed(PROGRAM)),
        (POSTGRES, Seen(None, None, docker=True, apt=True), Container("postgres:17")),
        (RABBITMQ, Seen(None, None, docker=True), Container("rabbitmq:4-management")),
        (POSTGRES, Seen(None, None, docker=False, apt=True), Package("postgresql")),
        (RABBITMQ, Seen(None, None, docker=False, apt=True), Package("rabbitmq-server")),
    ],
)
def test_the_first_of_url_program_docker_and_apt_is_taken(
    product: Product, seen: Seen, source: Source
) -> None:
    assert choose(product, seen) == source


@pytest.mark.parametrize(
    ("product", "words"),
    [
        (POSTGRES, ["Postgres not found", "apt-get install postgresql", "Docker", "OUTBOX_POSTGRES_URL"]),
        (
            RABBITMQ,
            ["RabbitMQ not found", "apt-get install rabbitmq-server", "Docker", "OUTBOX_RABBITMQ_URL"],
        ),
    ],
)
def test_a_machine_with_nothing_is_told_what_to_install(product: Product, words: list[str]) -> None:
    with pytest.raises(LocalServiceError) as caught:
        choose(product, Seen())
    assert all(word in str(caught.value) for word in words)


def test_a_url_with_its_password_is_not_in_the_repr() -> None:
    assert "secret" not in repr((Seen("postgresql://a:secret@b"), Given("postgresql://a:secret@b")))
