"""Asking whether everything answers, and saying so: `ready.json` and the table at the end."""

import http
import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ANSWER_SECONDS = 5.0
MAX_ANSWER_BYTES = 1024 * 1024
LABEL_WIDTH = 10
PLAIN_MODEL = "farthing-echo"


def get(url: str, api_key: str | None = None) -> tuple[int, bytes] | None:
    """Status and body that a GET of `url` is answered with; None where nobody answers."""
    parts = urlsplit(url)
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    connection = http.client.HTTPConnection(parts.netloc, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", parts.path or "/", headers=headers)
        response = connection.getresponse()
        return response.status, response.read(MAX_ANSWER_BYTES)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def served_models(base_url: str, api_key: str) -> list[str] | None:
    """The models that the key may use; None until the gateway answers that question with 200."""
    answer = get(f"{base_url}/v1/models", api_key)
    if answer is None or answer[0] != http.HTTPStatus.OK:
        return None
    try:
        return [str(model["id"]) for model in json.loads(answer[1])["data"]]
    except (ValueError, KeyError, TypeError):
        return None


def example_model(models: list[str]) -> str:
    """The plain one where it is served: the others of the demo go wrong on purpose."""
    return next(iter(models), PLAIN_MODEL) if PLAIN_MODEL not in models else PLAIN_MODEL


def example_call(base_url: str, api_key: str, model: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    return " \\\n    ".join(
        [
            f"curl {base_url}/v1/chat/completions",
            f"-H 'Authorization: Bearer {api_key}'",
            "-H 'Content-Type: application/json'",
            f"-d '{json.dumps(body)}'",
        ]
    )


def table(base_url: str, demo: Mapping[str, Any], model: str, var_dir: Path) -> str:
    """What a newcomer needs next; the call at its end can be pasted as it is."""
    tenant, staff = demo["tenant"], demo["staff"]
    rows = [
        ("Pages", base_url + "/"),
        ("Demo key", demo["api_key"]),
        ("Test key", demo["test_key"]),
        ("Tenant", f"{tenant['email']}   password {tenant['password']}"),
        ("Staff", f"{staff['email']}   password {staff['password']}"),
        ("Data", f"{var_dir}   (logs/ holds what each process says)"),
    ]
    lines = [f"  {label:<{LABEL_WIDTH}} {words}" for label, words in rows]
    call = example_call(base_url, demo["api_key"], model)
    parts = ["", "Farthing is ready.", "", *lines, "", call, "", "Ctrl-C ends everything.", ""]
    return "\n".join(parts)
