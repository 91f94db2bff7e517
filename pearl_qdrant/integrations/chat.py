"""A judge for `judge=`: a language model behind an endpoint for chat completions, as OpenAI, vLLM, llama.cpp and Ollama
serve it.

    from pearl_qdrant.integrations.chat import ChatJudge

    links = linker.link_batch(names, judge=ChatJudge("http://localhost:8000/v1", "some-model"))

It was tried on a double of such an endpoint, over HTTP, and on no real model: measure it on names of your own first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from pearl_qdrant.integrations.metadata import types_of
from pearl_qdrant.linking.asking import NIL, LinkQuestion, LinkVerdict
from pearl_qdrant.records import Candidate

INSTRUCTION = (
    "You link names to the entries of a knowledge base. Which of the numbered entries does the name mean? A narrower, "
    "broader or merely related entry is wrong. Answer with its number alone: 0 if it means none of them, ? if you "
    "cannot tell."
)
_MOST_TEXT = 300  # characters of a description that the model reads
_BUSY = (408, 429, 500, 502, 503, 504)  # states that can pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """How a model is asked.

    Attributes:
        api_key: Sent as the bearer token; no environment is read.
        instruction: What the model is told first.
        parallel: Questions that are asked at once, at least 1.
        tries: How often a question is asked when nobody answers, or the endpoint is busy, at least 1.
        wait_s: Seconds before the second try; each later wait is twice as long.
        timeout_s: Seconds that an answer may take.
    """

    api_key: str | None = field(default=None, repr=False)
    instruction: str = INSTRUCTION
    parallel: int = 4
    tries: int = 4
    wait_s: float = 1.0
    timeout_s: float = 60.0


class ChatJudge:
    """Asks a model which candidate a mention means, one request a question.

    Args:
        url: The part of the address before /chat/completions, such as http://localhost:8000/v1.
        model: Name of the model, as the endpoint knows it.
        options: How it is asked.

    Calling it raises httpx.HTTPError if there is no answer in the end, ValueError if it is no chat completion; the
    linker turns both into `JudgeError`. A text that has none of the numbers is no verdict: the link stays.
    """

    def __init__(self, url: str, model: str, options: ChatOptions | None = None) -> None:
        self._url, self._model = f"{url.rstrip('/')}/chat/completions", model
        self._options = options or ChatOptions()

    def __call__(self, questions: Sequence[LinkQuestion]) -> list[LinkVerdict]:
        """The verdicts of questions, in their order."""
        key = self._options.api_key
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        with (
            httpx.Client(headers=headers, timeout=self._options.timeout_s) as client,
            ThreadPoolExecutor(self._options.parallel) as pool,
        ):
            return list(pool.map(lambda one: self._ask(client, one), questions))

    def _ask(self, client: httpx.Client, question: LinkQuestion) -> LinkVerdict:
        messages = [
            {"role": "system", "content": self._options.instruction},
            {"role": "user", "content": question_text(question)},
        ]
        body = {"model": self._model, "messages": messages, "temperature": 0}
        retrying = Retrying(
            stop=stop_after_attempt(self._options.tries),
            wait=wait_exponential(self._options.wait_s),
            retry=retry_if_exception(_can_pass),
            reraise=True,
        )
        answer: object = retrying(self._post, client, body)
        return read_verdict(answer, question.candidates)

    def _post(self, client: httpx.Client, body: object) -> object:
        response = client.post(self._url, json=body)
        if response.is_error:
            said = " ".join(response.text[:300].split())
            raise httpx.HTTPStatusError(
                f"{self._url} answered {response.status_code}: {said}", request=response.request, response=response
            )
        try:
            return response.json()["choices"][0]["message"]["content"]
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{self._url} answered no chat completion: {response.text[:300]!r}") from error


def _can_pass(error: BaseException) -> bool:
    """Whether trying again can help."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in _BUSY
    return isinstance(error, httpx.TransportError)


def question_text(question: LinkQuestion) -> str:
    """A question as the model reads it: the name, the text around it, and a numbered line for each candidate."""
    lines = [f"Name: {question.mention}"]
    if question.context:
        lines.append(f"Text around it: {question.context}")
    return "\n".join([*lines, *(f"{i}. {_line(one)}" for i, one in enumerate(question.candidates, 1))])


def _line(candidate: Candidate) -> str:
    other = f" (also: {candidate.name})" if candidate.name != candidate.canonical_name else ""
    types = f" [{', '.join(types_of(candidate)[:5])}]" if types_of(candidate) else ""
    description = f": {candidate.description[:_MOST_TEXT]}" if candidate.description else ""
    return f"{candidate.canonical_name}{other}{types}{description}"


def read_verdict(answer: object, candidates: Sequence[Candidate]) -> LinkVerdict:
    """What a model wrote: the number of a candidate, alone or after what it thought (`<think>...</think>`); else
    None.
    """
    last = str(answer).rpartition("</think>")[2].strip()
    found = re.fullmatch(r"\W*(\d{1,4})\W*", last)
    if found is None or (number := int(found[1])) > len(candidates):
        return None
    if number == 0:
        return NIL
    chosen = candidates[number - 1]
    return f"{chosen.kb}:{chosen.entity_id}"
