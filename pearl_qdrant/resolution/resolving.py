"""`resolve`: names of a graph or table to nodes, with the ids of a collection where it knows them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pearl_qdrant.linking.options import check_threshold
from pearl_qdrant.resolution.assignment import Assignment
from pearl_qdrant.resolution.files import read_decisions, read_names
from pearl_qdrant.resolution.judging import DEFAULT_BUDGET, Judge, apply_judge
from pearl_qdrant.resolution.names import gather
from pearl_qdrant.resolution.records import Decision, NameRecord, ResolvedName
from pearl_qdrant.resolution.resolution import Resolution
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MODEL

if TYPE_CHECKING:
    from pearl_qdrant.encoder.protocol import Encoder
    from pearl_qdrant.linking.linker import EntityLinker

PathLike = str | os.PathLike[str]
TypeMode = Literal["hard", "off"]

DEFAULT_PRECISION = 0.98
"""Share of the merges that are right where nothing else is wanted."""


def resolve(  # long: each of its arguments has its line and its text
    names: Iterable[str | NameRecord] | PathLike,
    *,
    linker: EntityLinker | None = None,
    collection: str | Sequence[str] | None = None,
    store: str | None = None,
    encoder: Encoder | None = None,
    model: str | None = None,
    device: str = DEFAULT_DEVICE,
    type_mode: TypeMode = "hard",
    precision: float = DEFAULT_PRECISION,
    propose: bool = False,
    link_threshold: float | None = None,
    previous: Resolution | Iterable[ResolvedName] | PathLike | None = None,
    decisions: Iterable[Decision] | PathLike = (),
    judge: Judge | None = None,
    judge_budget: int = DEFAULT_BUDGET,
    judge_cache: PathLike | None = None,
) -> Resolution:
    """Find the names of one entity, and give each a node.

    Names that a collection knows get the id of its entity. The others are clustered among themselves: average linkage
    of the probabilities of pairs, where types, numbers, opposites and decisions forbid merges, and every name agrees
    with the name that its node is called by. The result does not depend on the order of the names.

    Args:
        names: Strings or records, as any iterable; or a file, see `files.read_names`.
        linker: Links names to its collections first. Default: no collection, or those that `collection` names.
        collection: Name of one or several collections to open read-only; an alternative to `linker`.
        store: Where they are; default as for `EntityLinker.open`.
        encoder: Makes the vectors. Default: that of the linker, else `model`.
        model: Shipped name, folder or hub id of the encoder.
        device: Device of the encoder.
        type_mode: "hard" keeps names of types that differ apart, but not of unknown and coarser ones (`names.py`);
            "off" ignores types.
        precision: Share of the merges that should be right, in [0, 1]; what is less certain is asked.
        propose: Merge nothing; what would have been merged is asked.
        link_threshold: Least probability of a link to the collection; default is the linker's.
        previous: An earlier result, or its file. Its names keep their nodes; new names join them or found nodes. Where
            it has counted the very same names already, they are not counted again.
        decisions: What a person decided, or the file of a review with its column `decision` filled in.
        judge: A function that decides the pairs for review, in batches (`judging.py`); a language model can do so.
        judge_budget: Pairs that it gets, at most.
        judge_cache: File of its answers, by the content of the questions.

    Raises:
        FormatError: If a file cannot be read as what it should be.
        ValueError: If `precision` or a threshold is not in [0, 1], both `linker` and `collection` are given, or the
            judge gives another answer than it should.
    """
    check_threshold(precision)
    check_threshold(link_threshold)
    if type_mode not in ("hard", "off"):
        raise ValueError(f"type_mode is 'hard' or 'off', not {type_mode!r}")
    if linker is not None and collection is not None:
        raise ValueError("give either an open linker, or the name of a collection")
    earlier = _earlier(previous)
    decided = read_decisions(Path(decisions)) if isinstance(decisions, (str, os.PathLike)) else list(decisions)
    with ExitStack() as stack:
        if collection is not None:
            from pearl_qdrant.linking.linker import EntityLinker

            wanted = [collection] if isinstance(collection, str) else list(collection)
            opened = EntityLinker.open(*wanted, store=store, model=model, device=device, read_only=True)
            linker = stack.enter_context(opened)
        records: Iterable[str | NameRecord]
        if isinstance(names, os.PathLike) or (isinstance(names, str) and _is_file(names)):
            file = stack.enter_context(Path(names).open("rb"))
            records = read_names(file, str(names))
        elif isinstance(names, str):
            raise TypeError(f"names is one string that is no file: {names[:80]!r}; pass a list of names")
        else:
            records = names
        if type_mode == "off":
            records = _without_types(records)
        contexts: dict[tuple[str, str], str] = {}
        if judge is not None:
            records = _with_contexts(records, contexts)
        known = {(one.name, one.type): one.count for one in earlier.names}
        forms = gather(records, known=known, inputs=earlier.inputs)
        assignment = Assignment(forms, earlier.names, decided)
        if linker is not None:
            assignment.link(linker, link_threshold)
        found = assignment.cluster(lambda: _encoder(encoder, linker, model, device), precision)
        if propose:
            found = found.proposed(earlier.names)
        elif judge is not None:
            found = apply_judge(found, judge, budget=judge_budget, cache=judge_cache, descriptions=contexts)
        return replace(found, inputs=forms.inputs, is_repeated=bool(known) and forms.inputs == earlier.inputs)


def _encoder(encoder: Encoder | None, linker: EntityLinker | None, model: str | None, device: str) -> Encoder:
    if encoder is not None:
        return encoder
    if linker is not None:
        return linker.encoder
    from pearl_qdrant.encoder.loading import load_encoder

    return load_encoder(model or DEFAULT_MODEL, device=device)


def _earlier(previous: Resolution | Iterable[ResolvedName] | PathLike | None) -> Resolution:
    if previous is None or isinstance(previous, Resolution):
        return previous or Resolution(())
    if isinstance(previous, (str, os.PathLike)):
        return Resolution.read(previous)
    return Resolution(tuple(previous))


def _is_file(name: str) -> bool:
    return len(name) < 4096 and "\n" not in name and "\0" not in name and Path(name).is_file()


def _with_contexts(
    records: Iterable[str | NameRecord], contexts: dict[tuple[str, str], str]
) -> Iterable[str | NameRecord]:
    """The records; the first context of each name is noted."""
    for record in records:
        if isinstance(record, NameRecord) and record.context:
            contexts.setdefault((" ".join(record.name.split()), record.type.strip()), record.context)
        yield record


def _without_types(records: Iterable[str | NameRecord]) -> Iterable[str | NameRecord]:
    for record in records:
        yield record if isinstance(record, str) else NameRecord(record.name, "", record.source, record.context)
