"""A tenant's time zone is one that Python and PostgreSQL both know."""

import pytest
from django.core.exceptions import ValidationError
from django.db import DatabaseError, connection, transaction

from keys.models import AuditEvent, Tenant
from keys.services import create_tenant, set_time_zone
from keys.time_zones import check_time_zone, time_zones

WRONG = [
    "",
    "Mars/Olympus",
    "europe/amsterdam",
    "UTC+2",
    "../../etc/passwd",
    "localtime",
    "Factory",
]


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_zone_is_refused(name) -> None:
    with pytest.raises(ValidationError, match="no time zone"):
        check_time_zone(name)


@pytest.mark.django_db
def test_no_tenant_is_made_in_a_zone_that_is_none() -> None:
    with pytest.raises(ValidationError):
        create_tenant("Acme", "acme", actor="tests", time_zone="Mars/Olympus")
    assert not Tenant.objects.exists()
    assert not AuditEvent.objects.exists()


@pytest.mark.django_db
def test_the_model_says_so_to_every_form(world) -> None:
    tenant = world.tenant()
    tenant.time_zone = "Mars/Olympus"
    with pytest.raises(ValidationError) as refused:
        tenant.full_clean()
    assert set(refused.value.message_dict) == {"time_zone"}


@pytest.mark.django_db
def test_the_last_word_is_the_tables(world) -> None:
    """A zone that PostgreSQL does not know would refuse every request of the tenant."""
    tenant = world.tenant()
    with pytest.raises(DatabaseError, match="not recognized"), transaction.atomic():
        Tenant.objects.filter(pk=tenant.pk).update(time_zone="Mars/Olympus")
    tenant.refresh_from_db()
    assert tenant.time_zone == "UTC"


@pytest.mark.django_db
def test_setting_what_is_set_leaves_no_trail(world) -> None:
    tenant = world.tenant()
    before = AuditEvent.objects.count()
    set_time_zone(tenant, "UTC", actor="tests")
    assert AuditEvent.objects.count() == before


@pytest.mark.django_db
def test_postgresql_knows_every_zone_that_may_be_chosen() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM pg_timezone_names")
        known = {name for (name,) in cursor.fetchall()}
    assert time_zones() - known == set()
