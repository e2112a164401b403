from pathlib import Path

from django.db import migrations

_SQL = Path(__file__).parent / "sql"


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0010_breakers"),
    ]

    # The functions do what they did before: there is nothing to take back.
    operations = [
        migrations.RunSQL((_SQL / "0011_lookups.sql").read_text(), migrations.RunSQL.noop),
    ]
