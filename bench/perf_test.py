"""RabbitMQ's own PerfTest, from Maven Central, kept in the user's cache."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_VERSION = "2.22.1"
_POM = f"""<project>
  <modelVersion>4.0.0</modelVersion><groupId>bench</groupId><artifactId>perf-test</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>com.rabbitmq</groupId><artifactId>perf-test</artifactId><version>{_VERSION}</version>
  </dependency></dependencies>
</project>
"""
_DOWNLOAD_SECONDS = 300
_WINDOW = 1_000
"""Messages without a confirm at a time: as many as two lanes of a relay have under way."""
_SAFE = ("-f", "persistent", "-f", "mandatory")


def jars() -> Path | None:
    """The folder of PerfTest's jars, downloaded where it is not there yet; None where that cannot be."""
    if shutil.which("java") is None:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "outbox-bench" / f"perf-test-{_VERSION}"
    found = folder / "jars"
    if not found.is_dir() and not _download(folder):
        return None
    return found


def _download(folder: Path) -> bool:
    maven = shutil.which("mvn")
    if maven is None:
        return False
    print("  downloading PerfTest …", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(_POM)
    # Into another folder first: a download cut short must not be taken for a whole one.
    partial = folder / "partial"
    command = [maven, "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
    try:
        subprocess.run(
            [*command, "-DincludeScope=runtime", f"-DoutputDirectory={partial}"],
            check=True,
            capture_output=True,
            timeout=_DOWNLOAD_SECONDS,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return False
    partial.rename(folder / "jars")
    return True


@contextmanager
def publishing(
    jars: Path, broker_url: str, *, exchange: str, routing_key: str, size: int, count: int
) -> Iterator[int]:
    """PerfTest while it publishes so many persistent messages with confirms; gives its process id."""
    options = f"-x 1 -y 0 -p -t topic -e {exchange} -k {routing_key} -s {size} -C {count} -c {_WINDOW}"
    process = subprocess.Popen(
        [
            shutil.which("java") or "java",
            "-cp",
            f"{jars}/*",
            "com.rabbitmq.perf.PerfTest",
            *options.split(),
            *_SAFE,
        ],
        # In the environment, for a command line can be read by everybody. To Java, a "/" is an empty vhost.
        env={**os.environ, "URI": broker_url.removesuffix("/")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
