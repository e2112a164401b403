"""LangChain's client, in the environment of var/clients: a job a line in, what came of it out."""

import json
import sys
from typing import Any

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

Job = dict[str, Any]
PROMPT = "Say hello."


class Place(BaseModel):
    city: str
    count: int


@tool
def look_up(query: str) -> str:
    """Look something up."""
    return query


def model(job: Job) -> ChatOpenAI:
    return ChatOpenAI(
        model=job["model"],
        base_url=job["base_url"],
        api_key=job["secret"],
        timeout=job.get("timeout_ms", 20_000) / 1_000,
        max_retries=job.get("retries", 2),
        stream_usage=True,
    )


def told(message: Any) -> Job:
    usage = message.usage_metadata or {}
    return {
        "text": message.content,
        "finish": message.response_metadata.get("finish_reason"),
        "tokens": [usage.get("input_tokens"), usage.get("output_tokens")],
        "calls": [{"name": call["name"], "arguments": call["args"]} for call in message.tool_calls],
    }


def streamed(runnable: Any) -> Job:
    whole, pieces = None, 0
    for chunk in runnable.stream(PROMPT):
        whole = chunk if whole is None else whole + chunk
        pieces += bool(chunk.content)
    return {**told(whole), "pieces": pieces}


def answer(job: Job) -> Job:
    return told(model(job).invoke(PROMPT))


def stream(job: Job) -> Job:
    return streamed(model(job))


def tools(job: Job) -> Job:
    return told(model(job).bind_tools([look_up]).invoke(PROMPT))


def streamed_tools(job: Job) -> Job:
    return streamed(model(job).bind_tools([look_up]))


def structured(job: Job) -> Job:
    return {"object": model(job).with_structured_output(Place).invoke(PROMPT).model_dump()}


def leave(job: Job) -> Job:
    chunks, pieces = model(job).stream(PROMPT), 0
    for chunk in chunks:
        pieces += bool(chunk.content)
        if pieces == job["after"]:
            break
    chunks.close()
    return {"pieces": pieces}


ACTS = {act.__name__: act for act in (answer, stream, tools, streamed_tools, structured, leave)}


def seen(job: Job) -> Job:
    try:
        return ACTS[job["act"]](job)
    except Exception as error:  # noqa: BLE001  # what a client raises is what is tested
        names = ("status_code", "code")
        status, code = (getattr(error, name, None) for name in names)
        return {"error": {"name": type(error).__name__, "status": status, "code": code}}


for line in sys.stdin:
    print(json.dumps(seen(json.loads(line))), flush=True)
