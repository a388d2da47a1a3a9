"""The source `--command TEXT|FILE`: how a server was, or will be, started; nothing is executed, no server is asked."""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from vllm_doctor.launch import budget, dated, engines, forms, manifests, model, notebook, offered, processes, unwrap
from vllm_doctor.launch.forms import Piece
from vllm_doctor.launch.patches import WrittenDocument
from vllm_doctor.launch.start import MAX_STARTS, Flaw, Form, Start, Written, judged, printed
from vllm_doctor.launch.unexpanded import without_marks
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.facts import COMMAND, ENVIRONMENT, FORM
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.text import files
from vllm_doctor.vllm import command_line, flags, nested_flags
from vllm_doctor.vllm.environment import number_or_text

STDIN = "-"
MAX_BYTES = 1_000_000

_PLATFORM = re.compile(r"(?:^|[-_/:.])(cpu|xpu|tpu|hpu|rocm)(?=$|[-_/:.\d])")
_DEVICES = (("VLLM_CPU_", "cpu"), (("VLLM_XPU_", "ZE_AFFINITY_MASK"), "xpu"))
"""How variables begin that only a server on such a device heeds."""
_SHM_DEFAULT = 64.0 * 2**20
_OWN_SHM = frozenset({Form.DOCKER_RUN, Form.COMPOSE, Form.KUBERNETES})
"""Where a container gets a /dev/shm of that size, unless the text says otherwise: Docker's and containerd's default."""

_PROGRAMS = ("vllm", "python", "docker", "podman", "nerdctl", "sudo", "env", "uv", "uvx", "nohup", "bash", "sh")
_WINDOWS = "its lines end as on Windows (\\r\\n): a shell would take the \\r for a part of the last word"

_TAKEN_AS: Mapping[Form, str] = {
    Form.SHELL: "a shell command",
    Form.DOCKER_RUN: "a docker run command",
    Form.COMPOSE: "a compose file",
    Form.KUBERNETES: "a Kubernetes manifest",
    Form.HELM: "values of a Helm chart",
    Form.SYSTEMD: "a systemd unit",
    Form.VALUES: "values for a program that starts vLLM",
    Form.CONFIG: "a --config file of vLLM",
    Form.PYTHON: "a program in Python",
    Form.LOG: "the arguments that vLLM logged",
    Form.DOCKERFILE: "a Dockerfile",
    Form.QUADLET: "a quadlet of Podman",
    Form.SUPERVISOR: "a configuration of supervisord",
    Form.MAKEFILE: "a Makefile",
    Form.JUSTFILE: "a justfile",
    Form.TERRAFORM: "Terraform",
    Form.PROCESS_LIST: "a list of processes",
    Form.FLAGS: "flags of vLLM",
}


@dataclass(frozen=True)
class StartSource:
    """What was given with --command. `name`: of the file, or of what else it came from."""

    name: str
    starts: tuple[Start, ...]
    document: WrittenDocument | None = None
    """None: they stand within sentences, to which no patch applies."""

    def taken_as(self, start: Start) -> str:
        """What it was read as."""
        return _TAKEN_AS[start.form] if self.document is not None else "a command within a text"

    def target(self, start: Start) -> str:
        """Where the start stands."""
        return f"{self.name}: {start.place}" if start.place and start.place != self.name else self.name

    def of_version(self, version: str) -> StartSource:
        """The same for a vLLM of this version, where the text does not tell one."""
        return replace(self, starts=tuple(replace(start, version=start.version or version) for start in self.starts))

    def examine(self, start: Start, patient: str, kernel: Kernel | None = None) -> Observation:
        """What this start alone tells; with `kernel`, its model's files on this machine as well."""
        of_model, said = model.facts(kernel, start) if kernel is not None else ({}, ())
        return Observation(
            SourceKind.COMMAND,
            self.target(start),
            facts=of_model | facts(start) | {"commands_written": Known(float(len(self.starts)), origin="cmdline")},
            models=(start.command.model,) if start.command.model else (),
            notes=(*notes(start), *said),
            taken_as=self.taken_as(start),
            patient=patient,
            command=start.argv,
            variables=start.variables,
            document=self.document,
            number=self.starts.index(start),
        )


def open_command(given: str, until: float | None = None) -> StartSource:
    """The starts in a text, in a file, or on standard input (-). `until`, on time.monotonic: how long it may take.

    Raises SourceError: not-found, denied, unreadable, empty, too-large, not-vllm, timeout.
    """
    if given == STDIN:
        return of_text("standard input", _content("standard input", None, until))
    if os.path.isdir(given):
        raise SourceError("unreadable", f"--command {given}: is a folder; give one file of it")
    if os.path.exists(given):
        return of_text(given, _content(f"--command {given}", given, until), given)
    if not re.search(r"\s", given) and not os.path.basename(given).startswith(_PROGRAMS):
        raise SourceError("not-found", f"--command {printed(given)}: there is no such file, and it is no command line")
    text = given.encode("utf-8", "surrogateescape")
    return of_text("--command", _decoded(text, "--command"))


