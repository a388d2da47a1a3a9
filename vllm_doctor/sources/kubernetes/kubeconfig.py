"""A kubeconfig, read by lightkube: which server, whose certificate, and how one is let in.

lightkube does what a kubeconfig asks for: it also runs its credential plugin (`exec`), as kubectl would. Nothing else
is run.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.sources.kubernetes.cluster import Cluster, check_secrecy
from vllm_doctor.text import extras, files

LOOKED_FOR = "$KUBECONFIG, ~/.kube/config"
MISSING = extras.missing(
    "k8s", "a kubeconfig is read with lightkube, which is not installed (in a pod of the cluster it is not needed)"
)
_MOST = 4 << 20
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Keys whose value is a file, beside the kubeconfig where it is not absolute."""
_NOT_READ = {"proxy-url": "a proxy", "tls-server-name": "another name in the certificate"}
"""What lightkube does not heed."""
_PATIENCE = 30.0
"""Seconds for a credential plugin: one that asks its user would wait for ever."""
_KEPT = 300.0
"""Seconds after which credentials are asked for again: a plugin's tokens live a quarter of an hour or longer."""


def paths(environment: Mapping[str, str]) -> list[Path]:
    """The files of the kubeconfig, as kubectl looks for them; those that there are."""
    named = [Path(path) for path in environment.get("KUBECONFIG", "").split(os.pathsep) if path]
    home = Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config"
    return [path for path in named or [home] if path.is_file()]


def cluster(paths: Sequence[Path], context: str, environment: Mapping[str, str]) -> Cluster:
    """The cluster of a context, "": of the current one. Raises SourceError and UsageError."""
    try:
        from lightkube.config.client_adapter import ConnectionParams
        from lightkube.config.kubeconfig import KubeConfig
    except ImportError:
        raise SourceError("not-installed", MISSING) from None
    written = _merged(paths)
    name = _context(written, context, paths)
    said = ", ".join(map(str, paths))
    try:
        one = KubeConfig.from_dict(written).get(name)
    except Exception as error:  # msgspec's and others': what stands there is not what Kubernetes has there
        raise SourceError("unreadable", f"{said}: context {name!r} cannot be read ({_brief(error)})") from None
    assert one is not None
    _check_heeded(written, one.context.cluster, name)
    is_plain = one.user is None
    if is_plain:
        from lightkube.config.models import User

        one = one._replace(user=User())
    check_secrecy(one.cluster.server, not is_plain)

    def parameters() -> dict[str, Any]:
        try:
            found: dict[str, Any] = ConnectionParams(trust_env=False).httpx_params(one)
        except Exception as error:
            raise SourceError("unreadable", f"{said}: context {name!r}: {_brief(error)}") from None
        return found

    secured = parameters()["verify"]
    notes = []
    if one.cluster.insecure:
        secured.check_hostname = False
        notes.append("the kubeconfig says insecure-skip-tls-verify: who answers was not checked")
    plugin = one.user.exec.command if one.user is not None and one.user.exec is not None else ""
    headers = _Credentials(lambda: parameters()["auth"], one.cluster.server, plugin)
    return Cluster(one.cluster.server.rstrip("/"), f"context {name}", one.namespace, secured, headers, tuple(notes))


