"""What ran, as people write it: the model, the GPUs and how the model is split over them. Pure.

A word counts only where it is known: a model that the table of checkpoints has, or a family's name with a size; a GPU
of the table of data sheets. Where a text names several, none is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vllm_doctor.model.reading import Known
from vllm_doctor.vllm import checkpoints, gpu_names, gpus, model_name
from vllm_doctor.vllm.gpu_names import Named

MOST_CHARS = 100_000
_MOST_NAMES = 64
_MOST_RUNS = 400
_FAMILY = (
    r"(?:meta[- ]?)?(?:code[- ]?|tiny[- ]?)?llama|qwen|qwq|mistral|mixtral|ministral|devstral|magistral|codestral"
    r"|pixtral"
    r"|deepseek|gemma|phi|glm|chatglm|yi|falcon|command[- ]?r|c4ai|gpt[- ]?oss|nemotron|internlm|internvl|baichuan"
    r"|vicuna"
    r"|starcoder|olmo|granite|exaone|kimi|minimax|ernie|hunyuan|bloom|dbrx|jamba|solar|seed[- ]oss|mimo|ling|lfm|smollm"
)
_FORM = (
    r"(?:bf16|fp16|bfloat16|float16|fp8|nvfp4|mxfp4|awq|gptq|gguf|bnb|bitsandbytes|int-?[48]|[48]-?bit|w4a16"
    r"|w8a8|w8a16|q[2-8](?:[_-]k(?:[_-][sml])?|[_-]0)?)"
)
_NEXT = (
    r"(?:v?\d{1,2}(?:\.\d{1,2})?(?! ?(?:tok|t/|tps|ms|x|req|user|gpu|s(?![a-z])))|\d{1,4}(?:\.\d{1,3})?[bm]"
    r"|\d{1,2}x\d{1,3}b|a\d{1,3}(?:\.\d{1,2})?b|r1|v[23](?:\.\d)?|x?small|medium"
    rf"|large|mini|nemo|air|flash|next|moe|vl|coder|code|math|instruct|it|chat|base|thinking|distill|hf|preview"
    rf"|llama|qwen|{_FORM})"
)
_WORDS = re.compile(
    rf"(?<![a-z0-9_./-])(?:{_FAMILY})(?:[ _-]?{_NEXT}(?![a-z0-9])){{1,8}}(?:[-_][a-z0-9_.]{{1,40}}){{0,10}}"
    r"|(?<![a-z0-9_./-])(?=[a-z])[a-z0-9][a-z0-9_.-]{1,60}/[a-z0-9][a-z0-9_.-]{2,95}"
    r"|(?<![a-z0-9_./-])[./]{0,2}(?:[a-z0-9_.-]{1,60}/){0,6}[a-z][a-z0-9_.]{1,40}(?:-[a-z0-9_.]{1,40}){1,12}"
)
_FORM_BESIDE = re.compile(rf"(?<![a-z0-9_.-])(?:{_FORM})(?![a-z0-9_-])")
_Q = re.compile(r"(?<![a-z0-9])(q[2-6])(?![a-z0-9_.-])")
_BESIDE = 40
"""Characters behind a model's name, in which its format may follow."""
_BEFORE = 12
_NEAR = 1.04
"""How much larger one name of a model may make it than another: 32B, or 32.8."""
_LIKE_SIZE = re.compile(r"(?<![a-z0-9.])\d{1,4}(?:\.\d{1,3})?b(?![a-z0-9])")
_ENDS = re.compile(r"[.!?;](?=\s)|[。！？；\n]")

_GPU_WORD = re.compile(r"[a-z0-9]+(?:\.\d+)?[×*]?|[×*]|[^\sa-z0-9]")
_CHINESE = ((re.compile(r"单[张卡块]"), " single "), (re.compile(r"(?<!\d)(\d{1,3}) ?[张卡块] ?"), r" \1x "))
_SPLIT = re.compile(r"(?<![a-z0-9])(mi|gh)[ -](?=\d{2,4})")
_COUNT = re.compile(r"\d{1,3}[x×*]?|[x×*]|single|one|dual|two|four|quad|eight|of|the|stacked|nvidia|amd|gpus?|cards?")
_BARE = frozenset({"3080", "3090", "4060", "4070", "4080", "4090", "5060", "5070", "5080", "5090"})
"""Numbers that are the names of GPUs wherever they stand, but for their unit."""
_UNITS = re.compile(r" ?(?:tok|req|ms|s\b|mb|gb|mib|gib|w\b|mhz|%|x\b)")
_NO_GPU = frozenset({"CPU"})
_JUST_MEMORY = re.compile(r"\d{1,4}\s?gi?b?")
_JUST_VERSION = re.compile(r"(?:\d{1,2} ?x ?)?v\d{1,2}[a-z]{0,2}")
"""Of a model's name far more often than of a TPU's."""
_LONGEST_RUN = 7

