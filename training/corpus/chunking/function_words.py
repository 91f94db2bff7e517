"""English words of the closed classes, which WordNet lacks or knows only in a rare sense.

A class is a letter of `tagger`; a word of several classes has several letters, the likeliest first.
"""

from __future__ import annotations

_CLASSES: dict[str, str] = {
    "D": (
        "the a an this these those each every some any no all both either neither another such what my your his its "
        "our their many several few most more other own same whose"
    ),
    "F": "of",
    "P": (
        "in on at by for with from into onto upon about against between among during through throughout across along "
        "around behind beside besides beyond despite except inside near outside toward towards under underneath "
        "unlike until till via within without per amid amongst atop below beneath versus vs. including concerning "
        "regarding following"
    ),
    "PR": "over up down off out above past before after since aboard as",
    "PT": "to",
    "PV": "like",
    "O": (
        "i you he she it we they me him us them himself herself itself themselves myself ourselves yourself who whom "
        "someone somebody something anyone anybody anything everyone everybody everything nobody nothing none mine "
        "yours hers ours theirs one's"
    ),
    "DO": "her",
    "WD": "that which",
    "W": "because although though if when while whereas whether where why how unless than lest once wherever whenever",
    "C": "and or but nor & plus",
    "X": (
        "be is are was were been being am have has had having do does did doing 're 've 'm isn aren wasn weren hasn "
        "haven hadn don doesn didn"
    ),
    "M": "can could may might must shall should will would 'll 'd cannot ought couldn shouldn wouldn",
    "!": "not never n't 't",
    "A": "ago later earlier afterwards thereafter",
    "R": (
        "very too so also just only even still already often always sometimes then there here now again soon almost "
        "quite rather perhaps maybe however therefore thus hence well much away back together ever yet later "
        "instead otherwise nevertheless moreover furthermore today tomorrow yesterday tonight further"
    ),
    "JR": "first",
    "S": "'s ' ’s ’",
    "K": (
        "january february march april may june july august september october november december jan. feb. aug. sept. "
        "oct. nov. dec."
    ),
    "1": (
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
        "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion "
        "trillion dozen"
    ),
    "J": (
        "second third fourth fifth sixth seventh eighth ninth tenth last next former latter certain various numerous "
        "main major new old early late good high long little different"
    ),
}

MONTHS = frozenset(_CLASSES["K"].split())
"""Months; they count as months only when capitalised, since `may` and `march` are other words too."""


def _closed() -> dict[str, str]:
    found: dict[str, str] = {}
    for letters, words in _CLASSES.items():
        for word in words.split():
            if letters != "K" or word not in ("may", "march"):
                found[word] = found.get(word, "") + letters
    return found


CLOSED_CLASS: dict[str, str] = _closed()
"""Letters by word, in lower case."""

EMPTY_WORDS = frozenset(word for word, letters in CLOSED_CLASS.items() if letters[0] not in "KJ1RA")
"""Words that do not make a phrase on their own."""
