"""Where in which cluster a person wants to look. Pure."""

from dataclasses import dataclass

PLUGIN = "kubectl outbox"
"""What the program is called when kubectl runs it."""


@dataclass(frozen=True, slots=True)
class Place:
    """What was said of a cluster; where nothing was, URLs count."""

    namespace: str | None = None
    """The namespace; None for that of the context."""
    relay: str | None = None
    """The OutboxRelay; None for the only one."""
    context: str | None = None
    """The context of the kubeconfig; None for the current one."""
    kubeconfig: str | None = None
    """The kubeconfig's file; None for what kubectl would take."""
    everywhere: bool = False
    """Whether all namespaces are meant."""
    program: str = "outbox"
    """How the command was called."""
    given: frozenset[str] = frozenset()
    """The parameters of the command that were typed: only these win over what resources say."""

    @property
    def in_cluster(self) -> bool:
        """Whether names are those of resources."""
        named = (self.namespace, self.relay, self.context, self.kubeconfig)
        return self.program == PLUGIN or self.everywhere or any(each is not None for each in named)

    def typed(self, parameter: str, value: str | None) -> str | None:
        """The value where it was typed: one from the environment may be of some other place."""
        return value if parameter in self.given else None

    def command(self, words: str, namespace: str | None = None) -> str:
        """What to type for another command about the same cluster."""
        options = {"-n": namespace, "--context": self.context, "--kubeconfig": self.kubeconfig}
        given = [f"{option} {value}" for option, value in options.items() if value]
        return f"`{' '.join([self.program, words, *given])}`"
