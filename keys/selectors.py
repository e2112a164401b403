"""Questions about tenants and keys. The tenant is always part of the query."""

from collections.abc import Sequence

from django.db.models import QuerySet

from keys.models import ApiKey, Member, Tenant, User


def memberships_of(user: User) -> QuerySet[Member]:
    return Member.objects.filter(user=user).select_related("tenant").order_by("tenant__name", "pk")


def keys_of(tenant: Tenant, kinds: Sequence[str], *, is_revoked: bool = False) -> QuerySet[ApiKey]:
    """Newest first, with when each was last used."""
    return (
        ApiKey.objects.filter(tenant=tenant, kind__in=kinds, revoked_at__isnull=not is_revoked)
        .select_related("use")
        .order_by("-created_at", "-pk")
    )
