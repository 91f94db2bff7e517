"""Phrases in many languages that mean the same: what free programs show on the screen, and what packages say they are.

    LANG/LC_MESSAGES/PROGRAM.mo     translations of a program (Babel reads them)
    *_i18n_Translation-LANG*        short descriptions of Debian's packages, as `apt-get update` keeps them

A phrase is short and has no place for a value; of each there are its English form and some translations. They come into
a folder by `apt-get download PACKAGE`, `dpkg -x`, and `apt-get update -o Dir::State::lists=FOLDER -o
Acquire::Languages=de,fr,...`; the model card names programs. The judge of two names learns from them.
"""

from __future__ import annotations

import logging
import random
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from babel.messages.mofile import read_mo

LONGEST, WORDS, TRANSLATIONS = 64, 9, 7
"""Characters and words of a phrase, and how many translations of one are kept."""
PACKAGES = "packages"
NOT_READ = re.compile(r"^(iso_|libgweather|xkeyboard|shared-mime|kstars|stellarium|kgeography|kalzium|sc$|cldr)")
"""Programs whose phrases are names that sets ask."""
_VALUE = re.compile(r"[%{}<>|=$\\\n\t@#~^\x04]|https?:|\[\w\]|&\w+;|\$\(")
_KEY = re.compile(r"\(([_&])\w\)|[_&](?=\w)")  # the letter of a shortcut: "_Open", "開く(_O)"
_DESCRIPTION = re.compile(r"^Description-md5: (\w+)\nDescription-(\S+): (.*)$", re.MULTILINE)
_UNPACK = ("/usr/lib/apt/apt-helper", "cat-file")
_log = logging.getLogger(__name__)
_ENDS = " \u00a0.:…!?,;*"


def plain_phrase(text: str) -> str | None:
    """A phrase without the letter of its shortcut and signs at its ends; None if long or with a place for a value."""
    text = " ".join(_KEY.sub("", text).split()).strip(_ENDS + "。：")
    letters = sum(c.isalpha() for c in text)
    if letters < 2 or 2 * letters < len(text) or len(text) > LONGEST or len(text.split()) > WORDS:
        return None
    return None if _VALUE.search(text) else text


def _singular(text: object) -> str | None:
    """The phrase of a message, or of its singular where it has a plural."""
    return plain_phrase(str(text[0] if isinstance(text, list | tuple) else text))


def read_phrases(folder: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The programs and packages below a folder, with the forms of each phrase by language; "en" is English."""
    yield from read_programs(folder)
    yield from read_descriptions(folder)


def read_programs(folder: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """What programs show."""
    files: dict[str, list[tuple[str, Path]]] = defaultdict(list)
    for path in sorted(folder.rglob("*.mo")):
        if path.parent.name == "LC_MESSAGES" and not NOT_READ.search(path.stem):
            language = path.parent.parent.name
            if language[:2] != "en":
                files[path.stem].append((language, path))
    for program, found in sorted(files.items()):
        phrases: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        for language, path in found:
            try:
                with path.open("rb") as file:
                    catalog = read_mo(file)
            except ValueError as error:  # a date that is none, in one of a hundred
                _log.warning("%s is not read: %s", path, error)
                continue
            for message in catalog:
                plain, translated = map(_singular, (message.id, message.string))
                if plain and translated and translated != plain:
                    phrases[message.context or "", plain][language] = translated
        for (_, phrase), translations in phrases.items():
            if len(translations) > 1:
                yield program, {"en": phrase, **translations}


def read_descriptions(folder: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """What packages say they are."""
    phrases: dict[str, dict[str, str]] = defaultdict(dict)
    for path in sorted(folder.rglob("*_i18n_Translation-*")):
        content = path.read_bytes()
        if path.suffix:  # compressed
            content = subprocess.run([*_UNPACK, str(path)], capture_output=True, check=True).stdout  # noqa: S603
        text = content.decode("utf-8")
        for key, language, line in _DESCRIPTION.findall(text):
            if plain := plain_phrase(line):
                phrases[key][language] = plain
    for translations in phrases.values():
        if "en" in translations and len(set(translations.values())) > 1:
            yield PACKAGES, translations


def some_names(translations: Mapping[str, str], rng: random.Random) -> list[str]:
    """The English form of a phrase and some of its translations, in an order by chance; each once."""
    others = [text for language, text in translations.items() if language != "en"]
    rng.shuffle(others)
    return list(dict.fromkeys([translations["en"], *others[:TRANSLATIONS]]))
