"""HTML about entities, types and properties: previews in a frame, flyouts. Everything of the base is escaped."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from html import escape

from fastapi.responses import HTMLResponse

from pearl_qdrant.service.reconcile.properties import KB_TYPES, NAME, OWN, TYPES, EntityColumns, property_name

_STYLE = """
:root { color-scheme: light dark; font: 14px/1.4 system-ui, sans-serif; }
body { margin: 0.75rem; overflow-wrap: anywhere; }
h1 { font-size: 1.1rem; margin: 0; }
p { margin: 0.3rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 0.75rem; margin: 0.5rem 0 0; }
dt { font-weight: 600; max-width: 10rem; }
dd { margin: 0; }
"""

PREVIEW_ALIASES, PREVIEW_COLUMNS, PREVIEW_VALUES = 8, 8, 5
"""How much of an entity a preview shows; its own page shows all."""

_CUT = 300  # characters of a value in a preview


@lru_cache(maxsize=1)
def _policy() -> str:
    digest = base64.b64encode(sha256(_STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def page(title: str, body: str, status: int = 200) -> HTMLResponse:
    """A page without scripts; any site may show it in a frame, as previews are.

    Args:
        title: Plain text.
        body: HTML, with all text escaped.
        status: HTTP status.
    """
    text = (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>{escape(title)}</title><style>{_STYLE}</style></head>'
        f'<body><main dir="auto">{body}</main></body></html>'
    )
    headers = {
        "Content-Security-Policy": _policy(),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return HTMLResponse(text, status_code=status, headers=headers)


def entity_page(columns: EntityColumns, *, is_preview: bool) -> HTMLResponse:
    """An entity with its names, types, description and columns; a preview is short enough for its frame."""
    return page(columns.point.canonical_name, entity_html(columns, is_preview=is_preview))


def missing_page(entity_id: str) -> HTMLResponse:
    """What is shown for an id that no entity has."""
    return page("Not found", f"<h1>Not found</h1><p>No entity has the id {escape(entity_id[:_CUT])}.</p>", 404)


def entity_html(columns: EntityColumns, *, is_preview: bool) -> str:
    """What a preview says of an entity."""
    point = columns.point
    lines = [f"<h1>{escape(point.canonical_name)}</h1>", f"<p>{_id_html(point.entity_id)}</p>"]
    if point.description:
        lines.append(f"<p>{escape(_cut(point.description, is_preview))}</p>")
    rows: list[tuple[str, Sequence[str]]] = [("Types", list(dict.fromkeys((*point.kb_types, *point.types))))]
    aliases = columns.aliases or ()
    rows.append((OWN["aliases"], aliases[:PREVIEW_ALIASES] if is_preview else aliases))
    others = [one for one in columns.property_ids() if one not in (NAME, KB_TYPES, TYPES, "aliases", "description")]
    for one in others[:PREVIEW_COLUMNS] if is_preview else others:
        values = columns.values(one)
        rows.append((property_name(one), values[:PREVIEW_VALUES] if is_preview else values))
    shown = [(name, [_cut(value, is_preview) for value in values]) for name, values in rows if values]
    return "".join(lines) + (f"<dl>{_rows(shown)}</dl>" if shown else "")


def flyout_html(title: str, lines: Iterable[str]) -> str:
    """A small preview of a type or a property, to be put into the client's own page."""
    return f"<p><strong>{escape(title)}</strong></p>" + "".join(f"<p>{escape(line)}</p>" for line in lines)


def _rows(rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(', '.join(values))}</dd>" for name, values in rows)


def _id_html(entity_id: str) -> str:
    """An id; a link if it is an address."""
    shown = escape(entity_id)
    if not entity_id.startswith(("http://", "https://")):
        return shown
    return f'<a href="{shown}" target="_blank" rel="noopener noreferrer">{shown}</a>'


def _cut(text: str, is_preview: bool) -> str:
    return f"{text[:_CUT].rstrip()}..." if is_preview and len(text) > _CUT else text
