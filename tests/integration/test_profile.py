"""`tokentide profile` finds the costs of a worker that has known ones: a simulated one."""

import json

import pytest
from command_process import command
from running_stack import running_stack

from shared.cost_fit import FitReport
from shared.cost_model import StepShape
from shared.profiles import load_profile
from tokentide.local_stack import StackSpec
from worker_service.simulated.tokenizer_folder import write_tokenizer_folder

pytestmark = [pytest.mark.stack, pytest.mark.slow]

PROFILE = "h100-sxm-llama-3.1-8b"
SHAPES = [
    StepShape.of_chunks([(200, 1, True)]),
    StepShape.of_chunks([(100, 1, True)] * 16),
    StepShape.of_chunks([(0, 512, False)]),
]


def test_the_fit_tells_the_steps_of_the_profile_that_is_simulated(tmp_path):
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    write_tokenizer_folder(folder, 131072)
    spec = StackSpec(model_dir=folder, worker_args=("--simulate", PROFILE))
    out = tmp_path / "fitted.json"

    with running_stack(spec) as stack:
        (operations,), (endpoint,) = stack.operations_endpoints, stack.endpoints
        args = ("--endpoint", operations, "--client", endpoint, "--minutes", "0.1", "--json")
        with command("profile", "-o", str(out), *args) as process:
            assert process.wait() == 0, process.output

    fitted, true = load_profile(str(out)), load_profile(PROFILE)
    samples = [(shape, true.costs.predict_ns(shape)) for shape in SHAPES]
    assert FitReport.of(fitted.costs, samples).p95_error < 0.05
    assert fitted.num_blocks == true.num_blocks
    assert fitted.kv_bytes_per_token == true.kv_bytes_per_token
    assert fitted.model == true.model
    text = process.output
    report = json.loads(text[text.index("{") :])
    assert report["fit"]["median_error"] < 0.02


def test_a_stack_that_cannot_be_profiled_is_told_in_one_line():
    with command("profile", "-o", "/nowhere/x.json", "--endpoint", "nonsense") as process:
        status = process.wait()

    assert status == 2
    assert process.output.endswith("error: 'nonsense' is no HOST:PORT")
