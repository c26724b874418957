"""A private RabbitMQ from the programs on this machine."""

import os
import shutil
import signal
import socket
from pathlib import Path

from outbox_cli.local import binaries, plugins, probe
from outbox_cli.local.daemon import Daemon
from outbox_cli.local.errors import LocalServiceError, PortTakenError
from outbox_cli.local.ports import free_ports
from outbox_cli.local.runfolder import RunFolder

USER = "outbox"
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0

_CONFIGURATION = """\
listeners.tcp.1 = 127.0.0.1:{amqp}
management.tcp.ip = 127.0.0.1
management.tcp.port = {management}
default_user = {user}
default_pass = {password}
# Alarms block publishers; a nearly full disk or a busy laptop must not stop a private broker.
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.relative = 0.6
log.console = true
log.file = false
"""


class RabbitMQServer:
    """A RabbitMQ node with its own name server, ports, data, cookie and password."""

    def __init__(self, program: Path, run: RunFolder) -> None:
        self.title = f"RabbitMQ {binaries.rabbitmq_version(program)}".strip()
        self._program = program
        self._run = run
        self._folder = run.subfolder("rabbitmq")
        # Of links, which may lead nowhere by now where the folder is one that was kept.
        shutil.rmtree(run.path / "rabbitmq-installation", ignore_errors=True)
        self._slim_sbin = plugins.slim(program.resolve().parent, run.subfolder("rabbitmq-installation"))
        self._password = run.password(self._folder)
        self._amqp = self._management = self._distribution = self._epmd_port = 0
        self._epmd: Daemon | None = None
        self._broker: Daemon | None = None

    @property
    def url(self) -> str:
        """Where to connect as the administrator, to the vhost `/`."""
        return f"amqp://{USER}:{self._password}@127.0.0.1:{self._amqp}/"

    @property
    def management_url(self) -> str:
        """The management API, with the administrator's credentials."""
        return f"http://{USER}:{self._password}@127.0.0.1:{self._management}"

    def boot(self) -> None:
        """Write the configuration and start on free ports."""
        (self._folder / "enabled_plugins").write_text("[rabbitmq_management].\n")
        # The node is called …@localhost, and that name must not depend on /etc/hosts or DNS.
        (self._folder / "inetrc").write_text('{host, {127,0,0,1}, ["localhost"]}.\n{lookup, [file]}.\n')
        for name in ("enabled_plugins", "inetrc"):
            (self._folder / name).chmod(0o644)
        try:
            self._start_on_free_ports()
        except PortTakenError:
            self.kill()
            self._start_on_free_ports()

    def start(self) -> None:
        """Start on the known ports and wait until both AMQP and the management API answer."""
        self._epmd, self._broker = self._make_epmd(), self._make_broker()
        self._epmd.start()
        self._epmd.wait_until(self._epmd_answers, _START_SECONDS)
        self._broker.start()
        self._broker.wait_until(self._answers, _START_SECONDS)

    def stop(self) -> None:
        """Shut the node down in order, then its name server."""
        if self._broker:
            self._broker.stop(signal.SIGTERM, _STOP_SECONDS)
        if self._epmd:
            self._epmd.kill()

    def kill(self) -> None:
        """SIGKILL the node, its helpers and its name server."""
        for daemon in (self._broker, self._epmd):
            if daemon:
                daemon.kill()

    def discard(self) -> None:
        """The same: Erlang's VM leaves nothing in the kernel. In order where the data is kept."""
        if self._run.is_kept:
            self.stop()
        else:
            self.kill()

    def _start_on_free_ports(self) -> None:
        self._amqp, self._management, self._distribution, self._epmd_port = free_ports(4)
        configuration = self._folder / "rabbitmq.conf"
        configuration.unlink(missing_ok=True)
        self._run.secret_file(
            configuration,
            _CONFIGURATION.format(
                amqp=self._amqp, management=self._management, user=USER, password=self._password
            ),
        )
        self.start()

    def _answers(self) -> bool:
        return probe.amqp_answers(self._amqp) and probe.management_answers(
            self._management, USER, self._password
        )

    def _epmd_answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._epmd_port), timeout=1):
                return True
        except OSError:
            return False

    def _make_epmd(self) -> Daemon:
        """A name server of our own.

        RabbitMQ cannot do without one, would share the system's, and leaves one that it started behind.
        """
        program = binaries.find_epmd()
        if program is None:
            raise LocalServiceError(
                "epmd not found: install Erlang's base (Debian: apt-get install erlang-base)"
            )
        return Daemon(
            name="epmd",
            run=self._run,
            command=[program, "-port", str(self._epmd_port), "-address", "127.0.0.1"],
            folder=self._folder,
            environment=self._environment(),
            log=self._folder / "epmd.log",
        )

    def _make_broker(self) -> Daemon:
        return Daemon(
            name=self.title,
            run=self._run,
            command=[self._slim_sbin / self._program.name if self._slim_sbin else self._program],
            folder=self._folder,
            environment={**self._environment(), **self._installation()},
            log=self._folder / "rabbitmq.log",
            secrets=(self._password,),
        )

    def _environment(self) -> dict[str, str]:
        here = self._folder
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            # Erlang keeps its cookie there.
            "HOME": str(here),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_INETRC": str(here / "inetrc"),
            "RABBITMQ_NODENAME": "outbox@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONFIG_FILE": str(here / "rabbitmq.conf"),
            # Named although absent, so that the system's files of these names are not read.
            "RABBITMQ_CONF_ENV_FILE": str(here / "rabbitmq-env.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(here / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(here / "data"),
            "RABBITMQ_LOG_BASE": str(here / "log"),
            "RABBITMQ_PID_FILE": str(here / "rabbitmq.pid"),
            "RABBITMQ_FEATURE_FLAGS_FILE": str(here / "feature_flags"),
        }

    def _installation(self) -> dict[str, str]:
        if self._slim_sbin is None:
            return {}
        return {
            # Otherwise the script follows the links back to the whole installation.
            "RABBITMQ_SCRIPTS_DIR": str(self._slim_sbin),
            "RABBITMQ_PLUGINS_DIR": str(self._slim_sbin.parent / "plugins"),
        }
