"""The links below a list that is paged by keyset."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db.models import Model, QuerySet

from billing.paging import Page, newer_cursor

Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class Pager:
    """Empty where there is no such page."""

    newer_url: str
    older_url: str


def pager_of(
    found: QuerySet[Row],
    key: str,
    page: Page[Row],
    *,
    older_than: Any,
    limit: int,
    url: Callable[[Any], str],
) -> Pager:
    """`url` makes the address of the page of a cursor, None being the first page's."""
    older_url = "" if page.older is None else url(page.older)
    if older_than is None:
        return Pager("", older_url)
    if not page.rows:
        return Pager(url(None), older_url)
    first = getattr(page.rows[0], key)
    return Pager(url(newer_cursor(found, key, newer_than=first, limit=limit)), older_url)
