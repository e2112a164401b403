"""Tools as families print them, printed once: applications send the same tools every time."""

from collections.abc import Callable

from billing.estimation.reading import Prompt, compact_json, spaced_json

MAX_PRINTED = 512
MAX_PRINTED_CHARS = 32_768
"""Of one request's tools; longer ones are printed anew. Together at most 16 M characters."""

Printer = Callable[[Prompt], str]

_printed: dict[tuple[Printer, bytes], str] = {}
"""Texts by printer and the tools' JSON: a text never changes. Emptied when full."""


def tools_json(prompt: Prompt) -> str:
    return compact_json(prompt.tools)


def spaced_tools_json(prompt: Prompt) -> str:
    return spaced_json(prompt.tools)


def printed_tools(prompt: Prompt, printer: Printer) -> str:
    """What `printer`, which reads nothing but the prompt's tools, makes of them."""
    if not prompt.tools_json:
        return printer(prompt)
    key = (printer, prompt.tools_json)
    known = _printed.get(key)
    if known is not None:
        return known
    text = printer(prompt)
    if len(text) <= MAX_PRINTED_CHARS >= len(prompt.tools_json):
        if len(_printed) >= MAX_PRINTED:
            _printed.clear()
        _printed[key] = text
    return text
