"""The documentation site: `sphinx-build -W -n docs site`. Its reference is generated: _ext/generated.py."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

from vllm_doctor.model.version import __version__  # noqa: E402 - found by the line above

project = "vllm-doctor"
author = "vllm-doctor contributors"
project_copyright = author
release = version = __version__

extensions = ["myst_parser", "sphinx_copybutton", "generated"]
exclude_patterns = ["_ext"]
myst_enable_extensions = ["attrs_inline"]  # an id for each signal of a table
myst_heading_anchors = 3  # page.md#a-heading, as on a forge
smartquotes = False  # --max-num-seqs is no dash
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

html_theme = "furo"
html_title = f"vllm-doctor {release}"
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["kubernetes-rbac.yaml"]
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True

linkcheck_timeout = 10
linkcheck_ignore = [r"http://(localhost|127\.0\.0\.1|host|node)\b.*"]
