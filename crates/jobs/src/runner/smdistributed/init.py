"""A stand-in for SageMaker's data parallel library, on torch.distributed.

A job with `distribution = "smdistributed"` finds it on PYTHONPATH. It has what scripts use of the library; gradients
are averaged by gloo on CPUs and by NCCL on GPUs.
"""
