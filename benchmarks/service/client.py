"""A small HTTP client for load: one connection, one request after the other, little processor time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """What a request got."""

    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Connection:
    """One kept-alive connection to a service on this machine."""

    port: int
    headers: dict[str, str] = field(default_factory=dict)
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request; a connection that the service closed is opened again.

        Raises:
            OSError: If the connection breaks before there is an answer.
        """
        if self._streams is None or self._streams[1].is_closing():
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self._streams
        packed = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(packed)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if packed:
            lines.append("Content-Type: application/json")
        writer.write("\r\n".join([*lines, "", ""]).encode() + packed)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            length = next((int(line.split(":")[1]) for line in head if line.startswith("content-length:")), 0)
            content = await reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            self.close()
            raise OSError("the connection was closed before an answer") from error
        if "connection: close" in head:
            self.close()
        return Answer(int(head[0].split()[1]), content)

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
