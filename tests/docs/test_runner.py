"""What reads the pages would notice a mistake in them."""

from pathlib import Path

import pytest

from outbox_cli.local import Services
from tests.docs.pages import Block, anchor, blocks_of
from tests.docs.shown import agrees
from tests.docs.stand_ins import helm
from tests.docs.visit import Visit

LISTED = "QUEUE      DEPTH   OLDEST\nshop.dlq   3       2h\n"


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text)
    return path


def test_blocks_are_found_with_their_marks_also_in_a_list(tmp_path: Path) -> None:
    path = page(
        tmp_path, "<!-- run: exit 2 -->\n```sh\nfalse\n```\n\n1. Do:\n\n   ```sql\n   SELECT 1;\n   ```\n"
    )
    assert blocks_of(path) == [
        Block(path, 2, "sh", "false\n", "exit 2"),
        Block(path, 8, "sql", "SELECT 1;\n"),
    ]


def test_a_block_without_an_end_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="line 1 has no end"):
        blocks_of(page(tmp_path, "```sh\nfalse\n"))


@pytest.mark.parametrize(
    ("shown", "answer", "agree"),
    [
        (LISTED, LISTED, True),
        (LISTED, LISTED.replace("2h", "3m").replace("   ", "  "), True),
        ("…\nshop.dlq 3 1s\n", f"looking\n{LISTED}", True),
        (LISTED, LISTED.replace("3 ", "4 "), False),
        (LISTED, f"{LISTED}more\n", False),
        ("shop.dlq 3 1s\n", LISTED, False),
    ],
)
def test_an_answer_agrees_but_for_what_is_another_with_each_run(shown: str, answer: str, agree: bool) -> None:
    assert agrees(shown, answer) is agree


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```ruby\nputs 1\n```\n", "nobody knows how to run 'ruby'"),
        ("```\nno language\n```\n", "nobody knows how to run ''"),
        ("```sh\nfalse\n```\n", "page.md"),
        ("```sh\nnobody-has-this\n```\n", "command not found"),
        ("```sh\npip install outbox-operater\n```\n", "No matching distribution found for outbox-operater"),
        ("```sh\npip install 'outbox-operator[cli,nothing]'\n```\n", "outbox-operator has no extra nothing"),
        ("```sh\npip install 'outbox-operator>99'\n```\n", "No matching distribution found"),
        ("```sh\npip instal outbox-operator\n```\n", 'unknown command "instal"'),
        ("```sh\necho two\n```\n\n```text\none\n```\n", "the answer was\ntwo"),
        ("```text\none\n```\n", "a text is a picture, or the answer of the block before it"),
        ("<!-- run: tests/unit/test_topology.py -->\n```sh\noutbox frobnicate\n```\n", "has no"),
        ("```sh\nmake bench\n```\n", "all of bench takes too long"),
        ("<!-- run: .ci/run -->\n```sh\nmake bench  # slow\n```\n", "has no \\['make bench'\\]"),
        ("```python\nassert 1 == 2, 'one is not two'\n```\n", "one is not two"),
    ],
    ids=lambda text: text.replace("\n", " "),
)
def test_a_mistake_in_a_block_is_noticed(
    *,
    text: str,
    complaint: str,
    services: Services,
    wheels: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.docs.pages.REPOSITORY", tmp_path)
    path = page(tmp_path, text)
    folder = tmp_path / "shell"
    folder.mkdir()
    visit = Visit(path, folder, services, pytest.fail, lambda: wheels)
    try:
        with pytest.raises(AssertionError, match=complaint):
            for block in blocks_of(path):
                visit.read(block)
    finally:
        visit.close()


@pytest.mark.parametrize(
    "arguments",
    [
        ("install", "outbox-operator", "charts/nothing", "--namespace", "x"),
        ("install", "outbox-operator", "charts/outbox-operator", "--namespace", "x", "--atomically"),
    ],
)
def test_helm_refuses_what_is_not_there(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        helm(arguments)


def test_a_value_that_the_chart_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="replica"):
        helm(("upgrade", "o", "charts/outbox-operator", "--namespace", "x", "--set", "replica=2"))


def test_an_anchor_is_as_github_makes_it() -> None:
    assert anchor("OutboxListener spec.worker.template.imagePullSecrets[]") == (
        "outboxlistener-specworkertemplateimagepullsecrets"
    )
