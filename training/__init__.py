"""Training of the encoder: every stage is one call.

    from training import FitRequest, fit_model

    fit_model(FitRequest(base_model="all-MiniLM-L6-v2/", aliases="umls.tsv", out="fitted/"))

Stages: `make_corpus`, `find_ngrams`, `paraphrase_corpus`, `find_synonyms`, `mine_negatives`,
`pretrain_character_encoder`, `fit_model`, `train_ulr`, `average_checkpoint`, `train_head`, `export_checkpoint`;
`refresh_model` runs those that an encoder for one base needs. They need the extra `train`. Names resolve on first use
(PEP 562), so that `import training` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pearl_qdrant._lazy import lazy_exports

if TYPE_CHECKING:
    from training.augment.options import ParaphraseOptions, SynonymOptions
    from training.augment.pipeline import WrittenFile, find_synonyms, paraphrase_corpus
    from training.corpus.make import CorpusReport, make_corpus
    from training.corpus.options import CorpusOptions
    from training.events import TrainingEvents
    from training.export.export_checkpoint import export_checkpoint, rebuild_for_torch
    from training.finetune.pipeline import fit_model
    from training.finetune.request import FitRequest, FitResult
    from training.head.options import HeadOptions
    from training.head.pipeline import train_head
    from training.love.options import CharacterWidths, LoveConfig
    from training.love.pipeline import pretrain_character_encoder
    from training.mining.options import MiningConfig
    from training.mining.pipeline import mine_negatives
    from training.networks.average_checkpoint import average_checkpoint
    from training.ngrams.options import NgramOptions
    from training.ngrams.pipeline import NgramReport, find_ngrams
    from training.refresh.pipeline import refresh_model
    from training.refresh.request import RefreshEvents, RefreshRequest, RefreshResult
    from training.ulr.pipeline import train_ulr
    from training.ulr.request import UlrRequest, UlrResult

__all__ = [
    "CharacterWidths",
    "CorpusOptions",
    "CorpusReport",
    "FitRequest",
    "FitResult",
    "HeadOptions",
    "LoveConfig",
    "MiningConfig",
    "NgramOptions",
    "NgramReport",
    "ParaphraseOptions",
    "RefreshEvents",
    "RefreshRequest",
    "RefreshResult",
    "SynonymOptions",
    "TrainingEvents",
    "UlrRequest",
    "UlrResult",
    "WrittenFile",
    "average_checkpoint",
    "export_checkpoint",
    "find_ngrams",
    "find_synonyms",
    "fit_model",
    "make_corpus",
    "mine_negatives",
    "paraphrase_corpus",
    "pretrain_character_encoder",
    "rebuild_for_torch",
    "refresh_model",
    "train_head",
    "train_ulr",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "CharacterWidths": "training.love.options",
        "CorpusOptions": "training.corpus.options",
        "CorpusReport": "training.corpus.make",
        "FitRequest": "training.finetune.request",
        "FitResult": "training.finetune.request",
        "HeadOptions": "training.head.options",
        "LoveConfig": "training.love.options",
        "MiningConfig": "training.mining.options",
        "NgramOptions": "training.ngrams.options",
        "NgramReport": "training.ngrams.pipeline",
        "ParaphraseOptions": "training.augment.options",
        "SynonymOptions": "training.augment.options",
        "RefreshEvents": "training.refresh.request",
        "RefreshRequest": "training.refresh.request",
        "RefreshResult": "training.refresh.request",
        "TrainingEvents": "training.events",
        "UlrRequest": "training.ulr.request",
        "UlrResult": "training.ulr.request",
        "WrittenFile": "training.augment.pipeline",
        "average_checkpoint": "training.networks.average_checkpoint",
        "export_checkpoint": "training.export.export_checkpoint",
        "find_ngrams": "training.ngrams.pipeline",
        "find_synonyms": "training.augment.pipeline",
        "fit_model": "training.finetune.pipeline",
        "make_corpus": "training.corpus.make",
        "mine_negatives": "training.mining.pipeline",
        "paraphrase_corpus": "training.augment.pipeline",
        "pretrain_character_encoder": "training.love.pipeline",
        "rebuild_for_torch": "training.export.export_checkpoint",
        "refresh_model": "training.refresh.pipeline",
        "train_head": "training.head.pipeline",
        "train_ulr": "training.ulr.pipeline",
    },
)
