"""Every address of Farthing but the relay's own, which gateway.asgi serves before Django."""

from django.urls import include, path

urlpatterns = [
    path("v1/", include("gateway.api.urls")),
    path("accounts/", include("allauth.urls")),
    path("", include("gateway.web.urls")),
]
