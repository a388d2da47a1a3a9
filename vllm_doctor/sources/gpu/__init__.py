"""The GPUs, by NVIDIA's driver, by what nvidia-smi printed, or by their names. One view of a GPU (gpu.py), whoever
filled it; facts out.
"""
