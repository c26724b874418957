"""What the tests of the operator have, for those of its whole behaviour."""

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest

from tests.operator.conftest import _control_plane, api, namespace, neighbours, site
from tests.operator.site import Site

__all__ = ["_control_plane", "another_vhost", "api", "namespace", "neighbours", "site"]


@pytest.fixture
def another_vhost(site: Site) -> Iterator[str]:
    """The URL of another virtual host of the site's broker."""
    name, parts = f"other-{uuid4().hex}", urlsplit(site.rabbitmq_url)
    site.broker("PUT", f"vhosts/{name}")
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    site.broker("PUT", f"permissions/{name}/{parts.username}", everything)
    yield urlunsplit(parts._replace(path=f"/{name}"))
    site.broker("DELETE", f"vhosts/{name}")
