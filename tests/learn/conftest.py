"""One thread: results are then independent of the machine's core count, and tests share two cores."""

import torch

torch.set_num_threads(1)
