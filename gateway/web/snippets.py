"""Code to paste: how a key is used, and how a request is repeated."""

import json
import shlex
from dataclasses import dataclass

HELLO = "Say hello."
ANY_MODEL = "farthing-echo"
KEY_VARIABLE = "FARTHING_KEY"


@dataclass(frozen=True, slots=True)
class Snippets:
    curl: str
    python: str
    node: str


def snippets(base_url: str, model: str, secret: str = "") -> Snippets:
    """`base_url` ends in /v1. With a secret the first line of the curl exports it, once."""
    export = f"export {KEY_VARIABLE}={secret}\n" if secret else ""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": HELLO}]})
    return Snippets(
        curl=export + curl(base_url, body), python=_python(base_url), node=_node(base_url)
    )


def curl(base_url: str, body: str) -> str:
    """The key comes from the environment: no secret stands in a command that is shown again."""
    return (
        f"curl {base_url}/chat/completions \\\n"
        f'  -H "Authorization: Bearer ${KEY_VARIABLE}" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d {shlex.quote(body)}"
    )


def _python(base_url: str) -> str:
    return (
        "import os\n"
        "from openai import OpenAI\n"
        "client = OpenAI(\n"
        f'  base_url="{base_url}",\n'
        f'  api_key=os.environ["{KEY_VARIABLE}"])'
    )


def _node(base_url: str) -> str:
    return (
        'import OpenAI from "openai";\n'
        "const client = new OpenAI({\n"
        f'  baseURL: "{base_url}",\n'
        f"  apiKey: process.env.{KEY_VARIABLE}}});"
    )
