import numpy as np
import pytest

from rnnsearch.pipeline.batches import batches, pad, position_of_update, share
from rnnsearch.pipeline.schemas import EOS_ID


def lengths(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.integers(1, 51, rows), draw.integers(1, 51, rows)


def cut(rows: int, batch: int = 4, window_batches: int = 3) -> list[list[int]]:
    return [part.tolist() for part in batches(*lengths(rows), batch=batch, window_batches=window_batches)]


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 11, 12, 13, 24, 100, 1601])
def test_every_example_is_in_exactly_one_batch(rows: int) -> None:
    assert sorted(row for part in cut(rows) for row in part) == list(range(rows))
    sizes = [len(part) for part in cut(rows)]
    assert all(size == 4 for size in sizes[:-1])
    assert len(sizes) == -(-rows // 4)


def test_the_papers_sizes_are_the_defaults() -> None:
    parts = list(batches(*lengths(3300)))
    assert [len(part) for part in parts] == [80] * 41 + [20]
    assert sorted(np.concatenate(parts[:20]).tolist()) == list(range(1600))


def test_a_window_is_sorted_by_its_longer_side_ties_by_position() -> None:
    source, target = np.array([3, 1, 2, 2, 9, 1]), np.array([1, 1, 2, 1, 1, 3])
    assert [part.tolist() for part in batches(source, target, batch=2, window_batches=3)] == [
        [1, 2],
        [3, 0],
        [5, 4],
    ]


def test_ties_keep_their_place_in_a_large_window() -> None:
    source, target = (side // 10 for side in lengths(1600))
    longer = np.maximum(source, target).tolist()
    ranked = [row for part in batches(source, target) for row in part.tolist()]
    assert ranked == sorted(range(1600), key=longer.__getitem__)


def test_windows_are_sorted_by_themselves_shortest_batch_first() -> None:
    source, target = lengths(48)
    longer = np.maximum(source, target)
    for number, part in enumerate(cut(48)):
        window = number // 3
        assert all(window * 12 <= row < window * 12 + 12 for row in part)
        assert longer[part].tolist() == sorted(longer[part])
    heads = [longer[part[0]] for part in cut(48)]
    assert all(heads[at : at + 3] == sorted(heads[at : at + 3]) for at in range(0, 12, 3))


def test_batches_cut_window_by_window_are_those_of_the_whole() -> None:
    source, target = lengths(101)
    pieces = [
        part.tolist()
        for first in range(0, 101, 12)
        for part in batches(source[first : first + 12], target[first : first + 12], first, 4, 3)
    ]
    assert pieces == cut(101)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
def test_workers_share_the_same_global_batches(world: int) -> None:
    # protocol traps 19 and 20: whatever the number of workers, also where a batch has fewer rows than there are.
    for part in batches(*lengths(167), batch=16, window_batches=3):
        shares = [share(part, rank, world) for rank in range(world)]
        assert sorted(np.concatenate(shares).tolist()) == sorted(part.tolist())
        sizes = [len(piece) for piece in shares]
        assert max(sizes) - min(sizes) <= 1


def test_shares_of_a_batch_are_of_about_equal_length() -> None:
    source, target = lengths(1600)
    longer = np.maximum(source, target)
    for part in batches(source, target):
        words = [longer[share(part, rank, 4)].sum() for rank in range(4)]
        assert max(words) - min(words) <= longer[part].max()


@pytest.mark.parametrize("rows", [1, 12, 13, 47, 48, 49])
def test_an_updates_position_is_where_its_batch_lies(rows: int) -> None:
    epoch = cut(rows)
    for update in range(3 * len(epoch)):
        at = position_of_update(update, rows, 4, 3)
        source, target = lengths(rows)
        window = slice(at.first, at.first + at.rows)
        here = list(batches(source[window], target[window], at.first, 4, 3))
        assert at.epoch == update // len(epoch)
        assert here[at.batch].tolist() == epoch[update % len(epoch)]
        assert at.window == at.first // 12


def test_training_on_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to train on"):
        position_of_update(0, 0)


def test_padding_appends_the_end_and_masks_what_follows() -> None:
    result = pad([np.array([5, 6, 7]), np.array([8]), np.array([], dtype=np.int32)])
    assert result.ids.tolist() == [[5, 8, EOS_ID], [6, EOS_ID, 0], [7, 0, 0], [EOS_ID, 0, 0]]
    assert result.mask.tolist() == [
        [True, True, True],
        [True, True, False],
        [True, False, False],
        [True, False, False],
    ]
    assert result.ids.dtype == np.int64
    assert result.ids.flags.c_contiguous
    assert result.mask.flags.c_contiguous


def test_padding_a_random_batch_loses_nothing() -> None:
    draw = np.random.default_rng(1)
    rows = [draw.integers(1, 99, draw.integers(0, 51)).astype(np.int32) for _ in range(80)]
    result = pad(rows)
    assert result.ids.shape == (1 + max(map(len, rows)), 80)
    for column, row in enumerate(rows):
        assert result.ids[result.mask[:, column], column].tolist() == [*row.tolist(), EOS_ID]
        assert not result.ids[~result.mask[:, column], column].any()


def test_a_share_without_rows_can_be_padded() -> None:
    result = pad([])
    assert result.ids.shape == result.mask.shape == (1, 0)
