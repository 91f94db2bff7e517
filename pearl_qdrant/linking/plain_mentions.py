"""Mentions without what lists and pages put around a name, which is no part of it.

    marks of quotation        "insulin", „Insulin“, "insulin"@en
    a full stop at the end    insulin glargine.
    markup                    <b>insulin</b>, **insulin**, [[insulin]], [insulin](https://...), (insulin), B&amp;B
    bullets                   - insulin, • insulin, 3) insulin, (a) insulin, 3. insulin
    signs at the end          insulin; insulin: insulin... insulin* insulin [1] insulin/ insulin (12%) insulin (?)
    trademarks, emoji         Lantus®, Lantus™
    how addresses write it    insulin_glargine, insulin%20glargine, #InsulinGlargine, https://.../wiki/Insulin_glargine
    amounts                   2 x insulin, insulin $12.99, insulin 12,345
    words around it           e.g. insulin, aka insulin, insulin etc., Banting et al.
    who named a species       Panthera leo (Linnaeus, 1758), Quercus petraea (Matt.) Liebl.

A mention that is a name of the base as it stands keeps all of it (`mention_stream`): `Yahoo!`, `1. FC Köln`. The number
of a list and who named a species go where a name of the base is left.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import unescape
from urllib.parse import unquote

from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import LEGAL_FORMS, SMALL_WORDS, english_words, is_common, is_word

_LONGEST = 500  # characters of a mention that patterns are tried on
TITLES = frozenset("mr mrs ms miss dr prof sir madam mme herr frau señor señora".split())

_QUOTES = frozenset("""\"\" '' `` `' “” ‘’ „“ „” ‚‘ ‚’ «» »« ‹› ›‹ ”” ’’ 「」 『』 《》 〈〉 ＂＂""".split())
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")
_LAST_WORD = re.compile(r"(\S+?)[.。]$")
_ABBREVIATED = re.compile(r"\w{2}\.\s")
_LETTERS_OF_WORD = 5  # of a known word from which a full stop behind it abbreviates nothing: not `Wash.`, `Ill.`

_IS_PLAIN = re.compile(r"(?!aka |\d+ ?x )[^\W_](?:[^\W_]|[ &'-]|,(?!\d))*[^\W_]", re.ASCII)
"""Text of words alone, without anything to take off; most mentions are such."""

_MARKUP = (
    re.compile(r"<([A-Za-z][A-Za-z0-9]*)(?:\s[^<>]*)?>(?P<text>.+)</\1\s*>", re.DOTALL),
    re.compile(r"(\*{1,3}|_{1,3}|~~)(?P<text>[^\s*_~](?:.*[^\s*_~])?)\1", re.DOTALL),
    re.compile(r"\[\[(?:[^\[\]|]*\|)?(?P<text>[^\[\]|]+)\]\]"),
    re.compile(r"\[(?P<text>[^\[\]]+)\]\([^()\s]*\)"),
    re.compile(r"\((?P<text>[^()]+)\)|\[(?P<text2>[^\[\]]+)\]|\{(?P<text3>[^{}]+)\}"),
    re.compile(r"#(?P<text>[^\W_][^\W]*)"),
    re.compile(r"https?://\S+/(?:wiki|resource|page)/(?P<text>[^\s/?#]+)"),
)
_AT_START = re.compile(
    r"[-–—•·‣▪►*]\s+(?=\S)|\(?(?:\d{1,3}|[a-z])\)\s+(?=\w)|\d{1,4}\s?[x×]\s+(?=[^\W\d_])"
    r"|(?:aka|a\.k\.a\.|e\.g\.|i\.e\.|cf\.|viz\.),?\s+(?=\w)"
)
_AT_END = re.compile(
    r"(?:(?<=\w[\w)\]])(?:[!?*†‡/]+|…|\.{2,})|(?<=\S[^\s:;,])[:;,]+|\s+[-–—*•|]"
    r"|\s*\[(?:\d{1,3}|[a-z]|note \d+|citation needed)\]|\s*\((?:n\s?=\s?\d+|\d+(?:[.,]\d+)?\s?%|\?+|sic!?)\)"
    r"|\s+[$€£¥]\s?\d[\d,.]*|\s+\d[\d,.]*\s?[€£¥]|\s+\d{1,3}(?:,\d{3})+|,?\s+(?:etc|et al)\.?"
    r"|(?<=[\w\"”“»)])@[a-z]{2,3}(?:-[A-Za-z]{2,4})?)$"
)
_SYMBOLS = re.compile(
    r"\s?[™®©℠]|^[\u2600-\u27bf\ufe0f\U0001f000-\U0001faff]+\s*|\s*[\u2600-\u27bf\ufe0f\U0001f000-\U0001faff]+$"
)
_AUTHOR = r"(?:(?:[A-Z]\.[ -]?)*(?:d['’]|de |van |von |du |le |la )?[A-Z][^\W\d_'’-]+[\w'’-]*\.?|L\.)"
_AUTHORS = rf"{_AUTHOR}(?:(?:, | ?& ?| et | and | ex | in ){_AUTHOR})*(?:,? (?:et al\.|f\.|fil\.))?"
_SPECIES = re.compile(
    r"(?P<name>[A-Z][^\W\d_A-Z]{2,}(?: \([A-Z][a-z]+\))?"
    r"(?P<epithets>(?: (?:(?:subsp|ssp|var|f)\. )?[^\W\d_A-Z-]{3,}(?:-[^\W\d_A-Z]+)?)+)) "
    rf"(?P<authors>\({_AUTHORS},? \d{{4}}\)|{_AUTHORS},? \d{{4}}|(?:\({_AUTHORS}\) ?)?{_AUTHORS}(?<=\.))"
)
"""A name of two words or more with those who gave it: with a year (zoology) or abbreviated (botany). Sources: ICZN,
article 51; ICN, article 46."""
_NUMBERED = re.compile(r"\d{1,3}\.\s+(?=\w)")
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")
_ENTITY = re.compile(r"&(?:[A-Za-z]{2,8}|#\d{2,6}|#x[0-9A-Fa-f]{2,5});")
_JOINED = re.compile(r"(?<=[^\W_])_+(?=[^\W_])")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def plain_mention(text: str) -> str:
    """A cleaned mention without what stands around the name: see the head of this file. A full stop of an abbreviation
    stays (`Apple Inc.`, `Washington, D.C.`), and so does text without a letter or digit.
    """
    while not _IS_PLAIN.fullmatch(text):
        plain = unquoted(text)
        if len(plain) <= _LONGEST:
            plain = _without_signs(_without_markup(plain))
        plain = _without_full_stop(plain)
        if plain == text or not any(map(str.isalnum, plain)):
            break
        text = plain
    return text


