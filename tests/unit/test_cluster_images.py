"""Images that are written without a builder of images."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

from tests.cluster.images import scratch_image


def test_an_image_holds_its_program_under_its_name_and_runs_it(tmp_path: Path) -> None:
    program = tmp_path / "hello"
    program.write_bytes(b"\x7fELF")
    archive = scratch_image("example.test/hello:1", program, tmp_path / "hello.tar", ["--loudly"])
    with tarfile.open(archive) as image:
        files = {entry.name: image.extractfile(entry) for entry in image}
        content = {name: file.read() for name, file in files.items() if file}
    [manifest] = json.loads(content["manifest.json"])
    assert manifest["RepoTags"] == ["example.test/hello:1"]
    [layer] = manifest["Layers"]
    config = json.loads(content[manifest["Config"]])
    assert config["config"]["Entrypoint"] == ["/hello"]
    assert config["config"]["Cmd"] == ["--loudly"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content[layer]).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(content[layer])) as files_inside:
        [entry] = files_inside.getmembers()
    assert (entry.name, entry.mode, entry.size) == ("hello", 0o755, 4)
