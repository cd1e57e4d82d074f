"""transformers' continuous batching, streaming: `transformers_runner.py --model DIR`."""

import argparse
import threading

import torch
import transformers
from lines import Lines
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

POLL_S = 1.0


class Streams:
    """The manager's outputs hold all tokens of a request so far; what is sent on is what is new."""

    def __init__(self, manager, lines):
        self._manager = manager
        self._lines = lines
        self._num_sent = {}

    def add(self, request_id, prompt, max_tokens):
        self._num_sent[request_id] = 0
        self._manager.add_request(
            prompt, request_id, max_new_tokens=max_tokens, streaming=True, eos_token_id=-1
        )

    def cancel(self, request_id):
        self._manager.cancel_request(request_id)

    def pass_on(self):
        while True:
            output = self._manager.get_result(timeout=POLL_S)
            if output is None:
                if not self._manager.is_running():
                    self._lines.send_failed(dict.fromkeys(self._num_sent, "the manager stopped"))
                    return
                continue
            request_id = output.request_id
            if output.error:
                self._lines.send_failed({request_id: output.error})
                continue
            new = output.generated_tokens[self._num_sent.get(request_id, 0) :]
            self._num_sent[request_id] = len(output.generated_tokens)
            self._lines.send_tokens(
                {request_id: new} if new else {}, [request_id] if output.is_finished() else []
            )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--step-tokens", type=int, default=512)
    parser.add_argument("--num-blocks", type=int, default=256)
    arguments = parser.parse_args()
    lines = Lines()
    torch.set_num_threads(arguments.threads)
    model = AutoModelForCausalLM.from_pretrained(
        arguments.model, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    manager = model.init_continuous_batching(
        generation_config=GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0),
        continuous_batching_config=ContinuousBatchingConfig(
            num_blocks=arguments.num_blocks, max_batch_tokens=arguments.step_tokens
        ),
    )
    manager.start()
    streams = Streams(manager, lines)
    lines.send_facts(
        transformers=transformers.__version__,
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        attention=model.config._attn_implementation,
    )
    lines.start()
    threading.Thread(target=streams.pass_on, daemon=True).start()
    while True:
        for command in lines.take(wait=True):
            if command is None:
                manager.stop(block=False)
                return
            if "cancel" in command:
                streams.cancel(command["cancel"])
            else:
                streams.add(command["add"], command["prompt"], command["max_tokens"])


if __name__ == "__main__":
    main()
