"""From settings to a simulated worker: what it says of itself, what it serves, what it refuses."""

import json
from pathlib import Path

import pytest

from scheduler_service.text import TextCodec
from shared.errors import SettingError
from shared.profiles import load_profile
from worker_service.config import WorkerSettings
from worker_service.model_files import check_model_files
from worker_service.simulated.start import check_simulated, load

PROFILE = "l4-llama-3.1-8b"


def read(*args: str) -> WorkerSettings:
    return WorkerSettings.read(["--simulate", PROFILE, *args], environment={})


def test_the_profile_says_what_the_worker_is(tmp_path):
    profile = load_profile(PROFILE)

    engine, _ = load(read(), tmp_path)

    facts = engine.facts
    assert facts.num_blocks == profile.num_blocks
    assert facts.block_size == profile.block_size
    assert facts.model_name == "Llama-3.1-8B"
    assert "simulated" in facts.device
    assert engine.memory().kv_bytes == profile.num_blocks * 16 * profile.kv_bytes_per_token


@pytest.mark.parametrize(
    ("args", "num_blocks"),
    [
        (("--num-blocks", "99"), 99),
        (("--kv-memory", "1GiB"), 2**30 // (131072 * 16)),
        (("--block-size", "32"), load_profile(PROFILE).num_blocks // 2),
    ],
)
def test_memory_can_be_set_as_for_a_real_worker(tmp_path, args, num_blocks):
    engine, _ = load(read(*args), tmp_path)

    assert engine.facts.num_blocks == num_blocks


def test_without_a_model_folder_a_tiny_tokenizer_is_made(tmp_path):
    engine, folder = load(read(), tmp_path)

    check_model_files(folder)
    codec = TextCodec.load(folder)
    ids = codec.encode("héllo", add_special_tokens=True)
    assert codec.decode(ids) == "héllo"
    assert codec.has_chat_template
    assert codec.render_chat([("user", "x")]).startswith("<|im_start|>user\nx<|im_end|>")
    assert codec.decode(engine.facts.eos_token_ids) == ""
    assert max(ids) < engine.facts.logits_width


def test_a_model_folder_serves_its_own_tokenizer(tmp_path):
    _, folder = load(read(), tmp_path)
    config = folder / "config.json"
    config.write_text(json.dumps({"vocab_size": 300, "eos_token_id": [5, 6]}))

    engine, served = load(read("--model", str(folder)), Path("/nowhere"))

    assert served == folder
    assert engine.facts.logits_width == 300
    assert engine.facts.eos_token_ids == (5, 6)


def test_workers_of_one_profile_and_tokenizer_belong_together(tmp_path):
    first, _ = load(read(), tmp_path)
    second, _ = load(read("--num-blocks", "9"), tmp_path)
    other, _ = load(
        WorkerSettings.read(["--simulate", "a100-40gb-opt-13b"], environment={}), tmp_path
    )

    assert first.facts.fingerprint == second.facts.fingerprint != other.facts.fingerprint


@pytest.mark.parametrize("flag", [("--dtype", "float16"), ("--threads", "2"), ("--no-kernels",)])
def test_what_has_no_effect_is_refused(flag):
    with pytest.raises(SettingError, match=f"{flag[0].replace('no-', '')}.*no effect"):
        check_simulated(read(*flag))


def test_a_length_distribution_that_is_none_is_refused():
    with pytest.raises(SettingError, match=r"simulate-lengths.*normal"):
        check_simulated(read("--simulate-lengths", "normal:5"))


@pytest.mark.parametrize(
    ("args", "words"), [([], "folder is needed"), (["--simulate-lengths", "fixed:3"], "needed")]
)
def test_nothing_to_run_is_refused(args, words):
    with pytest.raises(SettingError, match=words):
        WorkerSettings.read(args, environment={})


def test_lengths_without_a_simulation_are_refused():
    with pytest.raises(SettingError, match="no effect without"):
        WorkerSettings.read(["--model", "m", "--simulate-lengths", "fixed:3"], environment={})
