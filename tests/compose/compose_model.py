"""What Docker Compose makes of our files, as far as they use it: variables filled in, files merged, profiles chosen.

Written by the compose specification's rules; `make test-compose` asks docker-compose itself as well.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
BASE = "compose.yaml"
OVERRIDES = ("compose.gpu.yaml", "compose.simulate.yaml")
PROFILES = ("client",)
# `$$`, or `${NAME}` with its default
VARIABLE = re.compile(
    r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}|(?P<bare>.))"
)

Model = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Combination:
    """Files in their order, and the profiles that are on."""

    files: tuple[str, ...]
    profiles: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((*self.files, *self.profiles))


def combinations_of_all() -> list[Combination]:
    """A GPU worker and a simulated one exclude each other: the later file's command would win."""
    return [
        Combination(files, profiles)
        for files in ((BASE,), *((BASE, override) for override in OVERRIDES))
        for profiles in (
            subset for n in range(len(PROFILES) + 1) for subset in combinations(PROFILES, n)
        )
    ]


def compose_model(which: Combination, environment: Mapping[str, str] | None = None) -> Model:
    """Merged and filled in, with the services that these profiles start."""
    merged: Model = {}
    for name in which.files:
        merged = merge(merged, yaml.safe_load((DEPLOY / name).read_text()))
    filled = fill_in(merged, environment or {})
    services = {
        name: service
        for name, service in filled["services"].items()
        if not service.get("profiles") or set(service["profiles"]) & set(which.profiles)
    }
    return {**filled, "services": services}


def merge(below: Any, above: Any) -> Any:
    """Mappings by key, entrypoint and command as a whole, other lists one after the other."""
    if isinstance(below, dict) and isinstance(above, dict):
        return {
            key: _merge_key(key, below[key], above[key])
            if key in below and key in above
            else above.get(key, below.get(key))
            for key in (*below, *(key for key in above if key not in below))
        }
    if isinstance(below, list) and isinstance(above, list):
        return [*below, *above]
    return above


def _merge_key(key: str, below: Any, above: Any) -> Any:
    return above if key in ("command", "entrypoint") else merge(below, above)


def fill_in(value: Any, environment: Mapping[str, str]) -> Any:
    """Raises KeyError for a variable that has no default and is not set, ValueError for a stray dollar."""
    if isinstance(value, dict):
        return {key: fill_in(item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [fill_in(item, environment) for item in value]
    if not isinstance(value, str):
        return value

    def fill(found: re.Match[str]) -> str:
        if found["escaped"]:
            return "$"
        if found["bare"]:
            raise ValueError(f"a stray dollar sign: {value}")
        if found["default"] is None:
            return environment[found["name"]]
        return environment.get(found["name"]) or found["default"]

    return VARIABLE.sub(fill, value)


def variables_of(files: Sequence[str]) -> dict[str, set[str]]:
    """Each variable's defaults, over all files."""
    found: dict[str, set[str]] = {}
    for name in files:
        for match in VARIABLE.finditer((DEPLOY / name).read_text()):
            if match["name"]:
                found.setdefault(match["name"], set()).add(match["default"] or "")
    return found
