"""How a process that trains or plays computes."""

import torch


def set_arithmetic(threads: int) -> None:
    """`threads` of this process per operation, and numbers too small for a normal float are zero.

    Every process of a run sets it alike, because both change the last bits. The moments of a weight
    behind a unit that has died halve away into the subnormal numbers, below 1e-38, with which the
    processor is a hundred times slower: after 2 000 updates of a small ReLU network they were a
    fifth, and Adam's step took 76 µs in place of 11.
    """
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
