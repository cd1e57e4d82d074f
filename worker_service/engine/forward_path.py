"""Which way a model computes: the slim forward where the model is of its shape, else transformers.

Every way is checked at load against the model as transformers runs it; one that computes something
else is left, with a warning. Knows nothing of sequences or requests.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from shared.errors import ModelUnusable
from worker_service.engine.kernels.kernels import Kernels
from worker_service.engine.kernels.packing import WeightKind
from worker_service.engine.model import PagedModel, StepModel
from worker_service.engine.model_folder import LoadedModel, first_line, load_model
from worker_service.engine.self_check import is_tolerable, logits_error, plain_logits
from worker_service.engine.slim.compiled_forward import CompiledSlimModel, can_compile
from worker_service.engine.slim.shape import NotSlim, SlimShape, slim_shape
from worker_service.engine.slim.torch_forward import TorchSlimModel

log = logging.getLogger(__name__)

FORWARDS = ("auto", "slim", "transformers")
WEIGHTS = {
    "dtype": WeightKind.FLOAT32,
    "bfloat16": WeightKind.BFLOAT16,
    "int8": WeightKind.INT8,
}

_COMPILED_NEEDS = "it takes float32, a head width it knows, kernels switched on and a C compiler"

# Takes the weights out of the network, which cannot run afterwards.
Build = Callable[[LoadedModel], StepModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Which weights, in which number format, and by which way they may be run."""

    model_dir: Path
    dtype: str
    device: str
    forward: str = "auto"  # auto = slim where it can be
    kernels: bool = True  # compiled ones, where there is a compiler
    weights: str = "dtype"  # or kept in fewer bits by the compiled forward: bfloat16, int8

    def load(self) -> LoadedModel:
        return load_model(self.model_dir, self.dtype, self.device)


def load_step_model(source: ModelSource) -> tuple[LoadedModel, StepModel]:
    """The folder and what runs it. The network may have been emptied: weights are kept once.

    Raises ModelUnusable with one clear line.
    """
    loaded = source.load()
    with _unusable_if_it_fails(loaded):
        expected_V = plain_logits(loaded)
    shape = slim_shape(loaded) if source.forward != "transformers" else NotSlim("as asked for")
    if isinstance(shape, NotSlim):
        if source.forward == "slim":
            raise ModelUnusable(f"the slim forward cannot run this model: {shape.reason}")
        _check_weights(source, shape.reason)
        return loaded, _through_transformers(loaded, expected_V, shape.reason)
    kind = WEIGHTS[source.weights]
    ways = _slim_ways(source, shape, loaded, kind)
    for build in ways:
        model = build(loaded)
        if _is_right(model, loaded, expected_V, kind):
            log.info("forward: %s", model.path)
            return loaded, model
        loaded = source.load()  # the first one is empty
    _check_weights(source, "too far off (see the log)" if ways else _COMPILED_NEEDS)
    if source.forward == "slim":
        raise ModelUnusable(
            "the slim forward computes something else than this model (see the log)"
        )
    return loaded, _through_transformers(loaded, expected_V, "the slim forward is wrong")


@contextmanager
def _unusable_if_it_fails(loaded: LoadedModel) -> Iterator[None]:
    """The network's own code runs here: what it stumbles over is the folder's fault, not ours."""
    try:
        yield
    except ModelUnusable:
        raise
    except Exception as error:
        raise ModelUnusable(
            f"{loaded.config.model_type}: does not run: {first_line(error)}"
        ) from error


def _through_transformers(loaded: LoadedModel, expected_V: Tensor, reason: str) -> StepModel:
    with _unusable_if_it_fails(loaded):
        model = PagedModel(loaded)
        error = logits_error(model, loaded, expected_V)
    if not is_tolerable(error, loaded.dtype):
        raise ModelUnusable(
            f"{loaded.config.model_type}: computed in chunks its logits differ by {error:.2g} of "
            "their spread; its attention needs more than keys and values"
        )
    log.info("forward: %s (%s)", model.path, reason)
    return model


def _check_weights(source: ModelSource, reason: str) -> None:
    if source.weights != "dtype":
        raise ModelUnusable(f"--weights {source.weights} needs the compiled forward: {reason}")


def _slim_ways(
    source: ModelSource, shape: SlimShape, loaded: LoadedModel, kind: WeightKind
) -> list[Build]:
    """Best first."""
    ways: list[Build] = [lambda loaded: TorchSlimModel(shape, loaded.network)]
    if kind is not WeightKind.FLOAT32:
        ways = []  # torch keeps weights whole
    if source.kernels and can_compile(shape, loaded.dtype) and (kernels := Kernels.load()):
        ways.insert(0, _compiled(shape, kernels, kind))
    return ways


def _compiled(shape: SlimShape, kernels: Kernels, kind: WeightKind) -> Build:
    return lambda loaded: CompiledSlimModel(
        shape, loaded.network, kernels, loaded.max_model_tokens, kind
    )


def _is_right(model: StepModel, loaded: LoadedModel, expected_V: Tensor, kind: WeightKind) -> bool:
    error = logits_error(model, loaded, expected_V)
    if kind is not WeightKind.FLOAT32:
        log.info("weights as %s move logits by %.2g of their spread", kind.name.lower(), error)
    if is_tolerable(error, loaded.dtype, kind):
        return True
    log.warning(
        "%s: the logits of '%s' differ by %.2g of their spread from transformers': not used",
        loaded.config.model_type,
        model.path,
        error,
    )
    return False
