"""vllm-doctor: what limits a vLLM server, on what evidence, and what cures it.

The flow, and the folder of each step (the drawing: docs/architecture.md):

    source      sources/, prometheus/, recording/   what is there is observed
    signals     rules/catalogue.py, expr/           observations become named values, or a reason why not
    rules       rules/                              conditions over signals become findings with evidence and remedies
    report      model/report.py                     frozen: findings, unknowns, vitals, the corrected command
    output      render/, tui/                       text, JSON, markdown, HTML, monitoring formats, the terminal

From Python: `vllm_doctor.examine("http://host:8000")` returns the Report (docs/api.md). The names below are loaded when
the first of them is asked for: `vllm-doctor --version` needs none.
"""

from vllm_doctor.model.version import __version__ as __version__

TYPE_CHECKING = False  # typing's own costs a third of `vllm-doctor --version`
if TYPE_CHECKING:
    from vllm_doctor.api import DoctorError as DoctorError
    from vllm_doctor.api import Expectation as Expectation
    from vllm_doctor.api import Finding as Finding
    from vllm_doctor.api import Remedy as Remedy
    from vllm_doctor.api import Report as Report
    from vllm_doctor.api import Rule as Rule
    from vllm_doctor.api import SourceError as SourceError
    from vllm_doctor.api import UsageError as UsageError
    from vllm_doctor.api import Verdict as Verdict
    from vllm_doctor.api import examine as examine
    from vllm_doctor.api import expect as expect
    from vllm_doctor.api import load_rules as load_rules
    from vllm_doctor.api import render_report as render_report

__all__ = [
    "DoctorError",
    "Expectation",
    "Finding",
    "Remedy",
    "Report",
    "Rule",
    "SourceError",
    "UsageError",
    "Verdict",
    "__version__",
    "examine",
    "expect",
    "load_rules",
    "render_report",
]


if not TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> object:
        """PEP 562: the public names, out of api.py."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from vllm_doctor import api

        return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
