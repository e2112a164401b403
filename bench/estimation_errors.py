"""Compare our counts with recorded usage: `python bench/estimation_errors.py PATH [--rows TEXT]`.

PATH is a JSON list of calls {model, family, cls, messages, tools?, functions?, tool_choice?,
function_call?, response_format?, reasoning_effort?, thinking?, api?, completion_text?,
completion_tool_calls?, completion_reasoning?, reasoning_tokens?, prompt_tokens,
completion_tokens}. Prints for each family and class the median and 95th percentile of the relative
error, and how many are exact. Reasoning that the vendor counted but did not show is taken off its
count; Gemini's own API leaves it out. `--rows TEXT` prints the rows whose "family class model"
contains TEXT.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from billing.estimation import count_completion, count_prompt

Row = dict[str, Any]

REQUEST_KEYS = (
    "messages",
    "tools",
    "functions",
    "tool_choice",
    "function_call",
    "response_format",
    "reasoning_effort",
)
GROUPS = {
    "gpt-3.5/4 plain": ("cl100k", "plain", "prompt"),
    "gpt-4o..5 plain": ("o200k", "plain", "prompt"),
    "gpt-4o..5 tools, schema": ("o200k", "tools schema", "prompt"),
    "Claude <= 4.6 plain": ("claude", "plain", "prompt"),
    "Claude tools": ("claude claude-new", "tools", "prompt"),
    "Claude <= 4.6 completion": ("claude", "", "completion"),
    "Claude >= 4.7 completion": ("claude-new", "", "completion"),
    "Gemini plain": ("gemini", "plain", "prompt"),
    "Gemini tools": ("gemini", "tools", "prompt"),
    "Gemini completion": ("gemini", "", "completion"),
    "Llama 3 plain": ("llama3", "plain", "prompt"),
    "DeepSeek plain": ("deepseek", "plain", "prompt"),
    "DeepSeek completion": ("deepseek", "", "completion"),
    "Mistral plain": ("mistral", "plain", "prompt"),
    "Mistral completion": ("mistral", "", "completion"),
    "gpt-oss plain": ("gpt-oss", "plain", "prompt"),
    "gpt-oss completion": ("gpt-oss", "", "completion"),
    "GLM plain": ("glm", "plain", "prompt"),
    "Qwen plain": ("qwen", "plain", "prompt"),
}
"""Printed after the table: families and classes (words that may occur) put together."""


def request_of(row: Row) -> Row:
    request = {key: row[key] for key in REQUEST_KEYS if key in row}
    if "thinking" in row:
        request["chat_template_kwargs"] = {"enable_thinking": row["thinking"]}
    return request


def completion_of(row: Row) -> Row:
    message = {
        "content": row.get("completion_text"),
        "reasoning_content": row.get("completion_reasoning"),
        "tool_calls": row.get("completion_tool_calls"),
    }
    return {"choices": [{"message": message, "finish_reason": row.get("finish_reason", "stop")}]}


def visible_completion_tokens(row: Row) -> int:
    shown = row.get("completion_reasoning") or row.get("api") == "gemini"
    hidden = 0 if shown else row.get("reasoning_tokens") or 0
    return (row["completion_tokens"] or 0) - hidden


def counts(row: Row) -> tuple[int, int, int, int]:
    """Our prompt, the vendor's, our completion, the vendor's visible one."""
    request = request_of(row)
    prompt = count_prompt(request, model=row["model"]).tokens
    answer = count_completion(completion_of(row), model=row["model"], request=request).tokens
    return prompt, row["prompt_tokens"], answer, visible_completion_tokens(row)


def has_answer(row: Row) -> bool:
    keys = ("completion_text", "completion_tool_calls", "completion_reasoning")
    return any(row.get(key) for key in keys)


Errors = dict[tuple[str, str, str], list[float]]


def collect(rows: list[Row], wanted: str) -> Errors:
    errors: Errors = defaultdict(list)
    for row in rows:
        prompt, true_prompt, answer, true_answer = counts(row)
        name = f"{row['family']} {row['cls']} {row['model']}"
        if wanted and wanted in name:
            print(f"{name}: prompt {prompt}/{true_prompt} completion {answer}/{true_answer}")
        place = row["family"], row["cls"]
        if true_prompt > 0:
            errors[*place, "prompt"].append(abs(prompt - true_prompt) / true_prompt)
        if true_answer > 0 and has_answer(row):
            errors[*place, "completion"].append(abs(answer - true_answer) / true_answer)
    return errors


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def line(name: str, values: list[float]) -> str:
    exact = sum(1 for value in values if not value)
    middle, high = percentile(values, 0.5), percentile(values, 0.95)
    return f"{name:48} {len(values):4} {exact:5} {middle:8.1%} {high:6.0%}"


def of_group(errors: Errors, families: str, classes: str, side: str) -> list[float]:
    words = classes.split()
    found: list[float] = []
    for (family, cls, its_side), values in errors.items():
        # "plain" is the class itself; the others are words that a class may have.
        fits = cls == "plain" if words == ["plain"] else not words or any(w in cls for w in words)
        if family in families.split() and its_side == side and fits:
            found.extend(values)
    return found


def main(path: str, wanted: str = "") -> None:
    errors = collect(json.loads(Path(path).read_text(encoding="utf-8")), wanted)
    head = f"{'family, class, side':48} rows exact   median    p95"
    print(head)
    for (family, cls, side), values in sorted(errors.items()):
        print(line(f"{family:10} {cls:24} {side}", values))
    print(f"\n{head}")
    for name, group in GROUPS.items():
        if values := of_group(errors, *group):
            print(line(name, values))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[3] if "--rows" in sys.argv[2:3] else "")
