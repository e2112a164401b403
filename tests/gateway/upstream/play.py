"""Playing a client against a vendor, in a few words."""

import contextlib

from tests.gateway.upstream.vendor import Vendor


async def read_all(response) -> bytes:
    pieces = []
    while piece := await response.read():
        pieces.append(piece)
    return b"".join(pieces)


async def post(upstream, body: bytes = b"{}", path: str = "/v1/x") -> tuple[int, bytes]:
    response = await upstream.open(path, [(b"content-type", b"application/json")], body)
    return response.status, await read_all(response)


@contextlib.asynccontextmanager
async def closing(upstream):
    try:
        yield upstream
    finally:
        await upstream.close()


def play(subject, script, test, **options) -> None:
    """Run `test(upstream, vendor)` against a vendor that follows `script`."""

    async def main() -> None:
        async with (
            Vendor(script, options.pop("server_ssl", None)) as vendor,
            closing(subject.upstream(vendor.url, **options)) as upstream,
        ):
            await test(upstream, vendor)

    subject.run(main)
