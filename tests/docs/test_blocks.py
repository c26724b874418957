"""Every block of the README and of docs/ is run: what a reader types is what the tests type.

How depends on its language, and on a comment `<!-- run: … -->` above it where there is one:

- `sh`: in a real shell. `outbox` and `python` are those of this checkout, on a Postgres and a RabbitMQ of the
  page's own; kubectl is real, on an API server without nodes; stand_ins.py says what stands for the others.
- `until TEXT`: it goes on until it is stopped, which it is when it has said so. `exit N`: its exit code.
- `text` behind `sh`: the answer, compared (shown.py). `picture`: it is none.
- `python`: the blocks of a page one after the other, in one namespace; functions `test_…` are called.
- `yaml`: a server-side dry run; without a kind, values of the chart. `sql`: on the database.
- `json`, `toml`: read.
- a path of a test, or `.ci/run`: it is that which runs the block. A block of any other kind fails.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from outbox_cli.local import Services
from tests.docs.pages import PAGES, Block, blocks_of
from tests.docs.shop_namespace import ShopNamespace
from tests.docs.visit import Visit

BLOCKS = [block for page in PAGES for block in blocks_of(page)]


@pytest.fixture(scope="module")
def visit(
    request: pytest.FixtureRequest, services: Services, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Path], Visit]]:
    """The visit to a page, which its blocks share."""
    with ExitStack() as opened:
        visits: dict[Path, Visit] = {}

        @cache
        def namespace() -> ShopNamespace:
            # Nothing of a cluster is started for pages that need none.
            return ShopNamespace(request.getfixturevalue("api"))

        def wheels() -> Path:
            found: Path = request.getfixturevalue("wheels")
            return found

        def at(page: Path) -> Visit:
            if page not in visits:
                folder = tmp_path_factory.mktemp(page.stem)
                visits[page] = Visit(page, folder, services, namespace, wheels)
                opened.callback(visits[page].close)
            return visits[page]

        yield at


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.id)
def test_a_block_does_what_its_page_says(block: Block, visit: Callable[[Path], Visit]) -> None:
    visit(block.page).read(block)
