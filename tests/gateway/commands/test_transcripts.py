import pytest
from django.core.management import CommandError, call_command

from keys.models import Tenant


def stored(tenant: Tenant) -> tuple[str, int]:
    return Tenant.objects.values_list("transcript_policy", "transcript_days").get(pk=tenant.pk)


def test_it_shows_and_sets_what_is_kept(world, capsys) -> None:
    tenant = world.tenant()
    call_command("transcripts", tenant=tenant.slug)
    call_command("transcripts", tenant=tenant.slug, policy="nothing", reason="asked by mail")
    call_command("transcripts", tenant=tenant.slug, days=7, reason="asked by mail")
    assert capsys.readouterr().out.splitlines() == [
        f"{tenant.slug} keeps content for 30 days.",
        f"{tenant.slug} keeps nothing for 30 days.",
        f"{tenant.slug} keeps nothing for 7 days.",
    ]
    assert stored(tenant) == ("nothing", 7)


@pytest.mark.parametrize("options", [{"days": 0, "reason": "x"}, {"days": 7}])
def test_what_is_wrong_or_without_a_reason_changes_nothing(world, options) -> None:
    tenant = world.tenant()
    with pytest.raises(CommandError):
        call_command("transcripts", tenant=tenant.slug, **options)
    assert stored(tenant) == ("content", 30)
