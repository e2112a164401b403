"""Settlements that PostgreSQL could not take yet, on disk, so that a second failure loses nothing.

A file per item, named by its exchange, written before the first retry and removed when the item is
durable. A gateway that starts sends what it finds. Sending an item twice is sending it once: the
statements are idempotent, so gateways may share a folder.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import orjson

from billing.storable import encode_item
from billing.writer import Item

logger = logging.getLogger(__name__)

ITEMS_MAX = 100_000  # more than all that can be in flight when PostgreSQL goes
SUFFIX = ".json"


class Spool:
    """`folder` None keeps nothing: then only memory stands between an outage and a crash."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def keep(self, writer: str, item: Item) -> None:
        """Write the item before it is tried again. Whatever keeps it from that is only logged."""
        if self._folder is None:
            return
        path = self._path(self._folder, writer, item)
        try:
            if sum(1 for _ in self._folder.iterdir()) >= ITEMS_MAX:
                raise OSError("the spool is full")  # noqa: TRY301  # told like a full disk
            part = path.with_suffix(".part")
            with part.open("wb") as file:
                file.write(encode_item(item))
                file.flush()
                os.fsync(file.fileno())
            part.rename(path)
        except (OSError, TypeError) as error:
            logger.error("Exchange %s is not spooled: %s", item["id"], error)  # noqa: TRY400

    def drop(self, writer: str, item: Item) -> None:
        if self._folder is not None:
            self._path(self._folder, writer, item).unlink(missing_ok=True)

    def found(self, writer: str) -> Iterator[Item]:
        """What an earlier process left for this writer; a torn file is left out."""
        if self._folder is None:
            return
        for path in sorted(self._folder.glob(f"{writer}-*{SUFFIX}")):
            try:
                yield orjson.loads(path.read_bytes())
            except (OSError, orjson.JSONDecodeError) as error:
                logger.error("%s is not readable: %s", path.name, error)  # noqa: TRY400

    @staticmethod
    def _path(folder: Path, writer: str, item: Item) -> Path:
        return folder / f"{writer}-{item['id']}{SUFFIX}"
