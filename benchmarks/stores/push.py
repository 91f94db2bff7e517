"""Processor time of a streamed push, by step: what a client needs for 1,000 names, whatever the server does.

    python benchmarks/stores/push.py STORE COLLECTION

Names and vectors are read from an embedded collection and sent to a server in another process, which acknowledges what
it gets and keeps nothing. So the figures are of the client alone: reading, making JSON, sending. Each is the least of
some repeats, in processor time (not wall time) of this process with its threads.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click

from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.retry import RetryPolicy
from pearl_qdrant.store.rows import NameRows
from pearl_qdrant.store.server.connection import connect
from pearl_qdrant.store.server.limits import Limits
from pearl_qdrant.store.server.points import check_points
from pearl_qdrant.store.server.upload import ServerWriter

_ANSWER = b'{"result": {"operation_id": 0, "status": "completed"}, "status": "ok", "time": 0.0}'


class _Sink(BaseHTTPRequestHandler):
    """Acknowledges every upsert."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_PUT(self) -> None:
        """Read the body, and acknowledge it."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(_ANSWER)))
        self.end_headers()
        self.wfile.write(_ANSWER)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
        """Print nothing."""


def serve() -> None:
    """Serve on a free port, which is printed."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Sink) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


def processor_ms(work: Callable[[], object], repeats: int) -> float:
    """The least processor time of some runs, in milliseconds."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return 1000 * min(times)


@click.command()
@click.argument("store", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("collection")
@click.option("--repeats", default=5, show_default=True)
def measure(store: Path, collection: str, repeats: int) -> None:
    """Measure each step, and all of them together."""
    sink = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert sink.stdout is not None
        url = f"http://127.0.0.1:{int(sink.stdout.readline())}"
        connection = connect(url, api_key=None, timeout=60, retry=RetryPolicy())
        with (
            closing(connection),
            closing(EdgeStore(store)) as opened,
            closing(opened.open(collection, read_only=True)) as source,
        ):
            manifest = source.manifest
            pages = list(source.scroll_rows())
            names = sum(len(page.points) for page in pages)

            def make(page: NameRows) -> object:
                return check_points(page.points, page.vectors, page.encodable, manifest, page.descriptions)

            def send() -> None:
                with ServerWriter(connection, collection, manifest, Limits()) as writer:
                    for page in source.scroll_rows():
                        writer.write(page.points, page.vectors, page.encodable, descriptions=page.descriptions)

            click.echo(f"{names:,} names, {manifest.dim} dimensions; ms of processor time for 1,000 names")
            for label, work in (
                ("read", lambda: list(source.scroll_rows())),
                ("make", lambda: [make(page) for page in pages]),
                ("all", send),
            ):
                click.echo(f"{label:<6}{processor_ms(work, repeats) * 1000 / names:8.1f}")
    finally:
        sink.terminate()
        sink.wait()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else measure()
