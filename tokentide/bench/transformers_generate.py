"""Plain transformers `generate` in a process of its own: `python -m tokentide.bench.transformers_generate --model DIR`.

Reads one batch a line from stdin as JSON (a list of requests as in a workload file), runs it as one
static batch with left padding, and writes one line of JSON. Ends with its stdin.
"""

import argparse
import json
import os
import sys
import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

WARM_UP_TOKENS = 4
MIN_ID = 16


class StaticBatches:
    """One loaded model."""

    def __init__(self, model_dir: str, dtype: str, device: str) -> None:
        auto_model: Any = AutoModelForCausalLM  # transformers is half typed
        self._model_dir = model_dir
        self._model = auto_model.from_pretrained(model_dir, dtype=getattr(torch, dtype))
        self._model = self._model.eval().to(device)
        self._device = device
        eos = self._model.generation_config.eos_token_id
        self._eos_ids = [eos] if isinstance(eos, int) else list(eos or [])
        self._tokenizer: Any = None

    def facts(self) -> dict[str, Any]:
        return {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
            "dtype": str(self._model.dtype).removeprefix("torch."),
            "attention": self._model.config._attn_implementation,
        }

    def run(self, requests: list[dict[str, Any]]) -> dict[str, Any]:
        """The batch goes on until its last member is done, as a static batch does."""
        prompts = [self._prompt_ids(request) for request in requests]
        limits = [int(request["max_tokens"]) for request in requests]
        ignore_eos = all(request.get("ignore_eos", True) for request in requests)
        ids_BT, mask_BT = self._left_padded(prompts)
        make_config: Any = GenerationConfig
        config = make_config(
            max_new_tokens=max(limits),
            do_sample=False,
            pad_token_id=self._eos_ids[0] if self._eos_ids else 0,
            eos_token_id=None if ignore_eos else self._eos_ids or None,
        )
        self._model.generation_config.eos_token_id = config.eos_token_id
        started_s = time.perf_counter()
        with torch.inference_mode():
            output_BT = self._model.generate(
                ids_BT, attention_mask=mask_BT, generation_config=config
            )
        seconds = time.perf_counter() - started_s
        rows = output_BT[:, ids_BT.shape[1] :].tolist()
        outputs = [
            self._wanted(row, limit, ignore_eos) for row, limit in zip(rows, limits, strict=True)
        ]
        return {
            "seconds": seconds,
            "num_generated_tokens": sum(len(output) for output in outputs),
            "num_computed_tokens": sum(len(row) for row in rows),
            "num_prompt_tokens": sum(len(prompt) for prompt in prompts),
            "num_padding_tokens": ids_BT.numel() - sum(len(prompt) for prompt in prompts),
            "token_ids": outputs,
        }

    def _wanted(self, row: list[int], limit: int, ignore_eos: bool) -> list[int]:
        """What the request asked for: the rest of the row was computed for the others' sake."""
        for at, token in enumerate(row[:limit]):
            if not ignore_eos and token in self._eos_ids:
                return row[: at + 1]
        return row[:limit]

    def _prompt_ids(self, request: dict[str, Any]) -> list[int]:
        if "prompt_ids" in request:
            return [int(token) for token in request["prompt_ids"]]
        if self._tokenizer is None:
            self._tokenizer = AutoTokenizer.from_pretrained(self._model_dir)
        return [int(token) for token in self._tokenizer(request["prompt"]).input_ids]

    def _left_padded(self, prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        width = max(len(prompt) for prompt in prompts)
        ids = [[0] * (width - len(prompt)) + prompt for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return (
            torch.tensor(ids, dtype=torch.int64, device=self._device),
            torch.tensor(mask, dtype=torch.int64, device=self._device),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    batches = StaticBatches(arguments.model, arguments.dtype, arguments.device)
    warm_up = {"prompt_ids": list(range(MIN_ID, MIN_ID + 8)), "max_tokens": WARM_UP_TOKENS}
    batches.run([warm_up])
    print(json.dumps(batches.facts()), flush=True)
    for line in sys.stdin:
        print(json.dumps(batches.run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
