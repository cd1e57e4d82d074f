"""The worker's settings."""

import re
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from shared.settings import ServiceSettings

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def parse_bytes(value: object) -> object:
    """`512MiB`, `2G`, `1.5gb` or a plain number of bytes."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"\s*([0-9.]+)\s*([kmgt]?)(?:i?b)?\s*", value.lower())
    if found is None:
        raise ValueError(f"{value!r} is no amount of memory; write 2GiB or 512MiB")
    return int(float(found[1]) * _UNITS[found[2]])


def check_device(value: str) -> str:
    """Ours to say: torch knows many more kinds, and names them only once the model is read."""
    if re.fullmatch(r"auto|cpu|cuda(:\d+)?", value) is None:
        raise ValueError(f"{value!r} is no device; write auto, cpu, cuda or cuda:N")
    return value


class WorkerSettings(ServiceSettings):
    """A worker: one model on one device."""

    section: ClassVar[str] = "worker"

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(50061, ge=0, le=65535, description="port; 0 = any free one")
    model: str = Field(
        "", description="Hugging Face folder of the model; with --simulate of its tokenizer only"
    )
    model_name: str = Field("", description="what clients call it; empty = the folder's name")
    name: str = Field("", description="a label for people; empty = host and port")
    announce: str = Field("", description="file that gets the bound port as JSON, once serving")

    simulate: str = Field(
        "", description="compute nothing, take the time that this profile predicts: a name or file"
    )
    simulate_lengths: str = Field(
        "", description="of simulated outputs, as exponential:64:256; empty = until max tokens"
    )

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    device: Annotated[str, AfterValidator(check_device)] = Field(
        "auto", description="auto, cpu, cuda or cuda:N"
    )
    block_size: int = Field(16, ge=1, le=1024, description="tokens a block of the KV cache")
    kv_memory: Annotated[int, BeforeValidator(parse_bytes)] = Field(
        0, ge=0, description="memory of the KV cache (2GiB); 0 = a share of what is free"
    )
    kv_memory_share: float = Field(0.5, gt=0, lt=1, description="share of free memory for it")
    num_blocks: int = Field(0, ge=0, description="blocks of the cache; 0 = by memory")
    prefix_cache: bool = Field(True, description="keep computed blocks for equal prefixes")
    max_sequences: int = Field(256, ge=1, description="most live sequences")
    max_step_tokens: int = Field(0, ge=0, description="most tokens in one step; 0 = any")
    threads: int = Field(0, ge=0, description="compute threads; 0 = as torch chooses")
    forward: Literal["auto", "slim", "transformers"] = Field(
        "auto", description="which way to compute; auto = slim where the model is of its shape"
    )
    weights: Literal["dtype", "bfloat16", "int8"] = Field(
        "dtype",
        description="keep weights in fewer bits (compiled forward, float32 sums): less exact",
    )
    kernels: bool = Field(True, description="compile our own kernels, where there is a compiler")
    hung_s: float = Field(
        60.0, gt=0, description="a step so old, and ten times what was predicted, is hung: exit"
    )
    drain_s: float = Field(
        10.0, ge=0, description="longest time that handing over may take when it is told to end"
    )
    driver_silence_s: float = Field(2.0, gt=0, description="a silent driver may be replaced")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"

    @model_validator(mode="after")
    def check_what_to_run(self) -> Self:
        if not self.model and not self.simulate:
            raise ValueError("model: a folder is needed, or --simulate with a profile")
        if self.simulate_lengths and not self.simulate:
            raise ValueError("simulate_lengths: no effect without --simulate")
        return self
