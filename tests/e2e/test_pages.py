"""What docs/ says to type in a cluster, typed by somebody who has a shop there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from outbox_operator.cluster.kinds import POD_MONITOR
from tests.docs.pages import REPOSITORY, Block, blocks_of
from tests.docs.shell import Shell
from tests.e2e.kubectl import Kubectl
from tests.e2e.ledger import Ledger
from tests.e2e.namespaces import mark_namespace
from tests.e2e.shop import FILES, Shop
from tests.e2e.stage import Stage
from tests.images.catalogue import RELAY
from tests.operator.neighbours import PROMETHEUS_RULE, definition

_TYPED = re.compile(r"\b(helm|kubectl)\b")
BLOCKS = [
    block
    for page in ("operations.md", "security.md")
    for block in blocks_of(REPOSITORY / "docs" / page)
    if block.file or (block.language == "sh" and _TYPED.search(block.text))
]
_OF_A_READER = {"registry.example/outbox-relay:0.2.0": RELAY.reference}
"""What a page cannot know of its reader."""


@pytest.fixture(scope="module")
def shop(kubectl: Kubectl, stage: Stage) -> Iterator[Shop]:
    """The one that the pages speak of, with the new role that they tell of; Prometheus' kinds are there, and
    no operator yet."""
    opened = Shop(kubectl, "shop")
    kinds = [definition(kind) for kind in (POD_MONITOR, PROMETHEUS_RULE)]
    kubectl("create", "namespace", opened.namespace)
    try:
        mark_namespace(kubectl, opened.namespace)
        opened.apply(*FILES)
        opened.wait_until_ready()
        opened.psql("CREATE ROLE renewed SUPERUSER LOGIN PASSWORD 'another'")
        stage.installation.uninstall()
        kubectl.apply(*kinds)
        yield opened
    finally:
        kubectl("delete", "namespace", opened.namespace)
        if stage.installation.is_installed():
            stage.installation.uninstall()
        kubectl("delete", "crd", "--ignore-not-found", *(kind["metadata"]["name"] for kind in kinds))
        stage.installation.install()


@pytest.fixture(scope="module")
def shell(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A reader's, whose helm and kubectl are those of the cluster."""
    helm, kubectl = stage.installation.helm, stage.kubectl
    return Shell.opened(
        tmp_path_factory.mktemp("reader"),
        {"KUBECONFIG": str(kubectl.kubeconfig)},
        real={"helm": helm.program, "kubectl": kubectl.program},
    )


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{Path(block.page).name}-{block.line}")
def test_a_block_can_be_typed(block: Block, shop: Shop, shell: Shell) -> None:
    if block.file:
        (shell.folder / block.file).write_text(block.text)
        return
    script = block.text
    for written, meant in _OF_A_READER.items():
        script = script.replace(written, meant)
    told = shell.run(script)
    assert told.status == 0, told.said


def test_the_shop_works_after_all_that_was_typed(shop: Shop) -> None:
    shop.wait_until_looked_at()
    shop.wait_until_ready()
    shop.place_orders(1, 40)
    assert len(Ledger(shop, 1).settle().placed) == 20
