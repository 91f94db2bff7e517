"""Phrases of programs and packages in many languages, which the judge of two names learns from."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from multilingual.phrases import plain_phrase, read_phrases, some_names


def write_catalog(path: Path, messages: Mapping[str, str]) -> None:
    """Write a catalog in gettext's binary form: offsets of messages and translations, then the texts."""
    path.parent.mkdir(parents=True)
    sides = [
        [text.encode() for text in side] for side in (sorted(messages), [messages[one] for one in sorted(messages)])
    ]
    start, tables, texts = 28 + 16 * len(messages), b"", b""
    for text in (text for side in sides for text in side):
        tables += struct.pack("<II", len(text), start + len(texts))
        texts += text + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, len(messages), 28, 28 + 8 * len(messages), 0, start)
    path.write_bytes(head + tables + texts)


@pytest.mark.parametrize(
    "text, plain",
    [
        ("_Open File...", "Open File"),
        ("保存(_S)", "保存"),
        ("Sort &ascending:", "Sort ascending"),
        ("%d files", None),
        ("<b>Bold</b>", None),
        ("42", None),
        ("word " * 12, None),
    ],
)
def test_a_phrase_has_no_shortcut_and_no_place_for_a_value(text: str, plain: str | None) -> None:
    """What is shown beside a value, or is a text, is none."""
    assert plain_phrase(text) == plain


def test_phrases_of_programs_and_packages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A phrase has its forms in all languages; one in a single language is left out, a context tells two apart, and a
    program whose phrases are names that sets ask is not read, nor a catalogue whose head is wrong.
    """
    head = "Content-Type: text/plain; charset=UTF-8\n"
    verb, noun = "verb\x04_Open", "state\x04Open"
    german = {"": head, verb: "Ö_ffnen", noun: "Offen", "Red apple": "Roter Apfel", "Only here": "Nur hier"}
    french = {"": head, verb: "_Ouvrir", noun: "Ouvert", "Red apple": "Pomme rouge"}
    for language, catalog in (("de", german), ("fr", french)):
        write_catalog(tmp_path / language / "LC_MESSAGES" / "editor.mo", catalog)
        write_catalog(tmp_path / f"names-{language}" / language / "LC_MESSAGES" / "iso_639-3.mo", catalog)
    write_catalog(
        tmp_path / "it" / "LC_MESSAGES" / "editor.mo", {"": f"POT-Creation-Date: today\n{head}", verb: "Apri"}
    )
    for language, line in (("en", "text editor"), ("de", "Texteditor")):
        text = f"Package: edit\nDescription-md5: 0f\nDescription-{language}: {line}\n More of it.\n"
        (tmp_path / f"mirror_main_i18n_Translation-{language}").write_text(text, "utf-8")
    found = list(read_phrases(tmp_path))
    assert found == [
        ("editor", {"en": "Red apple", "de": "Roter Apfel", "fr": "Pomme rouge"}),
        ("editor", {"en": "Open", "de": "Offen", "fr": "Ouvert"}),
        ("editor", {"en": "Open", "de": "Öffnen", "fr": "Ouvrir"}),
        ("packages", {"de": "Texteditor", "en": "text editor"}),
    ]
    assert "it/LC_MESSAGES/editor.mo is not read" in caplog.text
    assert some_names(found[0][1], random.Random(0))[0] == "Red apple"
    assert set(some_names(found[0][1], random.Random(0))) == {"Red apple", "Roter Apfel", "Pomme rouge"}
