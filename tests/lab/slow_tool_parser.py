"""A tool parser as slow ones are: with each chunk of a stream it reads all of the answer again, in Python."""

from typing import Any

from vllm.tool_parsers.abstract_tool_parser import ToolParserManager
from vllm.tool_parsers.xlam_tool_parser import xLAMToolParser


@ToolParserManager.register_module("lab_slow")
class SlowToolParser(xLAMToolParser):  # type: ignore[misc]
    """Counts braces in what was read before."""

    def extract_tool_calls_streaming(self, previous_text: str, current_text: str, *args: Any, **kwargs: Any) -> Any:
        depth = 0
        for character in current_text * 4:
            depth += (character == "{") - (character == "}")
        return super().extract_tool_calls_streaming(previous_text, current_text, *args, **kwargs)
