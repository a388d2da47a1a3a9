"""How fast it was, as people write it: "I get only 17 tokens per second for 1 request". Pure.

A sentence may hold several figures, of which one is the complaint: what is wished for, what another engine reaches, and
what a prompt is computed at are not what requests got. The last cue before a figure says which it is; without one it
was measured. What people write is no format: who reads the report is told which figure was taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vllm_doctor.model import outside

MOST_CHARS = 200_000
_MOST_FIGURES = 200
_LONGEST_SENTENCE = 2_000
_ALIKE = 1.2
"""Figures that differ by less are one: people round."""
_WIDEST = 2.0
"""Of "10-15 tokens/s": more is no figure."""
_SLOWEST, _FASTEST = 0.001, 1e6

_BORDER = re.compile(r"[.!?;](?=\s|$)|[。！？；\n|]")
_N = r"(?:\d{1,3}(?:,\d{3}){1,2}|\d{1,7})(?:\.\d{1,4})?"
_SECOND = r"(?:seconds?|secs?|s)(?![a-z])"
_TOKENS = r"(?:(?:output|generated|generation|decode|new) )?(?:tokens?|toks?|tkn?s?|t)"
_FIGURE = re.compile(
    rf"(?<![\w.,])(?:(?P<low>{_N}) ?(?:-|–|—|~|to) ?)?(?P<rate>{_N})(?P<kilo>k(?= ?t))?\+? ?"
    rf"(?:{_TOKENS} ?(?:/|per|a|p/) ?{_SECOND}|tps(?![a-z])|个? ?(?:tokens?|词元) ?(?:/|每|per) ?秒)"
    rf"|(?<![\w.,])(?P<ms>{_N}) ?(?:ms|milliseconds?) ?(?:/|per|a) ?(?:output |generated )?tok(?:ens?)?(?![a-z])"
    rf"|(?<![\w.,])(?P<seconds>{_N}) ?{_SECOND} ?(?:/|per|a) ?(?:output |generated )?tok(?:ens?)?(?![a-z])"
    rf"|(?<![a-z])tpot[^\d\n]{{0,20}}(?P<tpot>{_N}) ?ms(?![a-z])"
    rf"|每秒钟?[^\d\n]{{0,8}}(?P<chinese>{_N}) ?个? ?(?:tokens?|词元)"
    rf"|(?<![a-z])(?:tps|tok(?:en)?s?(?:/| per ){_SECOND})\)? ?(?:[:=]|is|was) ?(?:about |around |only |~"
    rf"|≈)?(?P<after>{_N})"
    r"(?![\w%]|\.\d)"
)
_ENGINE = (
    r"(?:llama[.-]?cpp|ollama|sglang|tgi|text-generation-inference|tensorrt(?:[ -]llm)?|trt-?llm|lmdeploy"
    r"|exllama\w{0,4}"
    r"|tabby\w{0,4}|mlx|transformers|lm ?studio|koboldcpp|mlc(?:-llm)?|ktransformers|ik_llama|deepspeed"
    r"|vllm-omni)(?![a-z])"
)
_VERB = r"(?:get|reach|achieve|acheive|see|hit|have|run at)"
_CUE = re.compile(
    r"(?<![a-z])(?:"
    # of another figure, and so of none
    r"(?P<aside>(?:slower|lower|less|worse|faster|better|more) than (?:i |we |what i |was |it |the )?(?:expected"
    r"|it should(?: be)?)"
    r"|than expected|as expected|below expectations?|(?:less|fewer|more|lower|higher|greater) than(?= ?[~≈]?\d))"
    rf"|(?P<other>(?:compared (?:to|with)|unlike|than|vs\.?|versus|in contrast to)(?: {_ENGINE})?"
    r"|previously|used to|whereas|while|instead of|others?|people)(?![a-z])"
    rf"|(?P<wish>how (?:can|could|do|to|would)(?: i| we| you| one)?(?: {_VERB})?|(?:can|could|would|should"
    rf"|will) (?:i|we|you|it|one|anyone) {_VERB}"
    r"|expect\w{0,6}|should(?: be| get| reach)?|supposed|targets?|goal|want|wish|hop(?:e|ing)|would(?: be| like)?"
    r"|could be"
    r"|need|desired?|aim\w{0,3}|possible|ideal\w{0,2}|theor\w{1,8}|advertised|claim\w{0,3}|official\w{0,2}|promised"
    rf"|(?<!able )(?<!managed )to (?:be |{_VERB}))(?![a-z])"
    rf"|(?P<engine>{_ENGINE})|(?P<vllm>vllm)(?![a-z-])"
    r"|(?P<got>only|just|gets?|getting|got|see(?:ing)?|achiev(?:es|ed|ing)|reach(?:es|ed|ing)|running|runs?"
    r"|averag\w{1,3}"
    r"|measured?|currently|now|actual\w{0,2}|slow|speed|around|about|generat\w{1,4}|gives?|yields?)(?![a-z])"
    r")"
    r"|(?P<wish_zh>期望|预期|应该|应当|希望|理论|官方|如何|怎么才|想要|目标)|(?P<other_zh>相比|对比|之前|以前|原来)|(?P<got_zh>只有|仅|实测|速度|平均|大约|输出)"
)
_ENGINES_RATES = re.compile(r"(?<![a-z])(?:prompt|prefill|input)(?: tokens?)? throughput(?![a-z])")
"""With it stand the engine's own rates, of all requests together, however many those are."""
_PROMPT = re.compile(
    r"(?<![a-z])(?:prompt (?:throughput|processing|eval\w{0,7}|speed|rate)|(?<!chunked )(?<!chunked-)prefill\w{0,4}"
    r"|input (?:tokens? )?(?:throughput|speed|rate)|pp\d{0,5}(?![a-z])|(?:prompt|input) ?[:=])|预填充"
    r"|(?P<output>(?<![a-z])(?:generat|decod|output|tg\d{1,5})|生成|输出)"
)
_THEN_PROMPT = re.compile(r"[\s(,]{0,3}(?:for |of |in |during |on )?(?:the )?(?:prefill|prompt|input)")
_THEN_ENGINE = re.compile(rf"[\s),]{{0,3}}(?:with|in|on|using|by|from|under|via) (?:[a-z]{{1,12}} )?{_ENGINE}")
_THEN_VLLM = re.compile(r"[\s),]{0,3}(?:with|in|on|using|by|from|under|via) vllm(?![a-z-])")
_THEN_WISH = re.compile(
    r"[\s),]{0,3}(?:(?:is|was|are|were|as|would be) )?(?:what )?(?:i |we )?(?:expect|possible|theoretical|desired"
    r"|in theory|is the (?:best|target|goal))"
)
_THEN_GPU = re.compile(r" ?(?:/|per ) ?(?:gpu|card|device)")
_ASKS = re.compile(
    r"[\s#>*-]{0,8}(?:how|what|which|can|could|should|would|is it possible|any (?:way|idea how))(?![a-z])"
)
_REQUESTS = re.compile(
    r"(?<![\w.,])(?P<count>\d{1,6}) ?(?:(?:concurrent|parallel|simultaneous) )?(?:requests?|reqs?|users?|clients?"
    r"|streams?|sequences)(?![a-z/])"
    r"|(?<![a-z])(?:concurrency|concurrent|parallel|batch(?:[ _-]?size)?|bs|num_concurrent)(?: level)? ?(?:of |is "
    r"|was |[:=] ?|-)?(?P<load>\d{1,6})(?![\d.]|[a-z])"
    r"|并发(?:数|量)?(?:在|为|是|[:：=])? ?(?P<chinese>\d{1,6})|(?P<before>\d{1,6}) ?(?:个?并发|路|个(?:请求|用户))"
    r"|(?<![a-z])(?P<one>(?:a |one |single[ -]|an individual )(?:request|user|stream|client|query|sequence)"
    r"|bs ?1(?!\d)|one at a time|single requests)|(?P<one_zh>单并发|单个?请求|单路|单用户|单线程)"
)
_EACH = re.compile(
    r"(?<![a-z])(?:each|per[ -](?:request|user|stream|seq\w{0,6}|client)|/ ?(?:req\w{0,5}|user|stream))(?![a-z])"
    r"|每个(?:请求|用户)|单个"
)


