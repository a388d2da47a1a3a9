"""How fast it was, as people write it: "I get only 17 tokens per second for 1 request". Pure.

A sentence may hold several figures, of which one is the complaint: what is wished for, what another engine reaches, and
what a prompt is computed at are not what requests got. The last cue before a figure says which it is; without one it
was measured. What was before, and what another engine reaches, is what somebody compares with: a reference. What people
write is no format: who reads the report is told which figure was taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vllm_doctor.model import outside
from vllm_doctor.sources.bench import prose_setup, prose_upgrade
from vllm_doctor.sources.bench.prose_upgrade import Upgrade

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
    r"|whereas|while|instead of|others?|people)(?![a-z])"
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
    r"|(?P<wish_zh>期望|预期|应该|应当|希望|理论|官方|如何|怎么才|想要|目标)|(?P<other_zh>相比|对比)|(?P<got_zh>只有|仅|实测|速度|平均|大约|输出)"
)
_HAS_ENGINE = re.compile(_ENGINE)
_TIME = re.compile(
    r"(?<![a-z])(?:(?P<before>normally|usually|before|old(?:er)? (?:version|image|release|build))"
    r"|(?P<past>previously|used to|originally|earlier|formerly|in the past)"
    r"|(?P<fall>drop(?:s|ped|ping)?|falls?|fell|declin\w{1,3}|degrad\w{1,4}|decreas\w{1,3})"
    r"|(?P<now>after(?:wards)?|now|since|currently|today|new(?:er)? (?:version|image|release|build)|latest))(?![a-z])"
    r"|(?P<past_zh>之前|以前|原来)|(?P<before_zh>正常)|(?P<now_zh>现在|之后|升级后|目前)"
)
_THEN_TIME = re.compile(
    r"[\s),(]{0,3}(?:(?:it |that )?(?:was |is )?|with |on |in )(?:the )?(?:(?P<past>before|previously|earlier"
    r"|old(?:er)?)|(?P<now>after(?:wards)?|now|new(?:er)?|latest))(?![a-z])"
)
_FROM = re.compile(r"(?<![a-z])from (?:about |around |roughly |[~≈] ?)?\Z")
_TO_ANOTHER = re.compile(r"[\s,]{0,2}(?:down )?to(?![a-z])[^\d]{0,30}\d")
_AND = re.compile(r"[\s,]{0,3}(?:and|und|,)[\s~≈]{0,3}(?:about |around )?")
_MERELY = re.compile(r"(?<![a-z])(?:only|just|merely)(?![a-z])")
_RESPECTIVELY = re.compile(r"(?<![a-z])respectively(?![a-z])|分别")
_TOTAL = re.compile(
    r"(?<![a-z])(?:through(?:put|out)(?= (?:is|was|of|at|around|about|stays|[~≈:=])|[:=(])|(?:in total|altogether"
    r"|aggregated?|combined)(?![a-z]))|总吞吐|总共"
)
"""All requests together, however many those are ("throughout" is how half of the people write it)."""
_LOGGED = re.compile(
    r"(?m)^[ \t>]{0,20}(?:\([^()\n]{0,80}pid=\d{1,10}[^()\n]{0,60}\) ){0,2}"
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d .*$"
)
"""A record of vLLM's log: what it tells is the log's to tell, however it was broken."""
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


BEFORE, ENGINE, COMPARED = "before", "of another engine", "of something else"


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
    is_total: bool = False
    """Of all requests together, however many: nothing says it."""
    model: str = ""
    """Of several models that the sentence names, the one that it is of."""

    @property
    def of_request(self) -> float:
        """Tokens a second that a request gets."""
        return self.rate / (self.requests or 1.0) if self.is_together else self.rate


@dataclass(frozen=True, slots=True)
class Told:
    """The speeds in a text, each once, in their order: those that requests got, and those they are compared with, each
    with what it is."""

    own: tuple[Figure, ...] = ()
    references: tuple[tuple[Figure, str], ...] = ()
    upgrade: Upgrade | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """A figure, and whether it is a reference: `what`, or "" for one that requests got. `is_sure`: also where the text
    holds no other. `is_fall`: the speed fell to it."""

    figure: Figure
    what: str = ""
    is_sure: bool = True
    is_fall: bool = False


def figures(text: str) -> tuple[Figure, ...]:
    """The speeds of generation that were measured, in their order; those that are alike once."""
    return told(text).own


def told(text: str) -> Told:
    """The speeds of generation that the text tells, in their order; those that are alike once."""
    text = _LOGGED.sub(lambda line: " " * len(line[0]), text[:MOST_CHARS])
    upgrade = prose_upgrade.read(text)
    seen: list[_Seen] = []
    line_before = ""
    for start, sentence, ends in _sentences(text):
        of_engine = _ENGINES_RATES.search(line_before) is not None
        line_before = sentence if ends == "\n" else ""
        found = list(_of_sentence(sentence, start, ends, of_engine, upgrade))
        seen += _of_models(found, sentence, text[start : start + len(sentence)])
        if len(seen) >= _MOST_FIGURES:
            break
    sure = [one for one in seen if not one.what]
    fall = next((place for place, one in enumerate(seen) if one.is_fall and not one.what), 0)
    own: list[Figure] = []
    references: list[tuple[Figure, str]] = []
    for place, one in enumerate(seen[:_MOST_FIGURES]):
        what = one.what if one.is_sure or sure else ""
        if not what and place < fall and one.figure.requests is None and not one.figure.model:
            what = BEFORE
        if what:
            if all(known.said != one.figure.said for known, _ in references):
                references.append((one.figure, what))
        else:
            _add(own, one.figure)
    return Told(tuple(own), tuple(references), upgrade)


def _add(own: list[Figure], figure: Figure) -> None:
    same = next((n for n, one in enumerate(own) if _is_alike(one, figure)), None)
    if same is None:
        own.append(figure)
    elif own[same].requests is None and figure.requests is not None:
        own[same] = figure


def _of_models(found: list[_Seen], sentence: str, written: str) -> list[_Seen]:
    """ "A and B give 31 and 20 tokens/s, respectively": as many figures as models, in one order."""
    own = [one for one in found if not one.what]
    if len(own) < 2 or _RESPECTIVELY.search(sentence) is None:
        return found
    names = list(dict.fromkeys(model.name for model in prose_setup.models(written)))
    if len(names) != len(own):
        return found
    of_each = {id(one): name for one, name in zip(own, names, strict=True)}
    return [replace(one, figure=replace(one.figure, model=of_each.get(id(one), ""))) for one in found]


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


def _of_sentence(sentence: str, start: int, ends: str, of_engine: bool, upgrade: Upgrade | None) -> Iterator[_Seen]:
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
    clause = 0
    of_engines = False
    for match in matches:
        before = [cue for cue in cues if cue.end() <= match.start() + 1]
        kind = _kind(before[-1], match.start()) if before else ""
        when, begins, clause = _when(sentence, clause, match, upgrade), clause, match.end()
        if (then := _THEN_TIME.match(sentence, match.end())) and when.is_then:
            clause = then.end()
        what, is_sure = when.what, when.is_sure
        if what:
            pass
        elif (asks and kind != "got") or (kind == "other" and before[-1].lastgroup not in ("other", "other_zh")):
            continue
        elif kind == "other":
            what = ENGINE if _HAS_ENGINE.search(before[-1][0]) else COMPARED
        elif (of := _is_of_another(sentence, match, before, prompts)) is not None:
            if not of:
                continue
            what = of
        elif _is_beside_an_engine(sentence, begins, match, before) or (
            of_engines and _AND.fullmatch(sentence, begins, match.start())
        ):
            what, is_sure, of_engines = ENGINE, False, True
        yield from _figure(sentence, start, match, of_engine, is_each, _Seen(_NONE, what, is_sure, when.is_fall))


_NONE = Figure("", 1.0, None, False, 0)


def _figure(
    sentence: str, start: int, match: re.Match[str], of_engine: bool, is_each: bool, seen: _Seen
) -> Iterator[_Seen]:
    """What stands at the match, as it is `seen`; of "from 25 to 1 tok/s" both."""
    low, high = (_number(match[name] or "") for name in ("low", "rate"))
    said = " ".join(match[0].split())
    if low and high and high < low and _FROM.search(sentence, 0, match.start()):
        yield _Seen(Figure(f"{match['low']} tokens/s", low, None, False, start + match.start()), BEFORE)
        yield replace(seen, figure=Figure(f"{match['rate']} tokens/s", high, None, False, start + match.start("rate")))
        return
    rate = _rate(match)
    if rate is None:
        return
    requests = _requests(sentence, match)
    if requests is None and (of_engine or _ENGINES_RATES.search(sentence, 0, match.start()) is not None):
        return
    is_time = match["rate"] is None and match["chinese"] is None and match["after"] is None
    is_together = bool(requests and requests > 1 and not is_each and not is_time)
    is_total = requests is None and not is_each and not is_time and _TOTAL.search(sentence) is not None
    yield replace(seen, figure=Figure(said, rate, requests, is_together, start + match.start(), is_total))


@dataclass(frozen=True, slots=True)
class _When:
    """`what`: BEFORE, or "" of now. `is_then`: what says so stands behind the figure."""

    what: str = ""
    is_sure: bool = True
    is_fall: bool = False
    is_then: bool = False


def _when(sentence: str, begins: int, match: re.Match[str], upgrade: Upgrade | None) -> _When:
    """Of what time a figure is, by the last word on it since the figure before, else by one right behind it."""
    if _FROM.search(sentence, begins, match.start()) and _TO_ANOTHER.match(sentence, match.end()):
        return _When(BEFORE)
    version = upgrade.side(sentence[begins : match.start()]) if upgrade is not None else ""
    if version:
        return _When(BEFORE if version == "before" else "")
    words = list(_TIME.finditer(sentence, begins, match.start()))
    if words:
        name = (words[-1].lastgroup or "").removesuffix("_zh")
        is_before = name in ("before", "past")
        return _When(BEFORE if is_before else "", is_sure=name != "before", is_fall=name == "fall")
    then = _THEN_TIME.match(sentence, match.end())
    if then is not None:
        return _When(BEFORE if then["past"] else "", is_then=True)
    version = upgrade.side(sentence[match.end() : match.end() + 30]) if upgrade is not None else ""
    return _When(BEFORE if version == "before" else "")


def _is_beside_an_engine(sentence: str, begins: int, match: re.Match[str], before: Sequence[re.Match[str]]) -> bool:
    """ "Compared to Ollama I get 66 tok/s": of the other engine, where his own stand elsewhere."""
    engines = [cue for cue in before if cue.lastgroup in ("other", "vllm") and cue.start() >= begins]
    named = engines[-1] if engines else None
    if named is None or not _HAS_ENGINE.search(named[0]):
        return False
    return _MERELY.search(sentence, named.end(), match.start()) is None


def _kind(cue: re.Match[str], at: int) -> str:
    """What the last cue before a figure says of it: "got", "other" (also what is wished for), or nothing."""
    name = (cue.lastgroup or "").removesuffix("_zh")
    if name == "aside":
        is_of_it = at - cue.end() <= 4 and "expect" in cue[0]  # "slower than expected (60 tokens/s)"
        return "other" if is_of_it else "got"
    return {"got": "got", "other": "other", "wish": "other"}.get(name, "")


def _is_of_another(
    sentence: str, match: re.Match[str], before: Sequence[re.Match[str]], prompts: Sequence[re.Match[str]]
) -> str | None:
    """Whether it is another engine's speed; "": that of prompts, or of a GPU, or what one could wish for; else None."""
    engines = [cue for cue in before if cue.lastgroup in ("engine", "vllm")]
    after = sentence[match.end() : match.end() + 60]
    if engines and engines[-1].lastgroup == "engine" and not _THEN_VLLM.match(after):
        return ENGINE
    kinds = [cue for cue in prompts if cue.end() <= match.start()]
    if kinds and kinds[-1]["output"] is None:
        return ""
    if _THEN_ENGINE.match(after):
        return ENGINE
    return "" if any(pattern.match(after) for pattern in (_THEN_PROMPT, _THEN_WISH, _THEN_GPU)) else None


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