_TENSOR = re.compile(
    r"(?<![a-z])(?:-?tp|tensor[- _]parallel(?:[- _]?size|ism)?) ?(?:of |is |[=:-] ?)? ?(\d{1,2})(?![\d.]|[a-z])"
)
_PIPELINE = re.compile(
    r"(?<![a-z])(?:-?pp|pipeline[- _]parallel(?:[- _]?size|ism)?) ?(?:of |is |[=:-] ?)? ?(\d{1,2})(?![\d.]|[a-z])"
)
_VERSION = re.compile(
    r"^[ \t>*-]{0,8}(?:\[(?:pip3|conda)\] )?vllm(?:\[[\w,-]{1,40}\])?"
    r"(?: version)?(?:[ \t]{2,60}|\t| ?== ?| ?: ?|(?<=version) )"
    r"v?(\d{1,2}\.\d{1,2}(?:\.\d{1,3})?(?:[.+a-z][\w.+]{0,40})?)(?![\w.])",
    re.IGNORECASE | re.MULTILINE,
)
"""A line of `pip list` or `pip freeze`, and the like."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a text names; `name` as the table of checkpoints reads it, with its format where one stands by"
    " it."""

    name: str
    start: int
    parameters: float
    form: str


def model(text: str, at: int = 0) -> Model | None:
    """The one that a figure at this place is about: that of its sentence, else those before it, else of the whole text;
    None where several are left."""
    found = list(models(text[:MOST_CHARS]))
    begin = max((end.end() for end in _ENDS.finditer(text[:at])), default=0)
    end = next((end.start() for end in _ENDS.finditer(text[:MOST_CHARS], at)), len(text))
    for some in (
        [one for one in found if begin <= one.start < at],
        [one for one in found if begin <= one.start < end],
        [one for one in found if one.start < at],
        found,
    ):
        if some:
            return _only(some)
    return None


def models(text: str) -> Iterator[Model]:
    """Those that a text names, in their order."""
    small = text.lower()
    if len(small) != len(text):
        small = text
    for count, match in enumerate(_WORDS.finditer(small)):
        if count >= 8 * _MOST_NAMES:
            return
        name = _Q.sub(r"\1_k_m", "-".join(match[0].split()).rstrip(".-_/"))
        known = _read(name)
        if known is None:
            continue
        beside = "" if known else _form_beside(small, match.start(), match.end())
        if beside:
            name = f"{name}-{beside}"
        written = text[match.start() : match.end()].rstrip(".-_/")
        whole = name if " " in written or beside or _Q.search(match[0]) else written
        yield Model(whole, match.start(), _parameters(name), _kind(name))


def _read(name: str) -> str | None:
    """The format that the name tells, "" for none; None where it names no model that is known."""
    parsed = model_name.parse(name)
    is_family = re.search(rf"(?<![a-z])(?:{_FAMILY})", name) is not None
    if checkpoints.find(parsed) is None and not (is_family and parsed.size is not None):
        return None
    if not is_family and _LIKE_SIZE.search(name.replace("-", " ")) is None and "/" not in name:
        return None
    return _kind(name)


def _kind(name: str) -> str:
    parsed = model_name.parse(name)
    return "" if parsed.form is None else f"{parsed.form.method} {parsed.form.bits}"


def _parameters(name: str) -> float:
    known = checkpoints.facts(name, {}).get("parameters")
    return float(known.value) if isinstance(known, Known) and isinstance(known.value, int | float) else 0.0


def _form_beside(text: str, start: int, end: int) -> str:
    """The format that stands behind a model's name, or right before it, as a word."""
    behind = _ENDS.split(text[end : end + _BESIDE], maxsplit=1)[0]
    match = _FORM_BESIDE.search(behind) or _FORM_BESIDE.search(text[max(0, start - _BEFORE) : start])
    return _Q.sub(r"\1_k_m", match[0]) if match else ""


def _only(some: Sequence[Model]) -> Model | None:
    """The one that all of them are, in its most exact words."""
    sizes = [one.parameters for one in some]
    forms = {one.form for one in some if one.form}
    families = {_family(one.name) for one in some}
    if max(sizes) > _NEAR * min(sizes) or len(forms) > 1 or len(families) > 1:
        return None
    return max(some, key=lambda one: (bool(one.form), len(one.name)))


