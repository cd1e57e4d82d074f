"""What is refused at load, each with one clear line, and what a fingerprint depends on."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import tiny_model_dir
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    GptOssConfig,
    MambaConfig,
    T5Config,
)

from shared.errors import ModelUnusable
from worker_service.engine import memory
from worker_service.engine.engine import Engine
from worker_service.engine.engine_config import EngineConfig
from worker_service.engine.model_folder import first_line, load_model


def load(folder: Path, dtype: str = "float32", device: str = "cpu") -> Engine:
    return Engine.load(EngineConfig(model_dir=folder, dtype=dtype, device=device, num_blocks=4))


def refusal(folder: Path, dtype: str = "float32", device: str = "cpu") -> str:
    with pytest.raises(ModelUnusable) as caught:
        load(folder, dtype, device)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_no_folder(tmp_path: Path) -> None:
    assert "no model folder" in refusal(tmp_path / "nowhere")


def test_no_config(tmp_path: Path) -> None:
    assert "config.json" in refusal(tmp_path)


def test_no_safetensors(tmp_path: Path) -> None:
    folder = tiny_model_dir(tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")

    assert "safetensors" in refusal(folder)


def test_a_broken_weight_file(tmp_path: Path) -> None:
    folder = tiny_model_dir(tmp_path)
    (folder / "model.safetensors").write_bytes(b"nothing")

    refusal(folder)


def test_weights_that_are_closed_are_told_from_absent_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model_dir(tmp_path)
    monkeypatch.setattr("os.access", lambda *_: False)

    assert re.search(r"model\.safetensors: user \d+ cannot read it", refusal(folder))


def test_weights_beyond_the_memory_limit_are_not_even_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model_dir(tmp_path)
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    monkeypatch.setattr("worker_service.engine.model_folder._read_network", None)
    (tmp_path / "memory.max").write_text(str(200 << 20))

    message = refusal(folder)

    assert "limit is 0.20 GiB" in message
    assert "for the weights in float32" in message


def test_a_cache_beyond_the_memory_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model_dir(tmp_path)
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text(str(1 << 30))

    with pytest.raises(ModelUnusable, match=r"GiB for the cache \(kv_memory\)"):
        Engine.load(EngineConfig(model_dir=folder, num_blocks=1 << 24))


def test_absent_weights_are_not_filled_with_chance(tmp_path: Path) -> None:
    folder = tiny_model_dir(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["num_hidden_layers"] += 1
    config.pop("layer_types", None)
    (folder / "config.json").write_text(json.dumps(config))

    assert "absent" in refusal(folder)


def test_an_unknown_architecture(tmp_path: Path) -> None:
    folder = tiny_model_dir(tmp_path)
    (folder / "config.json").write_text('{"model_type": "no-such-model"}')

    assert "no-such-model" in refusal(folder)


def test_an_unknown_dtype_and_a_device_that_is_not_there(tmp_path: Path) -> None:
    folder = tiny_model_dir(tmp_path)

    assert "float64" in refusal(folder, dtype="float64")
    assert "'foo'" in refusal(folder, device="foo")
    assert "CUDA device" in refusal(folder, device="cuda:99")
    if not torch.cuda.is_available():
        assert "cuda" in refusal(folder, device="cuda")


def test_an_absent_shard_of_the_weights(tmp_path: Path) -> None:
    folder = tiny_model_dir(tmp_path)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    assert "model-00002-of-00002.safetensors" in refusal(folder)


def test_a_broken_generation_config(tmp_path: Path) -> None:
    folder = tiny_model_dir(tmp_path)
    (folder / "generation_config.json").write_text("{")

    assert "generation_config.json" in refusal(folder)


def test_a_network_that_fails_when_it_runs(tmp_path: Path) -> None:
    folder = tiny_model_dir(tmp_path, "gpt2", max_position_embeddings=2)  # less than is tried

    assert refusal(folder).startswith("gpt2: does not run: IndexError")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 0}, "names no layers"),
        ({"max_position_embeddings": 0}, "0 positions"),
        ({"max_position_embeddings": -5}, "-5 positions"),
        ({"rms_norm_eps": -1.0}, "no finite logits"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps.* expected"),
    ],
)
def test_a_config_that_cannot_be(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    folder = tiny_model_dir(tmp_path)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    assert re.search(words, refusal(folder))


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("one\ntwo", "ValueError: one"),
        (
            "\n Validation of 'x' failed:\n   expected a float\n",
            "ValueError: Validation of 'x' failed: expected a float",
        ),
        ("ends here:", "ValueError: ends here:"),
        ("", "ValueError: no message"),
    ],
)
def test_an_error_is_told_by_its_first_line_that_says_something(message: str, line: str) -> None:
    assert first_line(ValueError(message)) == line


def test_an_encoder_decoder_model(tmp_path: Path) -> None:
    config = T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    AutoModelForSeq2SeqLM.from_config(config).save_pretrained(tmp_path)

    assert "encoder-decoder" in refusal(tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_a_model_with_a_running_state(tmp_path: Path) -> None:
    config = MambaConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, state_size=4)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)

    refusal(tmp_path)


def test_attention_sinks(tmp_path: Path) -> None:
    config = GptOssConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        num_local_experts=2,
        num_experts_per_tok=1,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)

    assert "s_aux" in refusal(tmp_path)


def test_a_fingerprint_depends_on_weights_dtype_and_tokenizer(tmp_path: Path) -> None:
    one = tiny_model_dir(tmp_path / "a", seed=1)
    again = tiny_model_dir(tmp_path / "b", seed=1)
    other = tiny_model_dir(tmp_path / "c", seed=2)
    with_tokenizer = tiny_model_dir(tmp_path / "d", seed=1)
    (with_tokenizer / "tokenizer.json").write_text("{}")

    def fingerprint(folder: Path, dtype: str = "float32") -> str:
        return load_model(folder, dtype, "cpu").fingerprint

    assert fingerprint(one) == fingerprint(again)
    others = {fingerprint(other), fingerprint(with_tokenizer), fingerprint(one, "bfloat16")}
    assert len({fingerprint(one), *others}) == 4


def test_end_tokens_of_the_generation_config_come_first(tmp_path: Path) -> None:
    folder = tiny_model_dir(tmp_path)
    assert load_model(folder, "float32", "cpu").eos_token_ids == (2,)

    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 9]}')

    assert load_model(folder, "float32", "cpu").eos_token_ids == (2, 9)
