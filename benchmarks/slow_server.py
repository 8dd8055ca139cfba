"""A local HTTP server that answers each request after a while, however many come at once. A process of its own.

`python -m benchmarks.slow_server SECONDS` prints its address and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
BACKLOG = 4096


async def serve(seconds: float) -> None:
    """Serve until standard input ends."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(seconds)
            writer.write(ANSWER)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # its client was killed; there will be others
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=BACKLOG)
    host, port = server.sockets[0].getsockname()[:2]
    print(f"http://{host}:{port}/", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
