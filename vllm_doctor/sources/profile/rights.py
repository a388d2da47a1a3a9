"""Why another process's memory may not be read, and the exact way to be allowed. Nothing is changed here."""

from __future__ import annotations

import os
from collections.abc import Mapping

from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import Kernel, table

_SYS_PTRACE = 1 << 19
_SCOPE = "proc/sys/kernel/yama/ptrace_scope"


def way(kernel: Kernel, pid: int, environ: Mapping[str, str] = os.environ) -> str:
    """One line: what stands in the way of looking into this process, and how to get there."""
    mine, theirs = _status(kernel, "self"), _status(kernel, str(pid))
    may_trace = _has(mine, _SYS_PTRACE)
    owner, user = _user(theirs), _user(mine)
    if owner is not None and user is not None and owner != user != "0" and not may_trace:
        name = _name(kernel, owner)
        return f"pid {pid} is of user {name}: run the doctor as that user (sudo -u {name} …), or as root"
    if "KUBERNETES_SERVICE_HOST" in environ and not may_trace:
        return (
            "this container lacks SYS_PTRACE: kubectl debug -it POD --profile=sysadmin --target=CONTAINER"
            " --image=IMAGE with the doctor in it, or add SYS_PTRACE to the pod's securityContext.capabilities"
        )
    if _is_container(kernel) and not may_trace:
        return "this container lacks SYS_PTRACE: start it with --cap-add SYS_PTRACE, or run the doctor on its host"
    scope = kernel.text(_SCOPE)
    if not isinstance(scope, Reason) and scope.strip() in ("1", "2") and not may_trace:
        return (
            f"kernel.yama.ptrace_scope is {scope.strip()}, which permits it to root only: run the doctor as root"
            " (sudo), or have the host's owner set it to 0; the doctor does not"
        )
    if not isinstance(scope, Reason) and scope.strip() == "3":
        return "kernel.yama.ptrace_scope is 3: no process may be sampled until the host is rebooted"
    return f"the kernel refuses to let the memory of pid {pid} be read: run the doctor as root, on the server's host"


def _status(kernel: Kernel, pid: str) -> Mapping[str, str]:
    text = kernel.text(f"proc/{pid}/status")
    return {} if isinstance(text, Reason) else table(text)


def _has(status: Mapping[str, str], capability: int) -> bool:
    try:
        return bool(int(status.get("CapEff", "0"), 16) & capability)
    except ValueError:
        return False


def _user(status: Mapping[str, str]) -> str | None:
    """The real user's number."""
    return status["Uid"].split()[0] if status.get("Uid", "").strip() else None


def _name(kernel: Kernel, number: str) -> str:
    users = kernel.text("etc/passwd")
    entries = [] if isinstance(users, Reason) else [line.split(":") for line in users.splitlines()]
    return next((entry[0] for entry in entries if len(entry) > 2 and entry[2] == number), number)


def _is_container(kernel: Kernel) -> bool:
    return kernel.path(".dockerenv").exists() or kernel.path("run/.containerenv").exists()
