"""A lent buffer has one user until its last view is released, and the pool's bytes are limited."""

from bookie.wire.frames import (
    FRAME_BYTES_MAX,
    POOLED_BYTES_MIN,
    BodyPool,
    FrameAssembler,
    FrameKind,
    frame_header,
)

SIZE = 3 * POOLED_BYTES_MIN


def test_buffer_is_reused_only_without_views() -> None:
    pool = BodyPool(10 * SIZE)
    first = pool.take(SIZE)
    buffer, part = first.obj, first[5:10]
    first.release()
    assert pool.take(SIZE).obj is not buffer
    part.release()
    assert pool.take(SIZE - 1).obj is buffer


def test_buffer_of_another_size_is_not_reused() -> None:
    pool = BodyPool(100 * SIZE)
    sizes = (SIZE, 4 * SIZE)
    small, large = [pool.take(size).obj for size in sizes]
    assert pool.take(4 * SIZE).obj is large
    view = pool.take(SIZE + 1)
    assert len(view) == SIZE + 1
    assert view.obj is not small
    assert view.obj is not large


def test_pool_keeps_a_limited_number_of_bytes() -> None:
    pool = BodyPool(3 * SIZE)
    lent = [pool.take(SIZE) for _ in range(10)]
    buffers = [each.obj for each in lent]
    for number, each in enumerate(lent):
        each[0] = number
    assert [each[0] for each in lent] == list(range(10))
    for each in lent:
        each.release()
    again = [pool.take(SIZE) for _ in range(3)]
    assert all(any(one.obj is other for other in buffers[-3:]) for one in again)


def test_frame_in_use_is_not_overwritten() -> None:
    pool = BodyPool(4 * SIZE)
    assemblers = [FrameAssembler(FRAME_BYTES_MAX, pool) for _ in range(2)]
    kept: list[tuple[int, memoryview]] = []
    for number in range(12):
        body = bytes([number]) * SIZE
        stream = frame_header(FrameKind.ADD, number, len(body)) + body
        frames, assembler = [], assemblers[number % 2]
        while stream:
            buffer = assembler.get_buffer()
            count = min(len(buffer), len(stream))
            buffer[:count] = stream[:count]
            stream = stream[count:]
            frames += assembler.buffer_updated(count)
        assert len(frames) == 1
        assert frames[0].body == body
        kept = [*kept[-2:], (number, frames[0].body)]
        assert all(view == bytes([each]) * SIZE for each, view in kept)
