"""Profiles: what the packaged ones say, and what is refused."""

import json

import pytest

from shared.cost_model import StepShape
from shared.errors import SettingError
from shared.profiles import FOLDER, Profile, load_profile, profile_names


def decode_ms(profile: Profile, num_sequences: int, context: int) -> float:
    shape = StepShape.of_chunks([(context - 1, 1, True)] * num_sequences)
    return profile.costs.predict_ns(shape) / 1e6


@pytest.mark.parametrize("name", profile_names())
def test_every_packaged_profile_names_a_source_for_every_figure(name):
    raw = json.loads((FOLDER / f"{name}.json").read_text())

    profile = load_profile(name)

    figures = set(raw["roofline"]) - {"per_sequence_us"} | {"architecture", "overheads"}
    assert figures <= set(profile.sources)
    assert profile.name == name


def test_the_devices_of_the_issue_are_there():
    names = " ".join(profile_names())

    assert all(word in names for word in ("a100-40gb-opt-13b", "h100", "h200", "l4", "a10g"))


def test_opt_13b_on_an_a100_has_the_slots_that_the_vllm_paper_names():
    profile = load_profile("a100-40gb-opt-13b")

    assert profile.kv_bytes_per_token == 819_200
    assert profile.num_blocks * profile.block_size == pytest.approx(15_700, rel=0.05)


def test_a_decode_of_a_roofline_is_bound_by_reading_the_weights():
    profile = load_profile("h100-sxm-llama-3.1-8b")

    weights_ms = 15.0e9 / (3.35e12 * 0.8) * 1e3
    assert decode_ms(profile, 1, 100) == pytest.approx(weights_ms + 0.5, rel=0.05)
    assert decode_ms(profile, 64, 100) < 1.5 * decode_ms(profile, 1, 100)
    assert decode_ms(profile, 64, 4000) > 1.5 * decode_ms(profile, 64, 100)


def test_a_prefill_of_a_roofline_is_bound_by_computing():
    profile = load_profile("h100-sxm-llama-3.1-8b")

    shape = StepShape.of_chunks([(0, 8192, True)])

    compute_ms = 2 * 6.98e9 * 8192 / (989.4e12 * 0.65) * 1e3
    attention_ms = 8192**2 / 2 * 4 * 32 * 4096 / (989.4e12 * 0.325) * 1e3
    predicted_ms = profile.costs.predict_ns(shape) / 1e6
    assert predicted_ms == pytest.approx(compute_ms + attention_ms, rel=0.05)


def test_a_profile_survives_its_file(tmp_path):
    profile = load_profile("l4-llama-3.1-8b")
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(profile.as_dict()))

    assert load_profile(str(path)) == profile


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "other/1"}, "schema"),
        ({"num_blocks": 0}, "num_blocks"),
        ({"costs": {"base_ns": -1}}, "base_ns"),
        ({"costs": {"per_token_ns": 1}}, "base_ns"),
        ({"speed": 3}, "speed"),
        ({"name": ["a"]}, "name"),
        ({"block_size": 16.5}, "block_size"),
        ({"num_blocks": 1000.5}, "num_blocks"),
        ({"num_blocks": 10**12}, "num_blocks"),
        ({"max_model_tokens": float("nan")}, "max_model_tokens"),
        ({"kv_bytes_per_token": 0}, "kv_bytes_per_token"),
        ({"overheads": {"gap_ns": -5}}, r"overheads\.gap_ns"),
        ({"overheads": {"deliver_ns": float("nan")}}, r"overheads\.deliver_ns"),
        ({"overheads": {"gap_ns": "x"}}, r"overheads\.gap_ns"),
        ({"overheads": {"gaps_ns": 1}}, "gaps_ns"),
        ({"overheads": 3}, "overheads"),
        ({"costs": {"base_ns": 1e308, "per_token_ns": 1e308}}, "base_ns"),
        ({"costs": {"base_ns": "1"}}, "base_ns"),
        ({"costs": [1]}, "cost model"),
        ({"sources": {"device": 3}}, r"sources\.device"),
    ],
)
def test_what_is_no_profile_is_refused_with_its_file(tmp_path, change, words):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(load_profile("l4-llama-3.1-8b").as_dict() | change))

    with pytest.raises(SettingError, match=rf"mine.json is no profile: .*{words}"):
        load_profile(str(path))


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        ("roofline", {"peak_flops": 0}, r"roofline\.peak_flops"),
        ("roofline", {"memory_share": 1.5}, r"roofline\.memory_share"),
        ("roofline", {"launch_us": "x"}, r"roofline\.launch_us"),
        ("roofline", {"memory_bytes": 1e9}, "num_blocks"),
        ("architecture", {"num_layers": 0}, r"architecture\.num_layers"),
        ("architecture", {"bytes_per_value": 0.5}, r"architecture\.bytes_per_value"),
    ],
)
def test_a_roofline_that_cannot_be_is_refused_with_its_file(tmp_path, part, change, words):
    raw = json.loads((FOLDER / "l4-llama-3.1-8b.json").read_text())
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(raw | {part: raw[part] | change}))

    with pytest.raises(SettingError, match=rf"mine.json is no profile: .*{words}"):
        load_profile(str(path))


@pytest.mark.parametrize("missing", ["name", "costs", "num_blocks", "architecture"])
def test_a_profile_that_lacks_something_says_what(tmp_path, missing):
    raw = json.loads((FOLDER / "l4-llama-3.1-8b.json").read_text())
    values = raw if missing == "architecture" else load_profile("l4-llama-3.1-8b").as_dict()
    del values[missing]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(values))

    with pytest.raises(SettingError, match=missing):
        load_profile(str(path))


def test_a_file_that_is_nested_without_end_is_no_profile(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text("[" * 100_000)

    with pytest.raises(SettingError, match="nested too deeply"):
        load_profile(str(path))


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(SettingError, match=r"nor one of: .*h100-sxm-llama"):
        load_profile("h1000")
