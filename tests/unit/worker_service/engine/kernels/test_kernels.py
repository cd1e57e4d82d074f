"""Each kernel against torch in float64; and the promises: order of sums, NaN, threads."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from worker_service.engine.attention.reference import AttentionOptions
from worker_service.engine.kernels.kernels import HeadNorms, Kernels, RotaryTables, StepTables
from worker_service.engine.kernels.packing import GROUP, WeightKind

NAN = float("nan")
# (tokens computed before, tokens in this step)
MIX = ((0, 5), (9, 1), (30, 1), (4, 7), (0, 70), (3, 300), (511, 1), (64, 64), (63, 1), (0, 1))


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    torch.manual_seed(0)


@dataclass(frozen=True, slots=True)
class Scene:
    """A step's queries, a cache of scattered blocks filled with keys and values, and tables."""

    query: Tensor
    keys: Tensor
    values: Tensor
    tables: StepTables
    rows: tuple[tuple[int, int], ...]

    def slots(self, row: int) -> Tensor:
        """Of all the sequence's tokens, in order."""
        block_size = self.keys.shape[1]
        blocks = self.tables.block_table_BM[row].long()
        slots = (blocks[:, None] * block_size + torch.arange(block_size)).flatten()
        return slots[: sum(self.rows[row])]

    def token_slice(self, row: int) -> slice:
        first = int(self.tables.first_B[row])
        return slice(first, first + self.rows[row][1])


def make_tables(table: Tensor, rows: tuple[tuple[int, int], ...]) -> StepTables:
    count = torch.tensor([count for _, count in rows], dtype=torch.int32)
    return StepTables(
        block_table_BM=table.to(torch.int32).contiguous(),
        first_B=(count.cumsum(0) - count).to(torch.int32),
        count_B=count,
        start_B=torch.tensor([start for start, _ in rows], dtype=torch.int32),
    )


