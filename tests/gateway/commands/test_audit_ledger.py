import json

import pytest
from django.core.management import CommandError, call_command

from billing.models import Account, AuditRun

pytestmark = pytest.mark.django_db


def test_clean_ledger_passes_with_its_figures(world, capsys):
    world.tenant("Acme", balance="2.5")
    call_command("audit_ledger")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["accounts", "5"]
    assert lines[1].split() == ["transfers", "1"]
    assert lines[-2].split() == ["held", "0.000000000"]
    assert lines[-1] == "zero differences"


def test_difference_is_printed_kept_and_fails(world, capsys):
    tenant = world.tenant("Acme", balance="1")
    wallet = Account.objects.get(tenant=tenant, kind="wallet")
    Account.objects.filter(pk=wallet.pk).update(posted_nanos=2)
    with pytest.raises(CommandError, match=r"Differences: 1\.") as failure:
        call_command("audit_ledger")
    assert failure.value.returncode == 1
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"! balance differs from its transfers: id {wallet.pk}, posted_nanos 2, "
        "recomputed 1000000000"
    )
    assert len(AuditRun.objects.get().differences) == 1


def test_json_carries_figures_and_differences(world, capsys):
    world.tenant("Acme", balance="1")
    call_command("audit_ledger", json=True)
    report = json.loads(capsys.readouterr().out)
    assert report["differences"] == []
    assert report["figures"] == {
        "accounts": 5,
        "transfers": 1,
        "exchanges": 0,
        "charges": 0,
        "open_holds": 0,
        "invoices": 0,
        "held_nanos": 0,
    }
