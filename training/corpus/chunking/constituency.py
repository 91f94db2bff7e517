"""The paper's parser: phrases from benepar's constituency trees, sentences and tokens from spaCy.

Source: PEARL (Chen et al. 2024), section 3.3; Kitaev and Klein 2018. Wants the extra `corpus`, a spaCy pipeline and a
benepar model on this machine (`python -m spacy download en_core_web_md`, `benepar.download("benepar_en3")`). benepar
reads its weights with `torch.load`: take a model from its authors only. Memory: one sentence batch beside the models.
Models with a pretrained encoder, as all published ones are, load with transformers before 5 only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from pearl_qdrant.errors import ModelError, ModelNotFoundError
from pearl_qdrant.installing import install_command
from pearl_qdrant.phrase_types import LEXICAL_CLASSES
from training.corpus.chunking.function_words import EMPTY_WORDS
from training.corpus.chunking.phrases import Phrase
from training.corpus.options import DEFAULT_BENEPAR, DEFAULT_MAX_WORDS, DEFAULT_SPACY

_CLASSES = frozenset(LEXICAL_CLASSES)
_DROPPED_IN_TRANSFORMERS_5 = "build_inputs_with_special_tokens"

_log = logging.getLogger(__name__)


class ConstituentLabels(Protocol):
    """What benepar hangs on a span, as `span._`."""

    @property
    def labels(self) -> Sequence[str]: ...

    @property
    def constituents(self) -> Iterable[Constituent]: ...


class Constituent(Protocol):
    """A span of a parsed sentence, as spaCy has it."""

    @property
    def text(self) -> str: ...

    @property
    def _(self) -> ConstituentLabels: ...

    def __len__(self) -> int: ...


class BeneparParser:
    """Finds phrases in constituency trees; a `PhraseParser`."""

    def __init__(
        self, *, spacy_model: str = DEFAULT_SPACY, model: str = DEFAULT_BENEPAR, max_words: int = DEFAULT_MAX_WORDS
    ) -> None:
        """Load a pipeline.

        Args:
            spacy_model: Name or folder of a spaCy pipeline, for tokens and sentences; "blank:en" needs no download:
                it cuts sentences at full stops.
            model: Name or path of a benepar model.
            max_words: Longer phrases are left out.

        Raises:
            ModelError: If spaCy or benepar is not installed, or if a model cannot parse.
            ModelNotFoundError: If a model is not on this machine.
        """
        try:
            import benepar  # noqa: F401  (it registers itself with spaCy)
            import spacy
        except ImportError as error:
            raise ModelError(
                f"The benepar parser is not installed ({error}). Install it with: {install_command('corpus')}, "
                "or take the built-in parser: --parser builtin"
            ) from error
        try:
            if spacy_model.startswith("blank:"):
                self._nlp: Any = spacy.blank(spacy_model.partition(":")[2])
                self._nlp.add_pipe("sentencizer")
            else:
                self._nlp = spacy.load(spacy_model, exclude=["ner", "lemmatizer", "attribute_ruler", "tagger"])
            self._nlp.add_pipe("benepar", config={"model": model, "disable_tagger": True})
            self._nlp("It rains.")  # a pipeline that marks no sentences fails here, not on every text
        except Exception as error:
            raise _loading_error(error, spacy_model, model) from error
        self._nlp.set_error_handler(_leave_out)
        self._max_words = max_words

    def parse(self, texts: Iterable[str]) -> Iterator[list[Phrase]]:
        """The phrases of each text; a paragraph that cannot be parsed is left out with a warning."""
        for text in texts:
            found: list[Phrase] = []
            # A paragraph at a time: benepar holds the charts of all sentences that it is given at once. Tokens of
            # white space alone, which spaCy makes of runs of it, stop benepar where they end a sentence.
            # Half characters, as JSON may hold, stop spaCy.
            paragraphs = (" ".join(line.split()) for line in text.encode("utf-8", "replace").decode().split("\n"))
            for document in self._nlp.pipe(p for p in paragraphs if p and not self._is_too_long(p)):
                for sentence in document.sents:
                    found.extend(constituent_phrases(sentence, max_words=self._max_words))
            yield found

    def _is_too_long(self, paragraph: str) -> bool:
        """Whether spaCy would refuse a paragraph, with a warning."""
        too_long: bool = len(paragraph) > self._nlp.max_length
        if too_long:
            _log.warning("a paragraph of %d characters is left out: %.60s", len(paragraph), paragraph)
        return too_long


def _loading_error(error: Exception, spacy_model: str, model: str) -> ModelError:
    """What to tell of a pipeline that did not load or parse."""
    lines = (line.strip() for line in str(error).splitlines())
    reason = next((line for line in lines if any(c.isalnum() for c in line)), type(error).__name__)
    # benepar raises LookupError itself for a model that is not there; a KeyError is a file without its parts.
    if isinstance(error, OSError) or type(error) is LookupError:
        how = f"python -c 'import benepar; benepar.download(\"{model}\")'"
        if not spacy_model.startswith("blank:"):
            how = f"python -m spacy download {spacy_model}; {how}"
        message = f"spaCy's '{spacy_model}' or benepar's '{model}' is not here ({reason}). Fetch them with: {how}"
        return ModelNotFoundError(model, message)
    advice = "; install an older transformers: pip install 'transformers<5'"
    return ModelError(
        f"spaCy's '{spacy_model}' with benepar's '{model}' cannot parse: {reason}"
        f"{advice if _DROPPED_IN_TRANSFORMERS_5 in reason else ''}"
    )


def _leave_out(_name: str, _component: object, documents: Sequence[Any], error: Exception) -> None:
    """Pass over paragraphs with a sentence too long for the model, or whose end its tokenizer does not see."""
    if not isinstance(error, (AssertionError, StopIteration, ValueError)):
        raise error
    for document in documents:
        _log.warning("a paragraph is left out: %s: %.60s", str(error) or "benepar cannot align it", document.text)


def constituent_phrases(sentence: Constituent, *, max_words: int) -> Iterator[Phrase]:
    """Phrases of the five classes in a parsed sentence; a span with several labels counts for each."""
    for span in sentence._.constituents:
        if len(span) > max_words:
            continue
        for label in dict.fromkeys(span._.labels):
            # Treebank labels may carry functions, as in NP-SBJ.
            lexical_class = label.partition("-")[0]
            text = " ".join(span.text.split())
            is_empty = all(word in EMPTY_WORDS for word in text.lower().split())
            if lexical_class in _CLASSES and not is_empty and any(c.isalnum() for c in text):
                yield Phrase(text, lexical_class)
