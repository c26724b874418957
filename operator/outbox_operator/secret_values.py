"""The data of a Secret as texts, and what is wrong with it where it does not say what it should.

Pure. A message names Secrets and keys, and never what is in them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from outbox_core.url_hosts import is_ipv6
from outbox_operator.conditions import Finding
from outbox_operator.resources.condition import ConditionStatus, ConditionType

_MOST_OF_A_PORT = 65535
_MOST_BYTES = 8192
_MOST_HOSTS = 32
_NOT_IN_A_HOST = frozenset(" ,/@?#[]\\%\t\r\n")


class UnusableSecretError(Exception):
    """A Secret that does not say what it should."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.finding = Finding(ConditionType.CREDENTIALS_VALID, ConditionStatus.FALSE, reason, message)


@dataclass(frozen=True, slots=True)
class SecretValues:
    """A Secret that exists. Whatever is wrong with it is an `UnusableSecretError`."""

    described: str
    """Its name and namespace, for messages."""
    data: Mapping[str, bytes] = field(repr=False)
    """Its keys and values."""

    @classmethod
    def of(cls, name: str, namespace: str, data: Mapping[str, bytes] | None, content: str) -> "SecretValues":
        """With `content` as what `kubectl` would make it from, where there is no such Secret."""
        if data is None:
            raise UnusableSecretError(
                "SecretMissing",
                f'Secret "{name}" does not exist in namespace "{namespace}"; create it with: '
                f"kubectl create secret generic {name} --namespace {namespace} {content}",
            )
        return cls(f'Secret "{name}" in namespace "{namespace}"', data)

    @property
    def keys(self) -> str:
        """The names of the keys that hold anything, for messages."""
        return ", ".join(sorted(key for key, value in self.data.items() if value)) or "nothing"

    def text(self, *keys: str, most_bytes: int = _MOST_BYTES) -> str:
        """What the first of these keys says that says anything; nothing where none does."""
        for key in keys:
            try:
                # Whoever wrote it with `echo` did not mean the end of the line.
                value = self._short(key, most_bytes).decode().rstrip("\r\n")
            except UnicodeDecodeError:
                raise self.invalid(key, "is not text in UTF-8; write it anew") from None
            if value:
                return value
        return ""

    def _short(self, key: str, most_bytes: int) -> bytes:
        value = self.data.get(key, b"")
        if len(value) > most_bytes:
            raise self.invalid(key, f"has more than {most_bytes:,} bytes; shorten it")
        return value

    def all_of(self, *keys: str | tuple[str, ...], instead_of: str) -> list[str]:
        """What all of these keys say, each of which may go by several names.

        `instead_of` is what the key `uri` could have said.
        """
        names = [(key,) if isinstance(key, str) else key for key in keys]
        found = [self.text(*each) for each in names]
        lacking = [each[0] for each, value in zip(names, found, strict=True) if not value]
        if lacking:
            raise UnusableSecretError(
                "KeyMissing",
                f"{self.described} has neither uri nor all of {', '.join(each[0] for each in names)}: "
                f"it has {self.keys}; add uri, as {instead_of}, or {' and '.join(lacking)}",
            )
        return found

    def hosts(self) -> list[str]:
        """The key `host`, which may list several; an IPv6 address is without its brackets."""
        self.check_hosts("host", self.text("host"))
        hosts = [host.removeprefix("[").removesuffix("]") for host in self.text("host").split(",")]
        if not all(map(is_host, hosts)):
            raise self.invalid(
                "host",
                "must be a host's name or address, or several with commas between them, "
                "without scheme, port and path",
            )
        if len({host.lower() for host in hosts}) < len(hosts):
            raise self.invalid("host", "lists a host twice; remove one of the two")
        return hosts

    def check_hosts(self, key: str, text: str) -> None:
        """Refuse what lists too many hosts: each is tried."""
        if text.count(",") >= _MOST_HOSTS:
            raise self.invalid(key, f"lists more than {_MOST_HOSTS} hosts; list fewer")

    def port(self, default: int) -> int:
        """The key `port`."""
        text = self.text("port") or str(default)
        if not (text.isascii() and text.isdigit() and 0 < int(text) <= _MOST_OF_A_PORT):
            raise self.invalid("port", f"is no port's number; write for example {default}")
        return int(text)

    def invalid(self, key: str, words: str) -> UnusableSecretError:
        """That a key says something that cannot be used."""
        reason = "InvalidUri" if key == "uri" else "InvalidValue"
        return UnusableSecretError(reason, f"{self.described}: key {key} {words}")


def is_host(text: str) -> bool:
    """Whether a text is one host's name or address, without the brackets of an IPv6 address."""
    if ":" in text:
        return is_ipv6(text)
    try:
        return bool(text.encode("idna")) and not _NOT_IN_A_HOST.intersection(text)
    except UnicodeError:
        return False
