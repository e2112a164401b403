import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from billing.audit import audit
from billing.filling import sizes
from billing.models import Exchange

pytestmark = pytest.mark.django_db
EXCHANGES = 20_000  # enough that the first pages of empty partitions do not count
ROW_BYTES_MAX = 1_024


def test_a_filled_ledger_is_true_and_its_rows_are_short(capsys) -> None:
    before, stored_before = Exchange.objects.count(), sum(rows for rows, _ in sizes().values())
    name = connection.settings_dict["NAME"]
    call_command("fill_ledger", exchanges=EXCHANGES, database=name)
    assert Exchange.objects.count() == before + EXCHANGES
    stored = sum(rows for rows, _ in sizes().values()) - stored_before
    assert 0 < stored / EXCHANGES < ROW_BYTES_MAX
    assert audit().differences == ()
    capsys.readouterr()

    call_command("measure_rows")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        "billing_exchange",
        "billing_transfer",
        "billing_charge",
        "together",
    ]
    assert int(lines[-1].split()[1]) >= stored // (before + EXCHANGES)


@pytest.mark.parametrize("options", [{"database": "other"}, {"exchanges": 0}])
def test_another_database_or_number_fills_nothing(options) -> None:
    before = Exchange.objects.count()
    asked = {"exchanges": 10, "database": connection.settings_dict["NAME"], **options}
    with pytest.raises(CommandError):
        call_command("fill_ledger", **asked)
    assert Exchange.objects.count() == before
