"""The Django project and the relay. `billing` and `keys` know nothing of it."""

from gateway.celery import app as celery_app

__all__ = ["celery_app"]
