"""What vLLM writes: from the bytes of a log, however it is packed, to the lines that matter."""
