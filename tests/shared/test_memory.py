import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shared.memory import ALIGNED, aligned
from shared.tensors import DTYPES

SHAPES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=5)


@given(SHAPES, st.data())
def test_arrays_are_aligned_and_apart(shapes: list[tuple[int, int]], data: st.DataObject) -> None:
    """Each array begins where torch's memory would, has the shape and dtype asked for, and shares no byte."""
    dtypes = [data.draw(st.sampled_from(list(DTYPES.values()))) for _ in shapes]
    arrays = aligned(list(zip(shapes, dtypes, strict=True)))
    for number, (array, shape, dtype) in enumerate(zip(arrays, shapes, dtypes, strict=True)):
        assert (array.shape, array.dtype) == (shape, dtype)
        assert array.ctypes.data % ALIGNED == 0 or not array.size
        array.reshape(-1).view(np.uint8)[:] = number
    for number, array in enumerate(arrays):
        assert set(array.tobytes()) <= {number}
