"""Headers as they go over the wire, and the ones that our answers always carry."""

Headers = list[tuple[bytes, bytes]]

JSON_HEADERS: Headers = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
]
STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]


def encoded(headers: list[tuple[str, str]]) -> Headers:
    return [(name.encode(), value.encode()) for name, value in headers]