def make_scene(
    heads: tuple[int, int, int], block_size: int, rows: tuple[tuple[int, int], ...] = MIX
) -> Scene:
    num_heads, num_kv_heads, width = heads
    needed = [-(-sum(row) // block_size) for row in rows]
    order = torch.randperm(sum(needed) + 1)
    table = torch.full((len(rows), max(needed)), 10**6)  # whoever reads beyond, crashes
    for row, (count, end) in enumerate(zip(needed, torch.tensor(needed).cumsum(0), strict=True)):
        table[row, :count] = order[end - count : end]
    shape = (len(order), block_size, num_kv_heads, width)
    num_tokens = sum(count for _, count in rows)
    qkv = torch.randn(num_tokens, num_heads + 2 * num_kv_heads, width)
    scene = Scene(
        qkv[:, :num_heads],
        torch.full(shape, NAN),
        torch.full(shape, NAN),
        make_tables(table, rows),
        rows,
    )
    for cache in (scene.keys, scene.values):  # what lies beyond a context stays NaN
        for row in range(len(rows)):
            slots = scene.slots(row)
            cache.flatten(0, 1)[slots] = torch.randn(len(slots), num_kv_heads, width)
    return scene


def attend(kernels: Kernels, scene: Scene, options: AttentionOptions) -> Tensor:
    out = torch.full(scene.query.shape, NAN)
    kernels.attention(scene.query, scene.keys, scene.values, scene.tables, options, out)
    return out


def plain_attention(scene: Scene, options: AttentionOptions) -> Tensor:
    outputs = []
    group = scene.query.shape[1] // scene.keys.shape[2]
    for row, (start, count) in enumerate(scene.rows):
        query = scene.query[scene.token_slice(row)].double()
        keys, values = (
            cache.flatten(0, 1)[scene.slots(row)].double().repeat_interleave(group, 1)
            for cache in (scene.keys, scene.values)
        )
        scores = torch.einsum("qhd,khd->hqk", query, keys) * options.scaling
        if options.softcap:
            scores = torch.tanh(scores / options.softcap) * options.softcap
        position, key = start + torch.arange(count)[:, None], torch.arange(start + count)
        unseen = key > position
        if options.window:
            unseen |= key <= position - options.window
        weights = scores.masked_fill(unseen, -math.inf).softmax(-1)
        outputs.append(torch.einsum("hqk,khd->qhd", weights, values))
    return torch.cat(outputs).float()


@pytest.mark.parametrize("window", [None, 1, 100])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize(("heads", "block_size"), [
    ((9, 3, 64), 16), ((4, 4, 96), 1), ((16, 2, 128), 37), ((40, 1, 8), 4), ((6, 2, 256), 16), ((3, 1, 40), 16),
])  # fmt: skip
def test_each_token_attends_to_its_own_sequence_up_to_itself(
    kernels: Kernels,
    heads: tuple[int, int, int],
    block_size: int,
    window: int | None,
    softcap: float | None,
) -> None:
    scene = make_scene(heads, block_size)
    options = AttentionOptions(scaling=heads[2] ** -0.5, window=window, softcap=softcap)

    out = attend(kernels, scene, options)

    torch.testing.assert_close(out, plain_attention(scene, options), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("window", [None, 50])
def test_attention_has_the_same_bits_alone_in_chunks_and_with_any_threads(
    kernels: Kernels, one_thread: Kernels, window: int | None
) -> None:
    scene = make_scene((9, 3, 64), 16)
    options = AttentionOptions(scaling=0.125, window=window)
    together = attend(kernels, scene, options)

    assert torch.equal(together, attend(kernels, scene, options))
    assert torch.equal(together, attend(one_thread, scene, options))
    for row, (start, count) in enumerate(scene.rows):
        tokens, chunk = scene.token_slice(row), 1 if count < 50 else 37
        for first in range(0, count, chunk):
            size = min(chunk, count - first)
            tables = make_tables(
                scene.tables.block_table_BM[row : row + 1], ((start + first, size),)
            )
            out = torch.empty(size, 9, 64)
            query = scene.query[tokens][first : first + size]
            kernels.attention(query, scene.keys, scene.values, tables, options, out)
            assert torch.equal(out, together[tokens][first : first + size])


def test_attention_passes_nan_on_to_its_own_sequence_only(kernels: Kernels) -> None:
    scene = make_scene((4, 2, 16), 4, rows=((0, 40), (20, 1), (0, 3)))
    scene.keys.flatten(0, 1)[scene.slots(0)[39]] = NAN
    scene.values.flatten(0, 1)[scene.slots(1)[3]] = math.inf

    out = attend(kernels, scene, AttentionOptions(scaling=1.0))

    assert not out[39].isfinite().any()
    assert not out[40].isfinite().any()
    assert out[41:].isfinite().all()


def test_scores_far_apart_do_not_overflow(kernels: Kernels) -> None:
    scene = make_scene((4, 2, 16), 4)
    scene.query.mul_(1e4)
    options = AttentionOptions(scaling=1.0)

    out = attend(kernels, scene, options)

    torch.testing.assert_close(out, plain_attention(scene, options), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 11, 12, 13, 25, 97, 200])
@pytest.mark.parametrize(("columns", "inner"), [(1, 1), (32, 64), (100, 75), (33, 2500)])
def test_product_is_that_of_the_weight_as_it_was(
    kernels: Kernels, rows: int, columns: int, inner: int
) -> None:
    weight, bias, x = torch.randn(columns, inner), torch.randn(columns), torch.randn(rows, inner)
    wide = torch.full((rows, columns + 3), 7.0)  # a row stride of its own
    expected = (x.double() @ weight.double().T).float()

    kernels.product(x, kernels.pack(weight, bias), wide[:, :columns])
    assert (wide[:, columns:] == 7).all()
    torch.testing.assert_close(wide[:, :columns], expected + bias, rtol=1e-5, atol=1e-4)

    kernels.add_product(x, kernels.pack(weight), wide[:, :columns])
    torch.testing.assert_close(wide[:, :columns], 2 * expected + bias, rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize("rows", [1, 13, 100])
@pytest.mark.parametrize("width", [16, 50])
@pytest.mark.parametrize("has_bias", [False, True])
def test_gated_product_is_silu_of_the_gate_times_up(
    kernels: Kernels, rows: int, width: int, has_bias: bool
) -> None:
    gate, up, x = torch.randn(width, 75), torch.randn(width, 75), torch.randn(rows, 75)
    biases = (torch.randn(width), torch.randn(width)) if has_bias else (None, None)
    out = torch.empty(rows, width)

    kernels.product(x, kernels.pack_gated(gate, up, *biases), out)

    expected = functional.silu(functional.linear(x, gate, biases[0]))
    expected *= functional.linear(x, up, biases[1])
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


def test_silu_holds_over_the_whole_range(kernels: Kernels) -> None:
    gate = torch.cat((torch.linspace(-120, 120, 61), torch.tensor([NAN, math.inf, -200.0])))
    x, ones = gate[:, None].contiguous(), torch.ones(16, 1)
    out = torch.empty(len(x), 16)

    kernels.product(x, kernels.pack_gated(ones, torch.zeros(16, 1), None, None), out)
    assert out.isfinite().logical_or(~x.isfinite()).all()  # up is 0

    kernels.product(x, kernels.pack_gated(ones, ones), out)
    expected = (functional.silu(x) * x).expand_as(out)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("rows", [1, 5, 13, 100])
@pytest.mark.parametrize(("columns", "inner"), [(100, 75), (33, 2500), (32, 64)])
def test_weights_kept_narrow_are_multiplied_as_they_were_rounded(
    kernels: Kernels, rows: int, columns: int, inner: int
) -> None:
    weight, x = torch.randn(columns, inner), torch.randn(rows, inner)
    groups = functional.pad(weight, (0, -inner % GROUP)).unflatten(1, (-1, GROUP))
    scale = groups.abs().amax(-1, keepdim=True) / 127
    rounded = {
        WeightKind.BFLOAT16: weight.to(torch.bfloat16).double(),
        WeightKind.INT8: ((groups / scale).round() * scale).flatten(1)[:, :inner].double(),
    }
    for kind, as_rounded in rounded.items():
        out = torch.empty(rows, columns)
        kernels.product(x, kernels.pack(weight, kind=kind), out)

        expected = (x.double() @ as_rounded.T).float()
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", WeightKind)
def test_product_has_the_same_bits_alone_and_with_any_threads(
    kernels: Kernels, one_thread: Kernels, kind: WeightKind
) -> None:
    weight, x = kernels.pack(torch.randn(70, 2500), kind=kind), torch.randn(110, 2500)
    together, again, alone = torch.empty(110, 70), torch.empty(110, 70), torch.empty(1, 70)
    kernels.product(x, weight, together)
    one_thread.product(x, weight, again)

    assert torch.equal(together, again)
    for row in range(0, 110, 7):
        kernels.product(x[row : row + 1], weight, alone)
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("kind", WeightKind)
def test_a_weight_that_is_no_number_shows(kernels: Kernels, kind: WeightKind) -> None:
    weight = torch.randn(40, 64)
    weight[3, 5] = NAN
    out = torch.empty(7, 40)

    kernels.product(torch.randn(7, 64), kernels.pack(weight, kind=kind), out)

    assert out[:, 3].isnan().all()
    assert out[:, :3].isfinite().all() and out[:, 4:].isfinite().all()


@pytest.mark.parametrize("bad", [NAN, math.inf])
def test_product_passes_nan_on_to_its_row_only(kernels: Kernels, bad: float) -> None:
    x = torch.randn(20, 64)
    x[7, 3] = bad
    plain, gated = torch.empty(20, 40), torch.empty(20, 40)
    kernels.product(x, kernels.pack(torch.randn(40, 64)), plain)
    kernels.product(x, kernels.pack_gated(torch.randn(40, 64), torch.randn(40, 64)), gated)

    for out in (plain, gated):
        assert not out[7].isfinite().any() or bad == math.inf  # silu of -inf: 0 * -inf, or -inf
        assert not out[7].isfinite().all()
        assert out[:7].isfinite().all() and out[8:].isfinite().all()


@pytest.mark.parametrize("width", [8, 37, 576])
def test_norm_adds_first_where_asked(kernels: Kernels, width: int) -> None:
    x, added, weight = torch.randn(9, width), torch.randn(9, width), torch.randn(width)
    x[4, 2] = NAN
    out, total = torch.empty(9, width), x + added

    kernels.norm(x, weight, out, epsilon=1e-5, added_TE=added)

    torch.testing.assert_close(x, total, rtol=0, atol=0, equal_nan=True)
    scale = torch.rsqrt(total.double().square().mean(-1, keepdim=True) + 1e-5)
    expected = (weight * total * scale).float()
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    assert out[4].isnan().all()


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """The half rotation, [T, heads, D]."""
    left, right = x.chunk(2, -1)
    cosine, sine = (table.repeat(1, 2)[:, None] for table in (cosine, sine))
    return x * cosine + torch.cat((-right, left), -1) * sine


@pytest.mark.parametrize("width", [8, 64, 80])
@pytest.mark.parametrize("has_norms", [False, True])
def test_queries_turn_in_place_and_keys_and_values_reach_their_slots(
    kernels: Kernels, width: int, has_norms: bool
) -> None:
    num_tokens, num_heads, num_kv_heads = 11, 6, 2
    qkv = torch.randn(num_tokens, (num_heads + 2 * num_kv_heads) * width)
    before = qkv.clone().view(num_tokens, -1, width)
    angle = torch.rand(50, width // 2) * 6
    position, slot = torch.randint(0, 50, (num_tokens,)), torch.randperm(32)[:num_tokens]
    keys, values = torch.zeros(8, 4, num_kv_heads, width), torch.zeros(8, 4, num_kv_heads, width)
    tables = RotaryTables(cosine=angle.cos(), sine=angle.sin(), position_T=position)
    norms = HeadNorms(query_D=torch.randn(width), key_D=torch.randn(width), epsilon=1e-6)

    kernels.rotate_and_write(qkv, keys, values, slot, tables, norms if has_norms else None)

    query, key, value = before.split((num_heads, num_kv_heads, num_kv_heads), 1)
    if has_norms:
        query = functional.rms_norm(query, (width,), norms.query_D, 1e-6)
        key = functional.rms_norm(key, (width,), norms.key_D, 1e-6)
    turn = (angle.cos()[position], angle.sin()[position])
    out = qkv.view(num_tokens, -1, width)[:, :num_heads]
    torch.testing.assert_close(out, rotated(query, *turn), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(keys.flatten(0, 1)[slot], rotated(key, *turn), rtol=1e-5, atol=1e-5)
    assert torch.equal(values.flatten(0, 1)[slot], value)
    others = torch.ones(32, dtype=torch.bool).index_fill_(0, slot, False)
    assert not keys.flatten(0, 1)[others].any() and not values.flatten(0, 1)[others].any()


@pytest.mark.parametrize("width", [1, 31, 32, 1000])
def test_the_highest_is_the_first_of_equals_and_nan_is_never_it(
    kernels: Kernels, width: int
) -> None:
    rows = torch.randint(-9, 9, (40, width)).float()
    rows[3] = -math.inf
    rows[4] = NAN
    rows[5, 0] = math.inf
    rows[6, -1] = NAN

    index, is_finite = kernels.highest(rows)

    clean = rows.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    expected = [row.index(max(row)) for row in clean.tolist()]
    assert index.tolist() == expected
    assert is_finite.tolist() == rows.isfinite().all(-1).tolist()
