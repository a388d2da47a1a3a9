"""A hook of LiteLLM that takes its time before each call, as an authentication or a guardrail does.

LiteLLM's configuration names it (`callbacks: [slow_gateway.hook]`). The file HOOK_SECONDS holds the seconds; it is read
for each request.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from litellm.integrations.custom_logger import CustomLogger


class Hook(CustomLogger):  # type: ignore[misc]  # LiteLLM is installed in the lab only
    async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: Any, call_type: Any) -> Any:
        await asyncio.sleep(float(Path(os.environ["HOOK_SECONDS"]).read_text() or "0"))
        return data


hook = Hook()
