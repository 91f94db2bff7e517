"""What a workbook says beside its cells: its sheets, and columns whose numbers are shown with leading zeros."""

from __future__ import annotations

import html
import re
import zipfile
import zlib
from collections.abc import Mapping

_MOST_BYTES = 1 << 20  # of each part that is read
_FORMAT = re.compile(r'<numFmt\b[^>]*?numFmtId="(\d+)"[^>]*?formatCode="(0{2,})"')
_STYLES = re.compile(r"<cellXfs\b.*?</cellXfs>", re.DOTALL)
_STYLE = re.compile(r'<xf\b[^>]*?numFmtId="(\d+)"')
_SHEET = re.compile(r'<sheet\b[^>]*?\bname="([^"]*)"[^>]*?\br:id="([^"]*)"')
_TARGET = re.compile(r'<Relationship\b(?=[^>]*?\bId="([^"]*)")(?=[^>]*?\bTarget="([^"]*)")')
_CELL = re.compile(r'<c\b(?=[^>]*?\br="([A-Z]{1,3})\d+")(?=[^>]*?\bs="(\d+)")(?![^>]*?\bt="(?!n"))')


def sheet_names(path: str) -> list[str]:
    """The sheets of an xlsx workbook; none of another one. Never raises."""
    return list(_sheets(path))


def zero_padding(path: str, sheet: str) -> dict[int, int]:
    """By column, from 0, the digits that its numbers are shown with (format ``0000000``); of xlsx. Never raises."""
    styles = _part(path, "xl/styles.xml")
    formats = {int(number): len(zeros) for number, zeros in _FORMAT.findall(styles)}
    found = _STYLES.search(styles)
    widths = [formats.get(int(number), 0) for number in _STYLE.findall(found[0])] if found and formats else []
    padded: dict[int, int] = {}
    for letters, style in _CELL.findall(_part(path, _sheets(path).get(sheet, ""))) if any(widths) else ():
        if int(style) < len(widths) and widths[int(style)]:
            column = 0
            for letter in letters:
                column = 26 * column + ord(letter) - 64
            padded.setdefault(column - 1, widths[int(style)])
    return padded


def _sheets(path: str) -> Mapping[str, str]:
    """The file of each sheet, by its name."""
    files = dict(_TARGET.findall(_part(path, "xl/_rels/workbook.xml.rels")))
    named = _SHEET.findall(_part(path, "xl/workbook.xml"))
    return {html.unescape(name): _inside(files[key]) for name, key in named if key in files}


def _inside(target: str) -> str:
    return target[1:] if target.startswith("/") else f"xl/{target}"


def _part(path: str, name: str) -> str:
    """The start of a file in a workbook; "" if it is not there."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(name) as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, zipfile.BadZipFile, zlib.error, KeyError, ValueError, NotImplementedError, RuntimeError, EOFError):
        return ""
