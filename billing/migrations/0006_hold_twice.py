from pathlib import Path

from django.db import migrations

_SQL = Path(__file__).parent / "sql"


class Migration(migrations.Migration):
    dependencies = [("billing", "0005_ledger")]

    operations = [
        migrations.RunSQL(
            (_SQL / "0006_hold_twice.sql").read_text(), migrations.RunSQL.noop
        ),
    ]
