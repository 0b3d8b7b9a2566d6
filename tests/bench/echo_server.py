"""The reference of the wire's figures: a bare `asyncio.Protocol` that sends back what it gets."""

from __future__ import annotations

import asyncio
import sys


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def main() -> None:
    server = await asyncio.get_running_loop().create_unix_server(Echo, sys.argv[1])
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
