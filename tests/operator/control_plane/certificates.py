"""The certificates of a private control plane: one authority, the server's, and one for each person."""

import ssl
from pathlib import Path

import trustme
import yaml


class Authority:
    """Signs what belongs to one control plane; everything is a file in its folder."""

    def __init__(self, folder: Path, *names: str) -> None:
        """Also of a server that is reached by these names or addresses."""
        self._authority = trustme.CA(organization_name="outbox tests")
        self._folder = folder
        self.file = folder / "ca.pem"
        """The authority's own certificate."""
        self.server_file = folder / "server.pem"
        """The server's certificate and key."""
        self.service_account_key = folder / "service-accounts.pem"
        """The key that signs the tokens of service accounts; it needs no certificate."""
        server = self._authority.issue_cert("127.0.0.1", "localhost", "kubernetes.default.svc", *names)
        self._authority.cert_pem.write_to_path(self.file)
        server.private_key_and_cert_chain_pem.write_to_path(self.server_file)
        server.private_key_pem.write_to_path(self.service_account_key)

    def issue(self, user: str, group: str) -> None:
        """A client's certificate: its common name is the user to Kubernetes, its organisation a group."""
        # Kubernetes' own users have colons in their names, which a host name cannot have.
        name = f"{user.replace(':', '-')}.invalid"
        issued = self._authority.issue_cert(name, common_name=user, organization_name=group)
        issued.private_key_and_cert_chain_pem.write_to_path(self._folder / f"{user}.pem")

    @staticmethod
    def context(folder: Path, user: str) -> ssl.SSLContext:
        """How Python connects as `user`."""
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        context.load_cert_chain(folder / f"{user}.pem")
        return context

    def kubeconfig(self, url: str, user: str) -> str:
        """How everybody else connects as `user`."""
        file = str(self._folder / f"{user}.pem")
        cluster = {"server": url, "certificate-authority": str(self.file)}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "tests",
                "clusters": [{"name": "tests", "cluster": cluster}],
                "users": [{"name": user, "user": {"client-certificate": file, "client-key": file}}],
                "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user}}],
            }
        )
