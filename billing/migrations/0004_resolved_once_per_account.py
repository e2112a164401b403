"""An exchange may hold on several accounts: each is posted or voided once.

The index is made beside the old one, partition by partition, while traffic goes on.
"""

from django.db import migrations

OLD = "billing_transfer_resolved_once"
NEW = "billing_transfer_resolved_once_per_account"
PARTITIONS = """
SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'billing_transfer'::regclass
"""


def forwards(apps, schema_editor):
    _replace(schema_editor, OLD, NEW, "link, tenant_id, debit_account_id")


def backwards(apps, schema_editor):
    _replace(schema_editor, NEW, OLD, "link, tenant_id")


def _replace(schema_editor, old, new, columns):
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '2s'")
        what = f"({columns}) WHERE phase IN (2, 3)"
        cursor.execute(f"CREATE UNIQUE INDEX IF NOT EXISTS {new} ON ONLY billing_transfer {what}")
        cursor.execute(PARTITIONS)
        for (partition,) in cursor.fetchall():
            index = f"{partition}_{'once' if new == OLD else 'once_per_account'}"
            cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index}")
            cursor.execute(f"CREATE UNIQUE INDEX CONCURRENTLY {index} ON {partition} {what}")
            cursor.execute(f"ALTER INDEX {new} ATTACH PARTITION {index}")
        cursor.execute(f"DROP INDEX {old}")
        cursor.execute("RESET lock_timeout")


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("billing", "0003_plans_credits_limits")]

    operations = [migrations.RunPython(forwards, backwards)]
