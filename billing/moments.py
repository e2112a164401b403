"""Several queries that see one state of the database."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def one_moment() -> Iterator[None]:
    """Read as it is now, whatever others commit meanwhile, and write nothing.

    Inside of a caller's transaction it is that one which decides.
    """
    is_own_transaction = not connection.in_atomic_block
    with transaction.atomic():
        if is_own_transaction:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield
