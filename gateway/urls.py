"""Every address of Farthing but the relay's own, which gateway.asgi serves before Django."""

from django.urls.resolvers import URLPattern, URLResolver

urlpatterns: list[URLPattern | URLResolver] = []
