"""`docker run` and its likes: their own options up to the image, and what the image makes of the words after it."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from vllm_doctor.launch.start import Resources, Word, version_of
from vllm_doctor.launch.unexpanded import is_marked
from vllm_doctor.vllm import flags as catalogue
from vllm_doctor.vllm.command_line import program_of

PROGRAMS = frozenset({"docker", "podman", "nerdctl"})
_RUNS = frozenset({"run", "create"})
_SWITCHES = frozenset(
    {
        "--detach", "--disable-content-trust", "--env-host", "--help", "--init", "--interactive", "--no-healthcheck",
        "--no-hosts", "--oom-kill-disable", "--privileged", "--publish-all", "--quiet", "--read-only", "--replace",
        "--rm", "--rmi", "--rootfs", "--sig-proxy", "--tty",
    }
)  # fmt: skip
_SHORT_SWITCHES = "ditPq"
_SHORT = {"e": "--env", "v": "--volume", "p": "--publish", "m": "--memory", "w": "--workdir", "u": "--user"}
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SI = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "e": 10**18, "p": 10**15}

# The image runs `vllm serve` since about 0.11.1, and the module before: both take the same flags, and nothing here
# hangs on the release but the words that are shown.
_MODULE_UNTIL = (0, 11, 0)
SERVE = ("vllm", "serve")
MODULE = ("python3", "-m", "vllm.entrypoints.openai.api_server")


@dataclass(frozen=True)
class Run:
    """One `docker run`."""

    image: str
    entrypoint: tuple[Word, ...] | None
    arguments: tuple[Word, ...]
    environment: Mapping[str, str | None]
    resources: Resources
    notes: tuple[str, ...]
    image_at: Word
    assignments: Mapping[str, Word]
    """The words NAME=VALUE of -e."""


def parse(words: Sequence[Word]) -> Run | None:
    """The command after `docker`; None where it runs nothing, or names no image."""
    at = next((place for place, word in enumerate(words[1:5], 1) if word.text in _RUNS), None)
    if at is None:
        return None
    given, at = _options(words, at + 1)
    if at >= len(words) or not words[at].text.strip():
        return None
    entrypoint = next((value for name, value in given if name == "--entrypoint"), None)
    environment = _environment([value.text for name, value in given if name == "--env"])
    files = [value.text for name, value in given if name == "--env-file"]
    notes = tuple("an --env-file is not read: what it sets is not known" for _ in files[:1])
    return Run(
        words[at].text,
        None if entrypoint is None else ((entrypoint,) if entrypoint.text else ()),
        tuple(words[at + 1 :]),
        environment,
        _resources([(name, value.text) for name, value in given]),
        notes,
        words[at],
        {value.text.partition("=")[0]: value for name, value in given if name == "--env"},
    )


def _options(words: Sequence[Word], at: int) -> tuple[list[tuple[str, Word]], int]:
    """The options from this place on, by their long names; and where they end, at the image."""
    given: list[tuple[str, Word]] = []
    image = next((place for place in range(at, len(words)) if is_image(words[place].text)), at)
    while at < len(words) and words[at].text != "--":
        if at < image and words[at].is_split and is_marked(words[at].text):
            at += 1  # $OPTIONS: what they are is not in the text
            continue
        if not words[at].text.startswith("-"):
            break
        name, value = _option(words[at])
        at += 1
        if name and value is None:
            if at == len(words):
                break  # its value is missing, and the image
            value = words[at]
            at += 1
        if name and value is not None:
            given.append((name, value))
    if at < len(words) and words[at].text == "--":
        at += 1
    return given, at


def is_image(text: str) -> bool:
    """Whether this is an image of vLLM's by its name, and no program."""
    return "/" in text and not text.startswith(("-", "/")) and is_vllm(text)


def _option(word: Word) -> tuple[str, Word | None]:
    """The option's long name, and its value where that is in the same word; ("", None) for a switch."""
    text = word.text
    if text.startswith("--"):
        name, equals, value = text.partition("=")
        if name in _SWITCHES:
            return "", None
        return name, Word(value, word.line) if equals else None
    for place, letter in enumerate(text[1:], 1):
        if letter not in _SHORT_SWITCHES:
            rest = text[place + 1 :].removeprefix("=")
            return _SHORT.get(letter, f"-{letter}"), Word(rest, word.line) if rest else None
    return "", None


