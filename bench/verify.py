"""That everything was on is not said but looked up: what the benchmark has left in the database."""

import sys

import psycopg

from bench.stores import Keys, Stores
from bench.workshop import Workshop

AUDIT_SECONDS = 300.0
COUNTS = """
SELECT (SELECT count(*) FROM billing_exchange),
       (SELECT count(*) FROM billing_exchange WHERE state = 'settled'),
       (SELECT count(*) FROM billing_charge WHERE charge_nanos > 0),
       (SELECT count(*) FROM billing_transfer WHERE phase IN (1, 2)),
       (SELECT count(*) FROM gateway_transcript)
"""


def what_is_left(workshop: Workshop, stores: Stores, keys: Keys, database: str) -> str:
    """A sentence of counts, and the audit's verdict. Raises StartError where it finds anything."""
    with psycopg.connect(keys.url) as connection:
        row = connection.execute(COUNTS).fetchone() or ()
    exchanges, settled, charged, transfers, transcripts = row
    argv = [sys.executable, "manage.py", "audit_ledger"]
    workshop.run("audit", argv, stores.environment(database), AUDIT_SECONDS)
    return (
        f"{exchanges:,} exchanges, {settled:,} settled, {charged:,} charged, {transfers:,}"
        f" transfers, {transcripts:,} transcripts; the audit finds no difference"
    )
