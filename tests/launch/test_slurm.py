from __future__ import annotations

import pytest

from vllm_doctor.launch.slurm import of_options
from vllm_doctor.launch.source import read


def test_a_batch_script() -> None:
    [start] = read(
        "#!/bin/bash\n#SBATCH --job-name=llm\n#SBATCH --gres=gpu:h100:4\n#SBATCH -c 16\n#SBATCH --mem=128G\n"
        "srun vllm serve m --tensor-parallel-size 4\n"
    )
    assert (start.resources.gpus, start.resources.gpu, start.resources.cpu_limit) == (4.0, "h100", 16.0)
    assert start.command.flags == {"--tensor-parallel-size": 4.0}


def test_srun_goes_over_it() -> None:
    [start] = read("#SBATCH --gpus-per-node=8\nsrun -n1 --gres=gpu:2 --cpus-per-task=4 vllm serve m\n")
    assert (start.resources.gpus, start.resources.cpu_limit) == (2.0, 4.0)


@pytest.mark.parametrize(
    ("options", "gpus", "gpu", "cores"),
    [
        ("-G A100:4", 4.0, "A100", None),
        ("--gpus=2 --gpus-per-node=h200:8", 8.0, "h200", None),
        ("--gres=shard:1,gpu:2 -c8", 2.0, None, 8.0),
        ("--gres gpu:nvidia_rtx_a6000:4", 4.0, "nvidia_rtx_a6000", None),
        ("--gres=gpu:{{n}} --cpus-per-task=x", None, None, None),
        ("--cpus-per-task=4 --ntasks-per-node=2", None, None, 8.0),
        ("--gpus=0", None, None, None),
    ],
)
def test_options(options: str, gpus: float | None, gpu: str | None, cores: float | None) -> None:
    asked = of_options(options.split())
    assert (asked.gpus, asked.cpu_limit) == (gpus, cores)
    assert asked.gpu == gpu
