"""Entity linking over Qdrant with PEARL phrase embeddings.

    from pearl_qdrant import EntityLinker, load_base

    load_base("umls.tsv", "umls")
    with EntityLinker.open("umls") as linker:
        link = linker.link("heart attack", types=["DISO"])

All that a program calls to load a base, to link with it and to train an encoder is here, whichever package has it:
`ingest` reads and loads bases, `training` has the stages of training, which need the extra `train`. Names resolve on
first use (PEP 562), so that `import pearl_qdrant` costs nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports
from pearl_qdrant._version import __version__

# ONNX Runtime from 1.31 on reads it when it is loaded: else it writes an id of the device and a queue of events for
# Microsoft, with the path of the program, into ~/.cache/Microsoft.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from ingest.base.format import ReadOptions, TableColumns
    from ingest.base.reader import ScanResult
    from ingest.base.type_map import make_entity
    from ingest.load.request import LoadEvents, LoadResult
    from ingest.load_base import load_base, read_entities, scan_base
    from pearl_qdrant.errors import (
        CollectionNotFoundError,
        DeviceError,
        EntityNotFoundError,
        InputError,
        ModelError,
        ModelMismatchError,
        PearlQdrantError,
        SettingsError,
        StoreError,
        StoreLockedError,
        StoreUnavailableError,
        UnknownTypeError,
    )
    from pearl_qdrant.linking.linker import EntityLinker
    from pearl_qdrant.linking.options import LinkOptions
    from pearl_qdrant.records import Annotation, Candidate, Entity, Link, NilReason
    from training.augment.variants import WrittenFile, find_synonyms, paraphrase_corpus
    from training.corpus.make_corpus import CorpusReport, make_corpus
    from training.evaluation.run import evaluate_model, list_tasks, report_as_text
    from training.export.export_checkpoint import export_checkpoint, rebuild_for_torch
    from training.finetune.fit_model import fit_model
    from training.finetune.request import FitRequest, FitResult
    from training.hard_negatives import mine_negatives
    from training.head import train_head
    from training.judge.request import JudgeRequest, JudgeResult
    from training.judge.train_judge import train_judge
    from training.love import pretrain_character_encoder
    from training.networks.checkpoints import average_checkpoint
    from training.ngrams.find_ngrams import NgramReport, find_ngrams
    from training.options import (
        CharacterWidths,
        CorpusOptions,
        EvaluationOptions,
        HeadOptions,
        LoveConfig,
        MiningConfig,
        NgramOptions,
        RefreshEvents,
        RefreshRequest,
        RefreshResult,
        TrainingEvents,
    )
    from training.refresh import refresh_model
    from training.ulr.request import UlrRequest, UlrResult
    from training.ulr.train_ulr import train_ulr

__all__ = [
    "Annotation", "Candidate", "CharacterWidths", "CollectionNotFoundError", "CorpusOptions", "CorpusReport",
    "DeviceError", "Entity", "EntityLinker", "EntityNotFoundError", "EvaluationOptions", "FitRequest", "FitResult",
    "HeadOptions", "InputError", "JudgeRequest", "JudgeResult", "Link", "LinkOptions", "LoadEvents", "LoadResult",
    "LoveConfig", "MiningConfig", "ModelError", "ModelMismatchError", "NgramOptions", "NgramReport", "NilReason",
    "PearlQdrantError", "ReadOptions", "RefreshEvents", "RefreshRequest", "RefreshResult",
    "ScanResult", "SettingsError", "StoreError", "StoreLockedError", "StoreUnavailableError",
    "TableColumns", "TrainingEvents", "UlrRequest", "UlrResult", "UnknownTypeError", "WrittenFile", "__version__",
    "average_checkpoint", "evaluate_model", "export_checkpoint", "find_ngrams", "find_synonyms", "fit_model",
    "list_tasks", "load_base", "make_corpus", "make_entity", "mine_negatives", "paraphrase_corpus",
    "pretrain_character_encoder", "read_entities", "rebuild_for_torch", "refresh_model", "report_as_text", "scan_base",
    "train_head", "train_judge", "train_ulr",
]  # fmt: skip

__getattr__, __dir__ = lazy_exports(__name__)
