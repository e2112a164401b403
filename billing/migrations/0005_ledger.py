from pathlib import Path

from django.db import migrations

_SQL = Path(__file__).parent / "sql"


def _text(name: str) -> str:
    return (_SQL / f"{name}.sql").read_text()


class Migration(migrations.Migration):
    dependencies = [("billing", "0004_resolved_once_per_account")]

    operations = [
        migrations.RunSQL(
            _text("0005_ledger"), _text("0005_ledger_down") + _text("0003_ledger")
        ),
    ]
