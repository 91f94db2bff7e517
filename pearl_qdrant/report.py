"""A report on links, as one HTML page without scripts that needs no network: shares, doubtful mentions, types, a curve.

    with EntityLinker.open("umls") as linker:
        links = linker.link_batch(mentions)
        write_report(links, "out.html", threshold=linker.calibration.threshold)

A report keeps counts and the most doubtful mentions, so that a list of any length fits into memory.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from itertools import accumulate
from pathlib import Path

from pearl_qdrant._version import __version__
from pearl_qdrant.records import Link, NilReason
from pearl_qdrant.settings import DEFAULT_THRESHOLD

N_DOUBTFUL = 100
"""Doubtful mentions that are shown."""

_N_TYPES = 20
_N_BINS = 100  # of probabilities
_LONGEST = 120  # characters of a name

_REASONS = {
    NilReason.BELOW_THRESHOLD: "the best candidate is not probable enough",
    NilReason.AMBIGUOUS: "several entities have the name, and nothing separates them",
    NilReason.NO_CANDIDATES: "no name is close",
    NilReason.NO_NAME: "stands for nothing, or is a title or a number alone",
    NilReason.SEVERAL_NAMES: "several names of the base in one cell",
    NilReason.TOO_LONG: "longer than any name",
}


class LinkReport:
    """Counts links, and writes what it counted as a page.

    Attributes:
        mentions: Links that were added, those of blank mentions apart.
        blank: Mentions without a letter, such as empty lines.
        linked: Mentions with an entity.
        nil: Mentions without one, by reason.
        types: Links by type: an entity with several types counts for each.
        probabilities: Mentions by the probability of their best candidate, in hundredths from 0 to 1, without those
            that are NIL whatever the threshold.
    """

    def __init__(self, *, threshold: float = DEFAULT_THRESHOLD) -> None:
        self.threshold = threshold
        self.mentions = self.blank = self.linked = 0
        self.nil: Counter[NilReason] = Counter()
        self.types: Counter[str] = Counter()
        self.probabilities = [0] * (_N_BINS + 1)
        self._doubtful: dict[str, tuple[float, Link]] = {}

    def doubtful(self) -> list[Link]:
        """Mentions whose best candidate is nearest to the threshold, each once, the most doubtful first."""
        ranked = sorted(self._doubtful.values(), key=lambda one: one[0])
        return [link for _, link in ranked[:N_DOUBTFUL]]

    def add(self, link: Link) -> None:
        """Count a link."""
        if not link.mention.strip():
            self.blank += 1
            return
        self.mentions += 1
        best = link.candidates[0] if link.candidates else None
        probability = (best.probability or 0.0) if best else 0.0
        is_open = link.nil_reason in (None, NilReason.BELOW_THRESHOLD)  # another threshold would decide otherwise
        if is_open:
            self.probabilities[int(probability * _N_BINS + 1e-9)] += 1
        if link.nil_reason is not None:
            self.nil[link.nil_reason] += 1
        elif best is not None:
            self.linked += 1
            self.types.update(set(best.types or best.kb_types) or {"no type"})
        if best is None:
            return
        doubt = 0.0 if link.nil_reason is NilReason.AMBIGUOUS else abs(probability - self.threshold)
        self._doubtful[link.mention] = doubt, link
        if len(self._doubtful) > 8 * N_DOUBTFUL:
            self._doubtful = {one.mention: (self._doubtful[one.mention][0], one) for one in self.doubtful()}

    def write(self, path: str | os.PathLike[str], *, title: str = "Links") -> None:
        """Write the page to a file, as `write_report` does."""
        Path(path).write_bytes(self._page(title).encode("utf-8", "backslashreplace"))

    def _page(self, title: str) -> str:
        static = files("pearl_qdrant") / "service" / "page" / "static"  # its package needs the extra serve
        style = "".join(static.joinpath(name).read_text("utf-8") for name in ("base.css", "views.css"))
        n_nil = self.mentions - self.linked
        shares = [("linked to an entity", self.linked), ("NIL: no entity", n_nil)]
        reasons = [(_REASONS[reason], n) for reason, n in self.nil.most_common()]
        types = self.types.most_common(_N_TYPES)
        more = f"; {len(self.types) - _N_TYPES} more types are rarer" if len(self.types) > _N_TYPES else ""
        blank = f", {self.blank:,} blank" if self.blank else ""
        return _PAGE.format(
            style=style,
            title=_text(title),
            lead=f"{self.mentions:,} mentions{blank}; a link has a probability of at least {self.threshold:g}.",
            shares=_bars(shares, self.mentions),
            reasons=_bars(reasons, n_nil) if reasons else "<p>None.</p>",
            curve=_curve(self.probabilities, self.mentions, self.threshold),
            doubtful="".join(map(_row, self.doubtful())),
            types=_bars(types, self.linked),
            types_note=f"An entity with several types counts for each{more}.",
            version=__version__,
        )


def write_report(
    links: Iterable[Link], path: str | os.PathLike[str], *, title: str = "Links", threshold: float = DEFAULT_THRESHOLD
) -> LinkReport:
    """Write a report on links to a file, and return its counts.

    Args:
        links: The links, such as those of `EntityLinker.link_batch`.
        path: The file; one that is there is replaced.
        title: What was linked, such as the name of a file.
        threshold: The threshold of the links, a probability in [0, 1]: mentions near it are doubtful.

    Raises:
        OSError: If the file cannot be written.
    """
    report = LinkReport(threshold=threshold)
    for link in links:
        report.add(link)
    report.write(path, title=title)
    return report


def _text(value: str) -> str:
    """A name as HTML, cut, and apart from what stands beside it whatever its direction of writing."""
    shown = value if len(value) <= _LONGEST else value[:_LONGEST] + "…"
    return f"<bdi>{escape(shown)}</bdi>"


def _bars(counts: Iterable[tuple[str, int]], total: int) -> str:
    """A table of counts with their shares as bars."""
    rows = "".join(
        f'<tr><th scope="row">{_text(name)}</th><td class="number">{n:,}</td><td class="number">{n / total:.1%}</td>'
        f'<td><span class="bar"><span class="fill" style="inline-size:{n / total:.1%}"></span></span></td></tr>'
        for name, n in counts
        if total
    )
    return f'<div class="scroll"><table><tbody>{rows}</tbody></table></div>'


def _row(link: Link) -> str:
    """A doubtful mention: what it is linked to, or why not, and its two best candidates."""
    answer = "NIL" if link.entity_id is None else f"{_text(link.canonical_name or '')} {_code(link.entity_id)}"
    reason = "" if link.nil_reason is None else f' <span class="muted">{_REASONS[link.nil_reason]}</span>'
    candidates = "<br>".join(
        f"{(one.probability or 0):.2f} {_text(one.canonical_name)} {_code(one.entity_id)}"
        for one in link.candidates[:2]
    )
    cells = f'<th scope="row">{_text(link.mention)}</th><td>{answer}{reason}</td><td class="number">{candidates}</td>'
    return f"<tr>{cells}</tr>"


def _code(entity_id: str) -> str:
    return f"<code>{_text(entity_id)}</code>"


def _curve(bins: list[int], total: int, threshold: float) -> str:
    """Which share of all mentions would be linked at each threshold, as a drawing."""
    at_least = [n / (total or 1) for n in accumulate(reversed(bins))][::-1]
    points = " ".join(f"{40 + 5 * i},{210 - 200 * share:.1f}" for i, share in enumerate(at_least))
    x = 40 + 5 * _N_BINS * threshold
    ticks = "".join(
        f'<text x="{40 + 125 * i}" y="228" text-anchor="middle">{i / 4:g}</text>'
        f'<text x="34" y="{214 - 50 * i}" text-anchor="end">{i / 4:.0%}</text>'
        for i in range(5)
    )
    return (
        f'<svg viewBox="0 0 560 236" role="img" aria-label="Share of mentions linked at each threshold">'
        f'<path d="M40 10V210H540"/>{ticks}<line x1="{x:.1f}" y1="10" x2="{x:.1f}" y2="210"/>'
        f'<polyline points="{points}"/></svg>'
    )


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Report on links</title>
<style>{style}
td, th {{ vertical-align: top; }} tbody th {{ text-align: start; }} td .bar {{ inline-size: 12rem; }}
.pair {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 0 2rem; }}
svg {{ inline-size: 100%; max-inline-size: 40rem; font-size: 12px; fill: var(--muted); }}
svg path {{ fill: none; stroke: var(--line-strong); }} svg line {{ stroke: var(--doubt); stroke-dasharray: 4; }}
svg polyline {{ fill: none; stroke: var(--accent); stroke-width: 2; }}
</style></head>
<body><header class="top"><span class="brand">pearl-qdrant</span></header>
<main><h1>Links of {title}</h1><p class="lead">{lead}</p>
<div class="pair"><section><h2>Shares</h2>{shares}</section>
<section><h2>Why there is no entity</h2>{reasons}</section></div>
<section><h2>Share of mentions that would be linked, by threshold</h2>{curve}
<p class="muted">By the probability of each mention's best candidate. The dashed line is the threshold of these links;
what is NIL for another reason stays so.</p></section>
<section><h2>Doubtful mentions</h2>
<p class="muted">Each once; ambiguous ones and those nearest to the threshold first.</p>
<div class="scroll"><table><thead><tr><th>mention</th><th>answer</th><th>best candidates</th></tr></thead>
<tbody>{doubtful}</tbody></table></div></section>
<section><h2>Types of the linked entities</h2>{types}<p class="muted">{types_note}</p></section>
</main><footer><p>pearl-qdrant {version}</p></footer></body></html>
"""
