"""What a workbook says beside its cells: its sheets, and columns whose numbers are shown with leading zeros."""

from __future__ import annotations

import html
import posixpath
import re
import zipfile
from collections.abc import Mapping

_MOST_BYTES = 1 << 20  # of each part that is read
_SOME = "[^<>]{0,300}?"  # attributes before the one that is searched; bounded, since each element may begin anew
_FORMAT = re.compile(rf'<numFmt\b{_SOME}numFmtId="(\d{{1,9}})"{_SOME}formatCode="(0{{2,99}})"')
_STYLE = re.compile(rf'<xf\b{_SOME}numFmtId="(\d{{1,9}})"')
_SHEET = re.compile(rf'<sheet\b{_SOME}\bname="([^"<]{{0,300}})"{_SOME}\br:id="([^"<]{{0,300}})"')
_TARGET = re.compile(rf'<Relationship\b(?={_SOME}\bId="([^"<]{{0,300}})")(?={_SOME}\bTarget="([^"<]{{0,300}})")')
_CELL = re.compile(rf'<c\b(?={_SOME}\br="([A-Z]{{1,3}})\d{{1,9}}")(?={_SOME}\bs="(\d{{1,9}})")(?!{_SOME}\bt="(?!n"))')


def sheet_names(path: str) -> list[str]:
    """The sheets of an xlsx workbook; none of another one. Never raises."""
    return list(_sheets(path))


def zero_padding(path: str, sheet: str) -> dict[int, int]:
    """By column, from 0, the digits that its numbers are shown with (format ``0000000``); of xlsx. Never raises."""
    styles = _part(path, "xl/styles.xml")
    formats = {int(number): len(zeros) for number, zeros in _FORMAT.findall(styles)}
    cells = styles.partition("<cellXfs")[2].partition("</cellXfs>")[0]
    widths = [formats.get(int(number), 0) for number in _STYLE.findall(cells)] if formats else []
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
    return {html.unescape(name): posixpath.join("/xl", files[key])[1:] for name, key in named if key in files}


def _part(path: str, name: str) -> str:
    """The start of a file in a workbook; "" if it is not there."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(name) as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except Exception:  # noqa: BLE001 - whatever is wrong with the file, what reads the cells says so
        return ""
