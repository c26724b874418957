"""Where on which broker the objects of a resource are, without who enters it."""

from typing import Annotated, TypeAlias

from pydantic import Field

from outbox_operator.resources.part import Part
from outbox_operator.resources.rules import ListType

MOST_PREVIOUS = 8
"""How many virtual hosts are remembered that a resource has left."""


class VirtualHost(Part):
    """A virtual host of a broker."""

    management_url: str
    """The broker, by the address of its management API."""
    name: str
    """The virtual host's name."""

    def __str__(self) -> str:
        return f'vhost "{self.name}" of {self.management_url}'


PreviousVirtualHosts: TypeAlias = Annotated[
    tuple[VirtualHost, ...], Field(max_length=MOST_PREVIOUS), ListType("atomic")
]
"""Those that a resource has left, the last one last."""
