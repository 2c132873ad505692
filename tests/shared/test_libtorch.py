"""torch's library, without its Python package, and beside it."""

import torch

from shared.libtorch import has_accelerators, threads_in_use, torch_build, use_threads


def test_the_build_is_the_one_that_torch_tells() -> None:
    """Version and revision are read where torch reads them, and so are its kinds of devices."""
    assert torch_build() == (torch.__version__, torch.version.git_version)
    assert has_accelerators() == any((torch.version.cuda, torch.version.hip, torch.version.xpu))


def test_threads_are_those_of_torch() -> None:
    """There is one library in a process, so both see what either has settled."""
    before = torch.get_num_threads()
    try:
        use_threads(1)
        assert (torch.get_num_threads(), threads_in_use()) == (1, 1)
    finally:
        use_threads(before)
    assert threads_in_use() == torch.get_num_threads() == before
