"""Templates, tokenization and the bounded pool."""

import asyncio
import subprocess
import sys
import threading

import pytest
from tiny_tokenizers import byte_fallback_tokenizer, byte_level_tokenizer, write_tokenizer_folder

from scheduler_service.text import TextCodec, TextPool
from shared.errors import InvalidRequest, ModelUnusable, QueueFull


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
    return TextCodec.load(write_tokenizer_folder(tmp_path_factory.mktemp("tokenizer")))


def test_a_conversation_is_rendered_up_to_where_the_model_answers(codec):
    prompt = codec.render_chat([("user", "hello")])

    assert prompt == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


def test_special_tokens_of_a_chat_are_single_ids_and_none_is_added(codec):
    tokenizer = byte_level_tokenizer()
    start, end = (tokenizer.token_to_id(t) for t in ("<|im_start|>", "<|im_end|>"))

    ids = codec.encode_chat([("user", "hello")])

    assert (ids[0], ids.count(start), ids.count(end)) == (start, 2, 1)


def test_a_model_without_a_template_refuses_chats(tmp_path):
    codec = TextCodec.load(write_tokenizer_folder(tmp_path, chat_template=None))

    assert not codec.has_chat_template
    with pytest.raises(InvalidRequest, match="no chat template"):
        codec.render_chat([("user", "hello")])


@pytest.mark.parametrize(
    "template", ["{{ raise_exception('roles must alternate') }}", "{{ 1 + 'a' }}", "{% if %}"]
)
def test_what_a_template_refuses_or_stumbles_over_is_an_invalid_request(tmp_path, template):
    codec = TextCodec.load(write_tokenizer_folder(tmp_path, chat_template=template))

    with pytest.raises(InvalidRequest, match="chat: the model's chat template refuses it"):
        codec.render_chat([("user", "hello")])


def test_a_template_file_comes_before_the_config_and_sees_special_tokens(tmp_path):
    folder = write_tokenizer_folder(tmp_path)
    (folder / "chat_template.jinja").write_text("{{ bos_token }}{{ eos_token }}")

    assert TextCodec.load(folder).render_chat([("user", "x")]) == "<|im_start|><|im_end|>"


def test_of_several_templates_the_default_is_taken(tmp_path):
    templates = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    folder = write_tokenizer_folder(tmp_path, chat_template=templates)

    assert TextCodec.load(folder).render_chat([("user", "x")]) == "d"


def test_lone_surrogates_are_an_invalid_request(codec):
    with pytest.raises(InvalidRequest):
        codec.encode("\ud800", add_special_tokens=True)


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_folder_that_cannot_be_read_is_one_clear_line(tmp_path, content):
    if content is not None:
        write_tokenizer_folder(tmp_path)
        (tmp_path / "tokenizer_config.json").write_text(content)

    with pytest.raises(ModelUnusable, match="tokenizer files cannot be read"):
        TextCodec.load(tmp_path)


def test_a_truncating_tokenizer_file_does_not_truncate_prompts(tmp_path):
    tokenizer = byte_fallback_tokenizer()
    tokenizer.enable_truncation(3)
    codec = TextCodec.load(write_tokenizer_folder(tmp_path, tokenizer))

    assert len(codec.encode("a b a b a b", add_special_tokens=True)) > 3


@pytest.mark.slow
def test_torch_is_not_imported(tmp_path):
    folder = write_tokenizer_folder(tmp_path)
    code = (
        "import sys; from pathlib import Path\n"
        "from scheduler_service.text import TextCodec\n"
        f"codec = TextCodec.load(Path({str(folder)!r}))\n"
        "codec.decode(codec.encode_chat([('user', 'hello')]))\n"
        "assert 'torch' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class SlowCodec:
    """Waits in each call until it is let go."""

    def __init__(self):
        self.let_go = threading.Event()

    def encode(self, text, *, add_special_tokens):
        assert self.let_go.wait(10)
        return (len(text), int(add_special_tokens))

    def render_chat(self, messages):
        return "|".join(content for _, content in messages)


@pytest.fixture
def slow_codec():
    codec = SlowCodec()
    yield codec
    codec.let_go.set()


async def test_the_pool_encodes_texts_with_and_chats_without_added_special_tokens(slow_codec):
    slow_codec.let_go.set()
    pool = TextPool(slow_codec)

    assert await pool.encode_prompt(text="hello") == (5, 1)
    assert await pool.encode_prompt(chat=[("user", "a"), ("user", "b")]) == (3, 0)
    pool.close()


async def test_an_overfull_pool_refuses_and_the_loop_goes_on(slow_codec):
    pool = TextPool(slow_codec, num_threads=1, max_pending=2)
    tasks = [asyncio.create_task(pool.encode_prompt(text="x" * n)) for n in (1, 2)]
    await asyncio.sleep(0)

    with pytest.raises(QueueFull):
        await pool.encode_prompt(text="third")
    assert not any(task.done() for task in tasks)  # and this test runs: the loop is free

    slow_codec.let_go.set()
    assert await asyncio.gather(*tasks) == [(1, 1), (2, 1)]
    assert await pool.encode_prompt(text="fourth") == (6, 1)
    pool.close()


async def test_a_prompt_whose_caller_has_gone_gives_its_place_back(slow_codec):
    pool = TextPool(slow_codec, num_threads=1, max_pending=1)
    task = asyncio.create_task(pool.encode_prompt(text="x"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    slow_codec.let_go.set()
    pool._executor.shutdown(wait=True)

    assert pool.num_pending == 0


async def test_too_much_text_is_refused_before_any_work(slow_codec):
    pool = TextPool(slow_codec, max_prompt_chars=4)
    slow_codec.render_chat = lambda messages: "rendered much longer"

    with pytest.raises(InvalidRequest, match="text: 5 characters"):
        await pool.encode_prompt(text="hello")
    with pytest.raises(InvalidRequest, match="chat: 6 characters"):
        await pool.encode_prompt(chat=[("user", "ab")])
    with pytest.raises(InvalidRequest, match="chat: 20 characters"):
        await pool.encode_prompt(chat=[("u", "ab")])
    pool.close()
