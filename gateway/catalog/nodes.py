"""YAML nodes to values, each mistake with its line.

Values are read from the text that stands in the file and never through YAML's own numbers: a
price must not pass through a float, and `yes`, `0x10` or `1:30` are no values of ours.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import yaml

from billing.money import DECIMALS, NANOS_PER_UNIT, nanos_from_text
from gateway.catalog.entries import Mistake

PRICE_UNITS_MAX: Final = 1_000_000_000  # of any currency, a million tokens; fits 64 bits in nanos
SECONDS_MAX: Final = 86_400
SECONDS_DECIMALS: Final = 3
PERCENT_MAX: Final = 1_000
PERCENT_DECIMALS: Final = 2
BASIS_POINTS_PER_PERCENT: Final = 100
SHOWN_CHARACTERS: Final = 60

_TAG: Final = "tag:yaml.org,2002:"
_NUMBER: Final = re.compile(r"(-?)(0|[1-9][0-9]{0,29})(?:\.([0-9]{1,30}))?")
_WHOLE: Final = re.compile(r"0|[1-9][0-9]{0,17}|[1-9][0-9]{0,2}(?:_[0-9]{3}){1,5}")
_MOMENT: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_REFERENCE: Final = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)\})?")


class Wrong(Exception):
    """One value that cannot be; becomes a Mistake at its node's line."""


@dataclass(slots=True)
class Reading:
    """What one pass over a file knows and finds."""

    environment: Mapping[str, str]
    mistakes: list[Mistake] = field(default_factory=list)

    def complain(self, node: yaml.Node, words: str) -> None:
        self.mistakes.append(Mistake(line_of(node), words))


Read = Callable[[yaml.Node, Reading], Any]
REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class Key:
    """How a key's value is read, and what it is where the key is missing or null."""

    read: Read
    default: Any = REQUIRED


@dataclass(frozen=True, slots=True)
class Record:
    """What could be read of a mapping: the keys of `values` are those without a mistake."""

    node: yaml.Node
    values: dict[str, Any]

    @property
    def line(self) -> int:
        return line_of(self.node)


