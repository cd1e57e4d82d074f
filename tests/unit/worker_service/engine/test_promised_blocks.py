"""What is lent within a step, and whom a bad lender takes along."""

from worker_service.engine.promised_blocks import Promise, PromisedBlocks


def test_the_first_promise_of_a_block_stays() -> None:
    promised = PromisedBlocks()

    promised.promise(b"key", Promise(block_id=3, lender=1, end=16))
    promised.promise(b"key", Promise(block_id=9, lender=2, end=16))

    assert promised.find(b"key") == Promise(3, 1, 16)
    assert promised.find(b"other") is None


def test_only_bad_tokens_inside_what_was_borrowed_spoil_the_borrower() -> None:
    promised = PromisedBlocks()
    promised.borrow(2, Promise(block_id=0, lender=1, end=16), index=0)
    promised.borrow(2, Promise(block_id=1, lender=1, end=32), index=1)

    assert promised.spoiled({1: 31}) == {2}
    assert promised.spoiled({1: 32}) == set()
    assert promised.spoiled({7: 0}) == set()


def test_a_spoiled_borrower_spoils_those_who_borrowed_from_it() -> None:
    promised = PromisedBlocks()
    promised.borrow(2, Promise(block_id=0, lender=1, end=16), index=0)
    promised.borrow(3, Promise(block_id=5, lender=2, end=48), index=2)
    promised.borrow(4, Promise(block_id=6, lender=9, end=16), index=0)

    assert promised.spoiled({1: 4}) == {2, 3}
    assert promised.first_index(3) == 2
