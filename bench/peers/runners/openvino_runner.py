"""openvino-genai's continuous batching pipeline, stepped by this loop: `openvino_runner.py --model DIR`.

Its 8-bit KV cache and, on processors with bfloat16, its bfloat16 inference are switched to float32;
its prefix cache, off by default, is on.
"""

import argparse

import numpy
import openvino
import openvino_genai as genai
from lines import Lines


class Pipeline:
    def __init__(self, arguments):
        scheduler = genai.SchedulerConfig()
        scheduler.max_num_batched_tokens = arguments.step_tokens
        scheduler.cache_size = arguments.cache_gib
        scheduler.enable_prefix_caching = True
        properties = {
            "INFERENCE_PRECISION_HINT": "f32",
            "KV_CACHE_PRECISION": "f32",
            "INFERENCE_NUM_THREADS": arguments.threads,
            "NUM_STREAMS": 1,
        }
        self._pipeline = genai.ContinuousBatchingPipeline(
            arguments.model, scheduler, "CPU", properties
        )
        self._numbers = 0
        self._live = {}  # id: handle

    def add(self, request_id, prompt, max_tokens):
        config = genai.GenerationConfig()
        config.max_new_tokens = max_tokens
        config.ignore_eos = True
        config.do_sample = False
        ids = openvino.Tensor(numpy.array([prompt], dtype=numpy.int64))
        self._numbers += 1
        self._live[request_id] = self._pipeline.add_request(self._numbers, ids, config)

    def cancel(self, request_id):
        handle = self._live.pop(request_id, None)
        if handle is not None:
            handle.cancel()

    @property
    def is_busy(self):
        return self._pipeline.has_non_finished_requests()

    def step(self):
        """New token ids by request, and the requests that ended."""
        self._pipeline.step()
        tokens, ended = {}, []
        for request_id, handle in self._live.items():
            while handle.can_read():
                for output in handle.read().values():
                    tokens.setdefault(request_id, []).extend(output.generated_ids)
            if handle.get_status() != genai.GenerationStatus.RUNNING:
                ended.append(request_id)
        for request_id in ended:
            del self._live[request_id]
        return tokens, ended


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--step-tokens", type=int, default=256)
    parser.add_argument("--cache-gib", type=int, default=4)
    lines = Lines()
    pipeline = Pipeline(parser.parse_args())
    lines.send_facts(openvino=openvino.__version__, openvino_genai=genai.__version__)
    lines.start()
    while True:
        for command in lines.take(wait=not pipeline.is_busy):
            if command is None:
                return
            if "cancel" in command:
                pipeline.cancel(command["cancel"])
            else:
                pipeline.add(command["add"], command["prompt"], command["max_tokens"])
        if pipeline.is_busy:
            lines.send_tokens(*pipeline.step())


if __name__ == "__main__":
    main()
