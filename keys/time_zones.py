"""In which time zone a tenant's days and months begin."""

from functools import cache
from typing import Final
from zoneinfo import available_timezones

from django.core.exceptions import ValidationError

NO_PLACES: Final = frozenset({"Factory", "localtime", "posixrules"})


@cache
def time_zones() -> frozenset[str]:
    """The names that may be chosen: those of the IANA database on this machine."""
    return frozenset(available_timezones()) - NO_PLACES


def check_time_zone(name: str) -> None:
    """Raises ValidationError. PostgreSQL, which counts the days, has the last word in the table."""
    if name not in time_zones():
        raise ValidationError(
            "%(name)s is no time zone; one is Europe/Amsterdam or UTC.", params={"name": repr(name)}
        )
