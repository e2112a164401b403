from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from billing.models import Plan, TenantPlan
from billing.plans import assigned_at

pytestmark = pytest.mark.django_db


def test_a_tenant_comes_on_a_plan_and_off_it(world, capsys) -> None:
    tenant, plan = world.tenant(), Plan.objects.create(name="team")
    call_command("assign_plan", tenant=tenant.slug, plan="team", reason="asked for it")
    assert capsys.readouterr().out.startswith(f"{tenant.slug} is on team from ")
    assert assigned_at(tenant.pk, timezone.now()).plan == plan

    tomorrow = timezone.now() + timedelta(days=1)
    call_command("assign_plan", tenant=tenant.slug, none=True, starts_at=tomorrow.isoformat())
    assert f"{tenant.slug} is on no plan from " in capsys.readouterr().out
    assert assigned_at(tenant.pk, tomorrow).plan is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"plan": "gone"}, "There is no plan 'gone'; the catalog file makes plans."),
        ({"none": True, "starts_at": "2020-01-01"}, "A plan starts now or later"),
        ({"none": True, "starts_at": "soon"}, "'soon' is no time"),
    ],
)
def test_what_cannot_be_changes_nothing(world, options, words) -> None:
    tenant = world.tenant()
    with pytest.raises(CommandError, match=words):
        call_command("assign_plan", tenant=tenant.slug, **options)
    assert not TenantPlan.objects.filter(tenant=tenant).exists()
