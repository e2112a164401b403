import pytest
from django.db import DatabaseError, connection

from billing.moments import one_moment


def isolation() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW transaction_isolation")
        return cursor.fetchone()[0]


@pytest.mark.usefixtures("committed")
def test_a_moment_stands_still_and_cannot_be_written_in() -> None:
    with one_moment():
        assert isolation() == "repeatable read"
    with (
        pytest.raises(DatabaseError, match="read-only"),
        one_moment(),
        connection.cursor() as cursor,
    ):
        cursor.execute("DELETE FROM billing_auditrun")
    assert isolation() == "read committed"


@pytest.mark.django_db
def test_a_callers_transaction_stays_its_own() -> None:
    with one_moment():
        assert isolation() == "read committed"