def of_text(name: str, text: str, path: str = "") -> StartSource:
    """The starts in a text that was read already; `path`: of its file. Raises SourceError."""
    is_windows = "\r\n" in text
    with manifests.files(_beside(path) if path else lambda _: None):
        starts, written = _read(text, path)
    if not starts:
        raise SourceError("not-vllm", _nothing(text))
    exact = WrittenDocument(name, path or None, text.replace("\r\n", "\n"), written, starts, not is_windows)
    return StartSource(name, starts, exact)


def _beside(path: str) -> Callable[[str], str | None]:
    """Reads files in the same folder, by their names: plain ones of the same user, that are no links elsewhere."""
    folder = os.path.dirname(os.path.abspath(path))

    def text(name: str) -> str | None:
        whole = os.path.join(folder, name)
        try:
            about = os.lstat(whole)
            if not stat.S_ISREG(about.st_mode) or about.st_uid != os.stat(path).st_uid:
                return None
            return _decoded(files.read(whole, MAX_BYTES), name)
        except (OSError, SourceError):
            return None

    return text


def _content(name: str, path: str | None, until: float | None) -> str:
    """The text in a file; without one, on standard input."""
    most = notebook.MAX_BYTES if path is not None and path.endswith(notebook.SUFFIX) else MAX_BYTES
    try:
        raw = files.of_descriptor(sys.stdin.fileno(), most, until) if path is None else files.read(path, most, until)
    except PermissionError:
        raise SourceError("denied", f"{name}: permission denied") from None
    except TimeoutError as error:
        raise SourceError("timeout", f"{name}: {error.strerror}") from None
    except OSError as error:
        raise SourceError("unreadable", f"{name}: cannot be read ({error.strerror})") from None
    return _decoded(raw, name, most)


def _decoded(raw: bytes, name: str, most: int = MAX_BYTES) -> str:
    if len(raw) > most:
        says = f"{name}: larger than {most / 1e6:.0f} MB: a command line or a manifest is not"
        raise SourceError("too-large", says)
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError("unreadable", f"{name}: is UTF-16; save it as UTF-8")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError("unreadable", f"{name}: is no text (UTF-8)") from None
    if "\0" in text and command_line.program_of(argv := text.rstrip("\0").split("\0")) is not None:
        return shlex.join(argv)  # /proc/PID/cmdline
    if "\0" in text:
        raise SourceError("unreadable", f"{name}: is no text (it holds NUL bytes)")
    if not text.strip():
        raise SourceError("empty", f"{name}: is empty")
    return text


def read(text: str, name: str = "") -> tuple[Start, ...]:
    """The starts in the text; at least one. Pure. `name`: of its file. Raises SourceError."""
    if not (starts := within(text, name)):
        raise SourceError("not-vllm", _nothing(text))
    return starts


def within(text: str, name: str = "") -> tuple[Start, ...]:
    """The starts in the text; there may be none. Pure. `name`: of its file. Raises SourceError."""
    return _read(text, name)[0]


def _read(text: str, name: str) -> tuple[tuple[Start, ...], tuple[Written, ...]]:
    is_windows = "\r\n" in text
    text = without_marks(text.replace("\r\n", "\n"))
    with budget.limited():
        written = forms.starts(Piece(text, name))
        if len(written) > MAX_STARTS:
            raise SourceError(
                "too-large", f"more than {MAX_STARTS} vLLM commands: one examination does not take so many"
            )
        found = tuple(map(judged, written))
    if not found:
        return (), ()
    if others := engines.said(text):
        found = (replace(found[0], notes=(*found[0].notes, *others)), *found[1:])
    if len(found) == 1 and not found[0].benchmark:
        found = (replace(found[0], benchmark=offered.of_text(text)),)
    is_script = is_windows and not forms.is_page(Piece(text, name))
    if is_script and any(start.form in (Form.SHELL, Form.DOCKER_RUN) for start in found):
        found = tuple(replace(start, notes=(*start.notes, _WINDOWS)) for start in found)
    return found, tuple(written)


