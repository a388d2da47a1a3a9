"""What the name of a model says: which model, how large, and how its weights are stored. Pure.

A name is what people write and serve: a repository, a folder, a file, a tag. It is a stranger's text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

_LONGEST = 500
"""Characters of a name that are looked at, its last ones."""
_CACHED = re.compile(r"models--([^/]+?)--([^/]+)")
"""A folder of the Hugging Face cache: models--owner--name."""
_HASH = re.compile(r"[0-9a-f]{7,64}")
_NO_NAME = frozenset(
    {"", ".", "..", "snapshots", "main", "master", "latest", "model", "models", "hf", "checkpoint", "weights", "merged"}
)
"""Folders that name no model: the one above does."""
_FRAMEWORKS = frozenset({"transformers", "pytorch", "safetensors", "gguf", "keras", "flax", "vllm"})
"""Folders between a model's name and its size."""
_TOKEN = re.compile(
    r"\d{1,3}x\d{1,4}(?:\.\d{1,3})?b"
    r"|[ae]?\d{1,5}(?:\.\d{1,4})?[bmt](?=a\d|[^a-z0-9]|$)"
    r"|v\d{1,4}(?:\.\d{1,4})*(?![a-z])"
    r"|\d+(?:\.\d+)*"
    r"|[a-z]+"
)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([bmt])")
_ACTIVE = re.compile(r"a(\d+(?:\.\d+)?)b")
_UNCLEAR = re.compile(r"\d+x\d.*|e\d.*")
"""8x7b: experts share what is not theirs; e4b: what Gemma calls effective."""
_TIMES = {"m": 1e6, "b": 1e9, "t": 1e12}

_SAME = frozenset(
    {
        "meta", "instruct", "inst", "chat", "it", "base", "pt", "hf", "bf", "fp", "dynamic", "static", "quantized",
        "quant", "unsloth", "dequantized", "torch", "tensor", "block", "channel", "marlin", "vllm", "ct", "qat", "kv",
        "gs", "g", "mix", "turbo", "abliterated", "uncensored",
    }
)  # fmt: skip
"""Words after which it is a model of the same shape."""
_OTHER = frozenset(
    {
        "draft", "drafter", "eagle", "medusa", "speculator", "dflash", "lora", "adapter", "peft", "qlora", "projector",
        "mmproj", "hydra", "tokenizer", "merge", "frankenmerge", "moe", "pruned", "reap", "mtp",
    }
)  # fmt: skip
"""Words after which it is a model of another shape than its name says."""


@dataclass(frozen=True, slots=True)
class Form:
    """How weights are stored. `method` as --quantization would call it; `bits` of a weight with its scales.

    `bits`: None where the word does not tell it. `whole`: the embedding and the output are stored so, too.
    """

    method: str
    bits: float | None
    whole: bool = False


