"""Certificates for tests, made by the `openssl` program: an authority, brokers, a client."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

KEY_PASSWORD = "opens the key"
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Identity(NamedTuple):
    """A certificate and its key, as files in PEM."""

    certificate: Path
    key: Path

    def together(self) -> Path:
        """Both in one file, as Kafka's PEM stores have them."""
        path = self.certificate.with_suffix(".store.pem")
        path.write_text(self.key.read_text() + self.certificate.read_text(), encoding="utf-8")
        return path


class Authority:
    """Signs certificates; its own stands in `certificate`."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._name = name
        self.certificate = root / f"{name}.pem"
        self._key = root / f"{name}.key"
        subject = ("-subj", f"/CN={name}", "-days", "2", "-keyout", str(self._key), "-out", str(self.certificate))
        _openssl("req", "-x509", *_NEW_KEY, *subject)

    def signed(self, name: str, alternative_names: str) -> Identity:
        """A certificate for these names (`DNS:localhost,IP:127.0.0.1`)."""
        identity = Identity(self._root / f"{name}.pem", self._root / f"{name}.key")
        request, extensions = self._root / f"{name}.csr", self._root / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative_names}\n", encoding="utf-8")
        new = ("req", *_NEW_KEY, "-subj", f"/CN={name}")
        _openssl(*new, "-keyout", str(identity.key), "-out", str(request))
        by = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial", "-days", "2")
        out = ("-extfile", str(extensions), "-out", str(identity.certificate))
        _openssl("x509", "-req", "-in", str(request), *by, *out)
        return identity


def encrypted_key(identity: Identity) -> Path:
    """The key in a form that takes `KEY_PASSWORD` to read."""
    path = identity.key.with_suffix(".locked")
    _openssl("pkcs8", "-topk8", "-in", str(identity.key), "-passout", f"pass:{KEY_PASSWORD}", "-out", str(path))
    return path


def _openssl(*arguments: str) -> None:
    program = shutil.which("openssl")
    assert program is not None, "the openssl program makes the certificates"
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"openssl {arguments}: {done.stderr}"