def _nothing(text: str) -> str:
    """Why none was found."""
    text = without_marks(text.replace("\r\n", "\n"))
    with budget.limited():
        broken = unwrap.broken_before_vllm(text)
    if broken is not None and broken.kind is not Flaw.MISSING_BACKSLASH:
        return f"no vLLM server is started here; line {broken.line}: {unwrap.SAYS[broken.kind]}"
    if others := engines.said(text):
        return f"no vLLM server is started here; {'; '.join(others)}"
    if re.search(r"\bvllm[ \t]+(bench|chat|complete|run-batch|collect-env)\b|\bvllm\.benchmarks\b", text):
        return "this is a command of vLLM, but it starts no server: give the one with `vllm serve`"
    return "no vLLM server is started here: give a line with `vllm serve MODEL`, or the file that holds it"


def facts(start: Start) -> dict[str, Reading]:
    """The start as facts: "--flag" and "$VARIABLE", the version by the image, what is asked of the host, its faults."""
    untold = Unknown(Reason.NOT_IN_COMMAND)
    found: dict[str, Reading] = {FORM: Known(str(start.form), origin="cmdline")}
    found[COMMAND] = untold if start.is_open else Known(True, origin="cmdline")
    found |= {flag: Known(value, origin="cmdline") for flag, value in start.command.flags.items()}
    found |= dict.fromkeys(start.unknown_flags, untold)
    found |= _shown(start)
    found[ENVIRONMENT] = Known(True, origin="environ") if start.is_environment_whole else untold
    for name, value in start.environment.items():
        found[f"${name}"] = untold if value is None else Known(number_or_text(value), origin="environ")
    if start.version is not None:
        found["vllm_version"] = Known(start.version, origin="image" if start.image else "user")
    if start.role:
        found["role_written"] = Known(start.role, origin="manifest" if start.form in _OWN_SHM else "cmdline")
    if start.is_engine:
        found["usage_context"] = Known("engine", origin="cmdline")
    shm = start.resources.shm_bytes
    if shm is None and start.form in _OWN_SHM and not (start.resources.host_ipc or start.resources.other_shm):
        shm = _SHM_DEFAULT
    asked = {
        "gpus_requested": start.resources.gpus,
        "gpu_written": start.resources.gpu,
        "cpu_quota": start.resources.cpu_limit,
        "cpu_requested": start.resources.cpu_request,
        "shm_size": shm,
        "fd_limit": start.resources.open_files,
    }
    found |= {name: Known(value, origin="manifest") for name, value in asked.items() if value is not None}
    found |= {name: Known(value, origin="cmdline") for name, value in start.benchmark.items()}
    return found | _device(start) | processes.facts(start) | _faults(start) | dated.facts(start)


def _shown(start: Start) -> dict[str, Reading]:
    """What stands within a value of which the text leaves a part out: --speculative-config '{... "method": "mtp"}'."""
    if not start.unknown_flags & nested_flags.KEYS.keys():
        return {}
    written = command_line.parse(start.argv, lambda _: Reason.NOT_IN_COMMAND).flags
    shown = [nested_flags.of_text(flag, str(written.get(flag, ""))) for flag in start.unknown_flags]
    return {name: Known(value, origin="cmdline") for found in shown for name, value in found.items()}


def _device(start: Start) -> dict[str, Reading]:
    """What the server runs on, where its image or its environment says that this is no NVIDIA GPU."""
    match = _PLATFORM.search((start.image or "").lower())
    if match is not None and match[1] == "rocm":
        return {"image_for_amd": Known(1.0, origin="image")}
    if match is not None:
        return {"device_written": Known(match[1], origin="image")}
    told = next((device for names, device in _DEVICES if any(name.startswith(names) for name in start.environment)), "")
    return {"device_written": Known(told, origin="environ")} if told else {}


def _faults(start: Start) -> dict[str, Reading]:
    """command_faults counts what changes the command that runs; the first of them is told."""
    grave = [fault for fault in start.faults if fault.kind is not Flaw.UNEXPANDED]
    found: dict[str, Reading] = {
        "command_faults": Known(float(len(grave)), origin="cmdline"),
        "command_unexpanded": Known(float(len(start.faults) - len(grave)), origin="cmdline"),
    }
    if grave:
        found["command_fault"] = Known(str(grave[0].kind), origin="cmdline")
        found["command_fault_says"] = Known(grave[0].says, origin="cmdline")
        found["command_fault_line"] = Known(float(grave[0].line), origin="cmdline")
        found["command_flags_lost"] = Known(", ".join(start.lost) or "none", origin="cmdline")
    return found


def notes(start: Start) -> list[str]:
    """What is wrong with the text, and what of it was not read, in sentences."""
    said = []
    for fault in start.faults:
        lost = f"; never reaches vLLM: {', '.join(fault.lost)}" if fault.lost else ""
        said.append(f"line {fault.line}: {fault.says}{lost}")
    judged_as = flags.judgement(start.version) if start.version is not None else ""
    return [*dict.fromkeys(said), *([judged_as] if judged_as else []), *start.notes]
