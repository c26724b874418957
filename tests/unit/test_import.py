"""`import outbox` is free of other people's code."""

import subprocess
import sys

import pytest

import outbox

LOADED_FROM_ELSEWHERE = """
import sys

import pytest

import outbox
before = set(sys.modules)
import outbox
for name in outbox.__all__:
    getattr(outbox, name)
added = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(name for name in added if name not in sys.stdlib_module_names))
"""


def test_import_outbox_loads_no_third_party_module() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", LOADED_FROM_ELSEWHERE], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == "['outbox']"


def test_an_emitter_does_not_load_asyncio() -> None:
    code = "import sys; from outbox import Emitter; print('asyncio' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"


def test_every_public_name_is_there() -> None:
    for name in outbox.__all__:
        assert getattr(outbox, name) is not None
    assert set(outbox.__all__) <= set(dir(outbox))
    with pytest.raises(AttributeError, match="module 'outbox' has no attribute 'Relay'"):
        _ = outbox.Relay
