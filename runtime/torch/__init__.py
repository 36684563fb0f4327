"""PyTorch: its graphs as `linalg`, a backend of `torch.compile`, operators and their sharding (extra `torch`)."""

try:
    import torch as torch
except ImportError as missing:
    raise ImportError(f"torch cannot be imported ({missing}): pip install 'warploom[torch]'") from missing
