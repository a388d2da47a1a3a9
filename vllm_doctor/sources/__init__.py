"""Where the facts come from. Each source gives an Observation; none knows a rule."""

import sys

# httpx's own command line (httpx._main) imports rich where it is installed; a doctor in a hook has no use for it.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