_GROUPED = 4.25
"""4 bits, and 16 bits of scale (and a zero point) for each group of 128 or of 64."""
_HINT = re.compile(
    r"q[1-8][._-]|fp[48]|int-?[48]|[48]-?bit|bnb|bits|nf4|awq|gptq|gguf|w[48]a|round|quant|exl|aqlm|quip|hqq|squeeze|mlx|onnx|trt"
)
"""What stands in each of the forms' words: most names have none."""
_FORMS: tuple[tuple[str, Form], ...] = (
    (r"i?q1[._-][a-z0-9]{1,3}", Form("gguf", 1.8, whole=True)),
    (r"(?:ud-)?i?q2[._-](?:k|[a-z0-9]{1,3})(?:[._-](?:s|m|l|xl))?", Form("gguf", 2.9, whole=True)),
    (r"(?:ud-)?i?q3[._-](?:k|[a-z0-9]{1,3})(?:[._-](?:s|m|l|xl))?", Form("gguf", 3.9, whole=True)),
    (r"(?:ud-)?i?q4[._-](?:k|[a-z0-9]{1,3})(?:[._-](?:s|m|l|xl))?", Form("gguf", 4.85, whole=True)),
    (r"(?:ud-)?q5[._-](?:k|[a-z0-9]{1,3})(?:[._-](?:s|m|l|xl))?", Form("gguf", 5.7, whole=True)),
    (r"(?:ud-)?q6[._-]k(?:[._-](?:s|m|l|xl))?", Form("gguf", 6.6, whole=True)),
    (r"(?:ud-)?q8[._-](?:0|k(?:[._-]xl)?)", Form("gguf", 8.5, whole=True)),
    (r"gguf", Form("gguf", None, whole=True)),
    (r"nv-?fp4", Form("nvfp4", 4.5)),
    (r"mx-?fp4", Form("mxfp4", _GROUPED)),
    (r"mx-?fp8", Form("mxfp8", 8.25)),
    (r"w4a-?fp8", Form("compressed-tensors", _GROUPED)),
    (r"w4a16(?:-g\d{1,4})?|w4a8", Form("compressed-tensors", _GROUPED)),
    (r"w8a16", Form("compressed-tensors", 8.1)),
    (r"w8a8|smoothquant", Form("compressed-tensors", 8.03)),
    (r"awq(?:-?(?:int)?-?4(?:bit)?)?(?:-g\d{1,4})?", Form("awq", _GROUPED)),
    (r"gptq-?(?:int)?-?8(?:-?bits?)?", Form("gptq", 8.25)),
    (r"gptq-?(?:int)?-?3(?:-?bits?)?", Form("gptq", 3.25)),
    (r"gptq(?:-?(?:int)?-?4(?:-?bits?)?)?(?:-g\d{1,4})?", Form("gptq", _GROUPED)),
    (r"bnb(?:-?4-?bits?)?|bitsandbytes|nf4", Form("bitsandbytes", 4.5)),
    (r"(?:int4-)?auto-?round(?:-int4)?", Form("auto-round", _GROUPED)),
    (r"fp4", Form("nvfp4", 4.5)),
    (r"fp8(?:-?(?:e4m3|e5m2))?", Form("fp8", 8.03)),
    (r"int4|4-?bits?", Form("int4", _GROUPED)),
    (r"int8|8-?bits?", Form("int8", 8.03)),
    (r"exl[23]|aqlm|quip|hqq|squeezellm|mlx|onnx|trt|tensorrt", Form("other", None)),
)
"""The words of a name and what they say, the most exact first."""
_ANY_BITS = frozenset({"awq", "gptq", "auto-round"})
"""What is 4 bits where no other number stands beside it."""
_PLAIN = re.compile(r"(?<![a-z0-9])(?:bf16|fp16|f16|fp32|f32|float16|bfloat16)(?:-?mix)?(?![a-z0-9])")
_ASKED: tuple[tuple[str, Form], ...] = (
    ("awq", Form("awq", _GROUPED)),
    ("gptq", Form("gptq", _GROUPED)),
    ("bitsandbytes", Form("bitsandbytes", 4.5)),
    ("modelopt_fp4", Form("nvfp4", 4.5)),
    ("mxfp4", Form("mxfp4", _GROUPED)),
    ("fp8", Form("fp8", 8.03)),
    ("fbgemm_fp8", Form("fp8", 8.03)),
    ("ptpc_fp8", Form("fp8", 8.03)),
    ("experts_int8", Form("experts_int8", 8.1)),
    ("auto-round", Form("auto-round", _GROUPED)),
)


@dataclass(frozen=True, slots=True)
class ModelName:
    """A name as its words, in lower case: "Qwen2.5-7B" is qwen 2.5 7b.

    `repository`: owner/name, "" where no owner is told. `plain` and `words`: all but how weights are stored; `core`:
    without the words after which it is a model of the same shape.
    """

    repository: str
    plain: str
    words: tuple[str, ...]
    core: tuple[str, ...]
    form: Form | None
    is_plain: bool
    """Whether it says that its weights are in 16 or 32 bits."""

    @property
    def sizes(self) -> tuple[float, ...]:
        """The numbers of parameters that it tells: 7b, 560m, 1t."""
        return tuple(size for word in self.core if (size := size_of(word)) is not None)

    @property
    def active(self) -> tuple[float, ...]:
        """The numbers of parameters that a token uses: a3b."""
        return tuple(float(found[1]) * 1e9 for word in self.core if (found := _ACTIVE.fullmatch(word)))

    @property
    def size(self) -> tuple[float, float] | None:
        """Parameters, and those that a token uses, where the name tells them; None: it does not, or two of them."""
        sizes, active = set(self.sizes), set(self.active)
        if len(sizes) != 1 or len(active) > 1 or self.is_other or any(_UNCLEAR.fullmatch(word) for word in self.core):
            return None
        (size,) = sizes
        used = active.pop() if active else size
        return (size, used) if used <= size else None

    @property
    def is_other(self) -> bool:
        """Whether it is a part of a model, or one made from another: of another shape than the name's."""
        return any(word in _OTHER or word.removesuffix("s") in _OTHER for word in self.core)