def _environment(texts: Sequence[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        found[name] = value if equals and not is_marked(value) else None
    return found


def _resources(given: Sequence[tuple[str, str]]) -> Resources:
    options = dict(given)
    ulimits = [value for name, value in given if name == "--ulimit"]
    cpus = number(options.get("--cpus", ""))
    listed = options.get("--cpuset-cpus", "")
    limits = [limit for limit in (cpus, cpus_in(listed)) if limit is not None]
    shm = size(options.get("--shm-size", ""))
    mounts = [value for name, value in given if name in ("--volume", "--mount", "--tmpfs")]
    other_shm = options.get("--ipc", "private") not in ("private", "host") or any("/dev/shm" in m for m in mounts)
    files = next((number(text.partition("=")[2].partition(":")[0]) for text in ulimits if "nofile=" in text), None)
    return Resources(
        gpus=gpus_in(options["--gpus"]) if "--gpus" in options else None,
        cpu_limit=min(limits, default=None),
        shm_bytes=shm,
        host_ipc=options.get("--ipc") == "host",
        other_shm=other_shm or (shm is None and "--shm-size" in options),
        open_files=files,
    )


def gpus_in(text: str) -> float | None:
    """`--gpus`: 2 of "2", "count=2", '"device=0,1"'; None of "all" and of what is not known."""
    text = text.strip("'\"")
    match = re.search(r"(?:^|\bcount=)(\d{1,3})(?:$|,)", text)
    if match:
        return float(match[1])
    device = re.search(r"\bdevice=([\w:,.-]+)", text)
    return float(len([part for part in device[1].split(",") if part])) if device and not is_marked(text) else None


def cpus_in(text: str) -> float | None:
    """How many CPUs a list such as "0-7,16" holds."""
    count = 0
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
        if match is None:
            return None
        count += max(0, int(match[2] or match[1]) - int(match[1]) + 1)
    return float(count)


def number(text: object) -> float | None:
    """A positive number; "500m" is 0.5, as Kubernetes writes cores."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,12})?)(m?)", str(text).strip())
    value = float(match[1]) / (1000 if match[2] else 1) if match else 0.0
    return value or None


def size(text: object) -> float | None:
    """Bytes of "16g" and "64mb" (Docker: powers of 1024), of "16Gi" and "16G" (Kubernetes: G is 10^9 there)."""
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,6})?)\s*([bkmgt]?)(?:i?b)?", str(text).strip().lower())
    value = float(match[1]) * _UNITS[match[2]] if match else 0.0
    return value if value and math.isfinite(value) else None


def quantity(text: object) -> float | None:
    """Bytes of a Kubernetes quantity: "16Gi", "16G", "17179869184"."""
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,6})?)(?:([KMGT])i|([kMGT]))?", str(text).strip())
    if match is None:
        return None
    factor = _UNITS[match[2].lower()] if match[2] else _SI[match[3].lower()] if match[3] else 1
    return float(match[1]) * factor or None


def is_vllm(image: str | None) -> bool:
    """Whether the image is one of vLLM's own by its name, which starts the server."""
    path = (image or "").lower().partition("@")[0].split("/")
    name = path[-1].partition(":")[0]
    return name.startswith("vllm") and name not in _OTHERS


def argv(
    image: str | None, entrypoint: Sequence[Word] | None, arguments: Sequence[Word]
) -> tuple[list[Word], tuple[str, ...]]:
    """What a container runs, and a note where that had to be guessed; none where it cannot be told."""
    if entrypoint:
        return [*entrypoint, *arguments], ()
    texts = [word.text for word in arguments]
    line = arguments[0].line if arguments else 1
    if texts[:1] == ["serve"]:
        return [Word("vllm", line), *arguments], ()
    own = is_vllm(image)
    known = {flag for text in texts if text.startswith("--") and catalogue.is_flag(flag := _flag(text))}
    if _names_program(texts) or not (own or _begins_with_flags(texts, known)):
        return list(arguments), ()
    if not own and (len(known) < 2 or known <= OF_ANY_SERVER):
        return [], ()
    program = [Word(text, line) for text in _started_by(image)]
    notes = () if own else ("the image's own program is not in the text: it was taken for vLLM's server",)
    return [*program, *arguments], notes


_OTHERS = frozenset({"vllm-runtime"})
"""Images with vLLM in them that start another program: NVIDIA Dynamo's."""
_REPOSITORY = re.compile(r"[A-Za-z][\w.-]*/[\w.-]+")
OF_ANY_SERVER = frozenset(
    {
        "--host", "--port", "--model", "--api-key", "--config", "--seed", "--device", "--dtype", "--revision",
        "--tokenizer", "--trust-remote-code",
    }
)  # fmt: skip
"""Flags that other programs that serve models have as well."""
_PROGRAMS_OF_IMAGES = frozenset({"sh", "bash", "python", "python3", "env", "vllm"})


def _names_program(texts: Sequence[str]) -> bool:
    """Whether the words begin with what is run, in place of the image's own program."""
    return bool(texts) and (posixpath.basename(texts[0]) in _PROGRAMS_OF_IMAGES or program_of(texts) is not None)


def _begins_with_flags(texts: Sequence[str], known: Collection[str]) -> bool:
    """Whether the words are the arguments of the image's own program. `known`: vLLM's flags among them."""
    if not texts or texts[0].startswith(("-", "–", "—")):
        return True
    return _REPOSITORY.fullmatch(texts[0]) is not None and len(known) > 2


def _flag(text: str) -> str:
    return text.partition("=")[0].replace("_", "-")


def _started_by(image: str | None) -> tuple[str, ...]:
    version = version_of(image) if image else None
    release = catalogue.release(version) if version else None
    return MODULE if release is not None and release <= _MODULE_UNTIL else SERVE
