"""One thread: results do not depend on the number of cores, and two cores serve many tests."""

import torch

torch.set_num_threads(1)
