"""Making one check: one at a time in all of Farthing, whoever wants it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.db import connection

from gateway.models import Vendor
from gateway.qualification.bounds import Bounds
from gateway.qualification.checks import Subject
from gateway.qualification.findings import JsonObject
from gateway.qualification.report import Labels, report_of
from gateway.qualification.run import Outcome, check_vendor
from gateway.runtime.snapshot import access_of

CHECK_LOCK: Final = 0x0072_6563_6865_636B  # the number spells "recheck"


@contextmanager
def alone() -> Iterator[bool]:
    """Whether nobody else makes a check now, nor will until the end of the block.

    The lock is the session's: it ends with the process that holds it.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [CHECK_LOCK])
        (is_ours,) = cursor.fetchone()
        try:
            yield is_ours
        finally:
            if is_ours:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [CHECK_LOCK])


def checked(vendor: Vendor, subject: Subject, bounds: Bounds) -> tuple[Outcome, JsonObject]:
    """What `keep` keeps: a run and its report. Blocks for `bounds.run_s` at most."""
    outcome = check_vendor(access_of(vendor), subject, bounds=bounds)
    return outcome, report_of(outcome, Labels(), credential=vendor.credential.strip())
