"""What a vLLM version takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vllm_doctor.cli.options import Parser
from vllm_doctor.cli.output import say
from vllm_doctor.model.errors import UsageError
from vllm_doctor.text import near, redact
from vllm_doctor.vllm import flag_pages, flags


def run(arguments: Sequence[str]) -> int:
    """0: the version has all that were named; 1: it lacks one."""
    options, dashed = parser().settled_known(arguments)
    named = [word for word in arguments if word in (*options.words, *dashed)]  # in their order
    names = [redact.secrets(name, Counter()) for name in named]
    version = names.pop(0) if names and flags.release(names[0]) else None
    if options.ask_vllm is not None:
        from vllm_doctor.vllm import installed  # imported here: the catalogue starts no process

        asked = installed.ask(options.ask_vllm or None)
        is_another = version and flags.release(version) != flags.release(asked.version)
        remark = f"asked of the installed {asked.version}, not of {version}" if is_another else ""
    elif version is None:
        raise UsageError(_no_version(names[0]) if names else "which version? vllm-doctor flags 0.32.0 [FLAG...]")
    else:
        found, remark = flags.parser(version), flags.judgement(version)
        if found is None:
            raise UsageError(remark)
        asked = found
    for name in names:
        if not flag_pages.is_name(name):
            raise UsageError(f"{name!r} is neither a flag nor a VLLM_VARIABLE nor a vllm:metric")
    if not names:
        say(flag_pages.listing(asked, remark))
        return 0
    pages = [flag_pages.page(asked, name, remark) for name in names]
    say("\n".join(page.text for page in pages))
    return 0 if all(page.is_there for page in pages) else 1


def _no_version(word: str) -> str:
    if word.startswith("--"):
        return f"which version? vllm-doctor flags {flags.newest()} {word}"
    return f"{word!r} is no version" + near.asked(word, reversed(flags.releases()), f"; as in {flags.newest()}")


def parser() -> Parser:
    """Its own options; all others are names of flags."""
    parser = Parser(
        "vllm-doctor flags",
        "What a vLLM version takes: all its flags, or a page each for those named.",
        "VERSION [FLAG | VLLM_VARIABLE | vllm:metric]... [--ask-vllm [PATH]]",
        (
            ("vllm-doctor flags 0.32.0", "all flags of a version"),
            ("vllm-doctor flags 0.32.0 --max-num-seqs", "a flag: since when, its default, what stands in for it"),
        ),
    )
    parser.add_argument("words", nargs="*", metavar="VERSION [FLAG...]")
    asking = "ask the parser of an installed vLLM, not the catalogue: its python, or its vllm script (that on the PATH)"
    parser.add_argument("--ask-vllm", nargs="?", const="", metavar="PATH", help=asking)
    return parser
