"""What a simulated worker is: a model on a device, its cost model, its memory, its host's overheads.

A profile is a JSON file that names its sources: either costs fitted to real steps, or a roofline, that
is figures of a datasheet and facts of a model from which the same costs follow. Those in the folder
beside this module are known by name. Knows nothing of workers or simulators.
"""

import json
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self, TypeVar

from shared.checked_values import above_zero, mapping, number, shown, shown_name, text, whole_number
from shared.cost_model import CostModel
from shared.errors import SettingError

SCHEMA = "tokentide.profile/1"
FOLDER = Path(__file__).parent / "profiles"
_SUFFIX = ".json"
_T = TypeVar("_T")
_MAX_NS = 10**15  # eleven days
_MAX_SIZE = 10**15  # parameters, bytes
_MAX_SPEED = 1e21  # a second
_MAX_BLOCKS = 1 << 24  # each is an object in a simulated worker
_MAX_BLOCK_SIZE = 1 << 16
_MAX_MODEL_TOKENS = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """Time that is in no step, in nanoseconds."""

    gap_ns: int = 0  # between two steps, though the next plan is there
    dispatch_ns: int = 0  # from a step's end until a plan made from its result can run
    deliver_ns: int = 0  # from a step's end until its tokens are committed and with the client
    submit_ns: int = 0  # from the client's call until the request is in the queue
    submit_each_ns: int = 0  # of that, what requests that come together cannot do at once

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self)):
            number(f"overheads.{name}", getattr(self, name), 0, _MAX_NS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    name: str
    model: str
    device: str
    dtype: str
    block_size: int
    num_blocks: int
    max_model_tokens: int
    kv_bytes_per_token: int
    costs: CostModel
    overheads: Overheads = Overheads()
    sources: dict[str, str] = field(default_factory=dict)  # what -> where it is from, and why

    def __post_init__(self) -> None:
        for name in ("name", "model", "device", "dtype"):
            text(name, getattr(self, name))
        whole_number("block_size", self.block_size, 1, _MAX_BLOCK_SIZE)
        whole_number("num_blocks", self.num_blocks, 1, _MAX_BLOCKS)
        whole_number("max_model_tokens", self.max_model_tokens, 1, _MAX_MODEL_TOKENS)
        whole_number("kv_bytes_per_token", self.kv_bytes_per_token, 1, _MAX_SIZE)
        for figure, source in mapping("sources", self.sources).items():
            text(f"sources.{shown_name(figure)}", source)

    def as_dict(self) -> dict[str, Any]:
        """As a file holds it; a roofline has become its costs."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values |= {"costs": self.costs.as_dict(), "overheads": asdict(self.overheads)}
        return {"schema": SCHEMA, **values}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Raises ValueError with one line."""
        values = dict(mapping("a profile", values))
        if (schema := values.pop("schema", None)) != SCHEMA:
            raise ValueError(f"its schema is {shown(schema)}, not {SCHEMA}")
        values["overheads"] = _part(Overheads, "overheads", values.pop("overheads", {}))
        if "roofline" in values:
            roofline = _part(Roofline, "roofline", values.pop("roofline"))
            architecture = _part(Architecture, "architecture", values.pop("architecture", None))
            values |= _derived(roofline, architecture, values.get("block_size"))
        elif "costs" in values:
            values["costs"] = CostModel.from_dict(values["costs"])
        return _part(cls, "a profile", values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Of a dense transformer. A tied embedding counts as head only."""

    num_body_parameters: int  # multiplied with every token
    num_head_parameters: int  # multiplied with tokens that sample
    num_other_parameters: int = 0  # in memory, not multiplied: an embedding of its own
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_width: int
    bytes_per_value: int

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self)):
            least = 0 if name == "num_other_parameters" else 1
            whole_number(f"architecture.{name}", getattr(self, name), least, _MAX_SIZE)

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_width * self.bytes_per_value

    @property
    def weight_bytes(self) -> int:
        read = self.num_body_parameters + self.num_head_parameters
        return (read + self.num_other_parameters) * self.bytes_per_value

    @property
    def attention_flops(self) -> int:
        """For a pair of a query and a key, over all layers and heads: a product, and a sum."""
        return 4 * self.num_layers * self.num_heads * self.head_width


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """A device's peaks, and which shares of them real kernels reach."""

    peak_flops: float  # a second, dense, of the model's dtype
    flops_share: float
    attention_flops_share: float
    memory_bytes_per_s: float
    memory_bandwidth_share: float
    memory_bytes: float
    memory_share: float  # the worker's part of it
    reserved_bytes: float  # of that part, for activations and work space
    launch_us: float  # of a step, hidden behind nothing
    per_sequence_us: float  # input preparation and sampling

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self)):
            value = getattr(self, name)
            if name.endswith("_share"):
                above_zero(f"roofline.{name}", value, 1)
            elif name in ("peak_flops", "memory_bytes_per_s"):
                above_zero(f"roofline.{name}", value, _MAX_SPEED)
            else:
                number(f"roofline.{name}", value, 0, _MAX_SIZE)

    def costs(self, architecture: Architecture) -> CostModel:
        flops = self.peak_flops * self.flops_share
        bandwidth = self.memory_bytes_per_s * self.memory_bandwidth_share
        body_bytes = architecture.num_body_parameters * architecture.bytes_per_value
        head_bytes = architecture.num_head_parameters * architecture.bytes_per_value
        token_s = 2 * architecture.num_body_parameters / flops
        attention_flops = self.peak_flops * self.attention_flops_share
        return CostModel(
            base_ns=self.launch_us * 1e3 + (body_bytes + head_bytes) / bandwidth * 1e9,
            free_tokens=body_bytes / bandwidth / token_s,
            per_token_ns=token_s * 1e9,
            per_sequence_ns=self.per_sequence_us * 1e3,
            per_sample_ns=2 * architecture.num_head_parameters / flops * 1e9,
            per_context_ns=architecture.kv_bytes_per_token / bandwidth * 1e9,
            per_attended_ns=architecture.attention_flops / attention_flops * 1e9,
        )

    def num_blocks(self, architecture: Architecture, block_size: int) -> int:
        left = self.memory_bytes * self.memory_share - self.reserved_bytes
        left -= architecture.weight_bytes
        return max(0, int(left // (architecture.kv_bytes_per_token * block_size)))


def load_profile(name_or_path: str) -> Profile:
    """A packaged profile by its name, or any by its file. Raises SettingError with one line."""
    path = FOLDER / f"{name_or_path}{_SUFFIX}"
    if name_or_path not in profile_names():
        path = Path(name_or_path)
    try:
        return Profile.from_dict(json.loads(path.read_text()))
    except OSError:
        known = ", ".join(profile_names())
        raise SettingError(f"no profile file {name_or_path}, nor one of: {known}") from None
    except RecursionError:
        raise SettingError(f"{path} is no profile: nested too deeply") from None
    except ValueError as error:
        raise SettingError(f"{path} is no profile: {error}") from error


def profile_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob(f"*{_SUFFIX}"))


def _part(of: type[_T], name: str, values: Any) -> _T:
    """Built of a file's values: all that it needs, and no others. Raises ValueError."""
    parts: tuple[Field[Any], ...] = fields(of)  # type: ignore[arg-type]
    given = mapping(name, values, frozenset(part.name for part in parts))
    if missing := [part.name for part in parts if _is_needed(part) and part.name not in given]:
        raise ValueError(f"{name} needs {', '.join(missing)}")
    return of(**given)


def _is_needed(part: "Field[Any]") -> bool:
    return part.default is MISSING and part.default_factory is MISSING


def _derived(roofline: Roofline, architecture: Architecture, block_size: Any) -> dict[str, Any]:
    whole_number("block_size", block_size, 1, _MAX_BLOCK_SIZE)
    return {
        "costs": roofline.costs(architecture),
        "num_blocks": roofline.num_blocks(architecture, block_size),
        "kv_bytes_per_token": architecture.kv_bytes_per_token,
    }
