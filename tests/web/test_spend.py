from datetime import timedelta

from gateway.web.periods import MONTH, period_of
from gateway.web.spend import KeySpend, spend_by_key
from tests.web.conftest import NOW


def test_only_the_period_and_the_mode_and_the_tenant_count(acme):
    last = acme.relayed(ago=timedelta(minutes=1)).hold().settle()
    acme.relayed(ago=timedelta(hours=1)).hold().settle()
    acme.relayed(ago=timedelta(days=15)).hold().settle()
    acme.relayed_in_test().hold().settle()
    other = acme.charlie.memberships.get().tenant
    acme.relayed(tenant=other, key=acme.world.key(other).key).hold().settle()
    month = period_of(MONTH, NOW)
    spent = spend_by_key(acme.tenant.pk, month, is_test=False)
    assert spent == {acme.key.pk: KeySpend(2 * 2_334_400, last.at)}
    assert spend_by_key(acme.tenant.pk, month, is_test=True)[acme.test_key.pk].nanos == 0
