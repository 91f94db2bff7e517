"""The paper's parser: phrases from benepar's constituency trees, sentences and tokens from spaCy.

It needs the extra `corpus`, an installed spaCy pipeline and a benepar model (`python -m spacy download en_core_web_md`,
`benepar.download("benepar_en3")`). benepar reads weights with `torch.load`: use only models from its authors. Memory:
one batch of sentences beside the models. Models with a pretrained encoder, as all published ones, need a transformers
before 5.

Source: PEARL (Chen et al. 2024), section 3.3; Kitaev and Klein 2018.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from pearl_qdrant.errors import ModelError, ModelNotFoundError
from pearl_qdrant.installing import install_command
from pearl_qdrant.phrase_types import LEXICAL_CLASSES
from training.corpus.chunking import EMPTY_WORDS, Phrase
from training.options import DEFAULT_BENEPAR, DEFAULT_MAX_WORDS, DEFAULT_SPACY

_CLASSES = frozenset(LEXICAL_CLASSES)
_DROPPED_IN_TRANSFORMERS_5 = "build_inputs_with_special_tokens"

_log = logging.getLogger(__name__)


class ConstituentLabels(Protocol):
    """The attributes that benepar adds to a span, as `span._`."""

    @property
    def labels(self) -> Sequence[str]: ...

    @property
    def constituents(self) -> Iterable[Constituent]: ...


class Constituent(Protocol):
    """A span of a parsed sentence in spaCy."""

    @property
    def text(self) -> str: ...

    @property
    def _(self) -> ConstituentLabels: ...

    def __len__(self) -> int: ...


class BeneparParser:
    """A `PhraseParser` that uses constituency trees."""

    def __init__(
        self, *, spacy_model: str = DEFAULT_SPACY, model: str = DEFAULT_BENEPAR, max_words: int = DEFAULT_MAX_WORDS
    ) -> None:
        """Load a pipeline.

        Args:
            spacy_model: Name or folder of a spaCy pipeline, for tokens and sentences; "blank:en" needs no download and
                splits sentences at full stops.
            model: Name or path of a benepar model.
            max_words: Longer phrases are skipped.

        Raises:
            ModelError: If spaCy or benepar is not installed, or if a model cannot parse.
            ModelNotFoundError: If a model is not installed.
        """
        try:
            import benepar  # noqa: F401  (registers itself with spaCy)
            import spacy
        except ImportError as error:
            raise ModelError(
                f"The benepar parser is not installed ({error}). Install it with: {install_command('corpus')}, "
                "or use the built-in parser: parser builtin"
            ) from error
        try:
            if spacy_model.startswith("blank:"):
                self._nlp: Any = spacy.blank(spacy_model.partition(":")[2])
                self._nlp.add_pipe("sentencizer")
            else:
                self._nlp = spacy.load(spacy_model, exclude=["ner", "lemmatizer", "attribute_ruler", "tagger"])
            self._nlp.add_pipe("benepar", config={"model": model, "disable_tagger": True})
            self._nlp("It rains.")  # a pipeline without sentences fails here, and not on every text
        except Exception as error:
            raise _loading_error(error, spacy_model, model) from error
        self._nlp.set_error_handler(_skip_documents)
        self._max_words = max_words

    def parse(self, texts: Iterable[str]) -> Iterator[list[Phrase]]:
        """Yield the phrases of each text; a paragraph that cannot be parsed is skipped with a warning."""
        for text in texts:
            found: list[Phrase] = []
            # One paragraph at a time: benepar keeps the charts of all sentences of a call in memory. Runs of white
            # space are joined: spaCy makes tokens of them, and benepar fails if one ends a sentence. Lone surrogates,
            # which JSON may contain, are replaced: spaCy fails on them.
            paragraphs = (" ".join(line.split()) for line in text.encode("utf-8", "replace").decode().split("\n"))
            for document in self._nlp.pipe(p for p in paragraphs if p and not self._is_too_long(p)):
                for sentence in document.sents:
                    found.extend(constituent_phrases(sentence, max_words=self._max_words))
            yield found

    def _is_too_long(self, paragraph: str) -> bool:
        """Whether spaCy would refuse a paragraph; logs a warning."""
        too_long: bool = len(paragraph) > self._nlp.max_length
        if too_long:
            _log.warning("a paragraph of %d characters is skipped: %.60s", len(paragraph), paragraph)
        return too_long


def _loading_error(error: Exception, spacy_model: str, model: str) -> ModelError:
    """Return the error for a pipeline that did not load or parse."""
    lines = (line.strip() for line in str(error).splitlines())
    reason = next((line for line in lines if any(c.isalnum() for c in line)), type(error).__name__)
    # benepar raises a plain LookupError for a missing model; a KeyError means an incomplete file.
    if isinstance(error, OSError) or type(error) is LookupError:
        how = f"python -c 'import benepar; benepar.download(\"{model}\")'"
        if not spacy_model.startswith("blank:"):
            how = f"python -m spacy download {spacy_model}; {how}"
        message = (
            f"spaCy's '{spacy_model}' or benepar's '{model}' is not installed ({reason}). Download them with: {how}"
        )
        return ModelNotFoundError(model, message)
    advice = "; install an older transformers: pip install 'transformers<5'"
    return ModelError(
        f"spaCy's '{spacy_model}' with benepar's '{model}' cannot parse: {reason}"
        f"{advice if _DROPPED_IN_TRANSFORMERS_5 in reason else ''}"
    )


def _skip_documents(_name: str, _component: object, documents: Sequence[Any], error: Exception) -> None:
    """Skip paragraphs with a sentence that is too long for the model, or that its tokenizer cannot align."""
    if not isinstance(error, (AssertionError, StopIteration, ValueError)):
        raise error
    for document in documents:
        _log.warning("a paragraph is skipped: %s: %.60s", str(error) or "benepar cannot align it", document.text)


def constituent_phrases(sentence: Constituent, *, max_words: int) -> Iterator[Phrase]:
    """Yield the phrases of the five classes in a parsed sentence; a span with several labels counts for each."""
    for span in sentence._.constituents:
        if len(span) > max_words:
            continue
        for label in dict.fromkeys(span._.labels):
            # Treebank labels may have functions, as in NP-SBJ.
            lexical_class = label.partition("-")[0]
            text = " ".join(span.text.split())
            is_empty = all(word in EMPTY_WORDS for word in text.lower().split())
            if lexical_class in _CLASSES and not is_empty and any(c.isalnum() for c in text):
                yield Phrase(text, lexical_class)
