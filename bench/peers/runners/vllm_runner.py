"""vLLM's asynchronous engine, without its HTTP door: `vllm_runner.py --model DIR`."""

import argparse
import asyncio

import vllm
from lines import Lines
from vllm import SamplingParams, TokensPrompt
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM


async def generate(engine, lines, command):
    request_id = command["add"]
    params = SamplingParams(
        temperature=0.0,
        max_tokens=command["max_tokens"],
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )
    prompt = TokensPrompt(prompt_token_ids=command["prompt"])
    try:
        async for output in engine.generate(prompt, params, request_id):
            ended = [request_id] if output.finished else []
            lines.send_tokens({request_id: list(output.outputs[0].token_ids)}, ended)
    except asyncio.CancelledError:
        raise
    except Exception as error:
        lines.send_failed({request_id: f"{type(error).__name__}: {error}"})


async def serve(engine, lines):
    """Requests as tasks; cancelling one aborts its request."""
    tasks = {}
    while True:
        for command in await asyncio.to_thread(lines.take, wait=True):
            if command is None:
                return
            if "cancel" in command:
                task = tasks.pop(command["cancel"], None)
                if task is not None:
                    task.cancel()
            else:
                tasks[command["add"]] = asyncio.create_task(generate(engine, lines, command))


async def run(arguments, lines):
    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=arguments.model,
            dtype="float32",
            max_model_len=8192,
            max_num_batched_tokens=arguments.step_tokens or None,
            disable_log_stats=True,
        )
    )
    config = engine.vllm_config
    lines.send_facts(
        vllm=vllm.__version__,
        step_tokens=config.scheduler_config.max_num_batched_tokens,
        max_sequences=config.scheduler_config.max_num_seqs,
        prefix_cache=config.cache_config.enable_prefix_caching,
        kv_cache_dtype=str(config.cache_config.cache_dtype),
        compilation=str(config.compilation_config.mode),
    )
    lines.start()
    try:
        await serve(engine, lines)
    finally:
        engine.shutdown()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--step-tokens", type=int, default=0)
    lines = Lines()
    asyncio.run(run(parser.parse_args(), lines))


if __name__ == "__main__":
    main()
