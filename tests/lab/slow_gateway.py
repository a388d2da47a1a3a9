"""A hook of LiteLLM that takes its time before each call, as an authentication or a guardrail does.

LiteLLM's configuration names it (`callbacks: [slow_gateway.hook]`); HOOK_SECONDS says how long it takes.
"""

import asyncio
import os

from litellm.integrations.custom_logger import CustomLogger


class Hook(CustomLogger):
    async def async_pre_call_hook(self, user_api_key_dict, cache, data, call_type):  # type: ignore[no-untyped-def]
        await asyncio.sleep(float(os.environ.get("HOOK_SECONDS", "0")))
        return data


hook = Hook()
