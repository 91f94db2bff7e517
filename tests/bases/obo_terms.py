"""An ontology in OBO form, made up for the tests."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ingest.base.format import ReadOptions
from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.records import Entity

TOES = r"""format-version: 1.2
default-namespace: made_up
! a comment of its own
ontology: toes

[Term]
id: MADE:0001 ! sore left toe
name: sore \"left\" toe {source="MADE:x", note="a \"b\", {c}"} ! the {left} one
alt_id: MADE:0901
def: "A toe\nthat hurts." [MADE:curator, "x" "y"] {source="z"}
comment: not of interest
synonym: "toe pain, left" EXACT []
synonym: "a \"toe\" ! that \\ hurts" EXACT layperson [MADE:a, MADE:b] {d="e"} ! why
synonym: "hurting foot" BROAD [MADE:curator]
synonym: "no scope" []
xref: OTHER:77 {source="MADE:curator"} ! other
xref: OTHER:78
is_a: MADE:0002 {source="q"} ! sore toe
is_a: MADE:0004

[Term]
id: MADE:0002
name: sore toe
namespace: complaint
is_a: MADE:0003 ! sore thing

[Term]
id: MADE:0003
name: sore thing! {really}
is_a: MADE:0002 ! a cycle

[Term]
id: MADE:0004
name: left thing

[Term]
id: MADE:0005
name: obsolete toe
is_a: MADE:0001
is_obsolete: true
replaced_by: MADE:0002

[Term]
id: OTHER:stub

[Typedef]
id: part_of
name: part of
"""


def read(content: str | bytes, options: ReadOptions | None = None, report: ReadReport | None = None) -> list[Entity]:
    """Entities of an ontology."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.obo"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with open_reader([path], "obo", options) as reader:
            return list(reader.read(report if report is not None else ReadReport()))