def line_of(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


# --- mappings and lists -----------------------------------------------------------------------


def record(node: yaml.Node, keys: Mapping[str, Key], what: str, reading: Reading) -> Record:
    """Read a mapping of known keys; every mistake in it is found in this one pass."""
    values: dict[str, Any] = {}
    if not isinstance(node, yaml.MappingNode):
        reading.complain(node, f"{what} is {_kind(node)}; expected a mapping.")
        return Record(node, values)
    found = _pairs(node, keys, what, reading)
    for name, key in keys.items():
        _read_value(node, found.get(name), (name, key, what), values, reading)
    return Record(node, values)


def _pairs(
    node: yaml.MappingNode, keys: Mapping[str, Key], what: str, reading: Reading
) -> dict[str, yaml.Node]:
    found: dict[str, yaml.Node] = {}
    for key_node, value in node.value:
        name = key_node.value if isinstance(key_node, yaml.ScalarNode) else _kind(key_node)
        if name not in keys:
            expected = ", ".join(keys)
            reading.complain(
                key_node, f"unknown key {_shown(name)} in {what}; expected one of {expected}."
            )
        elif name in found:
            first = line_of(found[name])
            reading.complain(key_node, f"{name} stands twice in {what}; first on line {first}.")
        else:
            found[name] = value
    return found


def _read_value(
    node: yaml.Node,
    value: yaml.Node | None,
    expected: tuple[str, Key, str],
    values: dict[str, Any],
    reading: Reading,
) -> None:
    name, key, what = expected
    if value is None or (is_null(value) and key.default is not REQUIRED):
        if key.default is REQUIRED:
            reading.complain(node, f"{what} has no {name}; expected one.")
        else:
            values[name] = key.default
        return
    try:
        values[name] = key.read(value, reading)
    except Wrong as wrong:
        reading.complain(value, f"{name} {wrong}")


def each(node: yaml.Node, what: str, reading: Reading) -> Iterator[yaml.Node]:
    """The items of a list; a mistake and nothing where it is none."""
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    else:
        reading.complain(node, f"{what} is {_kind(node)}; expected a list.")


# --- scalars ----------------------------------------------------------------------------------


def is_null(node: yaml.Node) -> bool:
    return bool(node.tag == f"{_TAG}null")


def text(longest: int, pattern: str, expected: str) -> Read:
    """A text of 1 to `longest` characters; numbers and `yes` must be quoted to be one."""
    shape = re.compile(pattern)

    def read(node: yaml.Node, _: Reading) -> str:
        found = _scalar(node, "str", f"{expected}, in quotes if it looks like something else")
        if len(found) > longest or not shape.fullmatch(found):
            raise Wrong(f"is {_shown(found)}; expected {expected}, at most {longest} characters.")
        return found

    return read


def choice(*names: str) -> Read:
    expected = " or ".join(names) if len(names) <= 2 else ", ".join(names)  # noqa: PLR2004

    def read(node: yaml.Node, _: Reading) -> str:
        found = _scalar(node, "", expected)
        if found not in names:
            raise Wrong(f"is {_shown(found)}; expected {expected}.")
        return found

    return read


def whole(lowest: int, highest: int) -> Read:
    expected = f"a whole number from {lowest} to {highest}"

    def read(node: yaml.Node, _: Reading) -> int:
        found = _scalar(node, "", expected)
        number = int(found) if _WHOLE.fullmatch(found) else None
        if number is None or not lowest <= number <= highest:
            raise Wrong(f"is {_shown(found)}; expected {expected}.")
        return number

    return read


def flag(node: yaml.Node, _: Reading) -> bool:
    found = _scalar(node, "", "true or false").lower()
    if found not in {"true", "false"}:
        raise Wrong(f"is {_shown(found)}; expected true or false.")
    return found == "true"


def price_nanos(node: yaml.Node, _: Reading) -> int:
    """A decimal of at most nine decimals, exactly."""
    return _decimal_nanos(node, "a plain decimal such as 0.15", DECIMALS, PRICE_UNITS_MAX)


def seconds_ms(node: yaml.Node, _: Reading) -> int:
    """Seconds as a decimal, above zero, in milliseconds."""
    expected = "seconds as a plain decimal such as 2.5"
    found_ms = _seconds_ms(node, expected)
    if found_ms == 0:
        raise Wrong(f"is 0; expected {expected}, above zero.")
    return found_ms


def seconds_or_0_ms(node: yaml.Node, _: Reading) -> int:
    """Seconds as a decimal, in milliseconds; 0 says something of its own."""
    return _seconds_ms(node, "0, or seconds as a plain decimal such as 2.5")


def percent_bps(node: yaml.Node, _: Reading) -> int:
    """Per cent as a decimal of at most two decimals, in basis points."""
    nanos = _decimal_nanos(node, "a plain decimal such as 12.5", PERCENT_DECIMALS, PERCENT_MAX)
    return nanos * BASIS_POINTS_PER_PERCENT // NANOS_PER_UNIT


def moment(node: yaml.Node, _: Reading) -> datetime:
    expected = "an RFC 3339 time with its offset, such as 2026-01-31T00:00:00Z"
    found = _scalar(node, "", expected)
    try:
        if _MOMENT.fullmatch(found):
            return datetime.fromisoformat(found.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        pass  # a 30th of February, or a year beyond the calendar
    raise Wrong(f"is {_shown(found)}; expected {expected}.")


def with_environment(found: str, environment: Mapping[str, str]) -> str:
    """Put values in the place of `${NAME}`; `$${` is a plain `${`. Raises Wrong."""

    def value_of(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        if match[1] is None:
            raise Wrong("has a ${ without a NAME} behind it; expected ${NAME}, or $${ for itself.")
        if match[1] not in environment:
            raise Wrong(f"refers to ${{{match[1]}}}, which the environment does not have.")
        return environment[match[1]]

    return _REFERENCE.sub(value_of, found)


def without_environment(found: str) -> str:
    """The inverse of `with_environment`, for export."""
    return found.replace("${", "$${")


def _scalar(node: yaml.Node, type_name: str, expected: str) -> str:
    """The text of a scalar; of YAML type `type_name` where one is named."""
    if not isinstance(node, yaml.ScalarNode):
        raise Wrong(f"is {_kind(node)}; expected {expected}.")
    if is_null(node) or (type_name and node.tag != _TAG + type_name):
        raise Wrong(f"is {_kind(node)}; expected {expected}.")
    return str(node.value)


def _decimal_nanos(node: yaml.Node, expected: str, decimals: int, highest: int) -> int:
    found = _scalar(node, "", expected)
    match = _NUMBER.fullmatch(found)
    if match is None:
        raise Wrong(f"is {_shown(found)}; expected {expected}.")
    sign, units, fraction = match.groups(default="")
    if sign:
        raise Wrong(f"is {_shown(found)}; expected {expected}, not below zero.")
    if len(fraction.rstrip("0")) > decimals:
        raise Wrong(f"is {_shown(found)}; expected at most {decimals} decimals.")
    if int(units) > highest:
        raise Wrong(f"is {_shown(found)}; expected at most {highest}.")
    return nanos_from_text(f"{units}.{fraction.rstrip('0') or '0'}")


def _seconds_ms(node: yaml.Node, expected: str) -> int:
    nanos = _decimal_nanos(node, expected, SECONDS_DECIMALS, SECONDS_MAX)
    return nanos * 1000 // NANOS_PER_UNIT


def _kind(node: yaml.Node) -> str:
    match node:
        case yaml.MappingNode():
            return "a mapping"
        case yaml.SequenceNode():
            return "a list"
        case _ if is_null(node):
            return "empty"
        case _:
            return _shown(str(node.value))


def _shown(found: str) -> str:
    cut = found if len(found) <= SHOWN_CHARACTERS else found[: SHOWN_CHARACTERS - 1] + "…"
    return repr(cut)