@dataclass(frozen=True, slots=True)
class Figure:
    """A speed that somebody says they got. `rate`: tokens a second, of each request or of all together."""

    said: str
    rate: float
    requests: float | None
    """At a time; None: not said."""
    is_together: bool
    start: int
    """Where it stands in the text."""

    @property
    def of_request(self) -> float:
        """Tokens a second that a request gets."""
        return self.rate / (self.requests or 1.0) if self.is_together else self.rate


def figures(text: str) -> tuple[Figure, ...]:
    """The speeds of generation that were measured, in their order; those that are alike once."""
    found: list[Figure] = []
    line_before = ""
    for start, sentence, ends in _sentences(text[:MOST_CHARS]):
        of_engine = _ENGINES_RATES.search(line_before) is not None
        line_before = sentence if ends == "\n" else ""
        for figure in _of_sentence(sentence, start, ends, of_engine):
            same = next((n for n, one in enumerate(found) if _is_alike(one, figure)), None)
            if same is None:
                found.append(figure)
            elif found[same].requests is None and figure.requests is not None:
                found[same] = figure
        if len(found) >= _MOST_FIGURES:
            break
    return tuple(found[:_MOST_FIGURES])


def _sentences(text: str) -> Iterator[tuple[int, str, str]]:
    """Where each begins, in small letters, and by what it ends."""
    start = 0
    for border in _BORDER.finditer(text):
        yield start, _lowered(text[start : min(border.start(), start + _LONGEST_SENTENCE)]), border[0]
        start = border.end()
    yield start, _lowered(text[start : start + _LONGEST_SENTENCE]), ""


