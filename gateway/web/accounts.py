"""How people come in: by invitation only."""

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest


class ClosedSignup(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """Accounts are made by an owner or the operator; nobody signs up by themselves."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False
