"""A long history in a short time: the rows of real requests, multiplied under new ids.

The ids are UUIDv7 as the ledger's are, spread over the days before, so that partitions and
indexes look as they would. Balances are left alone: this database is measured, not audited.
"""

import psycopg
from psycopg import sql

SOURCE_ROWS = 200  # exchanges to multiply; the gateway has relayed them
DAYS = 20
TABLES = {  # each with the column that names its exchange
    "billing_exchange": "id",
    "billing_charge": "exchange_id",
    "billing_transfer": "link",
    "gateway_transcript": "exchange_id",
}
IDS = """
CREATE TEMPORARY TABLE copies ON COMMIT DROP AS
SELECT source.id AS old_id,
       (lpad(to_hex((extract(epoch FROM drawn.at) * 1000)::bigint), 12, '0') || '7'
        || substr(drawn.mixed, 1, 3) || '8' || substr(drawn.mixed, 4, 15))::uuid AS new_id
FROM (SELECT id, row_number() OVER () AS number FROM billing_exchange LIMIT {sources}) source
JOIN (SELECT n, now() - random() * make_interval(days => {days}) AS at, md5(n::text) AS mixed
      FROM generate_series(1, {rows}) n) drawn ON source.number = 1 + drawn.n % {sources}
ORDER BY new_id
"""
COLUMNS = """
SELECT column_name FROM information_schema.columns
WHERE table_name = %s AND is_identity = 'NO' AND is_generated = 'NEVER' ORDER BY ordinal_position
"""


def multiply(url: str, rows: int) -> None:
    """Leave `rows` more exchanges in the database at `url`, with all that belongs to each."""
    with psycopg.connect(url) as connection:
        connection.execute("SET LOCAL synchronous_commit = off")
        connection.execute("SET LOCAL work_mem = '256MB'")
        sources = min(SOURCE_ROWS, _count(connection))
        numbers = {"sources": sources, "days": DAYS, "rows": rows}
        connection.execute(
            sql.SQL(IDS).format(**{name: sql.Literal(number) for name, number in numbers.items()})
        )
        for table, key in TABLES.items():
            connection.execute(_copy(connection, table, key))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def _count(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT count(*) FROM billing_exchange").fetchone()
    return row[0] if row else 0


def _copy(connection: psycopg.Connection, table: str, key: str) -> sql.Composed:
    names = [name for (name,) in connection.execute(COLUMNS, (table,))]
    values = [
        sql.Identifier("copies", "new_id") if name == key else sql.Identifier("source", name)
        for name in names
    ]
    statement = (
        "INSERT INTO {0} ({1}) SELECT {2} FROM copies JOIN {0} source ON source.{3} = old_id"
    )
    return sql.SQL(statement).format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, names)),
        sql.SQL(", ").join(values),
        sql.Identifier(key),
    )
