"""NVIDIA DALI with its decoder of device "mixed" (the host parses, nvJPEG decodes) and every other operator on the GPU;
`dali_common` says what it does. The batches stay on the device."""

from dali_common import dali_peer
from nvidia.dali.backend import GetCudaVersion
from protocol import Peer, Settings, Unsupported, run


def build(settings: Settings) -> Peer:
    if GetCudaVersion() <= 0:
        raise Unsupported("DALI finds no CUDA driver")
    return dali_peer(settings, 0)


if __name__ == "__main__":
    run("dali_gpu", build)
