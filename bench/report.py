"""The table for people, the file for programs, and which goals are met."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PEERS = ("litellm", "portkey", "aiohttp")
Medians = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Column:
    metric: str
    title: str
    form: str


COLUMNS = (
    Column("requests_per_cpu_second", "req/CPU-s", "{:,.0f}"),
    Column("requests_per_cpu_second_all", "all", "{:,.0f}"),
    Column("events_per_cpu_second", "events/CPU-s", "{:,.0f}"),
    Column("events_per_cpu_second_all", "all", "{:,.0f}"),
    Column("paced_share", "256 paced", "{:.1%}"),
    Column("added_p50_ms", "added p50", "{:.2f} ms"),
    Column("added_p99_ms", "added p99", "{:.1f} ms"),
    Column("requests_per_second", "req/s", "{:,.0f}"),
    Column("postgres_us_per_request", "PG CPU/req", "{:,.0f} µs"),
    Column("resident_mb_idle", "idle", "{:,.0f} MB"),
    Column("resident_mb_1000_streams", "1,000 streams", "{:,.0f} MB"),
)
LEGEND = (
    "req/CPU-s, req/s and PG CPU/req: no stream, 64 at once. events/CPU-s: 64 streams at once.",
    "CPU is the gateway process's own, user and system; 'all' has the processes beside it too",
    "(Farthing's scribe, which writes transcripts), and what is done after the answers.",
    "256 paced: 256 streams with 10 ms between events, share of the direct rate.",
    "added p50: one at a time. added p99: 16 at once. Both: less what the vendor takes itself.",
)


@dataclass(frozen=True, slots=True)
class Goal:
    row: str
    metric: str
    words: str
    goal: float
    is_floor: bool
    form: str

    def line(self, medians: Medians) -> str | None:
        found = medians.get(self.row, {}).get(self.metric)
        if found is None:
            return None
        is_met = found >= self.goal if self.is_floor else found <= self.goal
        sign, said = "≥" if self.is_floor else "≤", self.form.format(found)
        verdict = "met   " if is_met else "MISSED"
        return f"  {verdict} {self.words}: {said} (goal {sign} {self.form.format(self.goal)})"


GOALS = (
    *(
        goal
        for row, which in (("farthing", ""), ("farthing_limited", ", keys with limits"))
        for goal in (
            Goal(
                row, "requests_per_cpu_second", f"requests per CPU-s{which}", 2_000, True, "{:,.0f}"
            ),
            Goal(row, "added_p50_ms", f"added p50, one at a time, ms{which}", 3, False, "{:.2f}"),
            Goal(row, "added_p99_ms", f"added p99, 16 at once, ms{which}", 15, False, "{:.1f}"),
        )
    ),
    Goal("farthing", "events_per_cpu_second", "events per CPU-s", 80_000, True, "{:,.0f}"),
    *(
        Goal(
            "farthing", f"{what}_times_{peer}", f"{what} per CPU-s ÷ {name}'s", goal, True, "{:.1f}"
        )
        for peer, name, requests, events in (
            ("litellm", "LiteLLM", 40, 130),
            ("portkey", "Portkey", 4, 9),
        )
        for what, goal in (("requests", requests), ("events", events))
    ),
    Goal("farthing", "paced_share", "256 paced streams, share", 0.95, True, "{:.3f}"),
    Goal("farthing", "hot_tenant_ratio", "one hot tenant ÷ 1,000", 0.8, True, "{:.2f}"),
    Goal("farthing", "resident_mb_idle", "resident MB, idle", 110, False, "{:.0f}"),
    Goal(
        "farthing", "resident_mb_1000_streams", "resident MB, 1,000 streams", 300, False, "{:.0f}"
    ),
    *(
        Goal("farthing", f"growth_{name}{who}", f"{whose} {words}", 1.1, False, "{:.2f}")
        for name, words in (
            ("keys", "many keys ÷ 10"),
            ("models", "many models ÷ 10"),
            ("rows", "filled tables ÷ empty ones"),
            ("all", "many keys, many models and filled tables ÷ few and empty"),
        )
        for who, whose in (("", "the gateway's CPU,"), ("_postgres", "PostgreSQL's CPU,"))
    ),
)


def table(titles: Mapping[str, str], medians: Medians) -> str:
    """One line a row that was measured, one column a metric that any row has."""
    columns = [c for c in COLUMNS if any(c.metric in medians.get(row, {}) for row in titles)]
    lines = [["", *(column.title for column in columns)]]
    for row, title in titles.items():
        numbers = medians.get(row, {})
        cells = (c.form.format(numbers[c.metric]) if c.metric in numbers else "–" for c in columns)
        lines.append([title, *cells])
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            [line[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        )
        for line in lines
    )


def with_ratios(medians: Medians) -> dict[str, dict[str, float]]:
    """What a machine's speed and its other work change least: our rates over a peer's."""
    widened = {row: dict(metrics) for row, metrics in medians.items()}
    ours = widened["farthing"]
    for peer in PEERS:
        for what in ("requests", "events"):
            theirs = medians.get(peer, {}).get(f"{what}_per_cpu_second")
            if theirs:
                ours[f"{what}_times_{peer}"] = ours[f"{what}_per_cpu_second"] / theirs
    return widened


def goals(medians: Medians) -> str:
    return "\n".join(line for goal in GOALS if (line := goal.line(medians)) is not None)


def write(path: Path, medians: Medians) -> None:
    rounded = {
        row: {metric: round(number, 4) for metric, number in metrics.items()}
        for row, metrics in medians.items()
    }
    path.write_text(json.dumps(rounded, indent=1) + "\n")
