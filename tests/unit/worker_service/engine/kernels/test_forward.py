"""The whole pass against the same layers in plain torch, token by token and in any mix."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from worker_service.engine.kernels.forward import (
    LayerWeights,
    LlamaForward,
    ModelWeights,
    StepIndices,
)
from worker_service.engine.kernels.kernels import Kernels, StepTables
from worker_service.engine.kernels.packing import PackedWeight

E, GATED, H, K, D, V, LAYERS = 40, 56, 6, 2, 16, 83, 3
BLOCK_SIZE, NUM_BLOCKS, EPSILON = 4, 60, 1e-5
WINDOWS = (None, 5, None)
Row = tuple[list[int], int, Tensor]  # blocks, start, token ids


@dataclass(frozen=True, slots=True)
class Tiny:
    """Random weights with every part a member of the family may have."""

    plain: dict[str, Tensor]
    angle: Tensor

    @classmethod
    def random(cls) -> "Tiny":
        torch.manual_seed(0)
        plain = {"embedding": torch.randn(V, E), "norm": torch.rand(E), "head": torch.randn(V, E)}
        for layer in range(LAYERS):
            plain |= {
                f"{layer}.attention_norm": torch.rand(E),
                f"{layer}.mlp_norm": torch.rand(E),
                f"{layer}.query_norm": torch.rand(D),
                f"{layer}.key_norm": torch.rand(D),
                f"{layer}.qkv": torch.randn((H + 2 * K) * D, E) * 0.2,
                f"{layer}.qkv_bias": torch.randn((H + 2 * K) * D) * 0.2,
                f"{layer}.out": torch.randn(E, H * D) * 0.2,
                f"{layer}.gate": torch.randn(GATED, E) * 0.2,
                f"{layer}.up": torch.randn(GATED, E) * 0.2,
                f"{layer}.down": torch.randn(E, GATED) * 0.2,
            }
        return cls(plain, torch.rand(100, D // 2) * 6)

    def layer(self, kernels: Kernels, index: int) -> LayerWeights:
        def part(name: str) -> Tensor:
            return self.plain[f"{index}.{name}"]

        def packed(name: str, bias: Tensor | None = None) -> PackedWeight:
            return kernels.pack(part(name), bias)

        return LayerWeights(
            attention_norm_E=part("attention_norm"),
            mlp_norm_E=part("mlp_norm"),
            query_norm_D=part("query_norm"),
            key_norm_D=part("key_norm"),
            qkv=packed("qkv", part("qkv_bias")),
            out=packed("out"),
            gate_up=kernels.pack_gated(part("gate"), part("up")),
            down=packed("down"),
            window=WINDOWS[index],
        )

    def bound(self, kernels: Kernels) -> LlamaForward:
        weights = ModelWeights(
            embedding_VE=self.plain["embedding"],
            norm_E=self.plain["norm"],
            head=kernels.pack(self.plain["head"]),
            layers=[self.layer(kernels, index) for index in range(LAYERS)],
            num_heads=H,
            num_kv_heads=K,
            width=D,
            epsilon=EPSILON,
            scaling=D**-0.5,
        )
        shape = (NUM_BLOCKS, BLOCK_SIZE, K, D)
        caches = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(LAYERS)]
        return LlamaForward(kernels, weights, caches)

    def logits(self, token_ids: Tensor) -> Tensor:
        """[T, V] by the book."""
        plain = {name: tensor.double() for name, tensor in self.plain.items()}
        x = plain["embedding"][token_ids]
        for layer in range(LAYERS):
            part = {k.partition(".")[2]: v for k, v in plain.items() if k.startswith(f"{layer}.")}
            x = x + self._attended(x, part, WINDOWS[layer])
            normed = functional.rms_norm(x, (E,), part["mlp_norm"], EPSILON)
            gated = functional.silu(normed @ part["gate"].T) * (normed @ part["up"].T)
            x = x + gated @ part["down"].T
        normed = functional.rms_norm(x, (E,), plain["norm"], EPSILON)
        return (normed @ plain["head"].T).float()

    def _attended(self, x: Tensor, part: dict[str, Tensor], window: int | None) -> Tensor:
        normed = functional.rms_norm(x, (E,), part["attention_norm"], EPSILON)
        qkv = (normed @ part["qkv"].T + part["qkv_bias"]).view(len(x), -1, D)
        query, key, value = qkv.split((H, K, K), 1)
        query = self._turned(functional.rms_norm(query, (D,), part["query_norm"], EPSILON))
        key = self._turned(functional.rms_norm(key, (D,), part["key_norm"], EPSILON))
        key, value = (kv.repeat_interleave(H // K, 1) for kv in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query, key) * D**-0.5
        place = torch.arange(len(x))
        unseen = place > place[:, None]
        if window:
            unseen |= place <= place[:, None] - window
        weights = scores.masked_fill(unseen, -torch.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, value).flatten(1) @ part["out"].T

    def _turned(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, -1)
        angle = self.angle[: len(x)].double().repeat(1, 2)[:, None]
        return x * angle.cos() + torch.cat((-right, left), -1) * angle.sin()


def make_step(model: Tiny, rows: list[Row]) -> StepIndices:
    """Every row samples after its last token."""
    width = max(len(blocks) for blocks, _, _ in rows)
    table = torch.tensor([blocks + [0] * (width - len(blocks)) for blocks, _, _ in rows])
    count = torch.tensor([len(ids) for _, _, ids in rows])
    position = [torch.arange(start, start + len(ids)) for _, start, ids in rows]
    slots = [
        torch.tensor(blocks)[place // BLOCK_SIZE] * BLOCK_SIZE + place % BLOCK_SIZE
        for (blocks, _, _), place in zip(rows, position, strict=True)
    ]
    return StepIndices(
        token_ids_T=torch.cat([ids for _, _, ids in rows]),
        position_T=torch.cat(position),
        slot_T=torch.cat(slots),
        sample_token_R=count.cumsum(0) - 1,
        cosine=model.angle.cos(),
        sine=model.angle.sin(),
        tables=StepTables(
            block_table_BM=table.to(torch.int32),
            first_B=(count.cumsum(0) - count).to(torch.int32),
            count_B=count.to(torch.int32),
            start_B=torch.tensor([start for _, start, _ in rows], dtype=torch.int32),
        ),
    )


BLOCKS_A, BLOCKS_B = [7, 2, 40, 11, 9, 58, 21, 33, 4, 5], [30, 1, 3, 8, 12, 50, 51]


@pytest.fixture
def token_ids() -> Tensor:
    return torch.randint(0, V, (40,), generator=torch.Generator().manual_seed(1))


def test_whole_and_mixed_steps_give_the_logits_of_the_plain_layers(
    kernels: Kernels, token_ids: Tensor
) -> None:
    model = Tiny.random()
    forward = model.bound(kernels)
    expected = model.logits(token_ids)

    whole, is_finite = forward.forward(make_step(model, [(BLOCKS_A, 0, token_ids)]))

    torch.testing.assert_close(whole[0], expected[-1], rtol=1e-4, atol=1e-4)
    assert is_finite.shape == (40,) and is_finite.all()
    forward.forward(make_step(model, [(BLOCKS_A, 0, token_ids[:17])]))
    forward.forward(
        make_step(model, [(BLOCKS_B, 0, token_ids[:23]), (BLOCKS_A, 17, token_ids[17:39])])
    )
    mixed, _ = forward.forward(
        make_step(model, [(BLOCKS_B, 23, token_ids[23:24]), (BLOCKS_A, 39, token_ids[39:])])
    )
    torch.testing.assert_close(mixed[0], expected[23], rtol=1e-4, atol=1e-4)
    assert torch.equal(mixed[1], whole[0])  # the same bits, chunked and in company


def test_threads_do_not_change_a_bit(
    kernels: Kernels, one_thread: Kernels, token_ids: Tensor
) -> None:
    model = Tiny.random()
    step = make_step(model, [(BLOCKS_A, 0, token_ids)])

    assert torch.equal(
        model.bound(kernels).forward(step)[0], model.bound(one_thread).forward(step)[0]
    )


def test_a_token_that_comes_out_as_no_number_is_named(kernels: Kernels, token_ids: Tensor) -> None:
    model = Tiny.random()
    bad_id = int(token_ids[5])
    model.plain["embedding"][bad_id, 0] = float("nan")
    step = make_step(model, [(BLOCKS_A, 0, token_ids), (BLOCKS_B, 0, token_ids[:5])])

    logits, is_finite = model.bound(kernels).forward(step)

    first_bad = token_ids.tolist().index(bad_id)
    assert not is_finite[first_bad] and is_finite[40:].all()
    assert not logits[0].isfinite().any() and logits[1].isfinite().all()
