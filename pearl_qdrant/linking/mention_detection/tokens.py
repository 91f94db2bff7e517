"""Words and the gaps between them, with exact offsets; and words that are no names.

English words that a mention does not start or end with, or does not consist of. Written for this project.

Other languages work without lists: they get more candidate spans, which the base then rejects.

Each character is replaced by one letter for its class. So regular expressions over the string of classes find words of
every script, and an offset in that string is an offset in the text. A combining mark or a joiner belongs to the
character before it; a control character, a lone surrogate or an unassigned code point ends a word and a sentence.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

ARTICLES = frozenset("a an the".split())
"""May start a capitalised name."""

CONNECTORS = frozenset(
    "a an the of in and or for to with by on at from as into de del della der des di da du la le les el los las van von"
    " und et y al ibn bin zu zum zur am im den dem das die s n".split()
)
"""May stand inside a mention, in lower case."""

_FUNCTION = """
i me my mine myself we us our ours ourselves you your yours yourself he him his himself she her hers herself it its
itself they them their theirs themselves this that these those who whom whose which what where when why how whether
am is are was were be been being has have had having do does did doing done will would shall should can could may might
must ought not no nor neither either both but if then else than so such too very just only also even still yet already
again ever never always often sometimes usually once twice soon later early earlier now here there thus hence therefore
however although though because since while until unless before after during about above below over under between among
amid against through throughout across along around behind beyond within without toward towards upon off out up down
back away near per via like unlike despite except besides instead rather quite almost nearly perhaps maybe indeed
all any each every few many more most much several some same other others another own one ones two three four five six
seven eight nine ten first second third last next another less least enough else
t s d ll re ve m don doesn didn isn aren wasn weren won wouldn couldn shouldn hasn haven hadn
ago well together apart especially mainly mostly largely simply really
"""

_VERBS = """
say says said saying tell tells told ask asks asked go goes went gone going come comes came coming get gets got getting
make makes made making take takes took taken taking give gives gave given giving find finds found finding know knows
knew known see sees saw seen seeing think thinks thought want wants wanted use uses used using work works worked working
call calls called calling try tries tried trying need needs needed feel feels felt become becomes became leave leaves
left leaving put puts keep keeps kept let lets begin begins began begun seem seems seemed help helps helped helping show
shows showed shown showing hear hears heard play plays played playing run runs ran running move moves moved moving live
lives lived living believe believes believed bring brings brought happen happens happened write writes wrote written
writing provide provides provided sit sits sat stand stands stood lose loses lost pay pays paid meet meets met include
includes included including continue continues continued set sets learn learns learned change changes changed lead leads
led understand understood watch watches watched follow follows followed following stop stops stopped create creates
created speak speaks spoke spoken read reads allow allows allowed add adds added spend spends spent grow grows grew
grown open opens opened walk walks walked win wins won offer offers offered remember remembers remembered consider
considers considered appear appears appeared buy buys bought wait waits waited serve serves served die dies died send
sends sent expect expects expected build builds built stay stays stayed fall falls fell fallen cut cuts reach reaches
reached kill kills killed remain remains remained suggest suggests suggested raise raises raised pass passes passed sell
sells sold require requires required report reports reported decide decides decided pull pulls pulled return returns
returned explain explains explained hope hopes hoped develop develops developed carry carries carried break breaks broke
broken receive receives received agree agrees agreed support supports supported hit hits produce produces produced eat
eats ate eaten cover covers covered catch catches caught draw draws drew drawn choose chooses chose chosen cause causes
caused join joins joined visit visits visited
"""

_ADJECTIVES = """
new old good bad better best worse worst big small large little long short high low great young important different
early late able public real sure free full possible whole certain clear main recent major likely strong easy hard
common similar available ready final general simple current several various usual
"""

_NOUNS = """
time times year years day days week weeks month months way ways people person man men woman women child children thing
things world life lives hand hands part parts place places case cases point points company companies number numbers
group groups problem problems fact facts home house room area areas money story stories lot right rights study studies
book books eye eyes job jobs word words business issue issues side sides kind kinds head service services friend friends
father mother family power hour hours minute minutes game games line lines end ends member members law laws car cars
city cities name names team teams school student students country countries state states government program system
question questions night morning evening afternoon half quarter moment reason reasons result results idea ideas body
information level office door health history party change age policy process music market sense nation plan plans
hundred hundreds thousand thousands million millions billion billions dozen dozens
"""

STOP_WORDS = CONNECTORS | frozenset(_FUNCTION.split()) | frozenset(_VERBS.split())
"""A mention does not start or end with one of these, unless it is capitalised as a name."""

COMMON_WORDS = STOP_WORDS | frozenset(_ADJECTIVES.split()) | frozenset(_NOUNS.split())
"""A mention does not consist of one of these alone, unless it is capitalised as a name."""

ROLES = frozenset(
    """
