"""Settings, read once from the environment. Every variable is listed in docs/configuration.md.

`make run` sets them all; elsewhere DATABASE_URL, REDIS_URL and the three secrets are enough.
"""

from logging import LogRecord
from pathlib import Path

from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from psycopg.conninfo import conninfo_to_dict

from gateway.addresses import networks
from gateway.local import environment
from keys.networks import Network

BASE_DIR = Path(__file__).resolve().parent.parent
ENVIRONMENT = environment()


def _flag(name: str) -> bool:
    return ENVIRONMENT.get(name, "").lower() in {"1", "true", "yes"}


def _words(name: str, default: str = "") -> list[str]:
    return [word.strip() for word in ENVIRONMENT.get(name, default).split(",") if word.strip()]


def _networks(name: str) -> tuple[Network, ...]:
    try:
        return networks(_words(name))
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}.") from None


# --- secrets: none has a default that works in production -------------------------------------

SECRET_KEY = ENVIRONMENT.get("FARTHING_SECRET_KEY", "")
DEBUG = False
KEY_PEPPERS = _words("FARTHING_KEY_PEPPER")  # first one signs, all verify
FERNET_KEYS = _words("FARTHING_FERNET_KEYS")  # first one encrypts, all decrypt

if not SECRET_KEY:
    # Commands that touch no secret (lint, migrations, types) run without one; see keys.checks.
    SECRET_KEY = "not-a-secret"  # noqa: S105

# --- hosts ------------------------------------------------------------------------------------

ALLOWED_HOSTS = _words("FARTHING_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = _words("FARTHING_TRUSTED_ORIGINS")
TRUSTED_PROXIES = _networks("FARTHING_TRUSTED_PROXIES")
CORS_ORIGINS = _words("FARTHING_CORS_ORIGINS")
HTTPS_ONLY = _flag("FARTHING_HTTPS")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS_ONLY
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_HTTPONLY = True

# --- the parts --------------------------------------------------------------------------------

INSTALLED_APPS = [
    "keys",
    "billing",
    "gateway",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "csp",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "gateway.hosts.PagesMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "allauth.usersessions.middleware.UserSessionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "gateway.urls"
ASGI_APPLICATION = "gateway.asgi.application"
APPEND_SLASH = False

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    [
                        "django.template.loaders.filesystem.Loader",
                        "django.template.loaders.app_directories.Loader",
                    ],
                )
            ],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "gateway.web.context.frame",
            ],
            "builtins": ["gateway.templatetags.farthing"],
        },
    }
]

# --- stores -----------------------------------------------------------------------------------

DATABASE_URL = ENVIRONMENT.get("DATABASE_URL", "postgresql://127.0.0.1:5432/farthing")
_database = conninfo_to_dict(DATABASE_URL)
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _database.pop("dbname", "farthing"),
        "USER": _database.pop("user", ""),
        "PASSWORD": _database.pop("password", ""),
        "HOST": _database.pop("host", ""),
        "PORT": _database.pop("port", ""),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {**_database, "application_name": "farthing", "connect_timeout": 5},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = ENVIRONMENT.get("REDIS_URL", "redis://127.0.0.1:6379/0")
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
    }
}

# --- the relay --------------------------------------------------------------------------------

GATEWAY_DEAD_AFTER_S = int(ENVIRONMENT.get("FARTHING_DEAD_AFTER_S", "15"))  # it beats every 2 s
SPOOL_DIR = ENVIRONMENT.get("FARTHING_SPOOL_DIR")  # where settlements outlive an outage
GATEWAY_WORKERS = int(ENVIRONMENT.get("WORKERS", "1"))
HEARTBEAT_S = float(ENVIRONMENT.get("FARTHING_HEARTBEAT_S", "15"))

# --- people -----------------------------------------------------------------------------------

AUTH_USER_MODEL = "keys.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_ADAPTER = "gateway.web.accounts.ClosedSignup"
ACCOUNT_EMAIL_VERIFICATION = "optional"
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_REAUTHENTICATION_TIMEOUT = 15 * 60
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
EMAIL_BACKEND = ENVIRONMENT.get(
    "FARTHING_EMAIL_BACKEND", "django.core.mail.backends.console.EmailBackend"
)

# --- pages and API ----------------------------------------------------------------------------

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = BASE_DIR / "staticfiles"
WHITENOISE_USE_FINDERS = True
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "object-src": [NONE],
    }
}
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["gateway.api.authentication.KeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["gateway.api.renderers.OrjsonRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "gateway.api.renderers.AlwaysJson",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "gateway.api.exceptions.openai_shape",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Farthing",
    "DESCRIPTION": "An OpenAI-compatible relay that bills every token.",
    "VERSION": "1",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": [],
}

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False


def _without_trace(record: LogRecord) -> bool:
    """What anybody can bring about by a header is worth one line."""
    record.exc_info = None
    return True


LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "filters": {
        "without_trace": {"()": "django.utils.log.CallbackFilter", "callback": _without_trace}
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": ENVIRONMENT.get("FARTHING_LOG_LEVEL", "INFO")},
    "loggers": {"django.security.DisallowedHost": {"filters": ["without_trace"]}},
}
