"""The Celery application. The schedule stands in code: a click must not switch billing off."""

import os
from typing import Any

from celery import Celery
from celery.schedules import crontab
from celery.signals import worker_init

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")

from django.conf import settings  # settings need the line above

app = Celery("farthing")
app.conf.update(
    broker_url=settings.REDIS_URL,
    result_backend=None,
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_time_limit=300,
    task_soft_time_limit=240,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 600, "socket_timeout": 5},
    task_default_queue="farthing",
    timezone="UTC",
    beat_schedule={
        "sweep": {"task": "gateway.sweep", "schedule": 5.0, "options": {"expires": 10}},
        "sweep-money": {
            "task": "gateway.sweep_money",
            "schedule": 10.0,
            "options": {"expires": 20},
        },
        "make-partitions": {"task": "gateway.make_partitions", "schedule": 3600.0},
        "recheck-vendors": {
            "task": "gateway.recheck_vendors",
            "schedule": 300.0,
            "options": {"expires": 300},
        },
        "forget-transcripts": {"task": "gateway.forget_transcripts", "schedule": 6 * 3600.0},
        "forget": {"task": "gateway.forget", "schedule": 600.0},
        "audit": {
            "task": "gateway.audit",
            "schedule": crontab(minute=10, hour=3),
            "options": {"expires": 3600},
        },
        # Twice, so that what the first had no time for is done.
        "compare-counts": {
            "task": "gateway.compare_counts",
            "schedule": crontab(minute=20, hour="4,5"),
            "options": {"expires": 3000},
        },
        # Often, on the month's first days: time zones end a month a day apart, and a run that
        # died or had too little time is gone on with.
        "close-months": {
            "task": "gateway.close_months",
            "schedule": crontab(minute="*/15", day_of_month="1-3"),
            "options": {"expires": 600},
        },
    },
)
app.autodiscover_tasks(["gateway"])


@worker_init.connect  # in the parent, before it forks
def load_vocabularies(**_sender: Any) -> None:
    """What every count needs is read once, and shared by the worker's processes."""
    from billing.estimation import preload

    preload()
