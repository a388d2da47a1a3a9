"""Which cluster is asked, and how it lets one in: by a kubeconfig, or from within a pod of it."""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from vllm_doctor.model.errors import SourceError, UsageError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts what a pod needs to ask the API."""
_MOST = 1 << 20


@dataclass(frozen=True)
class Cluster:
    """`server`: the API's URL; `name`: for a person. `credentials`: headers; asked before each request, as tokens
    expire."""

    server: str
    name: str
    namespace: str
    secured: ssl.SSLContext | None
    credentials: Callable[[], Mapping[str, str]] = field(repr=False)
    notes: tuple[str, ...] = ()


def chosen(context: str, environment: Mapping[str, str] = os.environ) -> Cluster:
    """As kubectl chooses: the kubeconfig, or else the pod's own service account. Raises SourceError and UsageError."""
    from vllm_doctor.sources.kubernetes import kubeconfig

    paths = kubeconfig.paths(environment)
    if paths:
        return kubeconfig.cluster(paths, context, environment)
    if context:
        raise UsageError(f"?context={context}: there is no kubeconfig ({kubeconfig.LOOKED_FOR})")
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return of_this_pod(environment)
    raise SourceError(
        "not-found", f"no cluster is known: there is no kubeconfig ({kubeconfig.LOOKED_FOR}), and this is no pod"
    )


def of_this_pod(environment: Mapping[str, str]) -> Cluster:
    """The cluster that this process is a pod of. Raises SourceError."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    token = SERVICE_ACCOUNT / "token"
    if not token.is_file():
        raise SourceError(
            "denied",
            f"this pod has no token ({token}): give it a service account that may read (docs/kubernetes.md), and not"
            " automountServiceAccountToken: false",
        )
    try:
        secured = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
    except OSError as error:  # ssl.SSLError is one
        raise SourceError("tls", f"{SERVICE_ACCOUNT / 'ca.crt'}: not readable as PEM certificates ({error})") from None

    def credentials() -> Mapping[str, str]:  # the kubelet writes it anew, long before it expires
        return {"authorization": f"Bearer {_text(token)}"}

    bracketed = f"[{host}]" if ":" in host else host
    namespace = SERVICE_ACCOUNT / "namespace"
    return Cluster(
        f"https://{bracketed}:{port}",
        "the cluster of this pod",
        _text(namespace) if namespace.is_file() else "default",
        secured,
        credentials,
    )


def check_secrecy(server: str, has_credentials: bool) -> None:
    """Raise SourceError where credentials would go over a network in clear text."""
    parts = urlsplit(server)
    if parts.scheme == "https" or not has_credentials or is_loopback(parts.hostname or ""):
        return
    raise SourceError(
        "refused",
        "the kubeconfig sends credentials to a server without TLS (http://): they are not sent; write https://",
    )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _text(path: Path) -> str:
    from vllm_doctor.text import files

    try:
        found = files.read(path, _MOST).decode("latin-1").strip()
    except OSError as error:
        raise SourceError("denied", f"{path}: cannot be read ({error.strerror})") from None
    if not found.isprintable() or not found.isascii():
        raise SourceError("unreadable", f"{path}: is no token")
    return found