def _lowered(text: str) -> str:
    """In small letters, each in its place."""
    small = text.lower()
    return small if len(small) == len(text) else text


def _of_sentence(sentence: str, start: int, ends: str, of_engine: bool) -> Iterator[Figure]:
    """`of_engine`: the line before, which may be of the same sentence, tells the engine's own rates."""
    if not any(char.isdigit() for char in sentence):
        return
    matches = list(_FIGURE.finditer(sentence))
    if not matches:
        return
    cues = list(_CUE.finditer(sentence))
    prompts = list(_PROMPT.finditer(sentence))
    asks = ends in ("?", "？") and _ASKS.match(sentence) is not None
    is_each = _EACH.search(sentence) is not None
    for match in matches:
        before = [cue for cue in cues if cue.end() <= match.start() + 1]
        kind = _kind(before[-1], match.start()) if before else ""
        if kind == "other" or (asks and kind != "got") or _is_of_another(sentence, match, before, prompts):
            continue
        rate = _rate(match)
        if rate is None:
            continue
        requests = _requests(sentence, match)
        if requests is None and (of_engine or _ENGINES_RATES.search(sentence, 0, match.start()) is not None):
            continue
        is_time = match["rate"] is None and match["chinese"] is None and match["after"] is None
        is_together = bool(requests and requests > 1 and not is_each and not is_time)
        said = " ".join(match[0].split())
        yield Figure(said, rate, requests, is_together, start + match.start())


def _kind(cue: re.Match[str], at: int) -> str:
    """What the last cue before a figure says of it: "got", "other" (also what is wished for), or nothing."""
    name = (cue.lastgroup or "").removesuffix("_zh")
    if name == "aside":
        is_of_it = at - cue.end() <= 4 and "expect" in cue[0]  # "slower than expected (60 tokens/s)"
        return "other" if is_of_it else "got"
    return {"got": "got", "other": "other", "wish": "other"}.get(name, "")


def _is_of_another(
    sentence: str, match: re.Match[str], before: Sequence[re.Match[str]], prompts: Sequence[re.Match[str]]
) -> bool:
    """Whether it is another engine's speed, or that of prompts, or of a GPU, or what one could wish for."""
    engines = [cue for cue in before if cue.lastgroup in ("engine", "vllm")]
    after = sentence[match.end() : match.end() + 60]
    if engines and engines[-1].lastgroup == "engine" and not _THEN_VLLM.match(after):
        return True
    kinds = [cue for cue in prompts if cue.end() <= match.start()]
    if kinds and kinds[-1]["output"] is None:
        return True
    return any(pattern.match(after) for pattern in (_THEN_PROMPT, _THEN_ENGINE, _THEN_WISH, _THEN_GPU))


def _rate(match: re.Match[str]) -> float | None:
    """Tokens a second."""
    told = {name: _number(value) for name, value in match.groupdict().items() if value is not None}
    rate = next((told[name] for name in ("rate", "chinese", "after") if name in told), None)
    if rate is not None and match["kilo"]:
        rate *= 1000
    if (low := told.get("low")) is not None and rate is not None:
        if not 0 < low <= rate <= _WIDEST * low:
            return None
        rate = (low + rate) / 2
    for name, unit in (("ms", 1e-3), ("tpot", 1e-3), ("seconds", 1.0)):
        if (value := told.get(name)) is not None:
            rate = 1 / (value * unit) if value else None
    return rate if rate is not None and _SLOWEST <= rate <= _FASTEST else None


def _number(text: str) -> float | None:
    return outside.number(text.replace(",", ""))


def _requests(sentence: str, match: re.Match[str]) -> float | None:
    """The number of requests that stands nearest to the figure, in its sentence."""
    found = [
        (max(one.start() - match.end(), match.start() - one.end()), one)
        for one in _REQUESTS.finditer(sentence)
        if one.end() <= match.start() or one.start() >= match.end()
    ]
    if not found:
        return None
    nearest = min(found, key=lambda pair: pair[0])[1]
    if nearest["one"] or nearest["one_zh"]:
        return 1.0
    told = next(nearest[name] for name in ("count", "load", "chinese", "before") if nearest[name])
    return _number(told) or None


def _is_alike(one: Figure, other: Figure) -> bool:
    if None not in (one.requests, other.requests) and one.requests != other.requests:
        return False
    return max(one.rate, other.rate) <= _ALIKE * min(one.rate, other.rate)