mr mrs ms miss dr prof sir dame lord lady madam rev reverend father sister brother saint st hon president vice prime
premier minister chancellor governor mayor senator congressman congresswoman representative rep sen gov judge justice
ambassador secretary king queen prince princess emperor empress pope bishop archbishop cardinal general gen colonel col
captain capt major lieutenant lt sergeant sgt corporal private admiral commander marshal officer chief chairman
chairwoman director professor doctor coach manager player striker goalkeeper defender midfielder pitcher skipper
champion actor actress singer author writer poet painter former late commissioner spokesman spokeswoman deputy envoy
patriarch rabbi analyst economist editor columnist correspondent lawyer attorney inspector sheriff treasurer founder
""".split()
)
"""Titles and roles, which stand beside a name and are no part of it."""

DATES = frozenset(
    """
monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september
october november december
""".split()
)
"""Words that are no part of a name beside them: Florida May 14."""

HAN_PARTICLES = frozenset("的了是在和与也不有就都而及或但被把对从为这那其之以于他她它们我你很还又再着过吗呢吧啊")
"""Characters that a Chinese name rarely starts or ends with."""


class Gap(Enum):
    """The kind of gap between a word and the next one."""

    JOINED = "joined"  # IL-2, U.S., AC/DC
    SPACE = "space"  # a name may continue: a space, a line end, "St. Louis", "Johnson & Johnson"
    COMMA = "comma"  # a capitalised name may continue: "Washington, D.C."
    BREAK = "break"  # ends a name
    SENTENCE = "sentence"  # ends a sentence: a capital letter after it is not informative


@dataclass(frozen=True, slots=True)
class Word:
    """A run of letters and digits, of ideographs of one kind, or of symbols.

    Attributes:
        start: Offset of its first character.
        end: Offset after its last character.
        shape: The classes of its characters; see `character_classes`.
        gap: The gap after it.
        joiner: The character of a `JOINED` gap; else empty.
    """

    start: int
    end: int
    shape: str
    gap: Gap
    joiner: str

    @property
    def has_capital(self) -> bool:
        return "U" in self.shape

    @property
    def is_number(self) -> bool:
        return not self.shape.strip("9m")

    @property
    def is_unspaced(self) -> bool:
        """Whether its script is written without spaces, so that it may consist of several words."""
        return self.shape[0] in "ckht"


_WORD = re.compile(r"[Ulo9][Ulo9m]*|c[cm]*|k[km]*|h[hm]*|t[tm]*|e[em]*")
_SPACE = re.compile(r" +| *(?:r?n|r) *")
_SPACED_MARK = re.compile(r"([.,'])(?: +| *(?:r?n|r) *)| +(&) +")
_SENTENCE = re.compile(r"[.!?:;\"x]|(?:r?n|r) *(?:r|n)|[rn].*[^ rn]|^ *[-*]")

JOINERS = "-'./&@:_+*#·–"

TITLES = frozenset("dr mr mrs ms st mt ft jr sr inc co corp ltd prof rev gen sen gov lt col capt no vs bros".split())
"""Words whose full stop does not end a sentence."""

_UNSPACED = (
    ("h", 0x3040, 0x309F),
    ("k", 0x30A0, 0x30FF),
    ("k", 0x31F0, 0x31FF),
    ("k", 0xFF66, 0xFF9F),
    ("c", 0x2E80, 0x2FDF),
    ("c", 0x3005, 0x3007),
    ("c", 0x3400, 0x4DBF),
    ("c", 0x4E00, 0x9FFF),
    ("c", 0xF900, 0xFAFF),
    ("c", 0x20000, 0x3FFFF),
    ("t", 0x0E00, 0x0FFF),  # Thai, Lao, Tibetan
    ("t", 0x1000, 0x109F),  # Myanmar
    ("t", 0x1780, 0x17FF),  # Khmer
)
"""Scripts written without spaces, by code point: hiragana, katakana, Han, and those of South-East Asia."""

_SPECIAL = {
    "\r": "r",
    "\n": "n",
    "\v": "n",
    "\f": "n",
    "\x85": "n",
    "\u2010": "-",
    "\u2011": "-",
    "\u2013": "–",
    "\u2019": "'",
    "\u02bc": "'",
    "\uff0c": ",",
    "\u00b7": "·",
    "\u2027": "·",
    "\u30fb": "·",
    "\u200b": " ",
    "\ufeff": " ",
    "\u2060": "b",
    "\u200e": "b",
    "\u200f": "b",
}
_CATEGORY = {
    "Lu": "U",
    "Lt": "U",
    "Ll": "l",
    "Nd": "9",
    "Nl": "9",
    "No": "9",
    "Mn": "m",
    "Mc": "m",
    "Me": "m",
    "Zs": " ",
    "Zl": "n",
    "Zp": "n",
    "So": "e",
    "Sk": "e",
    "Sc": "$",
}


_WRITTEN = {0xAD: None, 0x2060: None} | dict(zip(range(0xFB00, 0xFB07), "ff fi fl ffi ffl st st".split(), strict=True))
"""Soft hyphens and word joiners, which no name has, and ligatures of printers."""


def as_name(written: str) -> str:
    """A piece of a text as a base would write it: without line ends, soft hyphens and ligatures of printers."""
    return " ".join(written.translate(_WRITTEN).split())


def character_classes(text: str) -> str:
    """The class of each character, as a string of the same length.

    U, l and o are upper-case, lower-case and other letters, 9 digits, m marks and joiners, c Han, k katakana, h
    hiragana, t scripts of South-East Asia, e emoji and other symbols, b invisible marks of direction, $ currencies,
    r and n line ends, x characters that end a sentence; ASCII punctuation is its own class.
    """
    return text.translate({ord(character): _class_of(character) for character in set(text)})


@lru_cache(maxsize=65_536)
def _class_of(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    category = unicodedata.category(character)
    if character.isascii() and not character.isalnum() and character.isprintable():
        return "$" if character == "$" else character
    code = ord(character)
    if category in ("Lo", "Lm", "Nl"):
        return next((name for name, first, last in _UNSPACED if first <= code <= last), "o")
    if category == "Cf":
        return "b" if 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 else "m"
    return _CATEGORY.get(category, "x")


def split_words(text: str, classes: str) -> list[Word]:
    """The words of a text in order, each with the gap after it.

    Args:
        classes: Its `character_classes`.
    """
    found = list(_WORD.finditer(classes))
    words: list[Word] = []
    for i, match in enumerate(found):
        following = found[i + 1] if i + 1 < len(found) else None
        start, end, shape = match.start(), match.end(), match.group()
        gap, joiner = Gap.SENTENCE, ""
        if following is not None:
            between = classes[end : following.start()].replace("b", "")
            is_inner = bool(words) and words[-1].joiner not in ("", ".")
            gap, joiner = _gap(text[start:end], shape, between, following.group(), is_inner=is_inner)
        words.append(Word(start, end, shape, gap, joiner))
    return words


def _gap(word: str, shape: str, between: str, following: str, *, is_inner: bool) -> tuple[Gap, str]:
    """The kind of a gap and its joiner, from the classes in it and the words beside it.

    Args:
        word: The word before the gap.
        shape: The classes of that word.
        between: The classes in the gap.
        following: The classes of the word after the gap.
        is_inner: Whether the word is joined to the one before it, like the H of M*A*S*H; then it is not an initial.
    """
    if len(between) == 1 and between in JOINERS:
        is_missing_space = between == "." and shape[0] == "l" and following[0] == "U"
        return (Gap.SENTENCE, "") if is_missing_space else (Gap.JOINED, between)
    if between == "," and shape[-1] == "9" and following[0] == "9":
        return Gap.JOINED, ","
    if _SPACE.fullmatch(between):
        return Gap.SPACE, ""
    marked = _SPACED_MARK.fullmatch(between)
    mark = (marked.group(1) or marked.group(2)) if marked else None
    if mark == ",":
        return Gap.COMMA, ""
    # "Graves' disease", "Guns N' Roses", "J. S. Bach" and "St. Louis" continue; a quotation mostly does not.
    lowered = word.lower()
    is_initial = shape == "U" and not is_inner
    may_continue = is_initial or (lowered.endswith("s") if mark == "'" else lowered in TITLES)
    if mark == "&" or (mark is not None and may_continue):
        return Gap.SPACE, ""
    return (Gap.SENTENCE if _SENTENCE.search(between) else Gap.BREAK), ""