def _family(name: str) -> str:
    """The last that it names: of "DeepSeek-R1-Distill-Qwen-32B" its shape."""
    named = re.findall(rf"(?<![a-z])(?:{_FAMILY})", name.lower())
    return named[-1].removeprefix("meta").strip("- ") if named else ""


def gpu(text: str) -> tuple[str, Named] | None:
    """The GPUs that a text is about, as it names them; None where it names none, or several kinds."""
    found: dict[str, tuple[str, Named]] = {}
    small = _SPLIT.sub(r"\1", text[:MOST_CHARS].lower())
    for pattern, instead in _CHINESE:
        small = pattern.sub(instead, small)
    for words, named in _gpus(small):
        key = named.gpu.name
        if key not in found or (found[key][1].count is None and named.count is not None):
            found[key] = (words, named)
    exact = [pair for pair in found.values() if not _is_vaguer(pair, list(found.values()))]
    if len(exact) != 1:
        return None
    words, named = exact[0]
    counts = {one.count for _, one in found.values() if one.count is not None}
    if named.count is None and len(counts) == 1:
        words = f"{counts.pop()}x {words}"
        named = gpu_names.named(words) or named
    return words, named


def _is_vaguer(pair: tuple[str, Named], others: Sequence[tuple[str, Named]]) -> bool:
    """Whether another one is the same with more words: "A100" beside "A100 PCIe"."""
    mine = _exact_words(pair[0])
    return any(mine < _exact_words(words) for words, named in others if named.gpu.name != pair[1].gpu.name)


def _exact_words(said: str) -> frozenset[str]:
    words = gpus.words_of(gpu_names.counted(said).name)
    return frozenset(word for word in words if gpus.is_word(word)) - {"gpu", "gpus", "card", "cards"}


def _gpus(text: str) -> Iterator[tuple[str, Named]]:
    """Runs of words that can name GPUs, and what the longest part of each means."""
    words = list(_GPU_WORD.finditer(text))
    place = runs = 0
    while place < len(words) and runs < _MOST_RUNS:
        end = place
        while end < len(words) and end - place < _LONGEST_RUN and _may_name(words, end, place):
            end += 1
        if end == place:
            place += 1
            continue
        runs += 1
        for last in range(end, place, -1):
            said = text[words[place].start() : words[last - 1].end()]
            found = _named(said, text[words[last - 1].end() :][:6])
            if found is not None:
                yield said, found
                place = last
                break
        else:
            place += 1


def _may_name(words: Sequence[re.Match[str]], place: int, first: int) -> bool:
    word = words[place]
    if place > first and word.start() - words[place - 1].end() > 1:
        return False
    bare = word[0]
    if not bare[0].isascii() or not (bare[0].isalnum() or bare in "×*"):
        return False
    return gpus.is_word(bare) or _COUNT.fullmatch(bare) is not None or _counted_word(bare)


def _counted_word(word: str) -> bool:
    """ "2xa100", "rtx4090"."""
    if word.isalpha() or word.isdigit() or len(word) > gpus.LONGEST:
        return False
    words = gpus.words_of(gpu_names.counted(word).name)
    return bool(words) and all(gpus.is_word(one) for one in words)


def _named(said: str, after: str) -> Named | None:
    clean = re.sub(r"(?<![a-z0-9])(?:of|the|stacked|gpus?|cards?)(?![a-z0-9])", " ", said)
    named = gpu_names.named(" ".join(clean.split()))
    if named is None or named.gpu.name in _NO_GPU or any("not understood" in one for one in named.assumptions):
        return None
    if named.count is not None and not 1 <= named.count <= 1024:
        return None
    bare = said.strip()
    if _JUST_MEMORY.fullmatch(bare) or _JUST_VERSION.fullmatch(bare):
        return None
    if not any(char.isalpha() for char in re.sub(r"^\d{1,3} ?x ?", "", bare)):
        return named if bare.split()[-1].lstrip("x*")[-4:] in _BARE and not _UNITS.match(after) else None
    return named


def parallel(text: str) -> tuple[int | None, int | None]:
    """Tensor and pipeline parallel size, where the text tells one of each."""
    small = text[:MOST_CHARS].lower()
    told = [{int(found[1]) for found in pattern.finditer(small)} for pattern in (_TENSOR, _PIPELINE)]
    tensor, pipeline = (next(iter(sizes)) if len(sizes) == 1 else None for sizes in told)
    return tensor or None, pipeline or None


def version(text: str) -> str | None:
    """vLLM's version, where a line of its own tells it; None where several do."""
    told = {found[1].rstrip(".") for found in _VERSION.finditer(text[:MOST_CHARS])}
    return told.pop() if len(told) == 1 else None
