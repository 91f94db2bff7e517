"""Asks a judge where linking is unsure: a function of the caller's, perhaps with a language model behind it.

It gets questions in batches: a mention, its candidates, and the text around it. For each it returns the id of a
candidate, `NIL`, a number (the probability that the first candidate is right), or None where it cannot tell. What it is
certain of goes to that outcome; the others share the rest in proportion. The judge is no part of the shipped model,
whose own judge of two names (`encoder.judge`) reads every mention.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from numbers import Real
from typing import Final, Literal

from pearl_qdrant.errors import JudgeError
from pearl_qdrant.linking.outcomes import as_nil, linked_to
from pearl_qdrant.records import NO_SINGLE_NAME, Annotation, Candidate, Link, NilReason


class Nil(Enum):
    """The kind of `NIL`."""

    NIL = "NIL"


NIL: Final = Nil.NIL
"""The answer of a judge that no entity of the base is meant."""

DEFAULT_BETWEEN = (0.2, 0.9)
"""Probabilities of the first candidate from and below which a judge is asked. Of the 10,665 mentions of 25 real
sets 28 % are between; below 7 % of the first candidates are right, above 98 %."""
DEFAULT_CERTAINTY = 0.9
DEFAULT_BUDGET = 1000  # questions
BATCH = 32  # questions that a judge gets at once, at most
_WINDOW = 1024  # links that wait for a batch of questions, at most
_AROUND = 500  # characters of a document on either side of a mention, which are its context


@dataclass(frozen=True, slots=True)
class LinkQuestion:
    """Which entity a mention means.

    Attributes:
        mention: The string to link.
        candidates: Best first, with their names, descriptions, types and probabilities.
        context: The text around the mention, or None.
    """

    mention: str
    candidates: tuple[Candidate, ...]
    context: str | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for questions that have one answer."""
        return self.mention, self.context, *((one.kb, one.entity_id) for one in self.candidates)


LinkVerdict = str | float | Literal[Nil.NIL] | None
"""The id of a candidate (``kb:id`` where candidates of several bases have the id); `NIL`; the probability that the
first candidate is right; or None: the link stays as it is."""

LinkJudge = Callable[[Sequence[LinkQuestion]], Sequence[LinkVerdict]]
"""Decides questions, in their order; gets at most `BATCH` at once, and is called by one thread at a time."""


@dataclass(slots=True)
class Asking:
    """A judge, when it is asked, and what it was asked so far. Kept for several calls, it asks nothing twice.

    Attributes:
        judge: The function.
        between: It is asked where the first candidate has at least the first probability and less than the second, or
            where nothing separates entities of one name.
        certainty: Probability of an id or NIL that it names, in (0, 1). If the threshold is higher, it links nothing.
        budget: Questions that it gets, at most; what is unsure beyond them stays as it is.
        unsure: Mentions that were between the two probabilities so far.
        asked: Questions that the judge got; equal ones of a mention, context and candidates count once.
        decided: Mentions that got another answer than None.
        answers: Questions with their answers, in order.

    Raises:
        ValueError: If a number is out of range.
    """

    judge: LinkJudge
    between: tuple[float, float] = DEFAULT_BETWEEN
    certainty: float = DEFAULT_CERTAINTY
    budget: int = DEFAULT_BUDGET
    unsure: int = field(default=0, init=False)
    asked: int = field(default=0, init=False)
    decided: int = field(default=0, init=False)
    answers: list[tuple[LinkQuestion, LinkVerdict]] = field(default_factory=list, init=False, repr=False)
    _known: dict[tuple[object, ...], LinkVerdict] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        low, high = self.between
        if not 0 <= low <= high <= 1:
            raise ValueError(f"between are two probabilities, the lower one first, not {self.between}")
        if not 0 < self.certainty < 1:
            raise ValueError(f"certainty is a probability between 0 and 1, not {self.certainty}")
        if self.budget < 0:
            raise ValueError(f"budget is a number of questions, not {self.budget}")

    def links(self, links: Iterable[Link], *, context: str | None, threshold: float) -> Iterator[Link]:
        """Links in their order, those that are unsure as the judge decides; a few wait until a batch is full.

        Raises:
            JudgeError: If the judge raises an error, or answers in another way than it should.
        """
        waiting: list[tuple[Link, LinkQuestion | None]] = []
        new: set[tuple[object, ...]] = set()
        for link in links:
            question = self._question(link, context)
            if question is None and not waiting:
                yield link
                continue
            waiting.append((link, question))
            if question is not None and question.key not in self._known:
                new.add(question.key)
            if len(new) == BATCH or len(waiting) == _WINDOW:
                yield from self._decided(waiting, threshold)
                waiting, new = [], set()
        yield from self._decided(waiting, threshold)

    def annotations(self, found: Sequence[Annotation], text: str, *, threshold: float) -> list[Annotation]:
        """The mentions of a document, each with the text around it for a context; errors as for `links`."""
        pairs = [
            (one.link, self._question(one.link, text[max(0, one.start - _AROUND) : one.end + _AROUND])) for one in found
        ]
        links = self._decided(pairs, threshold)
        return [replace(one, link=link) for one, link in zip(found, links, strict=True)]

    def _question(self, link: Link, context: str | None) -> LinkQuestion | None:
        """What to ask about a link; None if it is sure, or nothing can be asked."""
        if not link.candidates or link.nil_reason in NO_SINGLE_NAME:
            return None
        low, high = self.between
        if link.nil_reason is not NilReason.AMBIGUOUS and not low <= _probability(link.candidates[0]) < high:
            return None
        return LinkQuestion(link.mention, link.candidates, context)

    def _decided(self, pairs: Sequence[tuple[Link, LinkQuestion | None]], threshold: float) -> list[Link]:
        """Links as the judge decides those with a question."""
        questions = [question for _, question in pairs if question is not None]
        with self._lock:
            self._ask(questions)
            links = []
            for link, question in pairs:
                answer = None if question is None else self._known.get(question.key)
                self.decided += answer is not None
                links.append(link if answer is None else _with_answer(link, answer, self.certainty, threshold))
            self.unsure += len(questions)
        return links

    def _ask(self, questions: Iterable[LinkQuestion]) -> None:
        """Get the answers that are not known, as far as the budget goes."""
        new = list({one.key: one for one in questions if one.key not in self._known}.values())
        new = new[: self.budget - self.asked]
        for start in range(0, len(new), BATCH):
            batch = new[start : start + BATCH]
            self.asked += len(batch)
            answers = _answers(self.judge, batch)
            self._known.update((one.key, answer) for one, answer in zip(batch, answers, strict=True))
            self.answers.extend(zip(batch, answers, strict=True))


