"""The roofline beside a measured curve."""

from pathlib import Path

import pytest
from model_heads import SHAPES, write_model_heads

from shared.profiles import load_profile
from tokentide.bench.decode_steps import decode_step_ns
from tokentide.bench.roofline import flag_value, measured_roofline, profile_roofline


def test_what_this_machine_reads_and_computes_gives_its_costs(tmp_path: Path) -> None:
    probe = {"read_bytes_per_s": 1e9, "flops_per_s": 1e9, "threads": 1, "dtype": "float32"}

    known = measured_roofline(probe, write_model_heads(tmp_path, SHAPES))

    assert known is not None
    assert known.costs.free_tokens == pytest.approx(2.0)  # 4 bytes read against 2 operations
    assert known.costs.base_ns > 0
    assert "1.0 GB/s" in known.source


def test_a_datasheets_roofline_is_faster_than_the_profile_made_of_it() -> None:
    peaks = profile_roofline("a100-40gb-opt-13b")

    costs = load_profile("a100-40gb-opt-13b").costs
    assert decode_step_ns(peaks.costs, 8, 512) < decode_step_ns(costs, 8, 512)
    assert "datasheet" in peaks.source


def test_flags_of_services_are_read_in_either_form() -> None:
    args = ("--dtype", "bfloat16", "--threads=2", "--device")

    assert flag_value(args, "--dtype") == "bfloat16"
    assert flag_value(args, "--threads") == "2"
    assert flag_value(args, "--device") is None


@pytest.mark.slow
def test_the_probe_measures_something() -> None:
    import torch

    from tokentide.bench.device_probe import flops_per_s, read_bytes_per_s

    cpu = torch.device("cpu")
    assert read_bytes_per_s(cpu, torch.float32, 1) > 1e6
    assert flops_per_s(cpu, torch.float32, 32) > 1e6
