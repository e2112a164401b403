"""LiteLLM and Portkey, each in a folder of its own under var/bench, in the versions pinned here.

Both run as their documentation says, with one process, without a database, without logs of
requests: they do less than Farthing does. What cannot be installed or started is a sentence.
"""

import json
import shutil
import subprocess
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import wire
from bench.targets import Target, make_target
from bench.workshop import NATIVE, Workshop, answers, plain_environment
from gateway.supervisor.embedded import free_port
from gateway.supervisor.errors import StartError

LITELLM_VERSION = "1.108.1"
PORTKEY_VERSION = "1.15.2"
# It asks for ^1.3.3 and gets one with which it fails every stream ("TypeError: immutable").
PORTKEY_SERVER = {"@hono/node-server": "1.13.8"}
INSTALL_SECONDS = 600.0
KEY = "sk-bench-not-a-secret"


class NotHere(Exception):
    """A peer that cannot be measured on this machine, and why, as a sentence."""


@dataclass(frozen=True, slots=True)
class Peers:
    targets: list[Target]
    skipped: list[str]


def start_peers(workshop: Workshop, vendor_url: str) -> Peers:
    peers = Peers([], [])
    starts: tuple[Callable[[Workshop, str], Target], ...] = (_start_litellm, _start_portkey)
    for start in starts:
        try:
            peers.targets.append(start(workshop, vendor_url))
        except (NotHere, StartError, OSError) as error:
            peers.skipped.append(str(error))
    return peers


def _start_litellm(workshop: Workshop, vendor_url: str) -> Target:
    folder = workshop.folder / "litellm"
    program = folder / "bin" / "litellm"
    _ensure(f"litellm[proxy]=={LITELLM_VERSION}", program, lambda what: _pip(folder, what))
    config = workshop.folder / "litellm.json"  # JSON is YAML
    models = [
        {
            "model_name": name,
            "litellm_params": {"model": f"openai/{name}", "api_base": vendor_url, "api_key": KEY},
        }
        for name in wire.MODELS
    ]
    config.write_text(json.dumps({"model_list": models}))
    port = free_port()
    argv = [str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    environment = {
        **plain_environment(),
        "LITELLM_MASTER_KEY": KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
    }
    command = workshop.command("litellm", [*argv, "--num_workers", "1"], environment)
    child = workshop.start(command, lambda _: answers(port))
    title = f"LiteLLM {LITELLM_VERSION}"
    return make_target(workshop.folder, "litellm", title, (child.pid, port), [KEY])


def _start_portkey(workshop: Workshop, vendor_url: str) -> Target:
    folder = workshop.folder / "portkey"
    server = folder / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    node = shutil.which("node")
    if node is None:
        raise NotHere("Portkey is skipped: there is no node on PATH.")
    _ensure("@portkey-ai/gateway", server, lambda what: _npm(folder, {what: PORTKEY_VERSION}))
    port = free_port()
    preload = ["--require", str(NATIVE / "loopback.cjs")]
    argv = [node, *preload, str(server), f"--port={port}", "--headless"]
    environment = {**plain_environment(), "NODE_ENV": "production"}
    command = workshop.command("portkey", argv, environment)
    child = workshop.start(command, lambda _: answers(port))
    headers = {"x-portkey-provider": "openai", "x-portkey-custom-host": vendor_url}
    title = f"Portkey {PORTKEY_VERSION}"
    where = (child.pid, port)
    return make_target(workshop.folder, "portkey", title, where, [KEY], headers=headers)


def _ensure(what: str, proof: Path, install: Callable[[str], None]) -> None:
    if proof.exists():
        return
    try:
        install(what)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        reason = said[-1] if said else f"exit code {error.returncode}"
        raise NotHere(f"{what} is skipped: it could not be installed ({reason}).") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = type(error).__name__
        raise NotHere(f"{what} is skipped: it could not be installed ({reason}).") from error


def _pip(folder: Path, what: str) -> None:
    venv.create(folder, with_pip=True, clear=True)
    _install([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", what])


def _npm(folder: Path, packages: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    wanted = {"private": True, "dependencies": packages, "overrides": PORTKEY_SERVER}
    (folder / "package.json").write_text(json.dumps(wanted))
    _install(["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder)])


def _install(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_SECONDS)
