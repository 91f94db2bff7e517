"""`make fuzz`: made-up and damaged bases for every reader, for as long as it is told.

    python tests/fuzz_readers.py --minutes 60 --seed 1

Each input is a number: the format, the text and its damage follow from it, so that a failure can be repeated with
`--only NUMBER`. It is read in a child process that may take 300 MB of anonymous memory more than it has at its start,
and 60 s. Right is: entities with ids and names, each id once, and counted skips; or an error of ours that names the
file. A traceback, a hang or more memory ends the run with status 1, the input saved under --keep.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import lzma
import os
import random
import resource
import selectors
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import zstandard
from test_reader_fuzz import BASES

from ingest.formats import open_reader
from ingest.reader import ReadReport
from ingest.type_map import TypeMap
from pearl_qdrant.errors import PearlQdrantError

MEMORY_BYTES = 300 << 20
INPUT_S = 60.0
MOST_BYTES = 1 << 20

_CRUMBS = (
    *(b"\0", b"\xff", b"\xed\xa0\x80", b"\n", b"\r", b"\r\n", b"\t", b"|", b'"', b"\\", b"\\u", b"\\u12", b"{", b"}"),
    *(
        b"[",
        b"]",
        b"<",
        b">",
        b".",
        b",",
        b":",
        b"!",
        b"(",
        b")",
        b"^^",
        b"@en",
        b"_:b",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xae",
    ),
    *(b"is_a: ", b"synonym: ", b"[Term]\n", b"id: ", b"name: ", b"P31", b"P279", b"rdfs:subClassOf", b"1e999", b"-0"),
)
_WORDS = ("Paris", "New York", "é", "ﬁ", "日本", "\u202e", "a" * 300, "", " ", "|", "\\", '"', "{", "}", "!", "1", "E1")
_SCOPES = ("EXACT", "BROAD", "", "exact", "EXACT layperson")


def _word(rng: random.Random) -> str:
    return (
        rng.choice(_WORDS)
        if rng.random() < 0.7
        else "".join(map(chr, rng.choices(range(32, 1200), k=rng.randint(1, 9))))
    )


def _tsv(rng: random.Random) -> str:
    """Rows after the grammar of TSV: headers of all kinds, escapes, ids that come again, cells of many aliases."""
    headers = ("id\tname\ttype\taliases", "id\tname", "cui\tcanonical_name\ttypes\talias\tdescription", "a\tb\tc", "")
    rows = [rng.choice(headers)]
    for _ in range(rng.randint(0, 40)):
        id_ = rng.choice((f"E{rng.randint(0, 9)}", _word(rng)))
        aliases = "|".join(rng.choice((_word(rng), "a\\|b", "\\\\", "\\")) for _ in range(rng.choice((0, 1, 3, 200))))
        cells = [
            id_,
            _word(rng),
            rng.choice(("ORG", "PER|human", "")),
            aliases,
            *(_word(rng) for _ in range(rng.randint(0, 3))),
        ]
        rows.append("\t".join(cells[: rng.randint(1, len(cells))]))
    return rng.choice(("\n", "\r\n")).join(rows)


def _obo(rng: random.Random) -> str:
    """Stanzas after the grammar of OBO: quotes, escapes, modifiers, brackets, chains and cycles of is_a."""
    n = rng.randint(1, 30)
    lines = ["format-version: 1.2"]
    for i in range(n):
        lines += ["", rng.choice(("[Term]", "[Term]", "[Typedef]", "[Instance]", "[Ter")), f"id: X:{i}"]
        modifiers = rng.choice(
            ("", " {" + ", ".join(f'k="{_word(rng)}"' for _ in range(rng.randint(1, 30))) + "}", " {" * 40)
        )
        comment = rng.choice(("", " ! " + _word(rng)))
        choices: list[Callable[[], str]] = [
            lambda: f"name: {_word(rng)}",
            lambda: f'synonym: "{_word(rng)}" {rng.choice(_SCOPES)} [{_word(rng)}]',
            lambda: f"is_a: X:{rng.randint(0, n)}",
            lambda: f'def: "{_word(rng)}" [{", ".join(_word(rng) for _ in range(rng.randint(0, 5)))}]',
            lambda: f"is_obsolete: {rng.choice(('true', 'false', ''))}",
            lambda: f"{_word(rng)}: {_word(rng)}",
        ]
        lines += [rng.choice(choices)() + modifiers + comment for _ in range(rng.randint(0, 8))]
    return "\n".join(lines) + "\n"


def _damage(content: bytes, rng: random.Random) -> bytes:
    """Some accidents, and now and then one part many times over."""
    for _ in range(rng.choice((0, 0, 1, 2, 5))):
        i, j = sorted((rng.randint(0, len(content)), rng.randint(0, len(content))))
        accident = rng.choice(("cut", "drop", "flip", "insert", "repeat", "copy"))
        if accident == "cut":
            content = content[:i]
        elif accident == "drop":
            content = content[:i] + content[j:]
        elif accident == "flip" and content:
            i = min(i, len(content) - 1)
            content = content[:i] + bytes((content[i] ^ 1 << rng.randrange(8),)) + content[i + 1 :]
        elif accident == "insert":
            content = content[:i] + rng.choice(_CRUMBS) * rng.choice((1, 2, 50, 5000)) + content[i:]
        elif accident == "repeat":
            part = content[i : min(j, i + rng.choice((3, 40, 400)))]
            content = (
                content[:i] + part * min(rng.choice((10, 1000, 100_000)), MOST_BYTES // max(1, len(part))) + content[i:]
            )
        else:
            content = content[:i] + content[i:j] + content[i:]
    return content[: 2 * MOST_BYTES]


def make(number: int) -> tuple[str, str, bytes]:
    """Name of the file, format to ask for, and content of one input."""
    rng = random.Random(number)
    name, (kind, text) = rng.choice(list(BASES.items()))
    if kind == "tsv" and rng.random() < 0.8:
        text = _tsv(rng)
    elif kind == "obo" and rng.random() < 0.8:
        text = _obo(rng)
    content = _damage(text.encode("utf-8", "surrogatepass"), rng)
    pack = rng.choice((None, None, None, gzip.compress, bz2.compress, lzma.compress, zstandard.compress))
    if pack is not None:
        content = pack(content)
        if rng.random() < 0.3:
            content = _damage(content, rng)
    return name, rng.choice(("auto", kind)), content


def read(number: int, folder: Path, type_map: TypeMap) -> str:
    """Read one input; says how that ended, and raises what must not happen."""
    name, kind, content = make(number)
    path = folder / name
    path.write_bytes(content)
    report = ReadReport(max_errors=None)
    try:
        with open_reader([path], kind, type_map=type_map) as reader:
            ids = Counter(_checked(entity) for entity in reader.read(report))
    except PearlQdrantError as error:
        # Rows of one id that are scattered over the input belong to no one place in it.
        if str(path) not in str(error) and not str(error).startswith("scattered rows: "):
            raise AssertionError(f"the error does not name the file: {error}") from error
        return "refused"
    finally:
        path.unlink()
    if report.entities != len(ids) or any(n > 1 for n in ids.values()):
        raise AssertionError(f"{report.entities} entities, {len(ids)} ids")
    return "read" if ids else "empty"


def _checked(entity: object) -> str:
    """The id of an entity whose texts can be stored."""
    id_, names = entity.entity_id, [*entity.names()]  # type: ignore[attr-defined]
    if not id_ or not all(names):
        raise AssertionError(f"an entity without id or name: {entity!r:.300}")
    for text in (id_, *names, *entity.kb_types):  # type: ignore[attr-defined]
        text.encode("utf-8")
    return str(id_)


def child() -> None:
    """Read the inputs whose numbers come on standard input."""
    type_map = TypeMap.load()
    with tempfile.TemporaryDirectory() as folder:
        read(0, Path(folder), type_map)  # everything is imported
        used = 1024 * int(
            next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line).split()[1]
        )
        resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY_BYTES, used + MEMORY_BYTES))
        for line in sys.stdin:
            try:
                answer = read(int(line), Path(folder), type_map)
            except BaseException:  # noqa: BLE001 - this is what is looked for
                answer = "failed " + json.dumps(traceback.format_exc())
            sys.stdout.write(answer + "\n")
            sys.stdout.flush()


class Reader:
    """A child process."""

    def __init__(self) -> None:
        command = [sys.executable, __file__, "--child"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)

    def read(self, number: int) -> str:
        """How the child ended with an input."""
        process, said, end = self._process, b"", time.monotonic() + INPUT_S
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"%d\n" % number)
        process.stdin.flush()
        while not said.endswith(b"\n"):
            if not self._selector.select(max(0.0, end - time.monotonic())):
                return f"failed: no answer after {INPUT_S:.0f} s"
            more = process.stdout.read()
            if not more:
                return f"failed: the process ended with {process.wait()}"
            said += more
        return said.decode().strip()

    def close(self) -> None:
        """End the child."""
        self._process.kill()
        self._process.communicate()


def fuzz(first: int, *, minutes: float, n: int | None, keep: Path) -> int:
    """Read inputs until the time is over, or `n` of them; returns how many failed, and stops at the tenth."""
    ends: Counter[str] = Counter()
    reader, end, number, failed = Reader(), time.monotonic() + 60 * minutes, first, 0
    while time.monotonic() < end and failed < 10 and (n is None or number < first + n):
        answer = reader.read(number)
        ends[answer.split()[0].rstrip(":")] += 1
        if answer.startswith("failed"):
            failed += 1
            name, kind, content = make(number)
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{number}-{name}").write_bytes(content)
            sys.stdout.write(f"{number} ({kind}, {len(content):,} bytes): {answer[:3000]}\n")
            reader.close()
            reader = Reader()
        number += 1
    reader.close()
    counts = ", ".join(f"{how} {n_inputs:,}" for how, n_inputs in ends.most_common())
    sys.stdout.write(f"{sum(ends.values()):,} inputs from {first}: {counts}\n")
    return failed


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1, help="the first number is a million times this")
    parser.add_argument("--only", type=int, help="one input, by its number")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child()
        return
    first, n = (arguments.seed * 1_000_000, None) if arguments.only is None else (arguments.only, 1)
    sys.exit(bool(fuzz(first, minutes=arguments.minutes, n=n, keep=arguments.keep)))


if __name__ == "__main__":
    main()
