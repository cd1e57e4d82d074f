"""The roofline beside a measured curve: of this machine, by a probe, or of a profile's datasheet."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shared.cost_model import CostModel
from shared.profiles import FOLDER, Architecture, Roofline, load_profile, profile_names
from tokentide.bench.model_architecture import architecture_of

PROBE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRoofline:
    costs: CostModel
    source: str  # for people


def probe_device(worker_args: Sequence[str]) -> dict[str, Any] | None:
    """Bytes read and operations computed a second, as the worker would run. None if it cannot be told."""
    flags = [
        part
        for name in ("--dtype", "--threads", "--device")
        if (value := flag_value(worker_args, name)) and value != "auto"
        for part in (name, value)
    ]
    command = [sys.executable, "-m", "tokentide.bench.device_probe", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S, check=False)
    if done.returncode:
        return None
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def measured_roofline(probe: dict[str, Any], folder: Path) -> KnownRoofline | None:
    architecture = architecture_of(folder, probe["dtype"])
    if architecture is None:
        return None
    roofline = Roofline(
        peak_flops=probe["flops_per_s"],
        memory_bytes_per_s=probe["read_bytes_per_s"],
        flops_share=1.0,
        attention_flops_share=1.0,
        memory_bandwidth_share=1.0,
        memory_bytes=0.0,
        memory_share=1.0,
        reserved_bytes=0.0,
        launch_us=0.0,
        per_sequence_us=0.0,
    )
    source = (
        f"measured here, {probe['threads']} threads, {probe['dtype']}: reads "
        f"{probe['read_bytes_per_s'] / 1e9:.1f} GB/s, products of "
        f"{probe['flops_per_s'] / 1e9:.0f} GFLOP/s"
    )
    return KnownRoofline(costs=roofline.costs(architecture), source=source)


def profile_roofline(name_or_path: str) -> KnownRoofline:
    """The datasheet's peaks where the profile has them, else its fitted costs. Raises SettingError."""
    profile = load_profile(name_or_path)
    is_packaged = name_or_path in profile_names()
    path = FOLDER / f"{name_or_path}.json" if is_packaged else Path(name_or_path)
    values = json.loads(path.read_text())
    if "roofline" not in values:
        return KnownRoofline(costs=profile.costs, source=f"costs of the profile {profile.name}")
    peaks = replace(
        Roofline(**values["roofline"]),
        flops_share=1.0,
        attention_flops_share=1.0,
        memory_bandwidth_share=1.0,
        launch_us=0.0,
        per_sequence_us=0.0,
    )
    costs = peaks.costs(Architecture(**values["architecture"]))
    return KnownRoofline(
        costs=costs, source=f"peaks of the datasheet in the profile {profile.name}"
    )


def flag_value(args: Sequence[str], name: str) -> str | None:
    """What a service's flags say; None if they do not."""
    for number, arg in enumerate(args):
        if arg == name and number + 1 < len(args):
            return args[number + 1]
        if arg.startswith(f"{name}="):
            return arg.partition("=")[2]
    return None
