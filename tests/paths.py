"""Where the tests find what they read: the checkout, its recordings, and files of real systems."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "vllm_doctor"
FIXTURES = ROOT / "fixtures"
LOGS = FIXTURES / "logs"
DATA = ROOT / "tests" / "data"
COMMANDS = DATA / "commands"
NVIDIA_SMI = DATA / "nvidia_smi"