class _Credentials:
    """The Authorization header, asked for once in a while; a plugin is run once, whoever waits for it."""

    def __init__(self, authentication: Callable[[], Any], server: str, plugin: str) -> None:
        self._authentication, self._server, self._plugin = authentication, server, plugin
        self._lock = threading.Lock()
        self._kept: tuple[float, Mapping[str, str]] | None = None

    def __call__(self) -> Mapping[str, str]:
        with self._lock:
            if self._kept is None or time.monotonic() - self._kept[0] > _KEPT:
                self._kept = time.monotonic(), self._asked()
            return self._kept[1]

    def _asked(self) -> Mapping[str, str]:
        """In a thread of its own, as a plugin may ask its user, and wait. Raises SourceError."""
        found: list[Mapping[str, str]] = []
        failed: list[Exception] = []

        def ask() -> None:
            try:
                found.append(_headers(self._authentication(), self._server))
            except Exception as error:  # raised again in the caller's thread
                failed.append(error)

        if not self._plugin:
            ask()
        else:
            thread = threading.Thread(target=ask, daemon=True)
            thread.start()
            thread.join(_PATIENCE)
        if found:
            return found[0]
        again = "see whether kubectl get pods works"
        if not failed:
            raise SourceError(
                "timeout",
                f"the kubeconfig's credential plugin ({self._plugin}) did not end in {_PATIENCE:.0f} s: {again}",
            )
        if isinstance(failed[0], SourceError):
            raise failed[0]
        if isinstance(failed[0], FileNotFoundError):
            raise SourceError("not-found", f"the kubeconfig's credential plugin is not installed: {self._plugin}")
        whose = f"the kubeconfig's credential plugin ({self._plugin})" if self._plugin else "the kubeconfig's user"
        raise SourceError("denied", f"{whose} gives no credentials ({_brief(failed[0])}): {again}")


def _headers(authentication: Any, server: str) -> Mapping[str, str]:
    """What lightkube's authentication adds to a request, by httpx's protocol for it."""
    if authentication is None:
        return {}
    import httpx2

    request = next(authentication.sync_auth_flow(httpx2.Request("GET", server)))
    return {"authorization": request.headers["authorization"]}


def _merged(paths: Sequence[Path]) -> dict[str, Any]:
    """All files as one: of a name the first counts; what is relative lies beside its file. Raises SourceError."""
    whole: dict[str, Any] = {"clusters": [], "contexts": [], "users": [], "current-context": None}
    for path in paths:
        read = _read(path)
        whole["current-context"] = whole["current-context"] or read.get("current-context")
        for part, key in (("clusters", "cluster"), ("contexts", "context"), ("users", "user")):
            known = {one["name"] for one in whole[part]}
            for one in read.get(part) or []:
                if not isinstance(one, dict) or not isinstance(one.get(key), dict) or "name" not in one:
                    raise SourceError("unreadable", f"{path}: its {part} are not as a kubeconfig has them")
                if one["name"] not in known:
                    whole[part].append({**one, key: _absolute(one[key], path)})
    return whole


def _absolute(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    found = {key: str(path.parent / value) for key in _FILES if isinstance(value := values.get(key), str) and value}
    return {**values, **found}


def _read(path: Path) -> dict[str, Any]:
    try:
        read = yaml.safe_load(files.read(path, _MOST))
    except PermissionError:
        raise SourceError("denied", f"{path}: permission denied") from None
    except OSError as error:
        raise SourceError("unreadable", f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, ValueError, RecursionError):  # whose words may quote a token
        raise SourceError("unreadable", f"{path}: is no YAML") from None
    if not isinstance(read, dict) or not isinstance(read.get("contexts", []) or [], list):
        raise SourceError("unreadable", f"{path}: is no kubeconfig (it has no contexts)")
    return read


def _context(written: Mapping[str, Any], asked: str, paths: Sequence[Path]) -> str:
    """The context's name. Raises UsageError where there is none, with what there is."""
    names = [str(one["name"]) for one in written["contexts"]]
    name = asked or written["current-context"]
    some = ", ".join(names[:8]) or "none"
    said = ", ".join(map(str, paths))
    if not name:
        raise UsageError(f"{said} has no current-context: ?context=NAME, one of {some}")
    if name not in names:
        near = get_close_matches(str(name), names, 1)
        meant = f"did you mean {near[0]}?" if near else f"it has {some}"
        raise UsageError(f"{said} has no context {name!r}: {meant}")
    return str(name)


def _check_heeded(written: Mapping[str, Any], cluster: str, context: str) -> None:
    told: dict[str, Any] = next((one["cluster"] for one in written["clusters"] if one["name"] == cluster), {})
    for key, what in _NOT_READ.items():
        if told.get(key):
            raise SourceError(
                "not-supported",
                f"context {context!r} has {what} ({key}), which is not supported: run kubectl proxy, and use a context"
                " whose server is http://127.0.0.1:8001",
            )


def _brief(error: Exception) -> str:
    """Its first line, as far as a person reads it."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:200]