def asking_of(judge: Asking | LinkJudge) -> Asking:
    """A judge with the defaults of `Asking`, for one call; an `Asking` as it is."""
    return judge if isinstance(judge, Asking) else Asking(judge)


def _probability(candidate: Candidate) -> float:
    return candidate.probability or 0.0


def _answers(judge: LinkJudge, batch: Sequence[LinkQuestion]) -> list[LinkVerdict]:
    """What the judge says, checked."""
    of = f"of {len(batch)} questions, the first of them about {batch[0].mention!r:.80}"
    try:
        answers = list(judge(batch))
    except Exception as error:
        raise JudgeError(f"The judge {of}, raised {type(error).__name__}: {error}") from error
    if len(answers) != len(batch):
        raise JudgeError(f"The judge {of}, returned {len(answers)} answers: return one for each question.")
    return [_checked(answer, question) for answer, question in zip(answers, batch, strict=True)]


def _checked(answer: object, question: LinkQuestion) -> LinkVerdict:
    """An answer that fits its question; an id as ``kb:id``."""
    if answer is None or answer is NIL:
        return answer
    if isinstance(answer, Real) and not isinstance(answer, bool):
        if 0 <= (probability := float(answer)) <= 1:
            return probability
        raise JudgeError(f"The judge returned {answer!r} for {question.mention!r:.80}: a probability is in [0, 1].")
    whole = [_id(one) for one in question.candidates]
    by_id = [_id(one) for one in question.candidates if one.entity_id == answer]
    if len(by_id) == 1:
        return by_id[0]
    if isinstance(answer, str) and answer in whole:
        return answer
    if by_id:
        raise JudgeError(f"The judge returned {answer!r}, the id of several candidates: return {' or '.join(by_id)}.")
    known = ", ".join(one.entity_id for one in question.candidates)
    raise JudgeError(
        f"The judge returned {answer!r} for {question.mention!r:.80}: an answer is the id of a candidate ({known}), "
        f"NIL, a probability or None."
    )


def _id(candidate: Candidate) -> str:
    return f"{candidate.kb}:{candidate.entity_id}"


def _with_answer(link: Link, answer: LinkVerdict, certainty: float, threshold: float) -> Link:
    """A link with what the judge answered. What its outcome gains, the others lose, in proportion."""
    before = [_probability(one) for one in link.candidates]
    if isinstance(answer, float):
        at, wanted = 0, answer
    elif answer is NIL:
        at, wanted = len(before), max(certainty, 1 - sum(before))
    else:
        at = [_id(one) for one in link.candidates].index(str(answer))
        wanted = max(certainty, before[at])
    others = sum(before) if at == len(before) else 1 - before[at]
    factor = (1 - wanted) / others if others > 0 else 0.0
    after = [wanted if i == at else p * factor for i, p in enumerate(before)]
    candidates = sorted(
        (replace(one, probability=p, tie=False) for one, p in zip(link.candidates, after, strict=True)),
        key=lambda one: -_probability(one),
    )
    best = candidates[0]
    changed = replace(link, candidates=tuple(candidates), rule=None)
    is_nil = answer is NIL or _probability(best) < threshold
    return as_nil(changed, NilReason.BELOW_THRESHOLD) if is_nil else linked_to(changed, best)
