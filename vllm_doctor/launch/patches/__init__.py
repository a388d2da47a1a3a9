"""Corrections of written commands as patches: a module for each form that one goes back in, `document.py` for all."""

from vllm_doctor.launch.patches.document import WrittenDocument

__all__ = ["WrittenDocument"]
