"""Pages by keyset: newest first. A page's cursor is the last key of the page before it."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """`older` is the cursor of the next page, None on the last one."""

    rows: tuple[Row, ...]
    older: Any


def page_of(found: QuerySet[Row], key: str, *, older_than: Any, limit: int) -> Page[Row]:
    """One page by a unique `key`; the first one where `older_than` is None."""
    if older_than is not None:
        found = found.filter(**{f"{key}__lt": older_than})
    rows = tuple(found.order_by(f"-{key}")[: limit + 1])
    shown = rows[:limit]
    return Page(shown, getattr(shown[-1], key) if len(rows) > limit else None)


def newer_cursor(found: QuerySet[Row], key: str, *, newer_than: Any, limit: int) -> Any:
    """The cursor of the page before the one that starts at `newer_than`.

    None where that page is the first: it needs no cursor.
    """
    newer = found.filter(**{f"{key}__gt": newer_than}).order_by(key)
    keys = list(newer.values_list(key, flat=True)[: limit + 1])
    return keys[limit] if len(keys) > limit else None
