"""What is replaced while orders come in: workers, relays, and the operator itself."""

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.chart.helm import CHART
from tests.e2e.installation import Installation
from tests.e2e.kubectl import until
from tests.e2e.ledger import Account, orders_from
from tests.e2e.replacement import replaced
from tests.e2e.shop import Shop
from tests.images.catalogue import FIXED_SHOP, RELAY

Progress = Callable[[str], None]


def assert_nothing_repeated(account: Account, progress: Progress) -> None:
    """Who is asked to stop finishes what is under way: nothing is done twice."""
    progress(str(account))
    assert not any(account.repeated.values())


def another_version(folder: Path) -> Path:
    """The chart, as if it was the next release."""
    copy = shutil.copytree(CHART, folder / CHART.name)
    about = copy / "Chart.yaml"
    lines = about.read_text().splitlines()
    changed = {"version:": "version: 999.0.0", "appVersion:": 'appVersion: "999.0.0"'}
    about.write_text("\n".join(changed.get(line.split()[0], line) if line else line for line in lines))
    return copy


def test_workers_get_another_image_while_orders_come_in(shop: Shop, progress: Progress) -> None:
    listeners = ("obl/book", "obl/send-mail", "obl/remind")
    with orders_from(shop, 1) as ledger:
        with replaced(shop, *listeners):
            for listener in listeners:
                shop.patch(listener, worker={"image": FIXED_SHOP.name})
        ledger.wait_until_it_goes_on()
    assert_nothing_repeated(ledger.settle(), progress)


def test_relays_are_changed_while_orders_come_in(shop: Shop, progress: Progress) -> None:
    with orders_from(shop, 100_001) as ledger:
        with replaced(shop, "obr/shop"):
            shop.patch("obr/shop", batchSize=50, template={"annotations": {"example.com/edited": "yes"}})
        ledger.wait_until_it_goes_on()
    assert_nothing_repeated(ledger.settle(), progress)


def test_an_upgrade_of_the_operator_restarts_no_pod_while_orders_come_in(
    shop: Shop, installation: Installation, progress: Progress, tmp_path: Path
) -> None:
    before = shop.workloads()
    # The same one by another name, for a relay that somebody makes meanwhile.
    name, _, tag = RELAY.reference.rpartition(":")
    tomorrows = {"repository": name, "tag": tag}
    operators = {pod["metadata"]["name"] for pod in installation.pods()}
    try:
        with orders_from(shop, 200_001) as ledger:
            installation.upgrade(
                another_version(tmp_path), log={"level": "DEBUG"}, relay={"image": tomorrows}
            )
            until("an operator of the new version leads", lambda: installation.leader() not in operators)
            shop.wait_until_looked_at()
            ledger.wait_until_it_goes_on()
        assert_nothing_repeated(ledger.settle(), progress)
        assert shop.workloads() == before
    finally:
        installation.upgrade()
    shop.wait_until_looked_at()
    assert shop.workloads() == before