def bare_mention(text: str) -> str:
    """A plain mention without what may be a part of the name: the number of a list before it (`3. insulin`, but `1. FC
    Köln`), or who named a species behind it (`Abies alba Mill.`, but `Acta medica Scand.`).
    """
    bare = _NUMBERED.sub("", text, count=1) if _NUMBERED.match(text) else text
    if len(bare) > _LONGEST or not bare.endswith((".", ")", *"0123456789")):
        return bare
    found = _SPECIES.fullmatch(bare)
    if found is None or fold_name(found["authors"]) in LEGAL_FORMS:
        return bare
    # `Treaty with Spain, 1819`
    return bare if any(word in _frequent() for word in found["epithets"].split()) else found["name"]


@lru_cache(maxsize=1)
def _frequent() -> frozenset[str]:
    return frozenset(english_words()) | SMALL_WORDS


def unquoted(text: str) -> str:
    """What stands in quotation marks as a whole, else the text itself; not `"A" and "B"`."""
    while len(text) > 2 and (marks := text[0] + text[-1]) in _QUOTES:
        inside = text[1:-1]
        if not inside.strip() or any(mark in _APOSTROPHE.sub("", inside.strip(marks)) for mark in marks):
            break
        text = inside.strip()
    return text


def _without_markup(text: str) -> str:
    for pattern in _MARKUP:
        if found := pattern.fullmatch(text):
            inside = next(group for name, group in found.groupdict().items() if group is not None).strip()
            if not any(map(str.isalpha, inside)):  # a number in brackets is a citation
                return text
            return _HUMP.sub(" ", inside) if text[0] == "#" else inside
    return text


def _without_signs(text: str) -> str:
    if _ENTITY.search(text):
        text = unescape(text).replace("\xa0", " ").strip()
    text = _AT_END.sub("", _AT_START.sub("", text, count=1) if _AT_START.match(text) else text)
    if not text.isascii():
        text = _SYMBOLS.sub("", text)
    if " " not in text and "://" not in text:
        text = _JOINED.sub(" ", unquote(text) if _ESCAPED.search(text) else text)
    return text.strip()


def _without_full_stop(text: str) -> str:
    found = _LAST_WORD.search(text)
    if found is None or _ABBREVIATED.search(text):  # `Nat. Genet.`
        return text
    last, kept = found[1], text[: found.end(1)].rstrip()
    if last[-1].isdigit() or last[-1] in ")]" or last[-1] in "".join(_QUOTES):
        return kept
    word = fold_name(last)
    is_whole = len(word) >= _LETTERS_OF_WORD and last.isalpha() and (is_common(word) or is_word(word))
    return kept if is_whole and word not in LEGAL_FORMS and word not in TITLES else text
