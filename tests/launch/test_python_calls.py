"""What texts in Python start; nothing in them is run."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import pytest

from vllm_doctor.launch import python_calls
from vllm_doctor.launch.source import facts, notes, read
from vllm_doctor.launch.start import Form, Start
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.reading import Known

HEAD = "import os, sys, subprocess\nfrom vllm import LLM, EngineArgs, AsyncEngineArgs, AsyncLLMEngine\n"


def starts(text: str) -> tuple[Start, ...]:
    return read(HEAD + text, "serve.py")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ('LLM("a/b", tensor_parallel_size=2)', "vllm serve a/b --tensor-parallel-size 2"),
        ('LLM(model="a/b", enforce_eager=True, seed=None)', "vllm serve a/b --enforce-eager"),
        ('LLM("a/b", enable_prefix_caching=False)', "vllm serve a/b --no-enable-prefix-caching"),
        ('M = "a"\nN = f"{M}/b"\nLLM(N, max_num_seqs=8 if False else 4 * 64)', "vllm serve a/b --max-num-seqs 256"),
        ('kw = dict(model="a/b")\nkw["dtype"] = "half"\nkw.update(seed=1)\nLLM(**kw)',
         "vllm serve a/b --dtype half --seed 1"),
        ('kw = {"dtype": "half"}\nLLM("a/b", **{**kw, "seed": 2})', "vllm serve a/b --dtype half --seed 2"),
        (
            'LLM("a/b", speculative_config={"method": "ngram", "num_speculative_tokens": 4})',
            'vllm serve a/b --speculative-config {"method": "ngram", "num_speculative_tokens": 4}',
        ),
        (
            'a = AsyncEngineArgs(model="a/b")\na.max_model_len = 4096\ne = AsyncLLMEngine.from_engine_args(a)',
            "vllm serve a/b --max-model-len 4096",
        ),
        ('from dataclasses import asdict\nLLM(**(asdict(EngineArgs("a/b")) | {"seed": 3}))', "vllm serve a/b --seed 3"),
        (
            'cmd = ["vllm", "serve", "a/b"]\ncmd += ["--port", str(80 * 100)]\ncmd.append("--enforce-eager")\n'
            "subprocess.Popen(cmd)",
            "vllm serve a/b --port 8000 --enforce-eager",
        ),
        ('subprocess.run([sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", "a/b"])',
         "python -m vllm.entrypoints.openai.api_server --model a/b"),
        ('cmd = ["vllm", "serve", "a/b"]\nprint(*cmd)\nsubprocess.Popen(" ".join(cmd), shell=True)', "vllm serve a/b"),
        ('M = "a/b"\nos.system(f"nohup vllm serve {M} --dtype half > log &")', "vllm serve a/b --dtype half"),
        ('def build(m, tp=2):\n    return LLM(model=m, tensor_parallel_size=tp)\nbuild("a/b")',
         "vllm serve a/b --tensor-parallel-size 2"),
        ('class S:\n    def __init__(self, **kw):\n        self.e = AsyncEngineArgs(**kw)\nS.bind(model="a/b")',
         "vllm serve a/b"),
        ('class C:\n    M = "a/b"\nclass S:\n    def __init__(self):\n        self.m = C.M\n'
         "    def go(self):\n        LLM(self.m)", "vllm serve a/b"),
        ('def words(d):\n    out = []\n    for k, v in d.items():\n        out += [f"--{k}", str(v)]\n    return out\n'
         'subprocess.run(["vllm", "serve", "a/b", *words({"seed": 1})])', "vllm serve a/b --seed 1"),
        ('import docker\ndocker.from_env().containers.run("vllm/vllm-openai:v0.11.0", ["--model", "a/b"])',
         "--model a/b"),
        ('import vllm as v\nv.LLM("a/b")', "vllm serve a/b"),
        ('from ray.serve.llm import LLMConfig\nLLMConfig(model_loading_config={"model_id": "x", "model_source": "a/b"},'
         ' engine_kwargs=dict(max_num_seqs=8))', "vllm serve a/b --max-num-seqs 8"),
    ],
)  # fmt: skip
def test_what_starts(text: str, command: str) -> None:
    [start] = starts(text)
    assert " ".join(start.argv).replace("python3", "python").endswith(command)
    assert start.form is Form.PYTHON


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("import torch\nLLM('a/b', tensor_parallel_size=torch.cuda.device_count())", "--tensor-parallel-size"),
        ("LLM('a/b', max_num_seqs=config['n'])", "--max-num-seqs"),
        ("n = 1\nif unknown():\n    n = 2\nLLM('a/b', max_num_seqs=n)", "--max-num-seqs"),
        ("LLM('a/b', seed=(1).__class__.__base__)", "--seed"),
        ("cmd = ['vllm', 'serve', 'a/b']\nif unknown():\n    cmd.append('--enforce-eager')", "--enforce-eager"),
        ("cmd = ['vllm', 'serve', 'a/b']\nif unknown():\n    cmd += ['--max-num-seqs', '8']", "--max-num-seqs"),
        ("import argparse\np = argparse.ArgumentParser()\np.add_argument('--eager', action='store_true')\n"
         "cmd = ['vllm', 'serve', 'a/b']\nif p.parse_args().eager:\n    cmd += ['--enforce-eager']", "--enforce-eager"),
    ],
)  # fmt: skip
def test_what_the_text_does_not_tell_is_unknown(text: str, flag: str) -> None:
    [start] = starts(text)
    assert start.unknown_flags == {flag}
    assert start.command.model == "a/b"
    assert not start.is_open


def test_defaults_of_the_program_count_and_are_said() -> None:
    [start] = starts(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--name', default='a/b')\n"
        "p.add_argument('-t', '--tp-size', type=int, default=2)\nargs = p.parse_args()\n"
        "LLM(args.name, tensor_parallel_size=args.tp_size, dtype=os.environ.get('DT', 'half'))"
    )
    assert start.command.model == "a/b"
    assert start.command.flags == {"--tensor-parallel-size": 2.0, "--dtype": "half"}
    assert start.notes[-1].endswith("the model (--name), --tensor-parallel-size (--tp-size), --dtype ($DT)")


def test_unknown_keywords_leave_it_open() -> None:
    [start] = starts("def make(**kw):\n    return LLM('a/b', **kw)")
    assert start.is_open
    assert starts("LLM('a/b', **given)")[0].is_open


def test_what_would_end_it_without_a_variable_does_not_hide_what_follows() -> None:
    [start] = starts("if not os.getenv('TOKEN'):\n    raise ValueError\nLLM('a/b')")
    assert start.command.model == "a/b"
    with pytest.raises(SourceError):
        starts("if 1 == 2:\n    LLM('a/b')")


def test_an_engine_is_no_server() -> None:
    [start] = starts("LLM('a/b')")
    assert facts(start)["usage_context"] == Known("engine")
    assert any("answers no HTTP requests" in note for note in notes(start))
    [server] = starts("subprocess.run(['vllm', 'serve', 'a/b'])")
    assert "usage_context" not in facts(server)


def test_environment_version_and_gpu() -> None:
    [start] = starts(
        "import modal\nimage = modal.Image.debian_slim().pip_install('vllm==0.11.0').env({'NCCL_DEBUG': 'INFO'})\n"
        "# vllm==0.9.1\nN = 2\nos.environ['VLLM_USE_V1'] = '1'\nos.environ['HF_TOKEN'] = 'hf_' + 'x' * 30\n"
        "@app.function(gpu=f'H100:{N}')\ndef serve():\n"
        "    env = os.environ.copy()\n    env['OMP_NUM_THREADS'] = '4'\n"
        "    subprocess.Popen(['vllm', 'serve', 'a/b'], env=env)"
    )
    assert start.version == "0.11.0"
    assert (start.resources.gpu, start.resources.gpus) == ("H100", 2.0)
    assert start.environment == {"NCCL_DEBUG": "INFO", "VLLM_USE_V1": "1", "HF_TOKEN": None, "OMP_NUM_THREADS": "4"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("!pip install -q vllm==0.6.3.post1", "0.6.3.post1"),
        ("# pip install vllm==0.8.5\n", "0.8.5"),
        ("a vllm==0.8.5 b vllm==0.9.0", None),
        ("from_registry('vllm/vllm-openai:v0.12.0')", "0.12.0"),
        ("nano-vllm==0.1.0", None),
    ],
)
def test_versions(text: str, told: str | None) -> None:
    assert python_calls.version(text) == told


@pytest.mark.parametrize(
    "text",
    [
        ">>> from vllm import LLM\n>>> llm = LLM(\n...   'a/b',\n...   seed=1)\nINFO engine is up\n",
        "    llm = LLM('a/b', seed=1)\n    out = llm.generate(prompts)",
        "my code:\n\n  llm = LLM('a/b',  # small\n     seed=1)\n\nthen: Traceback (most recent call last):\n  File x",
        "from vllm import LLM\nllm = LLM('a/b', seed=1)\nhere it breaks $$ completely",
        "llm = LLM('a/b', seed=1, ...)",
        "!pip install vllm\nfrom vllm import LLM\n%time llm = LLM('a/b', seed=1)",
    ],
)
def test_fragments(text: str) -> None:
    [start] = read(text)
    assert start.argv == ("vllm", "serve", "a/b", "--seed", "1")


def test_what_is_cut_off_is_open() -> None:
    [start] = read("  File x.py, line 3\n    llm = LLM(model='a/b', seed=1, enforce_ea")
    assert start.argv == ("vllm", "serve", "a/b", "--seed", "1")
    assert start.is_open


@pytest.mark.parametrize(
    "text",
    [
        "from langchain.llms import LLM\nLLM(model='a/b')  # not of vllm",
        "from other import EngineArgs\nEngineArgs('a/b')  # vllm",
        "from vllm import LLM\nprint('vllm serve a/b')",
        "from vllm import LLM\nLLM",
        "import vllm\n",
    ],
)
def test_what_starts_nothing(text: str) -> None:
    with pytest.raises(SourceError) as raised:
        read(text, "x.py")
    assert raised.value.kind == "not-vllm"


def test_a_page_shows_an_offline_engine_where_it_starts_no_server() -> None:
    fence = "```python\nfrom vllm import LLM\nLLM('a/b')\n```\n"
    assert [start.argv[2] for start in read(f"# how\n{fence}")] == ["a/b"]
    assert [start.argv[2] for start in read(f"# how\n{fence}\n```bash\nvllm serve c/d\n```\n")] == ["c/d"]


PLANTED = "__import__('os').system('touch {0}') or open('{0}', 'w')"


@pytest.mark.parametrize(
    "text",
    [
        "LLM({0})", "LLM('a/b', seed={0})", "LLM('a/b', **{{'seed': {0}}})", "LLM(f'a/{{{0}}}')", "{0}\nLLM('a/b')",
        "@{0}\ndef f(x={0}):\n    LLM('a/b', seed={0})", "class A({0}):\n    x = {0}\nLLM('a/b', seed=A.x)",
        "x = [{0} for i in [1]]\nLLM('a/b', seed=x)", "subprocess.run(['vllm', 'serve', 'a/b', str({0})])",
        "os.system(f'vllm serve a/b --seed {{{0}}} $(touch {1}) `touch {1}`')",
        "!vllm serve a/b --seed {{{0}}}", "LLM('{{0.__class__}}'.format({0}))", "LLM('a/b', seed=eval(\"{0}\"))",
        "LLM('a/b', seed=getattr(os, 'system')('touch {1}'))",
    ],
)  # fmt: skip
def test_planted_code_is_not_run(text: str, tmp_path: os.PathLike[str]) -> None:
    mark = os.path.join(tmp_path, "ran")
    planted = PLANTED.format(mark)
    for head in (HEAD, ""):
        with suppress(SourceError):
            read(head + text.format(planted, mark), "x.py")
    assert not os.path.exists(mark)


@pytest.mark.parametrize(
    "text",
    [
        "LLM" + "(" * 100_000,
        "LLM(" * 50_000,
        "x = " + "-" * 50_000 + "1\nLLM('a/b')",
        "LLM(" + "[" * 5_000 + "]" * 5_000 + ")",
        "a = ['x']\n" + "a = a + a\n" * 60 + "LLM(a)",
        "a = 'x'\n" + "a = a + a\n" * 60 + "LLM(a)",
        "a = 'x'\n" + "a = f'{a}{a}'\n" * 60 + "LLM(a)",
        "a = {'x': 1}\n" + "a = {'y': a, 'z': a}\n" * 60 + "LLM('m', hf_overrides=a)",
        "LLM('x' * 10 ** 10, seed=10 ** 10 ** 10, dtype='%1000000000d' % 1)",
        "def f(x):\n    return f(f(x))\nLLM(f(1))",
        "".join(f"def f{n}():\n    return f{n + 1}() + f{n + 1}()\n" for n in range(40)) + "LLM(f0())",
        "".join(f"{' ' * n}for b{n} in {list(range(9))}:\n" for n in range(18)) + " " * 18 + "LLM(1)",
        "LLM('a/b', seed='" + "\\" * 100_000,
        "LLM('a/b')\n" * 60_000,
        "a" + ".b" * 100_000 + "\nLLM('a/b')",
        ">>> LLM('a\n" * 20_000,
        "%%bash\n" + "vllm serve a/b\n" * 1,
        "!vllm serve " + "{x}" * 10_000,
    ],
)  # fmt: skip
def test_hostile_texts_take_little_and_raise_one_error(text: str) -> None:
    begin = time.process_time()
    for whole in (HEAD + text, text):
        with suppress(SourceError):
            read(whole, "x.py")
    assert time.process_time() - begin < 8


def test_words_without_their_quotes_are_taken_as_they_are_meant() -> None:
    [start] = read("LLM(model=DeepSeek-R1-Distill-Llama-8B, tensor_parallel_size=8, dtype=bfloat16, seed=SEED)")
    assert start.command.model == "DeepSeek-R1-Distill-Llama-8B"
    assert start.command.flags["--dtype"] == "bfloat16"
    assert "--seed" in start.unknown_flags


def test_a_variable_is_no_word_without_quotes() -> None:
    [start] = starts("LLM(model=name, dtype=kind)")
    assert start.command.model is None
    assert "--dtype" in start.unknown_flags