def parse(name: str) -> ModelName:
    """The name in its parts. Of a path, the last part that names anything."""
    text = name[-_LONGEST:].strip().lower().replace("\\", "/")
    owner, said = _placed(text)
    said = re.sub(r"(?<=\dv)(\d)p(\d)|(?<=v)(\d)p(\d)|(?<=qwen)(\d)p(\d)", _with_point, said)
    said = re.sub(
        r"(?<=\d)_{1,3}(?=\d)|(?<=[a-z-]\d)-(?=\d-)", ".", said
    )  # internlm2_5, Qwen2___5, llama3-1-8b.replace("_", "-")
    rest, form, is_plain = _stored(said)
    words = _words(rest)
    core = tuple(word for word in words if word not in _SAME) or words
    return ModelName(f"{owner}/{said}" if owner else "", rest.strip("-._"), words, core, form, is_plain)


@cache
def forms() -> tuple[tuple[re.Pattern[str], Form], ...]:
    """What is looked for in a name, and what it says."""
    return tuple((re.compile(rf"(?<![a-z0-9])(?:{words})(?![a-z0-9])"), form) for words, form in _FORMS)


def asked(method: object) -> Form | None:
    """What --quantization says of a checkpoint whose name does not tell; None where nothing."""
    if not isinstance(method, str):
        return None
    return next((form for begin, form in _ASKED if method.lower().startswith(begin)), Form(method[:50], None))


def size_of(word: str) -> float | None:
    """Parameters: of 7b, 560m, 1t. A context of 1m tokens is none."""
    found = _SIZE.fullmatch(word)
    if found is None:
        return None
    size = float(found[1]) * _TIMES[found[2]]
    return size if (2e7 if found[2] == "m" else 5e7) <= size <= 2e13 else None


def _placed(text: str) -> tuple[str, str]:
    """(owner, name) of a repository, a path, a tag or an address."""
    cached = _CACHED.search(text)
    if cached is not None:
        return cached[1], cached[2]
    parts = text.replace("://", "/").replace(":", "-").split("/")
    while parts and (parts[-1] in _NO_NAME or parts[-1].isdigit() or _HASH.fullmatch(parts[-1])):
        parts.pop()
    if not parts:
        return "", ""
    said = parts[-1].removesuffix(".gguf") + ("-gguf" if parts[-1].endswith(".gguf") else "")
    above = [part for part in parts[:-1] if part not in _FRAMEWORKS]
    while above and all(size_of(word) is not None for word in _words(_stored(said)[0])):  # Qwen3-8B/awq, qwen3/8b
        said = f"{above.pop()}-{said}"
        if len(said) > _LONGEST:
            break
    return above[-1] if above else "", said


def _with_point(found: re.Match[str]) -> str:
    first, second = [part for part in found.groups() if part is not None]
    return f"{first}.{second}"


def _stored(said: str) -> tuple[str, Form | None, bool]:
    """The name without what says how the weights are stored; that; and whether it says that they are not quantised."""
    found: list[Form] = []
    for pattern, form in forms() if _HINT.search(said) else ():
        said, times = pattern.subn("-", said)
        if times:
            found.append(form)
    said, plain = _PLAIN.subn("-", said)
    exact = next((form for form in found if form.bits is not None), found[0] if found else None)
    methods = {form.method for form in found}
    if exact is not None and exact.method in _ANY_BITS and "int8" in methods and "int4" not in methods:
        exact = Form(exact.method, 8.25)
    return said, exact, bool(plain)


def _words(said: str) -> tuple[str, ...]:
    words = _TOKEN.findall(said)
    return tuple(
        word[1:] if word.startswith("v") and word[1:2].isdigit() and place and words[place - 1] == "llama" else word
        for place, word in enumerate(words)
    )
