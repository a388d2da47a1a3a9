"""The API of one cluster: GET alone, bounded in time and size, page by page; nothing is watched.

What is refused says which right is missing, in the words of `kubectl auth can-i`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from vllm_doctor.model import outside
from vllm_doctor.model.errors import SourceError
from vllm_doctor.sources.kubernetes.cluster import Cluster
from vllm_doctor.sources.server.access import Access
from vllm_doctor.sources.server.fetch import Advice, Answer, Connection
from vllm_doctor.sources.server.route import Route

PAGE = 100
"""Objects in one answer."""
_EXPIRED = 3
"""So often a list that grew too old while it was read is read on, or anew."""
_SAID = 300

_ADVICE = Advice(
    late="{where} did not answer within {seconds:.1f} s: raise --timeout",
    over="{where} was not asked in time: raise --timeout",
    endless="{where}: the answer does not end",
    too_large="{where}: the answer is larger than 64 MB",
    unreadable=("unreadable", "{where}: the answer cannot be read ({error})"),
)


@dataclass(frozen=True)
class Ask:
    """What is asked, and the right that it takes. `namespace`: "" of what is in none."""

    path: str
    verb: str
    resource: str
    namespace: str = ""

    @property
    def right(self) -> str:
        """In a sentence: "list pods in namespace inference"."""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{where}"


@dataclass(frozen=True)
class Listed:
    """`is_cut`: there were more."""

    items: tuple[dict[str, Any], ...]
    is_cut: bool = False


class Api:
    """To be closed. `clock` must not step."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self.cluster = cluster
        route = Route(name=cluster.name, secured=cluster.secured, credentials=cluster.credentials)
        self._connection = Connection(
            cluster.server, Access(), clock, _ADVICE, follows=False, is_patient=False, route=route
        )

    def close(self) -> None:
        self._connection.close()

    def object(self, ask: Ask, deadline: float) -> dict[str, Any]:
        """One object. Raises SourceError: not-found, denied, …"""
        answer = self._get(ask, {}, deadline)
        if answer.status != 200:
            raise self._refused(ask, answer)
        return self._document(ask, answer)

    def objects(self, ask: Ask, deadline: float, most: int, **query: str) -> Listed:
        """A list, page by page, up to about `most`. Raises SourceError."""
        items: dict[object, dict[str, Any]] = {}
        token, expired = "", 0
        while True:
            page = {"continue": token} if token else {}
            answer = self._get(ask, {"limit": str(PAGE), **query, **page}, deadline)
            if answer.status == 410 and token and expired < _EXPIRED:
                # It changed too much since its first page: the answer may hold where to go on, else it begins anew.
                expired += 1
                token = _metadata(_status(answer.body)).get("continue") or ""
                items = items if token else {}
                continue
            if answer.status != 200:
                raise self._refused(ask, answer)
            read = self._document(ask, answer)
            for item in read.get("items") or []:
                if isinstance(item, dict):
                    items[_metadata(item).get("uid") or len(items)] = item
            token = _metadata(read).get("continue") or ""
            if not token or len(items) >= most:
                return Listed(tuple(items.values()), bool(token))

    def text(self, ask: Ask, deadline: float, **query: str) -> bytes:
        """What is no JSON: a log. Raises SourceError."""
        answer = self._get(ask, query, deadline)
        if answer.status != 200:
            raise self._refused(ask, answer)
        return answer.body

    def _get(self, ask: Ask, query: Mapping[str, str], deadline: float) -> Answer:
        where = f"{self.cluster.name} ({self.cluster.server})"
        path = ask.path + (f"?{urlencode(query)}" if query else "")
        try:
            return self._connection.get(path, deadline, where)
        except SourceError as error:
            if error.kind != "tls":
                raise
            told = str(error).partition("; --ca-file")[0]
            raise SourceError("tls", f"{told}: the cluster's certificate-authority must vouch for it") from None

    def _document(self, ask: Ask, answer: Answer) -> dict[str, Any]:
        try:
            read = outside.json(answer.body)
        except ValueError:
            read = None
        if not isinstance(read, dict):
            what = answer.headers.get("content-type", "no type").partition(";")[0]
            raise SourceError("unreadable", f"{self.cluster.name}: no answer of Kubernetes ({what}) to {ask.right}")
        return read

    def _refused(self, ask: Ask, answer: Answer) -> SourceError:
        return refused(self.cluster.name, ask, answer.status, answer.body)


def refused(cluster: str, ask: Ask, status: int, body: bytes) -> SourceError:
    """What an answer of the API that is no 200 means."""
    said = str(_status(body).get("message") or "")[:_SAID]
    match status:
        case 401:
            told = "does not accept these credentials (401): they may have expired; see whether kubectl get pods works"
            return SourceError("denied", f"{cluster} {told}")
        case 403:
            return SourceError("denied", f"{cluster}: no right to {ask.right} (docs/kubernetes.md has a role with it)")
        case 404:
            return SourceError("not-found", f"{cluster}: {said or f'404 to {ask.right}'}")
        case 410:
            return SourceError(
                "server-error", f"{cluster}: the list changed faster than it could be read ({ask.right})"
            )
        case 429:
            return SourceError("server-error", f"{cluster} has too many requests (429): try again")
        case _:
            return SourceError(
                "server-error", f"{cluster} answers {status} to {ask.right}{f': {said}' if said else ''}"
            )


def is_own(body: bytes) -> bool:
    """Whether an answer is the API's own, and not that of the server behind its proxy."""
    return bool(_status(body))


def message(body: bytes) -> str:
    """What the API says in such an answer."""
    return str(_status(body).get("message") or "")[:_SAID]


def _status(body: bytes) -> dict[str, Any]:
    """Its object Status; {} where it is none."""
    try:
        read = outside.json(body)
    except ValueError:
        return {}
    return read if isinstance(read, dict) and read.get("kind") == "Status" else {}


def _metadata(document: Mapping[str, Any]) -> Mapping[str, Any]:
    found = document.get("metadata")
    return found if isinstance(found, dict) else {}
