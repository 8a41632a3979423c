"""The cluster's own certificate authority: made with openssl at every start, valid for a month."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from tests.support.shell import run

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30")


@dataclass(frozen=True)
class Subject:
    """Whom a certificate names: Kubernetes reads the user from CN and the groups from O."""

    common_name: str
    group: str = ""
    names: tuple[str, ...] = ()  # IP:... and DNS:... a server answers to


class Authority:
    """Makes key pairs in one folder: ``NAME.key`` and ``NAME.crt``, signed by ``ca.crt``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        config = _request(Subject("embertide-test-cluster"), "basicConstraints=critical,CA:TRUE")
        self._make("ca", config)

    def issue(self, name: str, subject: Subject) -> None:
        """A key and a certificate that may be used by servers and by clients."""
        extensions = ["basicConstraints=CA:FALSE", "extendedKeyUsage=clientAuth,serverAuth"]
        if subject.names:
            extensions.append(f"subjectAltName={','.join(subject.names)}")
        authority = ("-CA", str(self.folder / "ca.crt"), "-CAkey", str(self.folder / "ca.key"))
        self._make(name, _request(subject, *extensions), *authority)

    def issue_token_key(self, name: str) -> None:
        """The pair that signs and checks service account tokens: ``NAME.key`` and ``NAME.pub``."""
        self.issue(name, Subject(name))
        certificate = self.folder / f"{name}.crt"
        public = run("openssl", "x509", "-pubkey", "-noout", "-in", certificate)
        (self.folder / f"{name}.pub").write_text(public)

    def kubeconfig(self, name: str, server: str) -> str:
        """A kubeconfig with the certificates inside, so that it works from anywhere (JSON)."""

        def read(file: str) -> str:
            return base64.b64encode((self.folder / file).read_bytes()).decode()

        cluster = {"server": server, "certificate-authority-data": read("ca.crt")}
        user = {
            "client-certificate-data": read(f"{name}.crt"),
            "client-key-data": read(f"{name}.key"),
        }
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "embertide", "cluster": cluster}],
                "users": [{"name": name, "user": user}],
                "contexts": [
                    {"name": "embertide", "context": {"cluster": "embertide", "user": name}}
                ],
                "current-context": "embertide",
            },
            indent=1,
        )

    def _make(self, name: str, config: str, *options: str) -> None:
        request = self.folder / f"{name}.cnf"
        request.write_text(config)
        files = ("-keyout", self.folder / f"{name}.key", "-out", self.folder / f"{name}.crt")
        run("openssl", "req", "-x509", "-config", request, *_KEY, *options, *files)


def _request(subject: Subject, *extensions: str) -> str:
    # A file of our own: what the machine's openssl.cnf adds differs from machine to machine.
    name = [f"CN = {subject.common_name}"] + [f"O = {subject.group}"] * bool(subject.group)
    lines = ["[req]", "prompt = no", "distinguished_name = name", "x509_extensions = extensions"]
    return "\n".join([*lines, "[name]", *name, "[extensions]", *extensions, ""])
