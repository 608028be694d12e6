"""NVIDIA DALI with every operator on the CPU; `dali_common` says what it does."""

from dali_common import dali_peer
from protocol import run

if __name__ == "__main__":
    run("dali", lambda settings: dali_peer(settings, None))
