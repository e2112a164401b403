"""The ledger's audit: everything again from the transfers, and what differs.

Each check is one query that answers the rows that break a rule. Zero rows is the only pass.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from django.db import connection
from django.utils import timezone

from billing.audit.checks import CHECKS, FIGURES, RATED, RATED_QUERY
from billing.models import AuditRun
from billing.moments import one_moment
from billing.rates import used_rates

DIFFERENCES_SHOWN: Final = 50
WORK_MEMORY: Final = "256MB"  # of one sort or hash: a million exchanges without files


@dataclass(frozen=True, slots=True)
class Difference:
    rule: str
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class AuditReport:
    figures: dict[str, int]
    differences: tuple[Difference, ...] = field(default=())

    @property
    def is_clean(self) -> bool:
        return not self.differences


def audit() -> AuditReport:
    """All checks on one snapshot: traffic may go on meanwhile."""
    with one_moment(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('work_mem', %s, true)", [WORK_MEMORY])
        cursor.execute("SELECT set_config('jit', 'off', true)")
        figures = {name: _number(cursor, query) for name, query in FIGURES.items()}
        differences = [
            Difference(rule, row) for rule, query in CHECKS.items() for row in _rows(cursor, query)
        ]
        rates = orjson.dumps(used_rates()).decode()
        differences += [Difference(RATED, row) for row in _rows(cursor, RATED_QUERY, rates)]
    return AuditReport(figures, tuple(differences))


def audit_and_keep() -> AuditReport:
    """Run the audit and keep its result, for staff to see."""
    run = AuditRun.objects.create()
    report = audit()
    run.finished_at = timezone.now()
    run.figures = report.figures
    run.differences = [
        {"rule": difference.rule, "row": difference.row}
        for difference in report.differences[:DIFFERENCES_SHOWN]
    ]
    run.save(update_fields=["finished_at", "figures", "differences"])
    return report


def _number(cursor: Any, query: str) -> int:
    cursor.execute(query)
    return int(cursor.fetchone()[0])


def _rows(cursor: Any, query: str, *parameters: str) -> Iterator[dict[str, Any]]:
    """Materialised: a bare LIMIT is planned for the first rows, and there should be none."""
    broken = f"WITH broken AS MATERIALIZED ({query})"
    limited = f"{broken} SELECT * FROM broken LIMIT {DIFFERENCES_SHOWN}"  # noqa: S608  # our own
    cursor.execute(limited, parameters or None)
    names = [column.name for column in cursor.description]
    for row in cursor.fetchall():
        yield {
            name: value if isinstance(value, int) else str(value)
            for name, value in zip(names, row, strict=True)
        }
