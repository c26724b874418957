"""`outbox listeners export`: its manifests to a real API server, and the shop's own."""

from pathlib import Path

import pytest

from tests.integration.commanding import Told, outbox
from tests.operator.control_plane.api import Api

SHOP = Path(__file__).parents[2] / "examples" / "shop"


@pytest.fixture(autouse=True)
def _in_the_shop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SHOP)
    monkeypatch.chdir(SHOP)


def test_what_is_exported_is_taken_by_the_api_server(api: Api, namespace: str) -> None:
    exported = outbox("listeners", "export", "shop.listeners", "--image", "shop:1.0", "-n", namespace)
    assert (exported.status, exported.errors) == (0, "")
    applied = api.kubectl(
        "apply", "--namespace", namespace, "--dry-run=server", "-f", "-", text=exported.output
    )
    assert (applied.returncode, applied.stderr) == (0, "")
    assert applied.stdout.splitlines() == [
        f"outboxlistener.outbox.dev/{name} created (server dry run)"
        for name in ("book", "send-mail", "charge-card", "remind")
    ]


def test_a_listener_is_printed_as_a_person_would_write_it() -> None:
    assert outbox("listeners", "export", "shop.listeners:send_mail", "--image", "shop:1.0") == Told(
        0,
        "apiVersion: outbox.dev/v1alpha1\n"
        "kind: OutboxListener\n"
        "metadata:\n"
        "  name: send-mail\n"
        "spec:\n"
        "  relayRef:\n"
        "    name: shop\n"
        "  bindingKeys:\n"
        "  - order.booked\n"
        "  retryDelays:\n"
        "  - 1s\n"
        "  - 2s\n"
        "  handler: shop.listeners:send_mail\n"
        "  worker:\n"
        "    image: shop:1.0\n",
        "",
    )


def test_the_code_and_the_manifests_of_the_example_are_in_step() -> None:
    assert outbox("listeners", "export", "shop.listeners", "--check", "manifests") == Told(
        0, "code and manifests are in step: 4 listeners\n", ""
    )


def test_a_manifest_that_differs_fails_the_check(tmp_path: Path) -> None:
    changed = (SHOP / "manifests" / "listeners.yaml").read_text().replace("[1s, 2s]", "[1s, 2s, 1m]")
    (tmp_path / "listeners.yaml").write_text(changed.replace("order.reminder", "order.remind"))
    assert outbox("listeners", "export", "shop.listeners", "--check", str(tmp_path)) == Told(
        1,
        "OutboxListener send-mail: retryDelays is [1s, 2s] in the code and [1s, 2s, 1m] in the manifest\n"
        "OutboxListener remind: bindingKeys is [order.reminder] in the code "
        "and [order.remind] in the manifest\n",
        "",
    )


def test_a_manifest_with_a_mistake_is_refused_with_its_line(tmp_path: Path) -> None:
    wrong = (SHOP / "manifests" / "listeners.yaml").read_text().replace("[order.placed]", "[]")
    (tmp_path / "listeners.yaml").write_text(wrong)
    told = outbox("listeners", "export", "shop.listeners", "--check", str(tmp_path))
    assert told.status == 1
    assert 'OutboxListener "book": spec.bindingKeys: ' in told.errors
    assert "bindingKeys must name at least one topic" in told.errors


def test_a_module_that_is_not_there_is_one_line() -> None:
    told = outbox("listeners", "export", "shop.listener")
    assert told.status == 1
    assert told.errors.startswith("outbox: shop.listener: there is no module 'shop.listener'; ")
    assert told.errors.count("\n") == 1
