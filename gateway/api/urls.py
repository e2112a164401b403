"""Addresses under /v1/. Whatever is not named here is a 404 in JSON."""

from django.urls import path, re_path
from django.urls.resolvers import URLPattern

from gateway.api.views import (
    BalanceView,
    ChatCompletionsView,
    DocsView,
    KeyView,
    ModelsView,
    ModelView,
    NothingView,
    OpenApiView,
    RequestView,
    TokenCountView,
)

urlpatterns: list[URLPattern] = [
    path("chat/completions", ChatCompletionsView.as_view()),
    path("tokens/count", TokenCountView.as_view()),
    path("models", ModelsView.as_view()),
    path("models/<path:model>", ModelView.as_view()),
    path("requests/<str:request_id>", RequestView.as_view()),
    path("key", KeyView.as_view()),
    path("balance", BalanceView.as_view()),
    path("openapi.json", OpenApiView.as_view(), name="openapi"),
    path("docs", DocsView.as_view(), name="api_docs"),
    re_path(r"", NothingView.as_view()),
]
