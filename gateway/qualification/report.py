"""The report of a run: what was sent, what came back, and what may be concluded from it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from billing.storable import storable_json
from gateway.exchanges.masking import DOTS, mask_body
from gateway.models import KEYLESS
from gateway.qualification.bounds import MAX_TEXT_CHARACTERS
from gateway.qualification.findings import JsonObject
from gateway.qualification.run import Outcome, Result
from gateway.relay.attempt import PATH
from gateway.relay.json_text import encode

NOT_STATED: Final = "not stated"
TEMPERATURE: Final = 0
MAX_NESTING: Final = 32


@dataclass(frozen=True, slots=True)
class Labels:
    """What a person says of the vendor: nothing of it is checked. "" is not stated."""

    key: str = ""
    backend: str = ""
    runtime: str = ""


def report_of(
    outcome: Outcome,
    labels: Labels,
    *,
    credential: str = "",
    owned_server_stopped: bool | None = None,
) -> JsonObject:
    """`owned_server_stopped` is None where no server was started for the run.

    Neither the credential nor anything that looks like a key is in it.
    """
    report = {
        "key": labels.key or outcome.subject.model,
        "backend": labels.backend or NOT_STATED,
        "runtime": labels.runtime or outcome.server or NOT_STATED,
        "thinking": outcome.thinks,
        "temperature": TEMPERATURE,
        "endpoint": urlsplit(outcome.base_url).path.rstrip("/") + PATH,
        "scope": scope_of(outcome, is_owned=owned_server_stopped is not None),
        "checks": [_entry(result) for result in outcome.results],
        "owned_server_stopped": owned_server_stopped,
    }
    return _clean(report, credential)


def scope_of(outcome: Outcome, *, is_owned: bool) -> str:
    """How far the findings carry, in sentences."""
    results = outcome.results
    server = "a server that was started for it" if is_owned else "the vendor's own address"
    sentences = [
        f"{len(results)} authored HTTP checks, each made once, of one model at {server}",
        *_listed("Passed", results, passed=True),
        *_listed("Failed", results, passed=False),
        *_listed("Could not be probed, which is no failure", results, passed=None),
        "No claim about the quality of answers, agents, images, audio, load or other models",
    ]
    return ". ".join(sentences) + "."


def _listed(words: str, results: Iterable[Result], *, passed: bool | None) -> list[str]:
    names = [result.check.id for result in results if result.passed is passed]
    return [f"{words}: {', '.join(names)}"] if names else []


def _entry(result: Result) -> JsonObject:
    evidence = result.evidence
    finding = evidence.finding
    entry: JsonObject = {
        "id": result.check.id,
        "request": evidence.request,
        "response": evidence.response,
        "passed": finding.passed,
    }
    if finding.reason:
        entry["reason"] = finding.reason
    if finding.observed:
        entry["observed"] = finding.observed
    return entry


def _clean(report: JsonObject, credential: str) -> JsonObject:
    secret = "" if credential == KEYLESS else credential
    shown = storable_json(_shortened(report, secret, 0))
    cleaned: JsonObject = orjson.loads(mask_body(encode(shown)))
    return cleaned


def _shortened(value: Any, secret: str, depth: int) -> Any:
    """The value without the secret, its texts and depth bounded."""
    if isinstance(value, str):
        value = value.replace(secret, DOTS) if secret else value
        rest = len(value) - MAX_TEXT_CHARACTERS
        return value if rest <= 0 else f"{value[:MAX_TEXT_CHARACTERS]}… and {rest} more characters"
    if depth >= MAX_NESTING and isinstance(value, dict | list):
        return "…"
    if isinstance(value, dict):
        return {
            _shortened(str(name), secret, depth): _shortened(item, secret, depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_shortened(item, secret, depth + 1) for item in value]
    return value
