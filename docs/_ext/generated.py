"""A Sphinx extension: the pages below reference/ are written before the sources are read, from the package itself.

They are not kept: what they are made of are the rules, the signals, the options and the schemas of this checkout.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import json_pages
import option_pages
import rule_pages
import signal_pages
from sphinx.application import Sphinx

from vllm_doctor.rules import rule_set


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir) / "reference"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def pages() -> dict[str, str]:
    """Path below reference/ -> its text, as MyST Markdown."""
    found = rule_set.load([])
    return {
        **rule_pages.pages(found),
        **signal_pages.pages(found),
        **option_pages.pages(),
        **json_pages.pages(),
    }


def write(folder: Path) -> None:
    """Bring a folder to what `pages` gives; a page that stays as it is is not touched, so that it is not read again."""
    wanted = {folder / name: text for name, text in pages().items()}
    for path in set(folder.rglob("*.md")) - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        if not path.is_file() or path.read_text("utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
