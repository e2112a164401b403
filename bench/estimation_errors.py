"""Compare our counts with recorded usage: `python bench/estimation_errors.py PATH [--rows TEXT]`.

PATH is a JSON list of calls {model, family, cls, messages, tools?, functions?, tool_choice?,
function_call?, response_format?, thinking?, completion_text?, completion_tool_calls?,
completion_reasoning?, reasoning_tokens?, prompt_tokens, completion_tokens}. Prints for each family
and class the median and 95th percentile of the relative error, and how many are exact. Reasoning
that the vendor counted but did not show is taken off its count; Gemini's own API leaves it out. `--rows TEXT` prints the rows
whose "family class model" contains TEXT.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from billing.estimation import count_completion, count_prompt

_REQUEST_KEYS = ("messages", "tools", "functions", "tool_choice", "function_call")


def request_of(row):
    request = {
        key: row[key]
        for key in (*_REQUEST_KEYS, "response_format", "reasoning_effort")
        if key in row
    }
    if "thinking" in row:
        request["chat_template_kwargs"] = {"enable_thinking": row["thinking"]}
    return request


def completion_of(row):
    message = {
        "content": row.get("completion_text"),
        "reasoning_content": row.get("completion_reasoning"),
        "tool_calls": row.get("completion_tool_calls"),
    }
    return {"choices": [{"message": message, "finish_reason": row.get("finish_reason", "stop")}]}


def visible_completion_tokens(row):
    shown = row.get("completion_reasoning") or row.get("api") == "gemini"
    hidden = 0 if shown else row.get("reasoning_tokens") or 0
    return (row["completion_tokens"] or 0) - hidden


def counts(row):
    request = request_of(row)
    prompt = count_prompt(request, model=row["model"]).tokens
    answer = count_completion(completion_of(row), model=row["model"], request=request).tokens
    return prompt, row["prompt_tokens"], answer, visible_completion_tokens(row)


def error(ours, true):
    return abs(ours - true) / true


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def has_answer(row):
    return any(
        row.get(key) for key in ("completion_text", "completion_tool_calls", "completion_reasoning")
    )


def collect(rows, wanted):
    errors = defaultdict(list)
    for row in rows:
        prompt, true_prompt, answer, true_answer = counts(row)
        name = f"{row['family']} {row['cls']} {row['model']}"
        if wanted and wanted in name:
            print(f"{name}: prompt {prompt}/{true_prompt} completion {answer}/{true_answer}")
        if true_prompt > 0:
            errors[row["family"], row["cls"], "prompt"].append(error(prompt, true_prompt))
        if true_answer > 0 and has_answer(row):
            errors[row["family"], "all", "completion"].append(error(answer, true_answer))
    return errors


def main(path, wanted=""):
    errors = collect(json.loads(Path(path).read_text(encoding="utf-8")), wanted)
    print(f"{'family':11} {'class':22} {'side':11} rows exact  median    p95")
    for (family, cls, side), values in sorted(errors.items()):
        exact = sum(1 for value in values if not value)
        middle, high = percentile(values, 0.5), percentile(values, 0.95)
        print(f"{family:11} {cls:22} {side:11} {len(values):4} {exact:5} {middle:7.1%} {high:6.0%}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[3] if "--rows" in sys.argv[2:3] else "")
