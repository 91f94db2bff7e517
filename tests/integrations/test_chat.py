"""A language model as a judge: a double of an endpoint for chat completions, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pearl_qdrant import Candidate, EntityLinker
from pearl_qdrant.errors import JudgeError
from pearl_qdrant.integrations.chat import ChatJudge, ChatOptions, question_text, read_verdict
from pearl_qdrant.linking.asking import NIL, Asking, LinkQuestion

Answer = Callable[[dict[str, Any]], tuple[int, object]]
CANDIDATES = (
    Candidate("nyc", "towns", "New York", "Big Apple", ("city",), ("GPE",), description="A city"),
    Candidate("nyp", "towns", "New York Post", "New York Post"),
)
ALL = (0.0, 1.0)  # ask about everything


class Endpoint:
    """What an endpoint answers, and what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.url = ""


@contextmanager
def endpoint(answer: Answer) -> Iterator[Endpoint]:
    """An endpoint on a port of its own."""
    double = Endpoint(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            double.bodies.append(body)
            double.keys.add(self.headers.get("Authorization"))
            state, answer = double.answer(body) if self.path == "/v1/chat/completions" else (404, "no such path")
            content = json.dumps(answer).encode()
            self.send_response(state)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    double.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield double
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def completion(text: str) -> tuple[int, object]:
    """A chat completion."""
    return 200, {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}


def test_a_model_behind_an_endpoint_decides(linker: EntityLinker) -> None:
    """It reads name, context and candidates with a number each, and its number is the link; 0 is NIL, ? changes
    nothing.
    """

    def answer(body: dict[str, Any]) -> tuple[int, object]:
        lines = body["messages"][1]["content"].splitlines()
        if lines[0] == "Name: post of York":
            return completion(next(line[0] for line in lines[1:] if line[1:].startswith(". New York Post")))
        return completion("0" if lines[0] == "Name: Yorkshire pudding" else "?")

    names = ["post of York", "Yorkshire pudding", "New Yorker"]
    before = list(linker.link_batch(names, limit=9))
    with endpoint(answer) as double:
        asking = Asking(ChatJudge(double.url, "a-model", ChatOptions(api_key="secret")), between=ALL)
        links = list(linker.link_batch(names, limit=9, judge=asking, threshold=0.5))
        bodies, keys = double.bodies, double.keys

    assert [link.entity_id for link in links[:2]] == ["nyp", None]
    assert links[0].probability == pytest.approx(0.9)
    assert links[2].candidates == before[2].candidates
    assert (asking.unsure, asking.asked, asking.decided) == (3, 3, 2)
    assert {body["model"] for body in bodies} == {"a-model"}
    assert keys == {"Bearer secret"}


def test_an_endpoint_that_is_busy_is_asked_again(linker: EntityLinker) -> None:
    """States that can pass are tried again, a few times; a refusal is not, and the error has what was said."""
    states = iter([429, 503])

    def busy_at_first(body: dict[str, Any]) -> tuple[int, object]:
        state = next(states, 200)
        return completion("1") if state == 200 else (state, "busy")

    with endpoint(busy_at_first) as double:
        judge = ChatJudge(double.url, "m", ChatOptions(wait_s=0))
        assert judge([LinkQuestion("x", CANDIDATES)]) == ["towns:nyc"]
        assert len(double.bodies) == 3
    with endpoint(lambda body: (401, {"error": "wrong key"})) as double:
        refused = Asking(ChatJudge(double.url, "m", ChatOptions(wait_s=0)), between=ALL)
        with pytest.raises(JudgeError, match=r"about 'post of York', raised HTTPStatusError: .* 401: .*wrong key"):
            linker.link("post of York", judge=refused)
        assert len(double.bodies) == 1
    with pytest.raises(JudgeError, match="ConnectError"):  # nobody listens any more
        linker.link("post of York", judge=refused)


def test_an_answer_that_is_no_completion_is_named(linker: EntityLinker) -> None:
    """Another kind of endpoint is found out at once."""
    with endpoint(lambda body: (200, {"response": "1"})) as double:
        asking = Asking(ChatJudge(double.url, "m"), between=ALL)
        with pytest.raises(JudgeError, match="no chat completion"):
            linker.link("post of York", judge=asking)


def test_a_question_reads_as_a_person_would_ask_it() -> None:
    """Names, types and descriptions of candidates are there; their ids and scores are not."""
    question = LinkQuestion("the Apple", CANDIDATES, "She moved to the Apple.")

    assert question_text(question) == (
        "Name: the Apple\nText around it: She moved to the Apple.\n"
        "1. New York (also: Big Apple) [GPE, city]: A city\n2. New York Post"
    )


@pytest.mark.parametrize(
    "written, verdict",
    [
        ("2", "towns:nyp"),
        (" **1.** ", "towns:nyc"),
        ("0", NIL),
        ("?", None),
        ("3", None),
        ("It could be 1 or 2", None),
        ("<think>1 is a city, 2 a paper</think>\n2", "towns:nyp"),
        (None, None),
    ],
)
def test_only_a_number_is_a_verdict(written: object, verdict: object) -> None:
    """Text around a number, or a number too high, is none."""
    assert read_verdict(written, CANDIDATES) == verdict
