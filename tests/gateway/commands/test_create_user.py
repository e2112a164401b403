import pytest
from allauth.account.models import EmailAddress
from django.core.management import CommandError, call_command

from keys.models import AuditEvent, User

pytestmark = pytest.mark.django_db

EMAIL = "bob@example.test"


@pytest.fixture
def acme(world):
    return world.tenant("Acme", balance="0")


def test_only_line_on_stdout_is_the_password(acme, capsys):
    call_command("create_user", email=EMAIL, tenant=acme.slug, role="developer")
    said = capsys.readouterr()
    user = User.objects.get()
    assert user.check_password(said.out.removesuffix("\n"))
    assert said.out.strip() not in said.err
    assert (user.email, user.is_staff) == (EMAIL, False)
    assert user.memberships.get().role == "developer"
    assert EmailAddress.objects.get(user=user).verified


def test_person_who_is_there_gets_the_role_and_keeps_the_password(acme, capsys):
    user = User.objects.create_user(EMAIL, "unchanged-password")
    call_command("create_user", email=EMAIL.upper(), tenant=acme.slug, role="admin", staff=True)
    user.refresh_from_db()
    assert user.check_password("unchanged-password")
    assert (user.is_staff, user.memberships.get().role) == (True, "admin")
    assert capsys.readouterr().out == f"{EMAIL} was there before; the password stays.\n"


def trail():
    events = AuditEvent.objects.exclude(action__startswith="tenant:").order_by("id")
    return list(events.values_list("action", "tenant_id", "subject", "actor"))


def test_every_act_on_a_person_leaves_a_trail_and_none_is_left_twice(acme):
    for _ in range(2):
        call_command("create_user", email=EMAIL, tenant=acme.slug, role="admin", staff=True)
    actor = "manage.py create_user"
    assert trail() == [
        ("user:created", None, EMAIL, actor),
        ("user:made-staff", None, EMAIL, actor),
        ("member:added", acme.pk, EMAIL, actor),
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"email": "bob", "staff": True}, "'bob' is no e-mail address"),
        ({"email": EMAIL}, "Say --tenant and --role, or --staff"),
        ({"email": EMAIL, "role": "owner"}, "go together"),
        ({"email": EMAIL, "tenant": "nobody", "role": "owner"}, "There is no tenant"),
    ],
)
def test_what_cannot_be_is_refused_and_makes_nobody(options, words):
    with pytest.raises(CommandError, match=words):
        call_command("create_user", **options)
    assert not User.objects.exists()
    assert trail() == []
